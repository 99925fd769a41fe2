"""The pages of the site, from the database as it is now, and what they load."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perfsvc.report.pages import render
from perfsvc.report.pages.site import comparison_page
from perfsvc.server import answers
from perfsvc.server.access import READ, require
from perfsvc.server.changing.forms import with_actions
from perfsvc.server.endpoints import NoParameters, Text, checked
from perfsvc.server.kept import Content
from perfsvc.server.serving import serving
from perfsvc.service.dashboard.build import PLOTLY, plotly
from perfsvc.service.revisions import BASELINE, choose, resolve

_FINDING = re.compile(r"findings/(\d{1,9})\.html")

TYPES = {".css": "text/css", ".js": "text/javascript"}


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


async def page(request: Request) -> Response:
    """Answer with a page of the site."""
    shared = serving(request)
    path = request.path_params.get("path") or render.INDEX

    def make() -> Content:
        text = shared.pages.page(path)
        if text is None:
            raise HTTPException(404)
        return Content(text.encode(), "text/html")

    made = await answers.content(request, f"page {path}", make)
    if shared.changing and (number := _FINDING.fullmatch(path)):
        return await run_in_threadpool(with_actions, request, int(number[1]), made.body.decode())
    return made.answer(request)


def compare(request: Request) -> Response:
    """Redirect to the page that compares two runs, which the query names: ``?base=main&new=latest``."""
    require(request, READ)
    shared = serving(request)
    given = checked(ComparedRuns, dict(request.query_params))
    with answers.named_runs():
        new = resolve(given.new, shared.store, shared.suite)
        if given.base == BASELINE:
            return RedirectResponse(comparison_page(new.id), 303)
        base, _ = choose(given.base, shared.store, shared.suite, like=new)
    return RedirectResponse(f"compare/{base.id}-{new.id}.html", 303)


async def asset(request: Request) -> Response:
    """Answer with a style or a script. Anyone may read them: they come with perfsvc."""
    content = assets().get(f"assets/{request.path_params['name']}")
    if content is None:
        raise HTTPException(404)
    return content.answer(request)


@cache
def assets() -> Mapping[str, Content]:
    """Return the styles and scripts by their paths."""
    bodies = {PLOTLY: plotly(), **{name: text.encode() for name, text in render.assets()}}
    return {name: Content(body, TYPES[PurePosixPath(name).suffix]) for name, body in bodies.items()}
