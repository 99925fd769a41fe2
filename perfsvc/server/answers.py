"""Answers in JSON, and all errors in one shape: ``{"error": …, "cure": …}``."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perfsvc.errors import DatabaseError, NotMeasuredError, PerfsvcError, UsageError
from perfsvc.report.export.objects import plain
from perfsvc.server.access import ForbiddenError
from perfsvc.text import json_text, without_password

JSON = "application/json"

WORDS = {
    400: ("the request is not valid", "see docs/reference/server-api.md"),
    404: ("there is nothing at this address", "begin at /"),
    405: ("this address does not take this method", "read with GET"),
    413: ("the request is too large", "send less at once"),
    414: ("the address is too long", "send a shorter query"),
}
"""What an error without words of its own says, and its cure, by status code."""


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON; a number that is not finite becomes null."""
    return Response(json_text(plain(value)), status, headers, JSON)


def problem(status: int, error: str, cure: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as JSON."""
    return answer({"error": without_password(error), "cure": without_password(cure)}, status, headers)


def status_of(error: PerfsvcError) -> int:
    """Return the status code of an error: 404 what does not exist, 400 a wrong request, 503 try again, 500 a fault."""
    if isinstance(error, NotMeasuredError):
        return 404
    if isinstance(error, UsageError):
        return 400
    return 503 if isinstance(error, DatabaseError) and error.again else 500


def of_error(_request: Request, error: Exception) -> Response:
    """Return the answer to a request that raised an error; it never holds a traceback."""
    if isinstance(error, PerfsvcError):
        status = status_of(error)
        return problem(status, error.what, error.cure, {"Retry-After": "5"} if status == 503 else None)  # noqa: PLR2004
    if isinstance(error, ForbiddenError):
        if error.known:
            return problem(403, f"you may not do this: it needs the scope {error.scope}", "ask for this scope")
        headers = {"WWW-Authenticate": "Bearer"}
        return problem(401, "the server does not know you, and this needs a visitor that it knows", "sign in", headers)
    if isinstance(error, HTTPException):
        words, cure = WORDS.get(error.status_code, (error.detail, ""))
        return problem(error.status_code, words, cure, error.headers)
    return problem(500, "perfsvc failed to answer", "see the log of the server")
