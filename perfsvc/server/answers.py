"""Answers in JSON, and all errors in one shape: ``{"error": …, "cure": …}``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from perfsvc.errors import DatabaseError, NotMeasuredError, PerfsvcError, UsageError
from perfsvc.report.export.objects import plain
from perfsvc.report.pages.render import error_page
from perfsvc.server.access import READ, ForbiddenError, require
from perfsvc.server.kept import Content, State, kept_answers
from perfsvc.server.limiting import RefusedError
from perfsvc.text import json_text, printed, without_password

JSON = "application/json"

FAULT, UNAVAILABLE = 500, 503
NAMES_OF_RUNS = "name one by its number, its label, latest, latest~1, or the commit or branch that it measured"
RETRY_S = "5"
"""After how many seconds a client may ask again if the database cannot answer."""

WORDS = {
    400: ("the request is not valid", "see docs/reference/server-api.md"),
    404: ("there is nothing at this address", "begin at /"),
    405: ("this address does not take this method", "read with GET"),
    413: ("the request is too large", "send less at once"),
    415: ("the body is of another type", "send JSON, with Content-Type: application/json"),
    414: ("the address is too long", "send a shorter query"),
    500: ("perfsvc failed to answer", "see the log of the server"),
    503: ("the database cannot answer now", "ask again later"),
}
"""What an error without words of its own says, and its cure, by status code."""


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON; a number that is not finite becomes null."""
    return Response(json_text(plain(value)), status, headers, JSON)


async def kept(request: Request, key: str, make: Callable[[], Content]) -> Response:
    """Answer a visitor who may read with a content that is made once for all readers.

    Args:
        request: the request.
        key: names the content; requests with equal keys get the same content.
        make: makes the content; it runs in a thread.
    """
    return (await content(request, key, make)).answer(request)


async def content(request: Request, key: str, make: Callable[[], Content]) -> Content:
    """Return a content for a visitor who may read; the arguments are those of ``kept``."""
    shared = kept_answers(request)

    def look() -> State:
        require(request, READ)
        return shared.state()

    return await shared.get(key, await run_in_threadpool(look), make)


@contextmanager
def named_runs() -> Iterator[None]:
    """Give the error of a run that a visitor names a cure for visitors; the usual one names folders of this machine."""
    try:
        yield
    except UsageError as error:
        kind: type[UsageError] = NotMeasuredError if isinstance(error, NotMeasuredError) else UsageError
        raise kind(error.what, cure=f"/api/v1/runs lists the runs; {NAMES_OF_RUNS}") from error


def problem(
    request: HTTPConnection, status: int, error: str, cure: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error: a page for a browser, JSON for everything else."""
    error, cure = without_password(error), without_password(cure)
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/"):
        root = "../" * (request.url.path.count("/") - 1)
        return Response(error_page(status, error, cure, root), status, headers, "text/html")
    return answer({"error": error, "cure": cure}, status, headers)


def status_of(error: PerfsvcError) -> int:
    """Return the status code of an error: 404 what does not exist, 400 a wrong request, 503 try again, 500 a fault."""
    if isinstance(error, NotMeasuredError):
        return 404
    if isinstance(error, UsageError):
        return 400
    return UNAVAILABLE if isinstance(error, DatabaseError) and error.again else FAULT


def of_error(request: Request, error: Exception) -> Response:
    """Return the answer to a request that raised an error; it never holds a traceback."""
    if isinstance(error, PerfsvcError):
        status = status_of(error)
        if status >= FAULT:
            structlog.get_logger().error("failed", path=printed(request.url.path), error=error.what, cure=error.cure)
            # The error may name the server of the database, which is not the visitor's business.
            headers = {"Retry-After": RETRY_S} if status == UNAVAILABLE else None
            return problem(request, status, *(WORDS[status]), headers)
        return problem(request, status, error.what, error.cure)
    if isinstance(error, RefusedError):
        return problem(request, error.status, error.what, error.cure, error.headers)
    if isinstance(error, ForbiddenError):
        if error.known:
            return problem(request, 403, f"this needs the scope {error.scope}", "ask for this scope")
        headers = {"WWW-Authenticate": "Bearer"}
        return problem(
            request, 401, "the server does not know you, and this needs a visitor that it knows", "sign in", headers
        )
    assert isinstance(error, HTTPException)  # noqa: S101 - for mypy: no other error comes here
    words, cure = WORDS.get(error.status_code, (error.detail, ""))
    return problem(request, error.status_code, words, cure, error.headers)
