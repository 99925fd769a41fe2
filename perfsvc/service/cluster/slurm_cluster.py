"""A Slurm cluster: a job lends each GPU, and runs the agent of this GPU. submitit submits the jobs.

Slurm decides which GPU a job gets, and keeps other jobs off it. The lock of the host still guards the GPU against runs
that Slurm does not know. The command and the jobs talk through a folder that both see (``shared_folder.py``).
"""

import contextlib
import io
import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsvc.build import cache
from perfsvc.config.settings import SlurmGpuSettings, SlurmSettings
from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import codec
from perfsvc.service.cluster.messages import AgentOrder, AgentReply, Blobs, Packet
from perfsvc.service.cluster.protocol import LentGpu, LostError, last_line, start_cure
from perfsvc.service.cluster.shared_folder import BlobFolder, Inbox, Outbox, create
from perfsvc.service.cluster.slurm_agent import BLOBS, ORDERS, REPLIES, serve

COMMANDS = ("sbatch", "squeue", "scancel", "srun")
"""The commands of Slurm that perfsvc and submitit need."""
LOGS = "logs"
LOOK_S = 0.2
"""Seconds between two looks at the replies."""
ASK_S = 5.0
"""Seconds between two questions to Slurm about the jobs."""
ASK_AGAIN_S = 60.0
"""Seconds until the next question if Slurm does not answer."""
ANSWER_S = 120.0
"""Seconds that an agent may take for an answer that needs no measurement."""
COMMAND_S = 30.0
"""Seconds that a command of Slurm may take."""
TOUCH_S = 30.0
"""Seconds between two signs of life of the command."""
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
CURES = {
    "NODE_FAIL": "sinfo -R shows why the node failed",
    "TIMEOUT": "give the jobs more time: the key time of [slurm]",
    "OUT_OF_MEMORY": 'request more memory: options = { mem = "32G" } in [slurm]',
}


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
    """The states of the jobs of this user, asked at most every ``ASK_S`` seconds for all jobs together.

    ``squeue`` also works without an accounting database, which ``sacct`` and therefore submitit needs, and shows why a
    job waits.
    """

    def __init__(self) -> None:
        self._states: Mapping[str, JobState] = {}
        self._next_ask_s = 0.0

    def state(self, job: str) -> JobState:
        """Return the state of a job; ``UNKNOWN`` if Slurm has not answered yet."""
        if time.monotonic() >= self._next_ask_s:
            listed = _listed()
            self._next_ask_s = time.monotonic() + (ASK_AGAIN_S if listed is None else ASK_S)
            if listed is not None:
                gone = {job: state if state.has_ended else JobState(GONE) for job, state in self._states.items()}
                self._states = gone | listed
        return self._states.get(job, UNKNOWN)

    def add(self, job: str) -> None:
        """Add a job that was just submitted."""
        self._states = {**self._states, job: UNKNOWN}
        self._next_ask_s = 0.0


def _listed() -> dict[str, JobState] | None:
    """Return the jobs that Slurm lists, by their numbers; None if it does not answer."""
    listed = _slurm("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%N")
    if listed is None:
        return None
    rows = (line.strip().split("|", 3) for line in listed.splitlines())
    return {row[0]: JobState(*row[1:]) for row in rows if len(row) == len(("job", "state", "reason", "node"))}


