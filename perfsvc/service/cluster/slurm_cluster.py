"""A Slurm cluster: a job lends each GPU, and runs the agent of this GPU. submitit submits the jobs.

Slurm decides which GPU a job gets, and keeps other jobs off it. The lock of the host still guards the GPU against runs
that Slurm does not know. The command and the jobs talk through a folder that both see (``shared_folder.py``).
"""

import contextlib
import io
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from perfsvc import units
from perfsvc.build import cache
from perfsvc.config.settings import PREFIX, SlurmGpuSettings, SlurmSettings
from perfsvc.errors import InfrastructureError, MissingPackageError
from perfsvc.installation import install_command
from perfsvc.model import codec
from perfsvc.service.cluster.messages import (
    SILENT_AGENT_S,
    AgentOrder,
    AgentReply,
    Blobs,
    ClusterGpu,
    LostError,
    Packet,
    last_line,
    start_cure,
)
from perfsvc.service.cluster.run_folder import (
    COMMAND,
    LOGS,
    ROOM,
    RUN_PREFIX,
    make_run_folder,
    unusable,
    why_unwritable,
)
from perfsvc.service.cluster.shared_folder import BlobFolder, FolderCalls, Inbox, LifeSigns, Outbox, create, within
from perfsvc.service.cluster.slurm_agent import BLOBS, ORDERS, REPLIES, serve
from perfsvc.service.cluster.slurm_jobs import FAILED, GONE, RUNNING, JobQueue, JobState

COMMANDS = ("sbatch", "squeue", "scancel", "srun")
"""The commands of Slurm that perfsvc and submitit need."""
LOOK_S = 0.2
"""Seconds between two looks at the replies."""
ASK_S = 5.0
"""Seconds between two questions to Slurm about the jobs."""
ASK_AGAIN_S = 60.0
"""Seconds until the next question if Slurm does not answer."""
TOUCH_S = 30.0
"""Seconds between two signs of life of the command."""
SUBMIT_S = 60.0
"""Seconds that submitting a job may take. If Slurm is busy, ``sbatch`` tries several times."""
CLOSE_S = 30.0
"""Seconds that removing the shared folder may take at the end."""
NEEDED = {f"{PREFIX}CACHE", f"{PREFIX}LOCKS"}
"""The variables of perfsvc that jobs get. Some of the others hold the password of the database, or a token."""
OF_POSTGRESQL = "PGPASSWORD"
"""A variable with the password of the database that jobs do not get either: they use no database."""
CURES = {
    "NODE_FAIL": "sinfo -R shows why the node failed",
    "TIMEOUT": "give the jobs more time: the key time of [slurm]",
    "OUT_OF_MEMORY": 'request more memory: options = { mem = "32G" } in [slurm]',
}

T = TypeVar("T")


