"""Limits for calls that may never return, because Slurm or the server of the shared folder does not answer.

Such a call has a thread of its own. The system cannot end a thread that waits for a file server, so the thread of a
late call stays behind until the server answers or this process ends.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from perfsvc import units
from perfsvc.errors import InfrastructureError
from perfsvc.service.cluster.protocol import SILENT_AGENT_S

REPORT_S = 30.0
"""Seconds without an answer of the shared folder until the user learns what the run waits for."""
FOLDER_S = SILENT_AGENT_S
"""Seconds without an answer of the shared folder until the run ends. A server that restarts takes minutes."""

T = TypeVar("T")


def within(limit_s: float, work: Callable[[], T], late: InfrastructureError) -> T:
    """Return what ``work`` returns.

    Raises:
        InfrastructureError: ``late``, if ``work`` takes longer than ``limit_s`` seconds. The processes that it has
            started are killed.
    """
    result, thread = _begin(work)
    if not futures.wait([result], limit_s).done:
        _kill_children(thread)
        raise late
    return result.result()


class FolderCalls:
    """Makes calls that read or write the shared folder.

    Args:
        folder: the folder, for messages.
        report: receives a message when a call takes longer than ``REPORT_S``.
    """

    def __init__(self, folder: Path, report: Callable[[str], object]) -> None:
        self._folder = folder.absolute()
        self._report = report
        self._late: InfrastructureError | None = None

    def __call__(self, work: Callable[[], T], limit_s: float | None = None) -> T:
        """Return what ``work`` returns. By default it may take ``FOLDER_S`` seconds.

        Raises:
            InfrastructureError: this call, or an earlier one, has taken longer than its limit.
        """
        if self._late:
            raise self._late
        limit_s = FOLDER_S if limit_s is None else limit_s
        result, _ = _begin(work)
        if not futures.wait([result], min(REPORT_S, limit_s)).done and limit_s > REPORT_S:
            self._report(
                f"the shared folder {self._folder} has not answered for {units.duration_text(REPORT_S)}: the run waits "
                f"for it, and ends after {units.duration_text(limit_s)} without an answer"
            )
            futures.wait([result], limit_s - REPORT_S)
        if not result.done():
            self._late = InfrastructureError(
                f"the shared folder {self._folder} has not answered for {units.duration_text(limit_s)}",
                cure=f"see whether ls {self._folder} answers on this host; if its file server stays away, name a "
                "folder on another disk: the key folder of [slurm]",
            )
            raise self._late
        return result.result()


def _begin(work: Callable[[], T]) -> tuple[Future[T], threading.Thread]:
    """Begin a call in a thread of its own; return its result to come, and the thread."""
    result: Future[T] = Future()

    def call() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for the result
            result.set_exception(error)

    # Not from a pool: the end of this process would wait for the threads of a pool.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return result, thread


def _kill_children(thread: threading.Thread) -> None:
    """Kill the processes that a thread has started and that still run."""
    with contextlib.suppress(OSError):  # the thread or a process has ended just now
        for pid in Path(f"/proc/self/task/{thread.native_id}/children").read_text(encoding="ascii").split():
            os.kill(int(pid), signal.SIGKILL)