def _slurm(*command: str) -> str | None:
    """Return what a command of Slurm prints; None if it fails or takes too long."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=True, stdin=subprocess.DEVNULL)
        return done.stdout.decode(errors="replace")
    return None


class SlurmGpu:
    """A GPU that a Slurm job lends.

    Args:
        job: submitit's job.
        queue: the states of all jobs.
        orders: the file of the orders.
        replies: the file of the replies.
        blobs: the binaries and files.

    Attributes:
        id: the number of the job.
        log: what the job prints as errors.
        is_cancelled: whether this object has cancelled the job.
    """

    def __init__(self, job: Any, queue: JobQueue, orders: Path, replies: Path, blobs: BlobFolder) -> None:
        self.id = str(job.job_id)
        self.log = Path(job.paths.stderr)
        self.is_cancelled = False
        self._queue = queue
        self._orders, self._replies, self._blobs = Outbox(orders), Inbox(replies), blobs
        self._packets: list[Packet] = []
        self._facts: bytes | None = None
        self._parts: bytes | None = None

    @property
    def place(self) -> str:
        """The job with its node, or with the reason why it waits."""
        seen = self.state
        if seen.node:
            return f"job {self.id} on {seen.node}"
        return f"job {self.id} ({seen.state}{f': {seen.reason}' if seen.reason not in {'', 'None'} else ''})"

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self._queue.state(self.id)

    def facts(self) -> bytes | None:
        """Return the facts of the agent; None while the job waits."""
        if self._facts is None:
            self._receive()
        return self._facts

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Ask for the parts of the environment, and wait for them."""
        self._send(AgentOrder(parts_of=device, benches=benches))
        ends = time.monotonic() + ANSWER_S
        while self._parts is None:
            self._receive()
            if time.monotonic() >= ends:
                raise LostError(f"it did not answer within {ANSWER_S:.0f} s")
            time.sleep(LOOK_S)
        return self._parts

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Write the binaries that are not in the folder yet, and begin a share."""
        with _lost_if_unwritable():
            self._blobs.write(blobs)
        self._send(AgentOrder(share=share, blobs=tuple(blobs)))

    def take(self) -> list[Packet]:
        """Return the news that have arrived."""
        self._receive()
        packets, self._packets = self._packets, []
        return packets

    def has_news(self) -> bool:
        """Return whether there are replies to read, or the job has ended."""
        with contextlib.suppress(OSError):  # reading them reports it
            return self._replies.has_more() or self.state.has_ended
        return True

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further pair of these tasks."""
        self._send(AgentOrder(drop=tuple(positions)))

    def stop(self) -> None:
        """Begin no further case."""
        self._send(AgentOrder(stop=True))

    def end(self) -> None:
        """Cancel the job."""
        self.is_cancelled = True
        _slurm("scancel", self.id)

    def _send(self, order: AgentOrder) -> None:
        with _lost_if_unwritable():
            self._orders.send([codec.encode(order)])

    def _receive(self) -> None:
        """Read what has arrived; raise ``LostError`` if the job has ended and nothing is left to read."""
        ended = self.state.has_ended  # before reading: what the job sent at its end is read too
        with _lost_if_unreadable():
            texts = self._replies.read()
            for text in texts:
                reply = codec.decode(AgentReply, text)
                self._facts = reply.facts or self._facts
                self._parts = reply.parts or self._parts
                if reply.news:
                    self._packets.append((reply.news, self._blobs.read(reply.files)))
        if ended and not texts and not self._packets:
            raise self._loss()

    def _loss(self) -> LostError:
        state = self.state.state
        if state == GONE:
            return LostError("Slurm no longer lists its job")
        what = f"its job ended with the state {state}"
        if state != FAILED:
            return LostError(what, cure=CURES.get(state, ""))
        try:
            log = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:  # Slurm could not make the log
            folder = self.log.parents[2]
            return LostError(what, cure=f"name a folder that all nodes see, unlike {folder}: the key folder of [slurm]")
        what += f": {last_line(log)}" if log.strip() else ""
        return LostError(what, cure=start_cure(log, "the Python of this command", f"see {self.log}"))


