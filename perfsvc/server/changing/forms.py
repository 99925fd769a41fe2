"""The forms of the server: reading them, the page to sign in, and the actions on the page of a finding."""

from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perfsvc.model import FindingState
from perfsvc.report.pages.render import FORM_HERE, FORM_POLICY, template
from perfsvc.server.access import ACT, OF_PEOPLE, Visitor, address, token_of, visitor
from perfsvc.server.changing.changes import Attempt, audited, is_own_origin, require_own_page
from perfsvc.server.limiting import RefusedError, network_of, small_body
from perfsvc.server.serving import COOKIE, LONGEST_S, serving
from perfsvc.text import visible

LONGEST_FORM = 64 * 1024
"""Bytes of a form."""
MOST_FIELDS = 20
MOST_SIGN_INS = 20
"""How often an address may sign in in a minute."""

HEADERS = {
    "Content-Security-Policy": f"{FORM_POLICY}; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send no Origin with a form
    "Cache-Control": "no-store",
}
"""The headers of pages with forms."""

CHOICES = (
    ("comment", "Comment"),
    ("acknowledge", "Acknowledge: I look at it"),
    ("assign", "Assign to an owner"),
    ("accept", "Accept: the new level is right"),
    ("ignore", "Ignore"),
    ("resolve", "Resolve: it is fixed"),
)
"""The actions on a finding that needs attention, with their words."""
CHOICES_LATER = (("comment", "Comment"), ("assign", "Assign to an owner"), ("reopen", "Reopen"))
"""The actions on a finding that is over."""


def routes() -> list[Route]:
    """Return the routes to sign in and out."""
    return [
        Route("/sign-in", show_sign_in),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise ``RefusedError`` if it is too long, no form, or has a field twice."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await small_body(request, LONGEST_FORM)
    if kind != "application/x-www-form-urlencoded":
        raise RefusedError(415, "the request is no form", "send programs' requests to /api/v1/")
    try:
        pairs = parse_qsl(content.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise RefusedError(400, "the form cannot be read", "load the page again, and repeat it") from None
    form = dict(pairs)
    if len(form) < len(pairs):
        raise RefusedError(400, "the form has a field twice", "load the page again, and repeat it")
    return form


# --- signing in ------------------------------------------------------------------------------------------------------


def show_sign_in(request: Request) -> Response:
    """Answer with the page to sign in; with the person's name, if the server knows the person."""
    return _page(request, visitor(request))


def _page(request: Request, who: Visitor, error: str = "", status: int = 200) -> Response:
    text = template("sign_in.html.j2").render(
        name=who.name,
        acts=ACT in who.scopes,
        session=who.session is not None,
        form_token=serving(request).sessions.form_token(who.form_name) if who.by_browser else "",
        error=error,
    )
    return Response(visible(text), status, HEADERS, "text/html")


async def sign_in(request: Request) -> Response:
    """Begin a session for the token in the form, and show the findings."""

    async def change(attempt: Attempt) -> Response:
        shared = serving(request)
        if not is_own_origin(request):
            raise RefusedError(403, "the request comes from no page of this server", "open /sign-in, and sign in there")
        shared.limits.count("attempts to sign in", network_of(address(request)), MOST_SIGN_INS)
        form = await form_of(request)
        token = await run_in_threadpool(token_of, request, form.get("token", "").strip())
        attempt.who = token.name
        if not OF_PEOPLE & frozenset(token.scopes):
            raise RefusedError(403, "the token can only send runs", "make a token with --scope read --scope act")
        response = RedirectResponse("findings.html", 303)
        is_https = shared.server.public_url.startswith("https:")
        response.set_cookie(
            COOKIE,
            shared.sessions.begin(token.id),
            max_age=LONGEST_S,
            path="/",
            secure=is_https,
            httponly=True,
            samesite="strict",
        )
        return response

    response = await audited(request, Attempt("sign in"), change)
    if response.status_code in {401, 403} and "text/html" in request.headers.get("accept", ""):
        why = "this token is wrong, expired or revoked, or may only send runs"
        return _page(request, Visitor(None, frozenset()), why, response.status_code)
    return response


async def sign_out(request: Request) -> Response:
    """End the session of the person."""

    async def change(attempt: Attempt) -> Response:
        who = await run_in_threadpool(visitor, request)
        attempt.who = who.name or ""
        if who.session is None:
            raise RefusedError(400, "you are not signed in", "see /sign-in")
        require_own_page(request, who, (await form_of(request)).get("form_token", ""))
        serving(request).sessions.end(who.session)
        response = RedirectResponse("sign-in", 303)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    return await audited(request, Attempt("sign out"), change)


# --- the page of a finding -------------------------------------------------------------------------------------------


def with_actions(request: Request, number: int, text: str) -> Response:
    """Return the page of a finding with the form of its actions at ``FORM_HERE``."""
    shared, who = serving(request), visitor(request)
    finding = shared.store.findings.get(number)
    is_over = finding.state in {FindingState.ACCEPTED, FindingState.RESOLVED}
    section = template("act.html.j2").render(
        finding=finding,
        name=who.name,
        acts=ACT in who.scopes,
        form_token=shared.sessions.form_token(who.form_name) if who.by_browser else "",
        choices=CHOICES_LATER if is_over else CHOICES,
        root="../",
    )
    page = text.replace(FORM_HERE, visible(section), 1)
    return Response(page, headers=HEADERS, media_type="text/html")
