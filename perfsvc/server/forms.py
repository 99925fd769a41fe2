"""The forms of the server: reading them, the page to sign in, and the actions on the page of a finding."""

import re
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perfsvc.model import Finding, FindingState
from perfsvc.report.pages.render import POLICY, render_forms
from perfsvc.server.access import ACT, OF_PEOPLE, Visitor, token_of, visitor
from perfsvc.server.changes import Attempt, audited, is_own_origin, require_own_page
from perfsvc.server.limiting import RefusedError
from perfsvc.server.serving import serving
from perfsvc.server.sessions import COOKIE, LONGEST_S

LONGEST_FORM = 64 * 1024
"""Bytes of a form."""
MOST_FIELDS = 20

FORM_POLICY = POLICY.replace("form-action 'none'", "form-action 'self'")
"""The content security policy of pages with forms."""
HEADERS = {
    "Content-Security-Policy": f"{FORM_POLICY}; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send no Origin with a form
    "Cache-Control": "no-store",
}
"""The headers of pages with forms."""


def routes() -> list[Route]:
    """Return the routes to sign in and out."""
    return [
        Route("/sign-in", show_sign_in),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


async def form_of(request: Request) -> dict[str, object]:
    """Return the fields of a form; raise ``RefusedError`` if it is too long, no form, or has a field twice."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > LONGEST_FORM:
            raise RefusedError(413, "the form is too long", "write less")
    return {}
