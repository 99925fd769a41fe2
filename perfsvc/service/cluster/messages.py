"""What travels between the command and the agents of a cluster: JSON, and binaries and files by their digests.

The text of a benchmark file travels with its cases. Its folder does not: a ``bench.py`` is one file and imports none of
its neighbours. A benchmark that reads other files needs them at the same path on each host.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Protocol

from perfsvc.errors import NoDeviceError, PerfsvcError
from perfsvc.measure.plan.order import AlternatingPlan, Plan, Spread, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe, Source
from perfsvc.model import CacheState, Case, DeviceInfo, Measurement, OverBudget, ReplayRecord, Tolerance, codec, digest
from perfsvc.process.shared_memory import share
from perfsvc.service.prepare.targets import arrays, replayed
from perfsvc.suite import CaseSpec

Blobs = Mapping[str, bytes]
"""Binaries or files by their SHA-256 digests."""
Packet = tuple[bytes, dict[str, bytes]]
"""A message as JSON, and the files that a measurement in it names, by their digests."""


# --- what the command sends -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A ``Task`` whose binaries travel apart, under the digests in ``record.modules``.

    Attributes:
        array_name: equal for cases that share their arrays.
        source: what the arrays are made from; None for a case without arrays.
    """

    record: ReplayRecord
    cache: CacheState
    sampling: Sampling
    tolerance: Tolerance
    array_name: str
    source: Source
    bench: str = ""
    python_modules: tuple[tuple[str, str], ...] = ()
    replicas: int | None = None
    cost_s: float = 1.0


@dataclass(frozen=True, slots=True)
class PlanShare:
    """The part of a plan that one GPU measures.

    Attributes:
        device: the GPU, as its agent described it.
        helper_kernels: the digest of the binary of its helper kernels; empty if it needs none.
        measured: what a resumed run has measured on it already: case, cache state and replica.
        sharing: how many GPUs of the host measure for the run.
        first_pairs: of an ``AlternatingPlan``, how many pairs of a group come first; None for any other plan.
    """

    device: DeviceInfo
    tasks: tuple[SharedTask, ...]
    first: tuple[SharedTask, ...]
    replicas: int
    seed: int
    limit_s: float
    helper_kernels: str
    budget_s: float | None
    spread: Spread
    sharing: int
    measured: tuple[tuple[Case, CacheState, int], ...] = ()
    first_pairs: int | None = None


def share_of(
    plan: Plan,
    device: DeviceInfo,
    tasks: Sequence[Task],
    budget_s: float | None,
    *,
    opening: bool,
    sharing: int,
) -> tuple[PlanShare, Blobs]:
    """Return what a GPU measures of a plan, and the binaries that it needs.

    Args:
        plan: the plan.
        device: the GPU.
        tasks: its tasks in the plan, or tasks that it takes over from a lost GPU.
        budget_s: seconds after which the GPU begins no further case; None for no limit.
        opening: whether it also measures the tasks that come before all others.
        sharing: how many GPUs of its host measure for the run.
    """
    first = [task for _, task in plan.opening(device.uuid)] if opening else []
    kernels = plan.helper_kernels.get(device.uuid, b"")
    blobs = {
        name: code for task in (*tasks, *first) for name, code in zip(task.record.modules, task.modules, strict=True)
    }
    name = digest(kernels) if kernels else ""
    share_ = PlanShare(
        device=device,
        tasks=tuple(map(_shared, tasks)),
        first=tuple(map(_shared, first)),
        replicas=plan.replicas,
        seed=plan.seed,
        limit_s=plan.limit_s,
        helper_kernels=name,
        budget_s=budget_s,
        spread=plan.spread,
        sharing=sharing,
        measured=tuple(key[1:] for key in sorted(plan.measured, key=str) if key[0] == device.uuid),
        first_pairs=plan.first_pairs if isinstance(plan, AlternatingPlan) else None,
    )
    return share_, blobs | ({name: kernels} if name else {})


def plan_of(share_: PlanShare, blobs: Blobs, is_dropped: Callable[[int], bool]) -> Plan:
    """Return the plan of a GPU's share, on the host of the GPU.

    Args:
        share_: the share.
        blobs: the binaries that it names.
        is_dropped: returns True for the position of a task in ``share_.tasks`` that needs no further pair.
    """
    uuid = share_.device.uuid
    tasks = tuple(_task(task, uuid, blobs, share_.limit_s) for task in share_.tasks)
    plan = Plan(
        tasks,
        share_.replicas,
        share_.seed,
        share_.limit_s,
        first=tuple(_task(task, uuid, blobs, share_.limit_s) for task in share_.first),
        helper_kernels={uuid: blobs[share_.helper_kernels]} if share_.helper_kernels else {},
        spread=share_.spread,
        budget_s=share_.budget_s,
        measured=frozenset((uuid, *key) for key in share_.measured),
    )
    if share_.first_pairs is None:
        return plan
    common = {each.name: getattr(plan, each.name) for each in fields(Plan)}
    positions = {id(task): position for position, task in enumerate(tasks)}
    return AlternatingPlan(
        **common, first_pairs=share_.first_pairs, is_decided=lambda task: is_dropped(positions[id(task)])
    )


def _shared(task: Task) -> SharedTask:
    return SharedTask(
        task.record,
        task.cache,
        task.sampling,
        task.tolerance,
        task.arrays.name,
        task.arrays.source,
        task.bench,
        task.python_modules,
        task.replicas,
        task.cost_s,
    )


def _task(task: SharedTask, device: str, blobs: Blobs, limit_s: float) -> Task:
    return Task(
        device,
        task.record,
        tuple(blobs[name] for name in task.record.modules),
        task.cache,
        task.sampling,
        task.tolerance,
        _recipe(task, limit_s),
        task.bench,
        task.python_modules,
        task.replicas,
        task.cost_s,
    )


