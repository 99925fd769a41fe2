"""What people who are signed in do with findings: as JSON, and with the forms on the page of a finding."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perfsvc.errors import UsageError
from perfsvc.model import Finding, FindingState
from perfsvc.report.export.objects import plain
from perfsvc.server.access import ACT
from perfsvc.server.answers import answer
from perfsvc.server.changing.changes import Attempt, audited, permitted, require_own_page
from perfsvc.server.changing.forms import form_of
from perfsvc.server.endpoints import Answer, Endpoint, NoParameters, Number, checked, json_body
from perfsvc.service.findings import actions
from perfsvc.store import Store

Action = Literal["acknowledge", "accept", "ignore", "resolve", "reopen", "assign", "comment"]
STATES = {
    "acknowledge": FindingState.ACKNOWLEDGED,
    "accept": FindingState.ACCEPTED,
    "ignore": FindingState.IGNORED,
    "resolve": FindingState.RESOLVED,
    "reopen": FindingState.OPEN,
}
LONGEST_DAYS = 3650
DIGITS = 9
Words = Annotated[str, StringConstraints(max_length=2000, strip_whitespace=True, pattern=r"^[^\x00]*$")]
"""A text of a person."""


class ActionBody(NoParameters):
    """An action on a finding."""

    action: Action
    """What to do: see `perfsvc findings --help`."""
    text: Words = ""
    """The reason, the comment, or the owner. An empty owner removes the owner."""
    days: Annotated[int, Field(ge=1, le=LONGEST_DAYS)] | None = None
    """For how many days to ignore the finding; null for ever."""


class ActedFinding(NoParameters):
    """Which finding an action is on."""

    finding: Number
    """The number of the finding."""


class ActedAnswer(Answer):
    """What became of the finding."""

    finding: int
    """Its number."""
    state: str
    """Its new state."""
    owner: str
    """Its owner; empty without one."""


def routes() -> list[Route]:
    """Return the route of the form."""
    return [
        Route("/findings/{finding}/act", post_form, methods=["POST"]),
    ]


async def post_json(request: Request) -> Response:
    """Act on a finding as the JSON in the body says, and answer with the finding."""

    async def change(attempt: Attempt) -> Response:
        who, store = await permitted(request, attempt, ACT)
        require_own_page(request, who, request.headers.get("x-form-token", ""))
        body = checked(ActionBody, await json_body(request))
        finding = await _act(request, attempt, store, body)
        return answer({"finding": finding.id, "state": plain(finding.state), "owner": finding.owner})

    return await audited(request, _attempt(request), change)


async def post_form(request: Request) -> Response:
    """Act on a finding as a form on its page says, and show the page again."""

    async def change(attempt: Attempt) -> Response:
        who, store = await permitted(request, attempt, ACT)
        form = await form_of(request)
        require_own_page(request, who, form.pop("form_token", ""))
        days = form.pop("days", "")
        given = {
            **form,
            "days": int(days) if days.isascii() and days.isdecimal() and len(days) < DIGITS else days or None,
        }
        finding = await _act(request, attempt, store, checked(ActionBody, given))
        return RedirectResponse(f"../{finding.id}.html", 303)

    return await audited(request, _attempt(request), change)


def _attempt(request: Request) -> Attempt:
    return Attempt("act", f"finding {request.path_params['finding']}"[:40])


async def _act(request: Request, attempt: Attempt, store: Store, body: ActionBody) -> Finding:
    """Do what a body says in the name of the visitor, and return the finding."""
    number = checked(ActedFinding, request.path_params).finding
    attempt.action = body.action
    if body.days and body.action != "ignore":
        raise UsageError("only ignoring takes days", cure="leave days out")
    if not body.text and body.action in {"accept", "comment"}:
        raise UsageError(f"to {body.action} needs a text", cure="write why")

    def work() -> Finding:
        if body.action == "assign":
            return actions.assign(store, number, body.text, by=attempt.who)
        if body.action == "comment":
            return actions.comment(store, number, body.text, by=attempt.who)
        until = datetime.now(UTC) + timedelta(days=body.days) if body.days else None
        return actions.set_state(store, number, STATES[body.action], reason=body.text, until=until, by=attempt.who)

    return await run_in_threadpool(work)


ENDPOINT = Endpoint(
    "findings/{finding}/actions",
    "act",
    "Act on a finding.",
    ActedFinding,
    ActedAnswer,
    None,
    method="POST",
    scope=ACT,
    body=ActionBody,
    respond=post_json,
)
"""The endpoint of actions."""