class SlurmGpu:
    """A GPU that a Slurm job lends.

    Args:
        job: submitit's job.
        queue: the states of all jobs.
        orders: the file of the orders.
        replies: the file of the replies.
        blobs: the binaries and files.
        calls: makes the calls that read or write these files.

    Attributes:
        id: the number of the job.
        log: what the job prints as errors.
        is_cancelled: whether this object has cancelled the job.
    """

    def __init__(
        self, job: Any, queue: JobQueue, orders: Path, replies: Path, *, blobs: BlobFolder, calls: FolderCalls
    ) -> None:
        self.id = str(job.job_id)
        self.log = Path(job.paths.stderr)
        self.is_cancelled = False
        self._queue = queue
        self._calls = calls
        self._orders, self._replies, self._blobs = Outbox(orders), Inbox(replies), blobs
        self._life_signs = LifeSigns(SILENT_AGENT_S)
        self._lost: LostError | None = None
        self._packets: list[Packet] = []
        self._facts: bytes | None = None
        self._parts: bytes | None = None

    @property
    def place(self) -> str:
        """The job with its node, or with the reason why it waits."""
        state = self.state
        if state.node:
            return f"job {self.id} on {state.node}"
        return f"job {self.id} ({state.state}{f': {state.reason}' if state.reason not in {'', 'None'} else ''})"

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self._queue.state(self.id)

    @property
    def is_starting(self) -> bool:
        """Whether the job runs, and its agent has not sent its facts yet."""
        return self._facts is None and self.state.state == RUNNING

    def facts(self) -> bytes | None:
        """Return the facts of the agent; None while the job waits or its agent starts."""
        if self._facts is None:
            self._receive()
        return self._facts

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Ask for the parts of the environment, and wait for them as long as the agent lives."""
        self._send(AgentOrder(parts_of=device, benches=benches))
        while self._parts is None:
            self._receive()
            time.sleep(LOOK_S)
        return self._parts

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Write the binaries that are not in the folder yet, and begin a share."""
        self._use_folder(partial(self._blobs.write, blobs), "its shared folder cannot be written", ROOM)
        self._send(AgentOrder(share=share, blobs=tuple(blobs)))

    def take(self) -> list[Packet]:
        """Return the news that have arrived."""
        self._receive()
        packets, self._packets = self._packets, []
        return packets

    def has_news(self) -> bool:
        """Return whether there are replies to read."""
        with contextlib.suppress(OSError):  # reading them reports it
            return self._replies.has_more()
        return True

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further pair of these tasks."""
        self._send(AgentOrder(drop=tuple(positions)))

    def stop(self) -> None:
        """Begin no further case."""
        self._send(AgentOrder(stop=True))

    def end(self) -> None:
        """Have the job cancelled. If Slurm does not do that, the job ends by itself when the folder is removed."""
        self.is_cancelled = True
        self._queue.cancel_soon(self.id)

    def _send(self, order: AgentOrder) -> None:
        send = partial(self._orders.send, [codec.encode(order)])
        self._use_folder(send, "its shared folder cannot be written", ROOM)

    def _receive(self) -> None:
        """Read what has arrived.

        Raises:
            LostError: nothing is left to read, and the job has ended or its agent is silent; or a message is damaged.
        """
        state = self.state  # before reading: what the job sent at its end is read too
        has_read = self._use_folder(self._read, "what it sent cannot be read")
        if has_read or self._packets:
            return
        if state.has_ended:
            raise self._lose(self._calls(partial(self._loss, state)))
        if self._facts is None and state.state != RUNNING:  # the agent has not started yet
            return
        if self._life_signs.are_missing(self._replies.touched_ns):
            what = f"its agent has given no sign of life for {units.duration_text(SILENT_AGENT_S)}"
            raise self._lose(LostError(what, cure="see whether its node and the shared folder there answer"))

    def _read(self) -> bool:
        """Read the replies that have arrived; return whether there are any."""
        texts = self._replies.read()
        for text in texts:
            reply = codec.decode(AgentReply, text)
            self._facts = reply.facts or self._facts
            self._parts = reply.parts or self._parts
            if reply.news:
                self._packets.append((reply.news, self._blobs.read(reply.files)))
        return bool(texts)

    def _use_folder(self, use: Callable[[], T], what: str, cure: str = "") -> T:
        """Read or write the shared folder; raise ``LostError`` if that fails, or if the agent is lost already.

        Args:
            use: the call.
            what: what the error begins with.
            cure: what to do about it.
        """
        if self._lost:
            raise self._lost
        try:
            return self._calls(use)
        except (OSError, ValueError) as error:
            raise self._lose(LostError(f"{what}: {error}", cure=cure)) from error

    def _lose(self, error: LostError) -> LostError:
        """Return the error that ends the use of this GPU. What its agent may send later is not read any more."""
        self._lost = error
        if not self.state.has_ended:
            self.end()
        return error

    def _loss(self, state: JobState) -> LostError:
        """Return why a job has ended."""
        if state.state == GONE:
            return LostError("Slurm no longer lists its job")
        what = f"its job ended with the state {state.state}"
        if state.state != FAILED:
            return LostError(what, cure=CURES.get(state.state, ""))
        folder = self.log.parents[1]
        if why := why_unwritable(folder):  # then the log of the job may be empty
            return LostError(f"{what}, and {folder} cannot be written: {why}", cure=ROOM)
        try:
            log = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:  # Slurm could not make the log
            return LostError(
                what, cure=f"name a folder that all nodes see, unlike {folder.parent}: the key folder of [slurm]"
            )
        what += f": {last_line(log)}" if log.strip() else ""
        return LostError(what, cure=start_cure(log, "the Python of this command", f"see {self.log}"))


class SlurmCluster:
    """The Slurm cluster that this host can submit jobs to.

    Args:
        settings: how to request GPUs.
        report: receives a message if Slurm or the shared folder does not answer.

    Raises:
        MissingPackageError: submitit is not installed.
        InfrastructureError: Slurm's commands are missing, or the shared folder cannot be made or does not answer.
    """

    name = "the Slurm cluster"
    priority_cure = "start perfsvc without nice"

    def __init__(self, settings: SlurmSettings, report: Callable[[str], object]) -> None:
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
        self._report = report
        self._calls = FolderCalls(settings.folder or cache.default_folder(), report)
        self._folder = self._calls(partial(make_run_folder, settings.folder))
        self._blobs = BlobFolder(self._folder / BLOBS)
        self._executor = submitit.SlurmExecutor(self._folder / LOGS)
        self._queue = JobQueue(report)
        self._gpus: list[SlurmGpu] = []
        self._is_closed = threading.Event()
        # Two threads: a question that Slurm does not answer must not delay the signs of life.
        for target in (self._touch, self._ask):
            threading.Thread(target=target, daemon=True).start()

    def request(self, specs: Sequence[str]) -> Sequence[ClusterGpu]:
        """Submit a job for each GPU that the settings name."""
        wanted = [gpus for gpus in self._settings.gpus or (SlurmGpuSettings(),) for _ in range(gpus.count)]
        fakes = [spec for spec in specs if spec.startswith("fake:")]
        for gpus, spec in zip(wanted, fakes or ["cuda"] * len(wanted), strict=False):
            self._gpus.append(self._submit(gpus, spec))
        self._queue.ask()  # so that the first message about these jobs has their states
        return tuple(self._gpus)

    def _submit(self, gpus: SlurmGpuSettings, spec: str) -> SlurmGpu:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        name = str(len(self._gpus))
        orders, replies = self._folder / f"{name}{ORDERS}", self._folder / f"{name}{REPLIES}"
        job_name = job_name_in(self._folder)
        self._executor.update_parameters(**parameters(self._settings, gpus, job_name))
        try:
            for path in (orders, replies):
                self._calls(partial(create, path))
            # submitit prints the error too; sbatch passes its environment on to the job
            with contextlib.redirect_stderr(io.StringIO()), _without_secrets():
                job = within(
                    SUBMIT_S, partial(self._executor.submit, serve, str(self._folder), name, spec), _not_taken(job_name)
                )
        except OSError as error:
            raise unusable(self._folder, error) from error
        except (FailedJobError, FailedSubmissionError) as error:
            lines = (line.strip().removeprefix("sbatch: error: ") for line in str(error).splitlines())
            raise InfrastructureError(
                f"Slurm refuses a job with {gpus.gres}: {'; '.join(filter(None, lines))}",
                cure="correct [slurm] in perfsvc.toml; sinfo -o '%P %G %f' lists partitions, GPUs and features",
            ) from error
        self._queue.add(str(job.job_id))
        return SlurmGpu(job, self._queue, orders, replies, blobs=self._blobs, calls=self._calls)

    def wait(self, gpus: Sequence[ClusterGpu], limit_s: float) -> None:
        """Wait until an agent has news or is lost."""
        ends = time.monotonic() + limit_s
        ours = [gpu for gpu in gpus if isinstance(gpu, SlurmGpu)]
        while time.monotonic() < ends:
            time.sleep(LOOK_S)
            if any(gpu.state.has_ended for gpu in ours) or self._calls(lambda: any(gpu.has_news() for gpu in ours)):
                return

    def close(self) -> None:
        """Cancel all jobs, and remove the shared folder; the logs stay if a job has failed."""
        self._is_closed.set()
        running = [gpu.id for gpu in self._gpus if not gpu.state.has_ended]
        try:
            self._queue.cancel(running)
        except InfrastructureError as error:
            jobs = " ".join(running)
            self._report(f"{error.what}: type scancel {jobs} when Slurm answers; jobs that run end by themselves")
        has_failed = any(gpu.state.state == FAILED for gpu in self._gpus if not gpu.is_cancelled)
        try:
            self._calls(partial(self._remove, keep_logs=has_failed), CLOSE_S)
        except InfrastructureError as error:
            self._report(f"{error.what}: the next run from this host removes {self._folder}")

    def _remove(self, *, keep_logs: bool) -> None:
        """Remove the shared folder."""
        with contextlib.suppress(OSError):  # the folder is gone, or cannot be reached
            for path in self._folder.iterdir() if keep_logs else [self._folder]:
                if path.is_file():
                    path.unlink()
                elif path.name != LOGS:
                    shutil.rmtree(path, ignore_errors=True)

    def _touch(self) -> None:
        """Give the agents a sign of life again and again: an agent ends if the command is gone."""
        while not self._is_closed.wait(TOUCH_S):
            for path in (self._folder / COMMAND, *self._folder.glob(f"*{ORDERS}")):
                with contextlib.suppress(OSError):
                    os.utime(path)

    def _ask(self) -> None:
        """Ask Slurm for the states of the jobs again and again."""
        wait_s = ASK_S
        while True:
            self._queue.wait(wait_s)
            if self._is_closed.is_set():
                return
            wait_s = ASK_S if self._queue.ask() else ASK_AGAIN_S


def _not_taken(job_name: str) -> InfrastructureError:
    return InfrastructureError(
        f"sbatch did not end within {units.duration_text(SUBMIT_S)}",
        cure="see whether sinfo answers on this host, then run again; Slurm may have taken the job all the same: "
        f"scancel --user=$USER --name={job_name} cancels it",
    )


def job_name_in(folder: Path) -> str:
    """Return the name of the jobs of the run with this folder; no other run has it."""
    return f"perfsvc-{folder.name.removeprefix(RUN_PREFIX)}"


def parameters(settings: SlurmSettings, gpus: SlurmGpuSettings, job_name: str) -> dict[str, Any]:
    """Return submitit's parameters for the job of a GPU.

    The job is never requeued: what it has not measured has moved to another GPU by then. It starts without ``srun``,
    which since Slurm 22.05 would give the agent one processor, whatever ``cpus-per-task`` the job requests.
    """
    return {
        "job_name": job_name,
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


@contextlib.contextmanager
def _without_secrets() -> Iterator[None]:
    """Take the variables that jobs must not get out of the environment of this process during the block.

    After an error they stay away: a submission that took too long may still start sbatch, and the command ends anyway.
    """
    secrets = {
        name: value
        for name, value in os.environ.items()
        if name == OF_POSTGRESQL or (name.startswith(PREFIX) and name not in NEEDED)
    }
    for name in secrets:
        del os.environ[name]
    yield
    os.environ.update(secrets)
