"""Run compilers and profilers as processes that are all killed if perfsvc is interrupted; find NVIDIA's programs."""

import contextlib
import importlib.util
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LIMIT_S = 600.0
"""A compiler that runs longer counts as hung and is killed with all that it started."""

_ORPHAN_LIMIT_S = 3600
"""Processor time of one compiler process. The system enforces it, even after this process was killed."""

_running: set[subprocess.Popen[bytes]] = set()
_stopped = threading.Event()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Finished:
    """A program's exit code and all its output; ``timed_out`` if it was killed after its time limit."""

    code: int
    output: str
    timed_out: bool = False


def find_cuda_program(name: str) -> Path | None:
    """Find a program of the CUDA toolkit: on PATH, else in an installed toolkit, else in a Python package."""
    return next((path for path in _cuda_program_paths(name) if os.access(path, os.X_OK)), None)


def _cuda_program_paths(name: str) -> Iterator[Path]:
    """Yield the paths at which a program of the CUDA toolkit may be, the preferred path first."""
    if on_path := shutil.which(name):
        yield Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(variable):
            yield Path(toolkit, "bin", name)
    yield Path("/usr/local/cuda/bin", name)
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        yield from sorted(Path(folder).glob(f"cu*/bin/{name}"), reverse=True)


def python_module(name: str) -> list[str]:
    """Return the command that runs a perfsvc module as a process of this Python.

    The command imports modules from the working directory only if perfsvc itself may lie there: a user's file such as
    ``random.py`` could hide a module of Python.
    """
    folders = {""}
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        folders.add(str(Path.cwd()))
    path = [] if folders & set(sys.path) else ["-P"]
    return [sys.executable, *path, "-m", name]


def run(
    command: Sequence[str],
    *,
    folder: Path,
    limit_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program to its end, and return its exit code with stdout and stderr in the order they were written.

    Processes that the program started end with it. Daemons that left its session, such as the server of a compiler
    cache, are neither killed nor waited for.

    Args:
        command: the program and its arguments.
        folder: the folder in which the program runs.
        limit_s: seconds after which the program and all that it started are killed; by default ``LIMIT_S``.
        environment: the program's environment variables; by default those of this process.

    Raises:
        OSError: the program cannot be started.
    """
    # The output goes to a file, because a pipe stays open as long as any process holds it. The program gets its own
    # session, because a compiler driver starts further programs, and all of them must end together.
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
            timed_out = _wait(process, LIMIT_S if limit_s is None else limit_s)
            return Finished(process.returncode, _text(output), timed_out)
        except BaseException:
            _kill(process)
            raise
        finally:
            with _lock:
                _running.discard(process)


def describe_exit(code: int) -> str:
    """Return how a program ended, in words: ``SIGSEGV``, ``exit status 1``."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # most real-time signals have no name
        return f"signal {-code}"


def kill_all() -> None:
    """Kill every program that ``run`` has started or starts before ``allow_again``, with the program's children."""
    with _lock:
        _stopped.set()
        for process in _running:
            _kill(process)


def allow_again() -> None:
    """Allow programs to run again after ``kill_all``."""
    _stopped.clear()


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Wait until a process ends, and kill all that it started; return True if it was killed at the time limit."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
        return True
    _kill_group(process.pid)  # the number is not reused as long as a process of the group exists
    return False


def _text(output: IO[bytes]) -> str:
    """Return a file's content without moving its position, which processes that still write to it share."""
    content = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace").read()


def _limit_processor_time(process: subprocess.Popen[bytes]) -> None:
    """Set a limit on the processor time of a process, which the programs that it starts inherit."""
    # This limit ends compilers if this process is killed with SIGKILL. A signal at the parent's death
    # (PR_SET_PDEATHSIG) would reach only the compiler driver. The programs that the driver starts are what hangs.
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):  # it ended, or has a lower limit
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (_ORPHAN_LIMIT_S, _ORPHAN_LIMIT_S))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        _kill_group(process.pid)


def _kill_group(number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended
        os.killpg(number, signal.SIGKILL)
