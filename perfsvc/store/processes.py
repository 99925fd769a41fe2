"""Whether the process that began a run or a night still lives."""

import os
from pathlib import Path
from typing import Any


def start_of(pid: int) -> str:
    """When a process started, in the kernel's own ticks; empty where it is gone or the system does not tell.

    Together with the id it names a process for good: ids alone are given again.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    state, start = fields[0], fields[19]
    return "" if state in "ZX" else start


def alive(pid: int, start: str) -> bool:
    """Whether the process that had this id and this start is still there."""
    if start:
        return start_of(pid) == start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there, and another user's
    return True


def this_process() -> dict[str, Any]:
    """What a row holds of the process that is at work on it."""
    return {"pid": os.getpid(), "process_start": start_of(os.getpid())}
