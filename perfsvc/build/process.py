"""Compilers and profilers as processes, known while they run so that what is interrupted leaves none behind."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 600.0
"""A compiler that runs for longer counts as hung: it is killed with all that it started."""

_ORPHANS_LIMIT_S = 3600
"""Processor time of one compiler process, kept by the system even when nobody is left to watch it."""

_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended, and all it printed; ``timed_out`` where it was killed after its time limit."""

    code: int
    output: str
    timed_out: bool = False


def python_module(name: str) -> list[str]:
    """The command line of a module of ours in a process of its own: Python by its full path.

    Modules of the working directory are imported there only where ours may be: one may be called ``random.py``.
    """
    path = [] if {"", str(Path.cwd())} & set(sys.path) else ["-P"]
    return [sys.executable, *path, "-m", name]


def run(
    command: Sequence[str],
    *,
    folder: Path,
    limit_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Runs a program to its end; stdout and stderr come back together, in the order in which it wrote them.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        limit_s: seconds after which it is killed with all that it started; None for what a compiler may take.
        environment: its environment variables; None for ours.

    Raises:
        OSError: it cannot be started.
    """
    # A session of its own: a compiler driver starts further programs, and all of them must end together.
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        with _lock:
            _running.add(process)
            if _stopped.is_set():
                _kill(process)
        try:
            _limit_processor_time(process)
            return _finished(process, LIMIT_S if limit_s is None else limit_s)
        except BaseException:
            _kill(process)
            raise
        finally:
            with _lock:
                _running.discard(process)


def how(code: int) -> str:
    """How a program ended, in words: ``SIGSEGV``, ``exit status 1``."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def allow() -> None:
    """Lets compilers run again after ``stop``, once those who waited for the stopped ones have ended."""
    _stopped.clear()


def stop() -> None:
    """Kills every compiler that ``run`` has under way, with the programs it started, and each that is just starting."""
    with _lock:
        _stopped.set()
        for process in _running:
            _kill(process)


def _finished(process: subprocess.Popen[str], limit_s: float) -> Finished:
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        output, _ = process.communicate()
        return Finished(process.returncode, output, timed_out=True)
    return Finished(process.returncode, output)


def _limit_processor_time(process: subprocess.Popen[str]) -> None:
    # For when this process is killed with -9. A signal at the parent's death (PR_SET_PDEATHSIG) would reach the driver
    # alone and not the programs it starts, which are what hangs; this limit is theirs too.
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):  # ended already; limited further
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (_ORPHANS_LIMIT_S, _ORPHANS_LIMIT_S))


def _kill(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended this very moment
            os.killpg(process.pid, signal.SIGKILL)
