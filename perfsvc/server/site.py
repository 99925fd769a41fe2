"""The pages of the site, from the database as it is now, and what they load."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perfsvc.report.pages import render
from perfsvc.report.pages.site import comparison_page
from perfsvc.server.access import READ, require
from perfsvc.server.changing.forms import with_actions
from perfsvc.server.endpoints import NoParameters, Text, checked
from perfsvc.server.serving import serving
from perfsvc.service.dashboard.build import PLOTLY, plotly
from perfsvc.service.revisions import BASELINE, choose, resolve

_FINDING = re.compile(r"findings/(\d{1,9})\.html")

TYPES = {".css": "text/css", ".js": "text/javascript", ".html": "text/html"}


class ComparedRuns(NoParameters):
    """The query of ``/compare``: each run is a number, a label, latest, latest~1 or a git revision."""

    base: Annotated[Text, Field(min_length=1)] = BASELINE
    new: Annotated[Text, Field(min_length=1)] = "latest"


def routes() -> list[Route]:
    """Return the routes of the pages. The route of any page takes every path, so it comes last in the application."""
    return [
        Route("/assets/{name}", asset),
        Route("/compare", compare),
        Route("/", page),
        Route("/{path:path}", page),
    ]


def page(request: Request) -> Response:
    """Answer with a page of the site."""
    who = require(request, READ)
    path = request.path_params.get("path") or render.INDEX
    text = serving(request).pages.page(path)
    if text is None:
        raise HTTPException(404)
    if serving(request).changing and (number := _FINDING.fullmatch(path)):
        return with_actions(request, who, int(number[1]), text)
    return cached(request, text.encode(), "text/html")


def compare(request: Request) -> Response:
    """Redirect to the page that compares two runs, which the query names: ``?base=main&new=latest``."""
    require(request, READ)
    shared = serving(request)
    given = checked(ComparedRuns, dict(request.query_params))
    new = resolve(given.new, shared.store, shared.suite)
    if given.base == BASELINE:
        return RedirectResponse(comparison_page(new.id), 303)
    base, _ = choose(given.base, shared.store, shared.suite, like=new)
    return RedirectResponse(f"compare/{base.id}-{new.id}.html", 303)


def asset(request: Request) -> Response:
    """Answer with a style or a script. Anyone may read them: they come with perfsvc."""
    name = request.path_params["name"]
    content = assets().get(f"assets/{name}")
    if content is None:
        raise HTTPException(404)
    return cached(request, content, TYPES[PurePosixPath(name).suffix])


@cache
def assets() -> Mapping[str, bytes]:
    """Return the styles and scripts by their paths."""
    return {PLOTLY: plotly(), **{name: text.encode() for name, text in render.assets()}}


def cached(request: Request, content: bytes, kind: str) -> Response:
    """Return the content, or only "not modified" if the browser has it: the tag is a digest of the content."""
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'  # weak: compressing changes the bytes
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if known & {tag.removeprefix("W/"), "*"}:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)