class SlurmCluster:
    """The Slurm cluster that this host can submit jobs to.

    Args:
        settings: how to request GPUs.

    Raises:
        MissingPackageError: submitit is not installed.
        InfrastructureError: Slurm's commands are missing, or the shared folder cannot be made.
    """

    name = "the Slurm cluster"
    priority_cure = "start perfsvc without nice"

    def __init__(self, settings: SlurmSettings) -> None:
        try:
            import submitit
        except ImportError as error:
            raise MissingPackageError(
                "a Slurm cluster needs submitit, which is not installed", cure=install_command("slurm")
            ) from error
        if missing := [command for command in COMMANDS if shutil.which(command) is None]:
            raise InfrastructureError(
                f"Slurm's commands are missing on this host: {', '.join(missing)}",
                cure="type the command on a host from which you submit jobs, such as a login node",
            )
        self.patience_s = math.inf if settings.wait is None else settings.wait
        self._settings = settings
        self._folder = _run_folder(settings.folder)
        self._blobs = BlobFolder(self._folder / BLOBS)
        self._executor = submitit.SlurmExecutor(self._folder / LOGS)
        self._queue = JobQueue()
        self._gpus: list[SlurmGpu] = []
        self._is_closed = threading.Event()
        threading.Thread(target=self._touch, daemon=True).start()

    def lend(self, specs: Sequence[str]) -> Sequence[LentGpu]:
        """Submit a job for each GPU that the settings name."""
        wanted = [gpus for gpus in self._settings.gpus or (SlurmGpuSettings(),) for _ in range(gpus.count)]
        fakes = [spec for spec in specs if spec.startswith("fake:")]
        for gpus, spec in zip(wanted, fakes or ["cuda"] * len(wanted), strict=False):
            self._gpus.append(self._submit(gpus, spec))
        return tuple(self._gpus)

    def _submit(self, gpus: SlurmGpuSettings, spec: str) -> SlurmGpu:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        name = str(len(self._gpus))
        orders, replies = self._folder / f"{name}{ORDERS}", self._folder / f"{name}{REPLIES}"
        self._executor.update_parameters(**parameters(self._settings, gpus))
        try:
            create(orders)
            create(replies)
            with contextlib.redirect_stderr(io.StringIO()):  # submitit prints the error too
                job = self._executor.submit(serve, str(self._folder), name, spec)
        except OSError as error:
            raise _unusable(self._folder, error) from error
        except (FailedJobError, FailedSubmissionError) as error:
            lines = (line.strip().removeprefix("sbatch: error: ") for line in str(error).splitlines())
            raise InfrastructureError(
                f"Slurm refuses a job with {gpus.gres}: {'; '.join(filter(None, lines))}",
                cure="correct [slurm] in perfsvc.toml; sinfo -o '%P %G %f' lists partitions, GPUs and features",
            ) from error
        self._queue.add(str(job.job_id))
        return SlurmGpu(job, self._queue, orders, replies, self._blobs)

    def wait(self, gpus: Sequence[LentGpu], limit_s: float) -> None:
        """Wait until an agent has news or is lost."""
        ends = time.monotonic() + limit_s
        while time.monotonic() < ends:
            time.sleep(LOOK_S)
            if any(gpu.has_news() for gpu in gpus if isinstance(gpu, SlurmGpu)):
                return

    def close(self) -> None:
        """Cancel all jobs, and remove the shared folder; the logs stay if a job has failed."""
        self._is_closed.set()
        if running := [gpu.id for gpu in self._gpus if not (gpu.is_cancelled or gpu.state.has_ended)]:
            _slurm("scancel", *running)
        has_failed = any(gpu.state.state == FAILED for gpu in self._gpus if not gpu.is_cancelled)
        with contextlib.suppress(OSError):  # the folder is gone, or cannot be reached
            for path in self._folder.iterdir() if has_failed else [self._folder]:
                if path.is_file():
                    path.unlink()
                elif path.name != LOGS:
                    shutil.rmtree(path, ignore_errors=True)

    def _touch(self) -> None:
        """Give the agents a sign of life again and again: an agent ends if the command is gone."""
        while not self._is_closed.wait(TOUCH_S):
            for path in self._folder.glob(f"*{ORDERS}"):
                with contextlib.suppress(OSError):
                    os.utime(path)


def parameters(settings: SlurmSettings, gpus: SlurmGpuSettings) -> dict[str, Any]:
    """Return submitit's parameters for the job of a GPU.

    The job is never requeued: what it has not measured has moved to another GPU by then. It starts without ``srun``,
    which since Slurm 22.05 would give the agent one processor, whatever ``cpus-per-task`` the job requests.
    """
    return {
        "job_name": "perfsvc",
        "time": math.ceil(settings.time / 60),
        "nodes": 1,
        "partition": gpus.partition or settings.partition or None,
        "gres": gpus.gres,
        "constraint": gpus.constraint or None,
        "wckey": None,
        "use_srun": False,
        "additional_parameters": {
            "no-requeue": True,
            **{name: value for name, value in settings.options.items() if value is not False},
        },
    }


def _run_folder(parent: Path | None) -> Path:
    """Make the shared folder of a run, which only this user can read, and return its path.

    The jobs run what they find there. So no other user may change the folder above either: he could replace this one.

    Args:
        parent: the folder of the settings; None for one in the build cache.
    """
    parent = parent or cache.private_folder(cache.default_folder()) / "slurm"
    if not str(parent.resolve()).isprintable():  # the path becomes a line of the jobs' script
        raise UsageError(
            f"{str(parent)!r} has characters that cannot be printed", cure="name another folder in [slurm]"
        )
    try:
        parent.mkdir(0o700, parents=True, exist_ok=True)
        cache.private_folder(parent)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent.resolve()))
        (folder / BLOBS).mkdir(0o700)
    except OSError as error:
        raise _unusable(parent, error) from error
    return folder


def _unusable(folder: Path, error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"the folder {folder} for the jobs of Slurm cannot be used: {error.strerror or error}",
        cure="name a folder that all nodes see, and that you can write to: the key folder of [slurm]",
    )


@contextlib.contextmanager
def _lost_if_unwritable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LostError(f"its shared folder cannot be written: {error}") from error


@contextlib.contextmanager
def _lost_if_unreadable() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise LostError(f"what it sent cannot be read: {error}") from error
