"""Send runs to the server of another host, with HTTP requests that may be repeated."""

import hashlib
import http.client
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Any
from urllib.parse import urlsplit

from perfsvc import __version__
from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.service.github.api import LOOPBACK, NoRedirects
from perfsvc.service.transfer.body import written
from perfsvc.store import Store
from perfsvc.text import printed

VARIABLE = "PERFSVC_TOKEN"
"""The environment variable with the token."""
LIMIT_S = 300.0
"""Seconds that the server may take to store and judge a run."""
ATTEMPTS = 4
LONGEST_WAIT_S = 120.0
DIGITS = 6
MOST_BYTES = 64 * 1024
"""Bytes of an answer."""
AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY})


@dataclass(frozen=True, slots=True)
class SentOutcome:
    """What became of a run that was sent.

    Attributes:
        run: its number here.
        there: its number on the server; None if it was deleted there.
        new: False if the server had it before.
        judged: False if the server stored the run, but failed to judge it.
        later: a run of the same suite that began later and was stored earlier on the server; None if there is none.
    """

    run: int
    there: int | None
    new: bool
    judged: bool
    later: int | None


class NotJudgedError(InfrastructureError):
    """The server stored a run, but failed to judge it."""


class NotAcceptedError(InfrastructureError):
    """The server refused a run, or did not answer."""


class Sender:
    """Sends runs to a server.

    Args:
        url: the address of the server, with https; http is permitted only to this machine.
        token: a token with the scope ``write``.
        wait: sleeps for a number of seconds; tests replace it.

    Raises:
        UsageError: the address or the token is not valid.
    """

    def __init__(self, url: str, token: str, wait: Callable[[float], object] = time.sleep) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise UsageError(
                "the address of the server is no https address, so others could read the token on its way",
                cure="write https://…; on the same machine http://127.0.0.1:8350 is fine (docs/how-to/collect-runs.md)",
            )
        if parts.username or parts.password or parts.query:
            raise UsageError("the address of the server has a password or a query", cure="write https://host/")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(
                f"{VARIABLE} holds no token", cure=f"perfsvc token create NAME --scope write there; export {VARIABLE}=…"
            )
        self._url, self._token, self._wait = url.rstrip("/"), token, wait
        self._opener = urllib.request.build_opener(NoRedirects)

    def send(self, store: Store, run: int) -> SentOutcome:
        """Send a run; send it again after a lost connection: the server stores it only once.

        Raises:
            NotMeasuredError: there is no such run.
            UsageError: the run has not ended, or its samples were removed.
            NotAcceptedError: the server refused the run, or all attempts failed.
        """
        with tempfile.TemporaryFile() as body:
            digest = hashlib.sha256()
            for part in written(store, run):
                digest.update(part)
                body.write(part)
            size, key = body.tell(), f"{digest.hexdigest()[:32]}"
            attempt = 1
            while isinstance(answer := self._once(body, size, key), _Refusal):
                if answer.wait_s is None or attempt == ATTEMPTS or answer.wait_s > LONGEST_WAIT_S:
                    raise NotAcceptedError(f"run {run} was not sent: {answer.what}", cure=answer.cure)
                self._wait(answer.wait_s or 2.0**attempt)
                attempt += 1
        return SentOutcome(run, answer["run"], bool(answer["new"]), bool(answer["judged"]), answer.get("later_run"))

    def _once(self, body: IO[bytes], size: int, key: str) -> "dict[str, Any] | _Refusal":
        body.seek(0)
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked
            f"{self._url}/api/v1/runs",
            method="POST",
            data=body,
            headers={
                "Content-Type": "application/x-ndjson",
                "Content-Encoding": "gzip",
                "Content-Length": str(size),
                "Idempotency-Key": key,
                "User-Agent": f"perfsvc/{__version__}",
            },
        )
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=LIMIT_S) as answer:
                content = json.loads(answer.read(MOST_BYTES))
            if (
                isinstance(content, dict)
                and isinstance(content.get("run", ""), int | None)
                and {"new", "judged"} <= content.keys()
            ):
                return content
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(error)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            why = "no answer in time" if isinstance(reason, TimeoutError) else str(reason) or type(reason).__name__
            return _Refusal(printed(why)[:300], "see whether perfsvc serve runs there, and whether you reach it", 0.0)
        except ValueError:
            pass
        return _Refusal("the answer is not that of perfsvc serve", "check the address after --to", None)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why an attempt failed; ``wait_s`` is after how long to repeat it: 0 for any time, None for never."""

    what: str
    cure: str
    wait_s: float | None


def _refusal(error: urllib.error.HTTPError) -> _Refusal:
    """Return the refusal in an answer, with the server's own words."""
    try:
        content = json.loads(error.read(MOST_BYTES))
        what, cure = str(content["error"])[:500], str(content["cure"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        what, cure = http.client.responses.get(error.code, ""), "check the address after --to"
    after = error.headers.get("Retry-After", "")
    wait_s = (float(after) if after.isdecimal() and len(after) < DIGITS else 0.0) if error.code in AGAIN else None
    return _Refusal(f"the server answered {error.code}: {printed(what)}", printed(cure), wait_s)
