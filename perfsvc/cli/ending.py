"""How a command ends: the exit code and the last words of every exception, signal and closed pipe."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from perfsvc.errors import InfrastructureError, PerfsvcError

Code = int | str | None
"""What ``sys.exit`` takes."""

BY_SIGNAL = 128
"""Shells call a command that a signal ended by this much more than the signal's number."""
FAULT = InfrastructureError.exit_code
"""An exception that nobody foresaw says nothing about a kernel: no verdict's code may stand for it."""
STOPS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a command from outside: service managers and time limits send the one, a closed terminal the other."""
NOTHING_LOST = "what was measured is stored"


class Stopped(SystemExit):
    """A signal asked the command to end; cleaned up after like ``sys.exit``, and as little an error."""

    def __init__(self, number: int) -> None:
        super().__init__(BY_SIGNAL + number)
        self.name = signal.Signals(number).name


class PastClick(Exception):  # noqa: N818 - no error of its own: it carries one
    """Carries, as its cause, an exception past click."""


@contextmanager
def past_click() -> Iterator[None]:
    """Hides from click what it would turn into exit code 1, which here says that something regressed."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise PastClick from error
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # how rich ends when its reader is gone
            raise PastClick from ending.__context__
        raise


def open_streams() -> None:
    """Opens on nothing what of the standard streams was closed (``>&-``).

    Printing would fail, and with Python's own exit code, 1; and a socket would be given a stream's number.
    """
    for name, cache in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # by number: the lowest free one is taken
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, cache))  # noqa: PTH123, SIM115 - lives as long as the process


@contextmanager
def stoppable() -> Iterator[None]:
    """Lets a signal of ``STOPS`` unwind the block, so that workers and compilers end and the run is marked.

    A signal that is ignored already stays so (``nohup``); a second one does not disturb the cleaning up.
    """
    heeded = [number for number in STOPS if signal.getsignal(number) is signal.SIG_DFL]
    for number in heeded:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _: FrameType | None) -> None:
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


@contextmanager
def gently() -> Iterator[Callable[[], bool]]:
    """Lets the block finish what it is at when SIGTERM comes, instead of unwinding it; the end of the block unwinds.

    It gives the question whether SIGTERM has come, for the block to ask before it begins anything new. A second
    SIGTERM unwinds at once. Outside ``stoppable`` SIGTERM keeps its meaning.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        signal.signal(number, _stop)
        came.append(number)

    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: bool(came)
    finally:
        if signal.getsignal(signal.SIGTERM) is note:
            signal.signal(signal.SIGTERM, _stop)
    for number in came:
        _stop(number, None)


def code_of(command: Callable[[], Code]) -> Code:
    """Calls a command to its very end, prints the last words of whatever ended it, and returns its exit code."""
    code: Code = None
    try:
        try:
            code = command()
        except BaseException as error:  # noqa: BLE001 - each has its exit code; none may leave Python's own, 1
            code = _heard(error)
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        return code or _heard(error)
    return code


def _heard(error: BaseException) -> Code:
    """The exit code of an exception; its message, where it has any, is printed."""
    code: Code = FAULT
    match error:
        case PastClick(__cause__=BaseException() as cause):
            return _heard(cause)
        case BrokenPipeError():
            code = BY_SIGNAL + signal.SIGPIPE
        case Stopped(name=name, code=code):
            _say(f"stopped by {name}; {NOTHING_LOST}")
        case SystemExit(code=code):
            pass
        case PerfsvcError(exit_code=code):
            _say(f"error: {error}")
        case click.ClickException(exit_code=code):
            error.show()
        case click.Abort() | KeyboardInterrupt():
            code = BY_SIGNAL + signal.SIGINT
            _say(f"interrupted; {NOTHING_LOST}")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT, strerror=reason):
            _say(f"error: {error.filename or 'the output'} cannot be written: {reason}\n  cure: make room")
        case _:
            traceback.print_exception(error)
            _say("error: this is a fault of perfsvc\n  cure: report it with the lines above and: perfsvc doctor")
    return code


def _say(message: str) -> None:
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    click.echo(click.style(message, fg="red") if coloured else message, err=True)


def _discard_output() -> None:
    """Lets Python flush what nobody takes any more when it exits."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is wanted, not a path
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
