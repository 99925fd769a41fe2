"""The log of a night: sentences shown while it runs, and JSON lines in the night's file."""

import os
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from perfsvc.errors import PerfsvcError
from perfsvc.files import Folder
from perfsvc.service.progress import Progress
from perfsvc.text import json_text, without_password

Event = MutableMapping[str, Any]
"""What structlog passes from one processor to the next."""

LOG = "log.jsonl"
"""The log in the folder of a night: a JSON object a line."""

REPORT = "report.html"
"""The page in the folder of a night: the measurements of its run."""

FILES = (LOG, REPORT)
"""All files that a night writes into its folder."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
"""The severities by structlog's names; lines from ``info`` on are also shown."""


class NightLog:
    """A context manager that writes every event to the night's file and shows the events from ``info`` on.

    The file gets one JSON object a line: ``at`` (UTC), ``level``, ``event``, ``night``, ``run`` (null before there is a
    run), and further facts such as ``stage`` and ``cure``. A resumed night appends to its file. If the file cannot be
    written, the night continues without it after one warning.

    Args:
        folder: the folder of all nights, which is made. The file is in its subfolder for the night; links below the
            folder are not followed.
        night: the night's number.
        shown: shows the lines to people, with the time of day before each, because a night is read in the morning.
    """

    def __init__(self, folder: Path, night: int, shown: Progress) -> None:
        self._shown = shown
        self.path = folder / str(night) / LOG
        self._file = _Lines(folder, f"{night}/{LOG}", lambda line: self._shown.report(f"{_time_of_day()} {line}"))
        self._log: Any = structlog.wrap_logger(
            self._file,
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
                structlog.processors.format_exc_info,
                _without_passwords,
                self._show,
                _important_first,
                structlog.processors.JSONRenderer(_one_line),
            ],
            wrapper_class=structlog.BoundLogger,
            night=night,
            run=None,
        )

    def bind(self, **facts: object) -> None:
        """Add facts to every line from now on: ``run=7``, ``stage="judge"``."""
        self._log = self._log.bind(**facts)

    def begin(self, stage: str, total: int) -> None:
        """Log that a task of ``total`` steps begins: ``compiling``, ``measuring``."""
        self._shown.begin(stage, total)
        self._log.debug(stage, steps=total)

    def step(self, what: str) -> None:
        """Log that a step is done; only the file names it."""
        self._shown.step(what)
        self._log.debug("done", step=what)

    def report(self, line: str, **facts: object) -> None:
        """Log and show a message; ``facts`` are for programs."""
        self._log.info(line, **facts)

    def warning(self, line: str, **facts: object) -> None:
        """Log and show a problem that the night continues without."""
        self._log.warning(line, **facts)

    def fail(self, error: BaseException, **facts: object) -> None:
        """Log and show the error of a stage: a ``PerfsvcError`` with its cure, any other error with its traceback."""
        kind = type(error).__name__
        if isinstance(error, PerfsvcError):
            self._log.error(error.what, cure=error.cure, kind=kind, **facts)
        else:
            self._log.error(f"{kind}: {error}", kind=kind, exc_info=error, **facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _show(self, _: Any, level: str, event: Event) -> Event:
        """Show an event to the user as a sentence, and return it unchanged for the file."""
        if LEVELS[level] >= LEVELS["info"]:
            severity = f"{level}: " if LEVELS[level] > LEVELS["info"] else ""
            cure = f"\n  cure: {event['cure']}" if event.get("cure") else ""
            self._shown.report(f"{_time_of_day()} {severity}{event['event']}{cure}")
        return event


class _Lines:
    """A file below a folder that structlog appends lines to; lines of every severity are written alike."""

    def __init__(self, folder: Path, name: str, complain: Callable[[str], None]) -> None:
        self._path, self._complain = folder / name, complain
        self._descriptor: int | None = None
        try:
            with Folder.open(folder, make=True) as opened:
                self._descriptor = opened.open_file(name, os.O_APPEND | os.O_CREAT | os.O_RDWR)
            length = os.fstat(self._descriptor).st_size
            if length and os.pread(self._descriptor, 1, length - 1) != b"\n":  # a kill has cut the last line
                os.write(self._descriptor, b"\n")
        except OSError as error:
            self._give_up(error)

    def write(self, line: str) -> None:
        """Append a line in one system call: lines of two threads do not mix, and a kill can cut only the last line."""
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, f"{line}\n".encode("utf-8", errors="backslashreplace"))
        except OSError as error:
            self._give_up(error)

    debug = info = warning = error = write

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._complain(f"warning: the night's log {self._path} cannot be written any more: {error.strerror or error}")


def _without_passwords(_: Any, __: str, event: Event) -> Event:
    """Hide passwords: an unforeseen exception may hold the URL of a database."""
    return {name: without_password(value) if isinstance(value, str) else value for name, value in event.items()}


def _one_line(event: Event, **_: Any) -> str:
    return json_text(event, indent=None)


def _important_first(_: Any, __: str, event: Event) -> Mapping[str, Any]:
    return {"at": event.pop("at"), "level": event.pop("level"), "event": event.pop("event"), **event}


def _time_of_day() -> str:
    return f"{datetime.now(UTC):%H:%M:%S}"
