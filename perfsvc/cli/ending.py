"""How a command ends: the exit code and the message of every exception, signal and closed pipe."""

import codecs
import contextlib
import errno
import io
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO, TextIO

import click

from perfsvc.errors import NOTHING_MEASURED, InfrastructureError, PerfsvcError
from perfsvc.text import cut, printed, visible, without_commands, without_password

Code = int | str | None
"""The argument of ``sys.exit``."""

BY_SIGNAL = 128
"""The exit code of a command that a signal ended is this plus the signal's number, as in shells."""
FAULT = InfrastructureError.exit_code
"""An unforeseen exception says nothing about a kernel, so it must not have the exit code of a verdict."""
STOPS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: service managers and time limits send SIGTERM, a closed terminal SIGHUP."""
MANY_FILES = 4096
"""The number of open files that a command asks for; a run opens several for each worker process."""
LONGEST_MESSAGE = 10_000
"""Characters of an error's message; a suite may have hundreds of errors, which are printed together."""
NOTHING_LOST = "what was measured is stored"


class Stopped(SystemExit):
    """Raised when a signal asks the command to end; like ``sys.exit`` it is no error."""

    def __init__(self, number: int) -> None:
        super().__init__(BY_SIGNAL + number)
        self.name = signal.Signals(number).name


class PastClick(Exception):  # noqa: N818 - a carrier, no error
    """Carries an exception, its cause, past click."""


@contextmanager
def past_click() -> Iterator[None]:
    """Wrap ``OSError`` and ``EOFError`` as ``PastClick``, which click passes on.

    Click would end such an error with exit code 1, which means a regression in perfsvc.
    """
    try:
        yield
    except (OSError, EOFError) as error:
        raise PastClick from error
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # rich exits like this when its reader is gone
            raise PastClick from ending.__context__
        raise


def open_streams() -> None:
    """Open each standard stream that the shell closed (``>&-``) on the null device.

    Otherwise printing would fail with Python's own exit code, 1, and a socket could get the stream's file descriptor.
    Standard output and standard error then show control characters in texts instead of writing them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # open takes the lowest number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - lives as long as the process
    sys.stdout, sys.stderr = InertStream(sys.stdout), InertStream(sys.stderr)


class InertStream(io.TextIOBase):
    r"""A standard stream whose text is inert: see ``perfsvc.text.printed``. ``own`` takes our colours and commands.

    Args:
        own: the stream to write to; what its encoding lacks becomes an escape such as ``\u2713``.
    """

    def __init__(self, own: TextIO) -> None:
        if isinstance(own, io.TextIOWrapper):
            own.reconfigure(errors="backslashreplace")
        self.own = own
        self._is_ascii = "ascii" in codecs.lookup(own.encoding or "utf-8").name
        self._begins_line = True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding; UTF-8 for ASCII, because click would otherwise write past this stream."""
        return "utf-8" if self._is_ascii else self.own.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Return how characters that the encoding lacks are written."""
        return self.own.errors

    def write(self, text: str) -> int:
        """Write a text with control characters made visible and commands of CI made harmless."""
        shown = visible(text)
        # A line may be written in parts: only at a line's beginning is :: a command of CI.
        self.own.write(without_commands(shown) if self._begins_line else without_commands(f"_{shown}")[1:])
        if text:
            self._begins_line = not shown.rpartition("\n")[2].strip(" \t:")
        return len(text)

    def flush(self) -> None:
        """Flush the stream, unless it is closed: Python also flushes when it frees this object."""
        if not self.own.closed:
            self.own.flush()

    def fileno(self) -> int:
        """Return the stream's file descriptor."""
        return self.own.fileno()

    def isatty(self) -> bool:
        """Return True on a terminal."""
        return self.own.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def buffer(self) -> BinaryIO:
        """Return the stream for bytes, which stay as they are."""
        return self.own.buffer