def _recipe(task: SharedTask, limit_s: float) -> Recipe:
    """Return how the arrays of a task are made on this host."""
    match task.source:
        case CaseSpec() as spec:
            return arrays(spec, limit_s)
        case None:
            return Recipe(task.array_name, partial(share, {}, {}))
        case stored:
            return replayed(task.array_name, stored)


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """What the command wants from an agent, as a message in a file; one of the fields before ``benches`` is set.

    Attributes:
        parts_of: the ``DeviceInfo`` for ``Agent.parts``.
        share: the ``PlanShare`` for ``Agent.begin``.
        drop: the positions for ``Agent.drop``.
        stop: whether to call ``Agent.stop``.
        benches: the benchmark files for ``Agent.parts``.
        blobs: the digests of the binaries of the share.
    """

    parts_of: bytes = b""
    share: bytes = b""
    drop: tuple[int, ...] = ()
    stop: bool = False
    benches: Mapping[str, str] = field(default_factory=dict)
    blobs: tuple[str, ...] = ()


# --- what an agent sends ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What an agent knows about its host and its GPU.

    Attributes:
        host: the name of the host.
        version: the version of perfsvc there.
        python: the version of Python there.
        device: the GPU; None if it cannot be used.
        problem: why the GPU cannot be used.
        niceness: the niceness of the agent; above 0, the system prefers other processes.
    """

    host: str
    version: str
    python: str
    device: DeviceInfo | None = None
    problem: str = ""
    niceness: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the full environment on the host of a GPU: those of the host and its software, and the GPU's."""

    common: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """A share has ended. If its GPU cannot be used any more, ``refusal`` holds why, and ``cure`` what to do."""

    refusal: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class AgentNews:
    """Whatever an agent reports while it measures; exactly one field is set.

    Attributes:
        text: a message for the user.
    """

    measurement: Measurement | None = None
    over_budget: OverBudget | None = None
    text: str = ""
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What an agent sends, as a message in a file; one of the fields before ``files`` is set.

    Attributes:
        facts: the ``Facts``, which come first.
        parts: the ``Parts``, after an order.
        news: an ``AgentNews``.
        files: the digests of the files of the measurement.
    """

    facts: bytes = b""
    parts: bytes = b""
    news: bytes = b""
    files: tuple[str, ...] = ()


def packet(news: AgentNews, files: Mapping[str, bytes]) -> Packet:
    """Return news as they travel; ``files`` are those of the measurement."""
    return codec.encode(news), dict(files)


def refused(error: PerfsvcError) -> Ended:
    """Return the end of a share whose GPU cannot be used any more."""
    return Ended(error.what, error.cure)


SILENT_AGENT_S = 300.0
"""Seconds without a sign of life of an agent, after which its GPU is lost. Its cases then move, and what it may send
later is not read."""


class LostError(NoDeviceError):
    """The agent of a GPU does not answer any more: its host, or the job that the cluster lent the GPU to, has ended."""


class ClusterGpu(Protocol):
    """A GPU of a cluster that this run has requested, and its agent.

    The methods raise ``LostError`` if the agent is lost. A lost agent stays lost.
    """

    @property
    def place(self) -> str:
        """Where the GPU is, for messages: a node or a job. A job that has not started also names what it waits for."""

    @property
    def is_starting(self) -> bool:
        """Whether the cluster is known to have lent the GPU, though its agent has not sent its facts yet."""

    def facts(self) -> bytes | None:
        """Return the ``Facts`` of the agent; None while the agent has not started."""

    def parts(self, device: bytes, benches: Mapping[str, str]) -> bytes:
        """Return the ``Parts`` of the environment; see ``Agent.parts``."""

    def begin(self, share: bytes, blobs: Blobs) -> None:
        """Begin to measure a share; see ``Agent.begin``. ``blobs`` has all binaries of the share."""

    def take(self) -> list[Packet]:
        """Return the news that have arrived, without waiting."""

    def drop(self, positions: Collection[int]) -> None:
        """Measure no further replica of these tasks."""

    def stop(self) -> None:
        """Begin no further case."""

    def end(self) -> None:
        """Kill the agent and give the GPU back; never raises."""


class Cluster(Protocol):
    """Gives GPUs to this run for some time.

    Attributes:
        name: what messages call the cluster: its address, or ``the Slurm cluster``.
        patience_s: seconds to wait for the GPUs that are requested; may be infinite.
        priority_cure: what the user can do about agents with a low priority.
    """

    name: str
    patience_s: float
    priority_cure: str

    def request(self, specs: Sequence[str]) -> Sequence[ClusterGpu]:
        """Request GPUs, at most one for each GPU of the cluster, and return them; they may not be lent yet.

        Args:
            specs: the options ``--device``. If they name fake devices, each GPU stands for one of them.

        Raises:
            NoDeviceError: the cluster has no GPU.
            InfrastructureError: the cluster refuses the request.
        """

    def wait(self, gpus: Sequence[ClusterGpu], limit_s: float) -> None:
        """Wait until an agent has news or is lost, at most ``limit_s`` seconds."""

    def close(self) -> None:
        """Give back everything that is still lent, and disconnect; never raises."""


def last_line(text: str) -> str:
    """Return the last line of a log or an error that is not empty; the lines before are often a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def start_cure(log: str, python: str, otherwise: str) -> str:
    """Return what to do about an agent that could not start.

    Args:
        log: what it printed.
        python: the Python that the cluster started, for the message.
        otherwise: what to do if perfsvc itself was not the reason.
    """
    if "No module named 'perfsvc" in log or "has no attribute" in log or "Can't get attribute" in log:
        return f"install the same version of perfsvc on every host of the cluster, in {python}"
    return otherwise
