"""GitHub's REST API: requests with a time limit, retries, and errors with a cure. The token is in no message."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.message import Message as Headers
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

from perfsvc import __version__
from perfsvc.errors import InfrastructureError, UsageError

LIMIT_S = 20.0
"""Seconds that GitHub may take to answer a request."""
ATTEMPTS = 4
LONGEST_WAIT_S = 60.0
"""Seconds to wait before another attempt; a limit that ends later fails the command."""
PAGE = 100
"""Objects on a page; GitHub's maximum."""
MOST_PAGES = 30
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of an answer."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class GithubError(InfrastructureError):
    """GitHub refused a request, or did not answer.

    Args:
        what: what happened.
        cure: what to do.
        status: the HTTP status; 0 without an answer.
    """

    def __init__(self, what: str, *, cure: str, status: int = 0) -> None:
        super().__init__(what, cure=cure)
        self.status = status

    @property
    def is_forbidden(self) -> bool:
        """Whether the token may not do it, as that of a pull request from a fork."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}


class GithubApi:
    """Sends requests to GitHub's API.

    Args:
        url: the address of the API, with https; http is permitted only to this machine.
        token: the token.
        wait: sleeps for a number of seconds; tests replace it.

    Raises:
        UsageError: the address is not valid.
    """

    def __init__(self, url: str, token: str, wait: Callable[[float], object] = time.sleep) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise UsageError("the environment variable GITHUB_API_URL is no https address", cure="set it, or unset it")
        self._url, self._token, self.wait = url.rstrip("/"), token, wait
        self._opener = urllib.request.build_opener(NoRedirects)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, again: bool = True) -> Any:
        """Send a request and return the JSON of the answer.

        Args:
            method: the HTTP method.
            path: the path below the API's address, with its query.
            body: what to send as JSON; None for nothing.
            again: send the request again after an error of the server or a lost connection, after which GitHub may
                or may not have done what was asked. After a rate limit, a request is always sent again.

        Raises:
            GithubError: all attempts failed, or GitHub refused the request.
        """
        for attempt in range(1, ATTEMPTS + 1):
            answer = self._once(method, path, body)
            if not isinstance(answer, _Failure):
                return answer
            may_repeat = answer.is_limit or (again and answer.is_passing)
            wait_s = answer.wait_s if answer.wait_s is not None else 2.0**attempt
            if attempt == ATTEMPTS or not may_repeat or wait_s > LONGEST_WAIT_S:
                break
            self.wait(wait_s)
        raise GithubError(
            f"GitHub: {method} {path.partition('?')[0]}: {answer.what}", cure=answer.cure, status=answer.status
        )

    def pages(self, path: str, key: str = "", **query: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list, page by page, at most ``MOST_PAGES`` pages.

        Args:
            path: the path of the list.
            key: the key under which an answer has its objects; empty if the answer is the list.
            query: further parameters.
        """
        for page in range(1, MOST_PAGES + 1):
            answer = self.send("GET", f"{path}?{urlencode({**query, 'per_page': PAGE, 'page': page})}")
            objects = answer.get(key) if key and isinstance(answer, dict) else answer
            if not isinstance(objects, list):
                raise GithubError(f"GitHub: GET {path}: the answer is no list", cure="see GITHUB_API_URL")
            yield from (found for found in objects if isinstance(found, dict))
            if len(objects) < PAGE:
                return

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> "Any | _Failure":
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked
            f"{self._url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Content-Type": "application/json",
                "User-Agent": f"perfsvc/{__version__}",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=LIMIT_S) as answer:
                content = answer.read(MOST_BYTES)
            return json.loads(content) if content.strip() else {}
        except urllib.error.HTTPError as error:
            with error:
                return _Failure.of_answer(error.code, error.headers, error.read(MOST_BYTES))
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            why = "no answer in time" if isinstance(reason, TimeoutError) else type(reason).__name__
            return _Failure(0, why, "see whether this machine reaches GitHub, and www.githubstatus.com")
        except ValueError:
            return _Failure(0, "the answer is no JSON", "see the environment variable GITHUB_API_URL")


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that the token reaches no other server."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request to send instead."""


class _Failure:
    """Why a request failed.

    Attributes:
        status: the HTTP status; 0 without an answer.
        is_limit: whether a rate limit is the reason: GitHub has done nothing.
        is_passing: whether another attempt may succeed.
        wait_s: seconds to wait first; None if GitHub names no time.
    """

    def __init__(
        self, status: int, what: str, cure: str, *, is_limit: bool = False, wait_s: float | None = None
    ) -> None:
        self.status, self.what, self.cure = status, what, cure
        self.is_limit, self.wait_s = is_limit, wait_s
        self.is_passing = status == 0 or status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @classmethod
    def of_answer(cls, status: int, headers: Headers, content: bytes) -> "_Failure":
        """Return the failure of an answer; its message is in the error, without its end if it is long."""
        try:
            message = str(json.loads(content).get("message", ""))[:300]
        except (ValueError, AttributeError, RecursionError):
            message = ""
        what = f"{status} {message or http.client.responses.get(status, '')}".strip()
        exhausted = headers.get("X-RateLimit-Remaining") == "0"
        limited = {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
        if status in limited and (headers.get("Retry-After") or exhausted or "rate limit" in message.lower()):
            return cls(status, what, "run the job again later", is_limit=True, wait_s=_wait_s(headers))
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            return cls(status, what, "give the job permissions: checks: write, pull-requests: write")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return cls(status, what, "run the job again; see www.githubstatus.com")
        return cls(status, what, "run perfsvc of the newest version, and report this if it stays")


def _wait_s(headers: Headers) -> float | None:
    """Return the seconds after which GitHub takes requests again; None if the answer does not say."""
    after, reset = headers.get("Retry-After", ""), headers.get("X-RateLimit-Reset", "")
    if after.isdecimal():
        return float(after)
    return max(0.0, float(reset) - time.time()) + 1 if reset.isdecimal() else None
