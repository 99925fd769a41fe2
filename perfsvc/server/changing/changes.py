"""What all requests that change something share: the audit log, the rate limit, and the defence of browsers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perfsvc.errors import PerfsvcError
from perfsvc.server.access import ForbiddenError, Visitor, address, visitor
from perfsvc.server.answers import of_error
from perfsvc.server.kept import kept_answers
from perfsvc.server.limiting import RefusedError, network_of
from perfsvc.server.serving import serving
from perfsvc.store import Store
from perfsvc.store.remote.rows import AuditEntry

MOST_REFUSED = 60
"""How many refused changes of an address reach the audit log in a minute: more would only fill the database."""
REFUSED = 400
"""The first HTTP status of an answer that refuses something."""


@dataclass(slots=True)
class Attempt:
    """What a request tries to change; the handler fills in what it learns, for the audit log.

    Attributes:
        who: the name of the token or the person; empty if unknown.
        action: what it is, such as ``accept``.
        target: on which object, such as ``finding 3``.
    """

    action: str
    target: str = ""
    who: str = ""


async def audited(request: Request, attempt: Attempt, change: Callable[[Attempt], Awaitable[Response]]) -> Response:
    """Return the answer of a change, and write into the audit log what was tried and what became of it."""
    reason = ""
    try:
        response = await change(attempt)
    except (PerfsvcError, ForbiddenError, RefusedError, HTTPException) as error:
        response = of_error(request, error)
        reason = getattr(error, "what", "") or f"refused: {error}"
    except Exception:
        await _record(request, attempt, 500, "perfsvc failed")
        raise
    finally:
        kept_answers(request).renew()  # even if it failed: a part may have been changed
    await _record(request, attempt, response.status_code, reason)
    return response


async def permitted(request: Request, attempt: Attempt, scope: str) -> tuple[Visitor, Store]:
    """Return who changes something, and the database to change.

    Raises:
        RefusedError: this server changes nothing, or the visitor changes too much.
        ForbiddenError: the visitor may not change this.
    """
    shared = serving(request)
    who = await run_in_threadpool(visitor, request)
    attempt.who = who.name or ""  # before the visitor may be refused: the audit log names who tried
    if scope not in who.scopes:
        raise ForbiddenError(scope, known=who.name is not None)
    if shared.changing is None:
        raise RefusedError(403, "this server changes nothing", "set server.changes = true in its perfsvc.toml")
    shared.limits.count("changes", who.name or network_of(address(request)), shared.server.changes_a_minute)
    return who, shared.changing


def require_own_page(request: Request, who: Visitor, form_token: str) -> None:
    """Raise ``RefusedError`` unless a page of this server sends the request; a program with a token needs no page.

    A page of another site can make a browser send a form with the cookie of this server. But the other site can
    neither read the token in our forms, nor change the header ``Origin``.
    """
    if not who.by_browser:
        return
    if not is_own_origin(request) or not serving(request).sessions.is_form_token(who.form_name, form_token):
        raise RefusedError(403, "the request comes from no page of this server", "load the page again, and repeat it")


def is_own_origin(request: Request) -> bool:
    """Return whether the browser says that a page of this server sends the request."""
    origins = request.headers.getlist("origin")
    own = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
    public = urlsplit(serving(request).server.public_url)
    if public.netloc:
        own.add(f"{public.scheme}://{public.netloc}")
    return len(origins) == 1 and origins[0] in own


async def _record(request: Request, attempt: Attempt, status: int, reason: str) -> None:
    """Write an entry into the audit log, and the same into the log of the server."""
    shared, client = serving(request), address(request)
    entry = AuditEntry(datetime.now(UTC), attempt.who, attempt.action, attempt.target, client, status, reason)
    structlog.get_logger().info("change", who=entry.who, action=entry.action, target=entry.target, status=status)
    if shared.changing is None:
        return
    if status >= REFUSED:
        try:
            shared.limits.count("refused changes", network_of(client), MOST_REFUSED)
        except RefusedError:
            return
    await run_in_threadpool(shared.changing.audit.put, entry)
