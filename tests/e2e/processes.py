"""The processes of a run, as /proc lists them."""

import time
from pathlib import Path

WORKER = b"perfsvc.measure.worker.main"
"""In the command line of the server that forks workers. Another server forks what runs benchmark files."""


def children(pid):
    """Return the process ids of a process's children; none if the process has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def workers(run):
    """Return the workers that a run's fork server forked."""
    return [worker for child in children(run.pid) if _forks_workers(child) for worker in children(child)]


def _forks_workers(pid):
    try:
        return WORKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # it has ended since it was listed
        return False


def alive(pid):
    """Whether a process is there and no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
