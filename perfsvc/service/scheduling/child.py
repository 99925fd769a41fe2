"""A night as a child process: whatever becomes of it, its parent goes on."""

import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from perfsvc.service.scheduling.job import STOP_S
from perfsvc.units import duration_text

AT_ONCE_S = 10.0
"""Seconds that a night may take which is to end at once: its workers and compilers are ended first."""


class Child:
    """Starts nights, one at a time, and ends them.

    Args:
        command: what is started.
        folder: where.
        limit_s: seconds after which a night is told to end.
        say: is told what becomes of nights.
    """

    def __init__(self, command: Sequence[str], folder: Path, limit_s: float, say: Callable[[str], object]) -> None:
        self._command = list(command)
        self._folder = folder
        self._limit_s = limit_s
        self._say = say
        self._one = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self, *, resume: bool = False) -> None:
        """Holds a night, or goes on with one, to its end; leaves it out where the one before is still at work."""
        if not self._one.acquire(blocking=False):
            self._say("the night before is still at work: this one is left out")
            return
        try:
            self._hold([*self._command, "--resume"] if resume else self._command)
        finally:
            self._one.release()

    def stop(self) -> None:
        """Has the night finish the case in hand, commit it and end; and begins no other."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Waits for the night to end; whether none is at work any more."""
        if self._one.acquire(timeout=seconds):
            self._one.release()
            return True
        return False

    def end(self) -> None:
        """Ends the night at once."""
        if self.wait(0):
            return
        if not self._stopping.is_set():
            self.stop()
        self._signal(signal.SIGTERM)  # the second one
        if not self.wait(AT_ONCE_S):
            self._signal(signal.SIGKILL)
            self.wait(AT_ONCE_S)

    def _hold(self, command: Sequence[str]) -> None:
        if self._stopping.is_set():
            return
        try:
            # A session of its own, for what a terminal sends to us is ours to pass on.
            process = subprocess.Popen(command, cwd=self._folder, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            self._say(f"the night could not be started: {error}")
            return
        self._process = process
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        self._say(f"a night begins (pid {process.pid})")
        self._say(f"the night ended with {_ended(self._outlasted(process))}")

    def _outlasted(self, process: subprocess.Popen[bytes]) -> int:
        """The exit status of a night, which is ended when it takes too long."""
        try:
            return process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            self._say(f"the night is told to end, after {duration_text(self._limit_s)}")
            self._signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._say("the night does not end, and is killed")
            self._signal(signal.SIGKILL)
        return process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(number)


def _ended(status: int) -> str:
    """An exit status as people say it."""
    return f"exit code {status}" if status >= 0 else signal.Signals(-status).name