def own_stream(stream: TextIO) -> TextIO:
    """Return the stream that takes escape sequences and commands of CI as they are; only for text of our own."""
    return stream.own if isinstance(stream, InertStream) else stream


def permit_many_files() -> None:
    """Raise the soft limit of open files to ``MANY_FILES``, or to the hard limit if that is lower.

    Shells often set the soft limit to 256.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise ``Stopped`` in the block on SIGTERM or SIGHUP, so that the block can clean up.

    A signal that is already ignored stays ignored (``nohup``). A second signal is ignored during the clean-up.
    """
    handled = [number for number in STOPS if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _: FrameType | None) -> None:
    """Raise ``Stopped``; this is the handler of the signals in ``STOPS``."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)  # a second signal must not disturb the clean-up
    raise Stopped(number)


@contextmanager
def gently() -> Iterator[Callable[[], bool]]:
    """Let the block finish its current work on SIGTERM, and raise ``Stopped`` at the end of the block.

    The context manager yields a function that returns True after SIGTERM; the block calls it before it starts anything
    new. A second SIGTERM raises ``Stopped`` at once. Outside a ``stoppable`` block, the function always returns False.
    """
    received: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        signal.signal(number, _stop)
        received.append(number)

    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: bool(received)
    finally:
        if signal.getsignal(signal.SIGTERM) is note:
            signal.signal(signal.SIGTERM, _stop)
    for number in received:
        _stop(number, None)


def code_of(command: Callable[[], Code]) -> Code:
    """Call a command and return its exit code; if an exception ends the command, print the exception's message."""
    code: Code = None
    try:
        try:
            code = command()
        except BaseException as error:  # noqa: BLE001 - each has an exit code; none may be Python's own, 1
            code = _exit_code(error)
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        return code or _exit_code(error)
    return code


def _exit_code(error: BaseException) -> Code:
    """Return the exit code of an exception, and print its message."""
    code: Code = FAULT
    match error:
        case PastClick(__cause__=BaseException() as cause):
            return _exit_code(cause)
        case BrokenPipeError():
            code = BY_SIGNAL + signal.SIGPIPE
        case Stopped(name=name, code=code):
            _print(f"stopped by {name}; {_stored_or_not(error)}")
        case SystemExit(code=code):
            pass
        case PerfsvcError(exit_code=code):
            _print(f"error: {error}")
        case click.ClickException(exit_code=code):
            error.show(shown := io.StringIO())
            click.echo(without_password(shown.getvalue()), err=True, nl=False)
        case click.Abort() | KeyboardInterrupt():
            code = BY_SIGNAL + signal.SIGINT
            _print(f"interrupted; {_stored_or_not(error)}")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG, strerror=reason):
            _print(f"error: {error.filename or 'the output'} cannot be written: {reason}\n  cure: make room")
        case OSError(errno=errno.EMFILE | errno.ENFILE, strerror=reason):
            _print(f"error: {reason}\n  cure: permit more open files: ulimit -n {MANY_FILES}; {NOTHING_LOST}")
        case _:
            click.echo(without_password("".join(traceback.format_exception(error))), err=True)
            _print("error: this is a fault of perfsvc\n  cure: report it with the lines above and: perfsvc doctor")
    return code


def _stored_or_not(error: BaseException) -> str:
    """Return the end of the message about a stopped command: its measurements are stored, or there are none.

    The code that was stopped adds the note ``NOTHING_MEASURED`` to the exception if it has stored no measurement.
    """
    # After Ctrl-C the note is on the cause: click raises its own Abort from the KeyboardInterrupt.
    notes = [note for raised in (error, error.__cause__) for note in getattr(raised, "__notes__", ())]
    return NOTHING_MEASURED if NOTHING_MEASURED in notes else NOTHING_LOST


def _print(message: str) -> None:
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    shown = printed(without_password(cut(message, most=LONGEST_MESSAGE)))
    click.echo(click.style(shown, fg="red") if coloured else shown, file=own_stream(sys.stderr))


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python can flush it at exit."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - needs a descriptor, no path
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
