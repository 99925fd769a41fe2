"""Messages through Apprise: mail, Slack, Teams, webhooks and the rest, each by the address that Apprise gives it.

Apprise tells why it failed in its log alone, and that names addresses. So its log is heard here and goes nowhere, and
what it says is put into words of ours.
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
from typing import Any
from urllib.parse import quote

from perfsvc.errors import MissingPackageError, NotSentError
from perfsvc.installation import install_command
from perfsvc.model import Message
from perfsvc.notify.notifier import LIMIT_S

HEADER = "Idempotency-Key"
"""The header of the key, as the IETF's draft-ietf-httpapi-idempotency-key-header has it."""

BUSY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that say themselves that another attempt may succeed."""

CUT = "\n\n(and more: perfsvc findings)"
"""What ends a message that is longer than its target takes."""

SPARE = 200
"""Characters of what a target takes for ``CUT``, and for what its plugin makes of title and text."""

_STATUS = re.compile(r"\berror=(\d{3})\b")
"""How Apprise's log names an HTTP status."""

_EXCEPTION = re.compile(r"\S+ exception\b", re.IGNORECASE)
"""How those of its lines for developers begin that tell why; others hold what was sent."""

HEARD: tuple[tuple[re.Pattern[str], str, bool], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), words, again)
    for pattern, words, again in (
        ("certificate", "the target's certificate is not trusted", False),
        ("authenticat|credential", "the target refused the credentials", False),
        ("timed out|timeout", "the target did not answer in time", True),
        ("refused", "nobody listens at the target", True),
        ("resolve|name or service|getaddrinfo", "the name of the target's host is not known", True),
        ("unreachable|no route", "there is no network to the target", True),
        ("abort|reset|disconnect|without response|broken pipe", "the target closed the connection", True),
    )
)
"""What Apprise's log may tell, our words for it, and whether trying again soon may help."""


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
        self._log = _overheard()
        self._log.take_over()
        with warnings.catch_warnings():  # what its plugins import is not ours to mend
            warnings.simplefilter("ignore")
            apprise.Apprise.instantiate("json://localhost")  # loads them, which takes a second, before any limit counts

    def send(self, message: Message, address: str) -> None:
        """Sends a message (``Notifier.send``)."""
        failure = _within(self._limit_s, lambda: self._attempt(message, address))
        if failure is not None:
            raise failure

    def _attempt(self, message: Message, address: str) -> NotSentError | None:
        """Tries once; returns why it failed."""
        heard = self._log.listen()
        try:
            service = self._service(message.key, address)
            if service is None:
                return NotSentError("its address is none that Apprise understands", again=False)
            body = message.body if _has_headers(service) else _with_key(message, service)
            if service.notify(title=message.title, body=body, body_format=self._apprise.NotifyFormat.TEXT):
                return None
        except Exception as error:  # noqa: BLE001 - plugins of a hundred services raise what they like
            heard.append(f"{type(error).__name__}: {error}")
        return _failure(heard)

    def _service(self, key: str, address: str) -> Any | None:
        """Whoever Apprise has for an address, with the key as a header if it takes any; None where it has nobody."""
        service = self._apprise.Apprise.instantiate(address, asset=self._asset)
        if service is None or not _has_headers(service):
            return service
        separator = "&" if "?" in address else "?"
        keyed = f"{address}{separator}+{HEADER}={quote(key, safe='')}"
        return self._apprise.Apprise.instantiate(keyed, asset=self._asset)


def _has_headers(service: Any) -> bool:
    """Whether an address of this kind takes headers as parameters: ``+X-Mine=1``."""
    return bool(service.template_kwargs.get("headers", {}).get("prefix") == "+")


def _with_key(message: Message, service: Any) -> str:
    """The body with the key as its last line, and as much before it as this kind of target takes.

    Many a chat refuses for good what is longer, as Discord does from 2000 characters on: that message would never
    arrive. Where the address says itself what to do then (``?overflow=split``), it is left whole.
    """
    key = f"\n\nkey: {message.key}"
    room = service.body_maxlen - len(message.title) - len(key) - SPARE
    if len(message.body) <= room or "overflow_mode" in vars(service):
        return message.body + key
    return message.body[: max(room, 0)].rpartition("\n")[0] + CUT + key


class _Overheard(logging.Handler):
    """Keeps what Apprise logs in a thread that listens, and keeps all of it from every other log of the process."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._of_thread = threading.local()

    def take_over(self) -> None:
        """Is the one that hears that log from now on."""
        log = logging.getLogger("apprise")
        log.handlers[:] = [self]
        log.propagate = False
        log.setLevel(logging.DEBUG)
        logging.getLogger("urllib3").setLevel(logging.WARNING)  # which names paths in what it tells developers

    def listen(self) -> list[str]:
        """What this thread hears from now on; the list grows."""
        heard: list[str] = []
        self._of_thread.heard = heard
        return heard

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line that tells why something failed, where anybody listens."""
        heard, line = getattr(self._of_thread, "heard", None), record.getMessage()
        if heard is not None and (record.levelno >= logging.WARNING or _EXCEPTION.match(line)):
            heard.append(line)


@cache
def _overheard() -> _Overheard:
    """One for the process, as Apprise's log is."""
    return _Overheard()


def _failure(heard: list[str]) -> NotSentError:
    """Why an attempt failed, without a word of what was heard, which may hold the address."""
    statuses = [int(found[1]) for line in heard for found in _STATUS.finditer(line)]
    if statuses:
        return _answered(statuses[-1])
    told = "\n".join(heard)
    for pattern, words, again in HEARD:
        if pattern.search(told):
            return NotSentError(words, again=again)
    return NotSentError("the target did not take it", again=True)


def _answered(status: int) -> NotSentError:
    phrase = responses.get(status, "")
    again = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in BUSY
    return NotSentError(f"the target answered {status} {phrase}".strip(), again=again)


def _within(limit_s: float, attempt: Callable[[], NotSentError | None]) -> NotSentError | None:
    """What an attempt comes to, if it does within its limit.

    It has a thread of its own, which is left alone where it hangs: nothing can end it, and it holds up no exit.
    """
    outcome: SimpleQueue[NotSentError | None] = SimpleQueue()
    threading.Thread(target=lambda: outcome.put(attempt()), name="perfsvc-notify", daemon=True).start()
    try:
        return outcome.get(timeout=limit_s)
    except Empty:
        return NotSentError(f"the target did not answer within {limit_s:g} s", again=True)
