"""Compilers and profilers as processes, known while they run so that what is interrupted leaves none behind."""

import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LIMIT_S = 600.0
"""A compiler that runs for longer counts as hung: it is killed with all that it started."""

_ORPHANS_LIMIT_S = 3600
"""Processor time of one compiler process, kept by the system even when nobody is left to watch it."""

_running: set[subprocess.Popen[bytes]] = set()
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

    What it started ends with it. What left its session is not waited for: a daemon, such as the server of a cache that
    stands in the compiler's place.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        limit_s: seconds after which it is killed with all that it started; None for what a compiler may take.
        environment: its environment variables; None for ours.

    Raises:
        OSError: it cannot be started.
    """
    # Into a file: a pipe ends no sooner than the last process that holds it. A session of its own: a compiler driver
    # starts further programs, and all of them must end together.
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        with _lock:
            _running.add(process)
            if _stopped.is_set():
                _kill(process)
        try:
            _limit_processor_time(process)
            timed_out = _timed_out(process, LIMIT_S if limit_s is None else limit_s)
            return Finished(process.returncode, _text(output), timed_out)
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


def _timed_out(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Waits until a process has ended, by itself or by its time limit, and its session with it."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
        return True
    _kill_group(process.pid)  # the number is nobody else's while one of the group is left
    return False


def _text(output: IO[bytes]) -> str:
    """All that a file holds now; its position is also that of whoever still writes to it, and stays."""
    held = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)
    return io.TextIOWrapper(io.BytesIO(held), encoding="utf-8", errors="replace").read()


def _limit_processor_time(process: subprocess.Popen[bytes]) -> None:
    # For when this process is killed with -9. A signal at the parent's death (PR_SET_PDEATHSIG) would reach the driver
    # alone and not the programs it starts, which are what hangs; this limit is theirs too.
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):  # ended already; limited further
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (_ORPHANS_LIMIT_S, _ORPHANS_LIMIT_S))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        _kill_group(process.pid)


def _kill_group(number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended this very moment
        os.killpg(number, signal.SIGKILL)
