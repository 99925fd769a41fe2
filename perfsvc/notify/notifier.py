"""Messages through Apprise: mail, Slack, Teams, webhooks and the rest, each by the URL that Apprise defines for it.

Apprise reports why a message failed only in its log, and its log contains URLs, which are secrets. So this module reads
the log, keeps it from every other log, and reports failures in words of its own.
"""

import logging
import re
import threading
import warnings
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.client import responses
from queue import Empty, SimpleQueue
from typing import Any, Protocol
from urllib.parse import quote

from perfsvc.errors import MissingPackageError, NotSentError
from perfsvc.installation import install_command
from perfsvc.model import Message

LIMIT_S = 20.0
"""Seconds that an attempt may take: a target that hangs must not hold up the night."""

HEADER = "Idempotency-Key"
"""The header of the key, from the IETF's draft-ietf-httpapi-idempotency-key-header."""

BUSY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
"""HTTP errors of the 400s after which another attempt may succeed."""

CUT = "\n\n(and more: perfsvc findings)"
"""The end of a message that is longer than its target accepts."""

SPARE = 200
"""Characters reserved for ``CUT``, and for what Apprise's plugin adds to title and text."""

_STATUS = re.compile(r"\berror=(\d{3})\b")
"""An HTTP status in Apprise's log."""

_EXCEPTION = re.compile(r"\S+ exception\b", re.IGNORECASE)
"""The beginning of debug lines that give a cause. Debug lines that begin otherwise contain what was sent."""

CAUSES: tuple[tuple[re.Pattern[str], str, bool], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), words, again)
    for pattern, words, again in (
        ("certificate", "the target's certificate is not trusted", False),
        ("authenticat|credential", "the target refused the credentials", False),
        ("timed out|timeout", "the target did not answer in time", True),
        ("refused", "nothing listens at the target", True),
        ("resolve|name or service|getaddrinfo", "the name of the target's host is not known", True),
        ("unreachable|no route", "there is no network to the target", True),
        ("abort|reset|disconnect|without response|broken pipe", "the target closed the connection", True),
    )
)
"""What Apprise's log may contain, the words for it, and whether another attempt soon may succeed."""


class Notifier(Protocol):
    """Sends a message to an address, once; the caller tries again."""

    def send(self, message: Message, address: str) -> None:
        """Send a message, with its key as a header if the target supports headers, else as the last line of the body.

        Args:
            message: the message. If a target receives a message twice, both have the same key.
            address: the URL of the target; a secret, which no error and no log contains.

        Raises:
            NotSentError: the message did not arrive, or it is unknown whether it did.
        """
        ...


class AppriseNotifier:
    """Sends through Apprise.

    Args:
        limit_s: seconds after which an attempt counts as failed.

    Raises:
        MissingPackageError: Apprise is not installed.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        try:
            import apprise
        except ImportError as error:
            raise MissingPackageError(
                "messages need the package apprise, which is not installed", cure=install_command("nightly")
            ) from error
        self._apprise: Any = apprise
        self._limit_s = limit_s
        self._asset = apprise.AppriseAsset(app_id="perfsvc", app_desc="perfsvc", app_url="")
        self._log = _thread_log()
        self._log.take_over()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # plugins import modules that emit warnings
            apprise.Apprise.instantiate("json://localhost")  # loads all plugins, about 1 s, before any limit counts

    def send(self, message: Message, address: str) -> None:
        """Send a message; raise ``NotSentError`` if the attempt fails or exceeds the time limit."""
        failure = _within(self._limit_s, lambda: self._attempt(message, address))
        if failure is not None:
            raise failure

    def _attempt(self, message: Message, address: str) -> NotSentError | None:
        """Send a message, and return why the attempt failed; None if it succeeded."""
        log = self._log.listen()
        try:
            service = self._service(message.key, address)
            if service is None:
                return NotSentError("the target's address is not a valid Apprise URL", again=False)
            body = message.body if _has_headers(service) else _with_key(message, service)
            if service.notify(title=message.title, body=body, body_format=self._apprise.NotifyFormat.TEXT):
                return None
        except Exception as error:  # noqa: BLE001 - plugins of a hundred services raise what they like
            log.append(f"{type(error).__name__}: {error}")
        return _failure(log)

    def _service(self, key: str, address: str) -> Any | None:
        """Return Apprise's service for an address, with the key as a header if possible; None if there is none."""
        service = self._apprise.Apprise.instantiate(address, asset=self._asset)
        if service is None or not _has_headers(service):
            return service
        separator = "&" if "?" in address else "?"
        keyed = f"{address}{separator}+{HEADER}={quote(key, safe='')}"
        return self._apprise.Apprise.instantiate(keyed, asset=self._asset)


