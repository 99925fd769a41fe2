"""The jobs that this run has submitted to Slurm: their states, as ``squeue`` shows them."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from perfsvc import units
from perfsvc.errors import InfrastructureError
from perfsvc.service.cluster.messages import SILENT_AGENT_S, last_line

COMMAND_S = 30.0
"""Seconds that a command of Slurm may take."""
KILLED_S = 1.0
"""Seconds that a killed command may take to end. One that waits for a dead file server ends only with the server."""
RUNNING = "RUNNING"
"""The state of a job that runs."""
FAILED = "FAILED"
"""The state of a job whose command failed."""
GONE = "GONE"
"""The state of a job that Slurm no longer lists."""
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    FAILED,
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
"""The states of jobs that have ended."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What ``squeue`` shows of a job.

    Attributes:
        state: the state, such as ``RUNNING``.
        reason: why the job waits, such as ``Priority``.
        node: the node of the job; empty while it waits.
    """

    state: str
    reason: str = ""
    node: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the job runs no more."""
        return self.state in ENDED or self.state == GONE


UNKNOWN = JobState("UNKNOWN")


class JobQueue:
    """The jobs of this run. One thread asks Slurm for their states, and cancels jobs; another one reads the answers.

    Both take one command for all jobs. ``squeue`` also works without an accounting database, which ``sacct`` and
    therefore submitit needs, and shows why a job waits.

    Args:
        report: receives one message if Slurm does not answer; called by the thread that reads the states.
    """

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._states: Mapping[str, JobState] = {}
        self._lock = threading.Lock()
        self._unwanted: set[str] = set()
        self._cancelled: set[str] = set()
        self._cancelling = threading.Lock()
        self._woken = threading.Event()
        self._problem = ""
        self._is_reported = False

    def state(self, job: str) -> JobState:
        """Return the state of a job at the last answer; ``UNKNOWN`` if Slurm has not answered yet."""
        if self._problem and not self._is_reported:
            self._is_reported = True
            self._report(
                f"Slurm does not say how the jobs are ({self._problem}): the run goes on, and notices that a job has "
                f"ended only after {units.duration_text(SILENT_AGENT_S)} without a sign of life; see whether "
                "squeue --me works on this host"
            )
        return self._states.get(job, UNKNOWN)

    def add(self, job: str) -> None:
        """Add a job that was just submitted."""
        with self._lock:
            self._states = {**self._states, job: UNKNOWN}

    def cancel_soon(self, job: str) -> None:
        """Have the next ``ask`` cancel a job, and end ``wait``: Slurm may not answer, and the caller has no time."""
        with self._lock:
            self._unwanted.add(job)
        self._woken.set()

    def cancel(self, jobs: Collection[str] = ()) -> None:
        """Cancel these jobs and those of ``cancel_soon``, each once.

        Raises:
            InfrastructureError: Slurm refuses, or does not answer within ``COMMAND_S`` seconds.
        """
        with self._cancelling:
            if left := self._unwanted.union(jobs) - self._cancelled:
                slurm("scancel", *sorted(left))
                self._cancelled |= left

    def wait(self, limit_s: float) -> None:
        """Wait until ``ask`` is due: after ``limit_s`` seconds, or when a job is to be cancelled."""
        self._woken.wait(limit_s)
        self._woken.clear()

    def ask(self) -> bool:
        """Cancel the jobs of ``cancel_soon``, and ask Slurm for the states of all jobs.

        Returns:
            False if Slurm does not answer within ``COMMAND_S`` seconds.
        """
        with contextlib.suppress(InfrastructureError):  # the next call tries again, and the end of the run reports it
            self.cancel()
        asked = self._states  # a job that is added meanwhile may be missing in the answer
        try:
            answer = slurm("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%N")
        except InfrastructureError as error:
            self._problem = error.what
            return False
        rows = (line.strip().split("|", 3) for line in answer.splitlines())
        listed = {row[0]: JobState(*row[1:]) for row in rows if len(row) == len(("job", "state", "reason", "node"))}
        gone = {job: state if state.has_ended else JobState(GONE) for job, state in asked.items()}
        with self._lock:
            self._states = {**self._states, **gone, **listed}
        return True


def slurm(*command: str) -> str:
    """Return what a command of Slurm prints; raise ``InfrastructureError`` if it fails or takes too long."""
    # The output goes to a file: a pipe stays open as long as any process holds it, such as one that a wrapper of the
    # command has started.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        except OSError as error:
            raise InfrastructureError(f"{command[0]} cannot be started: {error.strerror}") from error
        try:
            code = process.wait(COMMAND_S)
        except subprocess.TimeoutExpired as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILLED_S)
            raise InfrastructureError(f"{command[0]} did not end within {units.duration_text(COMMAND_S)}") from error
        if code:
            errors.seek(0)
            why = last_line(errors.read().decode(errors="replace")) or f"exit code {code}"
            raise InfrastructureError(f"{command[0]} failed: {why}")
        output.seek(0)
        return output.read().decode(errors="replace")
