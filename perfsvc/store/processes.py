"""Whether the process that executes a run or a night is still alive."""

import os
from pathlib import Path
from typing import Any


def start_of(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if it is gone or the system does not report it.

    The id and the start together identify a process for good: the system uses ids again.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    state, start = fields[0], fields[19]
    return "" if state in "ZX" else start


def alive(pid: int, start: str) -> bool:
    """Return True if the process with this id and this start still runs."""
    if start:
        return start_of(pid) == start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs as another user
    return True


def this_process() -> dict[str, Any]:
    """Return the columns that identify this process in a run or a night."""
    return {"pid": os.getpid(), "process_start": start_of(os.getpid())}
