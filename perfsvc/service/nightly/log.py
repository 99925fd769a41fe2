"""The night's log: sentences for whoever watches, and JSON lines in the night's file for whoever asks later."""

import os
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from perfsvc.errors import PerfsvcError
from perfsvc.service.progress import Progress, Silent

Event = MutableMapping[str, Any]
"""What structlog hands from one processor to the next."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
"""How grave a line is, by structlog's names; those from ``info`` on are also shown."""


class NightLog:
    """A ``Progress`` that writes all it is told to the night's file, and shows what a person wants to read.

    A context manager. The file gets one JSON object a line, appended and never rewritten, so that a night that goes on
    after a kill goes on in the same file: ``at`` (UTC), ``level``, ``event``, ``night``, ``run`` (null before there is
    one), and what else is known, such as ``stage`` and ``cure``. Nothing that happens to the file ends the night: the
    first line that cannot be written is said once, to whoever watches.

    Args:
        file: the night's file; its folder is made.
        night: the night's number.
        shown: draws the same for people; with a moment before each sentence, for a night is read in the morning.
    """

    def __init__(self, file: Path, night: int, shown: Progress | None = None) -> None:
        self._shown = shown or Silent()
        self._file = _Lines(file, lambda line: self._shown.say(f"{_clock()} {line}"))
        self._log: Any = structlog.wrap_logger(
            self._file,
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
                structlog.processors.format_exc_info,
                self._show,
                _in_order,
                structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
            ],
            wrapper_class=structlog.BoundLogger,
            night=night,
            run=None,
        )

    def bind(self, **facts: object) -> None:
        """Puts facts into every line from now on: ``run=7``, ``stage="judge"``."""
        self._log = self._log.bind(**facts)

    def begin(self, stage: str, total: int) -> None:
        """Something of ``total`` steps begins: ``compiling``, ``measuring``."""
        self._shown.begin(stage, total)
        self._log.debug(stage, steps=total)

    def step(self, what: str) -> None:
        """One step is done; only the file names each."""
        self._shown.step(what)
        self._log.debug("done", step=what)

    def say(self, line: str, **facts: object) -> None:
        """Something a person should know; ``facts`` are the same for programs."""
        self._log.info(line, **facts)

    def warning(self, line: str, **facts: object) -> None:
        """Something that is wrong, and that the night goes on without."""
        self._log.warning(line, **facts)

    def fail(self, error: BaseException, **facts: object) -> None:
        """Something that a stage ended with, with its cure where it has one; of a fault of ours the traceback too."""
        if isinstance(error, PerfsvcError):
            self._log.error(error.what, cure=error.cure, kind=type(error).__name__, **facts)
        else:
            kind = type(error).__name__
            self._log.error(f"{kind}: {error}", kind=kind, exc_info=error, **facts)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _show(self, _: Any, level: str, event: Event) -> Event:
        """Shows a line as a sentence, on its way into the file."""
        if LEVELS[level] >= LEVELS["info"]:
            grave = f"{level}: " if LEVELS[level] > LEVELS["info"] else ""
            cure = f"\n  cure: {event['cure']}" if event.get("cure") else ""
            self._shown.say(f"{_clock()} {grave}{event['event']}{cure}")
        return event


class _Lines:
    """A file of lines, as structlog writes to it; every level is a line."""

    def __init__(self, file: Path, complain: Callable[[str], None]) -> None:
        self._name, self._complain = file, complain
        self._descriptor: int | None = None
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(file, os.O_APPEND | os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            self._end_broken_line(self._descriptor)
        except OSError as error:
            self._give_up(error)

    def write(self, line: str) -> None:
        """Appends a line in one call, so that lines of several threads do not mix; a kill cuts the last at most."""
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, f"{line}\n".encode("utf-8", errors="backslashreplace"))
        except OSError as error:
            self._give_up(error)

    debug = info = warning = error = write

    def close(self) -> None:
        """Closes it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @staticmethod
    def _end_broken_line(descriptor: int) -> None:
        """Ends what a kill cut short, so that the next line is one of its own."""
        length = os.fstat(descriptor).st_size
        if length and os.pread(descriptor, 1, length - 1) != b"\n":
            os.write(descriptor, b"\n")

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._complain(f"warning: the night's log {self._name} cannot be written any more: {error.strerror or error}")


def _in_order(_: Any, __: str, event: Event) -> Mapping[str, Any]:
    """What a person looks for stands first."""
    return {"at": event.pop("at"), "level": event.pop("level"), "event": event.pop("event"), **event}


def _clock() -> str:
    return f"{datetime.now(UTC):%H:%M:%S}"
