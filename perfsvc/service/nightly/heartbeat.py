"""The heartbeat of a night: pings to a monitor that raises an alarm when they stay away."""

import contextlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

LIMIT_S = 10.0
"""Seconds after which an attempt counts as failed."""

ATTEMPTS = 2

START, FAIL = "start", "fail"
"""What is appended to the path of the URL, as healthchecks.io and its likes understand it; an end appends nothing."""


class Heartbeat:
    """Pings a URL when a night begins, and when it ends or fails. A context manager; an exception is a failure.

    A ping that does not arrive is reported and never fails the night. The URL is a secret: no report contains it.

    Args:
        variable: the environment variable that holds the URL; empty for no heartbeat.
        report: receives a sentence about a ping that did not arrive.
        environment: the environment variables; None for the variables of this process.
    """

    def __init__(
        self, variable: str, report: Callable[[str], object], environment: Mapping[str, str] | None = None
    ) -> None:
        self._variable, self._report = variable, report
        self._url = (os.environ if environment is None else environment).get(variable, "").strip() if variable else ""
        self.failed = False

    def __enter__(self) -> Self:
        if self._variable and not self._url:
            self._report(f"warning: there is no heartbeat: the environment variable {self._variable} is not set")
        self._ping(START)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ping(FAIL if self.failed or error is not None else "")

    def _ping(self, event: str) -> None:
        """Send an event to the monitor, in at most ``ATTEMPTS`` attempts; report a problem if all attempts fail."""
        if not self._url:
            return
        problem = ""
        for _ in range(ATTEMPTS):
            problem = _problem_of(self._url, event)
            if not problem:
                return
        self._report(f"warning: the heartbeat did not arrive ({event or 'end'}): {problem}")


def _with_path(url: str, event: str) -> str:
    """Return a URL with an event appended to its path."""
    if not event:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{event}"))


def _problem_of(address: str, event: str) -> str:
    """Send an event to a URL and return what went wrong, without the URL; empty if nothing did."""
    try:
        url = _with_path(address, event)
        if urlsplit(url).scheme not in {"http", "https"}:
            return "its variable holds no http or https URL"
        with contextlib.closing(urllib.request.urlopen(url, timeout=LIMIT_S)):  # noqa: S310 - the scheme is checked
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"the monitor answered {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return "the monitor did not answer" if isinstance(reason, TimeoutError) else f"{type(reason).__name__}"
