"""Compiler processes, known while they run so that an interrupted build leaves none behind."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_running: set[subprocess.Popen[str]] = set()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a compiler ended, and all it printed."""

    code: int
    output: str


def run(command: Sequence[str], *, folder: Path) -> Finished:
    """Runs a compiler in ``folder`` to its end; stdout and stderr come back together, as the compiler ordered them.

    Raises ``OSError`` where it cannot be started.
    """
    # A session of its own: a compiler driver starts further programs, and all of them must end together.
    with subprocess.Popen(
        command,
        cwd=folder,
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
        try:
            output, _ = process.communicate()
        finally:
            with _lock:
                _running.discard(process)
    return Finished(process.returncode, output)


def kill_all() -> None:
    """Kills every compiler that ``run`` has under way in this process, with the programs it started."""
    with _lock:
        for process in _running:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended this very moment
                    os.killpg(process.pid, signal.SIGKILL)