def _has_headers(service: Any) -> bool:
    """Return whether an address of this kind takes headers as parameters: ``+X-Mine=1``."""
    return bool(service.template_kwargs.get("headers", {}).get("prefix") == "+")


def _with_key(message: Message, service: Any) -> str:
    """Return the body with the key as its last line, cut to the length that this kind of target accepts.

    Many chats refuse longer messages for good (Discord above 2000 characters), so that the message would never arrive.
    If the address itself sets what happens to long messages (``?overflow=split``), the body is not cut.
    """
    key = f"\n\nkey: {message.key}"
    room = service.body_maxlen - len(message.title) - len(key) - SPARE
    if len(message.body) <= room or "overflow_mode" in vars(service):
        return message.body + key
    return message.body[: max(room, 0)].rpartition("\n")[0] + CUT + key


class _ThreadLog(logging.Handler):
    """Keeps what Apprise logs, by thread."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._of_thread = threading.local()

    def take_over(self) -> None:
        """Become the only handler of Apprise's log."""
        log = logging.getLogger("apprise")
        log.handlers[:] = [self]
        log.propagate = False
        log.setLevel(logging.DEBUG)
        logging.getLogger("urllib3").setLevel(logging.WARNING)  # its debug lines contain paths

    def listen(self) -> list[str]:
        """Return a new list; lines that this thread logs from now on are appended to it."""
        self._of_thread.lines = []
        return self._of_thread.lines  # type: ignore[no-any-return] # a thread's attributes have no types

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line to the list of its thread if the line gives a cause and the thread listens."""
        lines, line = getattr(self._of_thread, "lines", None), record.getMessage()
        if lines is not None and (record.levelno >= logging.WARNING or _EXCEPTION.match(line)):
            lines.append(line)


@cache
def _thread_log() -> _ThreadLog:
    """Return the only handler of Apprise's log in this process."""
    return _ThreadLog()


def _failure(log: list[str]) -> NotSentError:
    """Return why an attempt failed, in words of our own: the log may contain the address, which is secret."""
    statuses = [int(match[1]) for line in log for match in _STATUS.finditer(line)]
    if statuses:
        status = statuses[-1]
        again = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in BUSY
        return NotSentError(f"the target answered {status} {responses.get(status, '')}".strip(), again=again)
    text = "\n".join(log)
    for pattern, words, again in CAUSES:
        if pattern.search(text):
            return NotSentError(words, again=again)
    return NotSentError("the target did not accept the message", again=True)


def _within(limit_s: float, attempt: Callable[[], NotSentError | None]) -> NotSentError | None:
    """Run an attempt and return its error, None if it succeeded, or a timeout error after ``limit_s`` seconds.

    The attempt runs in a daemon thread of its own. A thread that hangs cannot be ended; it is left alone and does not
    hold up the exit of the process.
    """
    outcome: SimpleQueue[NotSentError | None] = SimpleQueue()
    threading.Thread(target=lambda: outcome.put(attempt()), name="perfsvc-notify", daemon=True).start()
    try:
        return outcome.get(timeout=limit_s)
    except Empty:
        return NotSentError(f"the target did not answer within {limit_s:g} s", again=True)
