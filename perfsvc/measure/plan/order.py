"""The plan of a run: which case is measured in which replica on which device, in which order."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.measure.worker.sampling.sampler import Sampling
from perfsvc.model import CacheState, Case, DeviceInfo, ReplayRecord, Tolerance, digest

MeasurementKey = tuple[str, Case, CacheState, int]
"""A device by its UUID, a case in a cache state, and a replica."""
Spread = Literal["each-device", "each-model"]
"""Whether every GPU measures a case, or one GPU of each model does, the same one every night."""


@dataclass(frozen=True, slots=True)
class Task:
    """A case in one cache state on a device, to be measured once a replica.

    Attributes:
        arrays: how its inputs and references are made.
        bench: the benchmark file's text where a step calls into it: the text and not the path, so that a case of an
            earlier night calls what it called then.
        replicas: how many replicas measure it; None for as many as the plan says.
    """

    device: str  # UUID
    record: ReplayRecord
    modules: tuple[bytes, ...]
    cache: CacheState
    sampling: Sampling
    tolerance: Tolerance
    arrays: Recipe
    bench: str = ""
    replicas: int | None = None

    @property
    def spec(self) -> tuple[Case, CacheState]:
        """What it measures, wherever it does."""
        return self.record.case, self.cache


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A case in one cache state that no replica measured on a device, for want of time."""

    device: str  # UUID
    case: Case
    cache: CacheState
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pool works off.

    Attributes:
        tasks: every case on every device that is to measure it.
        replicas: how many fresh processes measure each of them, where a task does not say otherwise.
        seed: decides the order.
        limit_s: seconds a case may take in one replica, beside waiting for its GPU, before its worker is killed.
        first: tasks that are measured once, in a device's first replica, before all others.
        helper_kernels: the binary that each device works with, by UUID; none where it needs none.
        spread: as the tasks were dealt: what ``each-model`` planned for a GPU that is lost is measured by another.
        budget_s: seconds after which a device begins no other case; None for no such limit.
        measured: what was measured already, where a run goes on that was cut short; the others keep their order.
    """

    tasks: tuple[Task, ...]
    replicas: int
    seed: int
    limit_s: float
    first: tuple[Task, ...] = ()
    helper_kernels: Mapping[str, bytes] = field(default_factory=dict)
    spread: Spread = "each-device"
    budget_s: float | None = None
    measured: frozenset[MeasurementKey] = frozenset()

    def order(self, device: str) -> list[tuple[int, Task]]:
        """The (replica, task) pairs of one device: ``opening`` and ``ordered``; nothing where no task is its own."""
        ordered = self.ordered([task for task in self.tasks if task.device == device], device)
        return self.opening(device) + ordered if ordered else []

    def opening(self, device: str) -> list[tuple[int, Task]]:
        """The pairs of the tasks that come first on a device."""
        return [(0, task) for task in self.first if task.device == device]

    def ordered(self, tasks: Sequence[Task], device: str) -> list[tuple[int, Task]]:
        """The pairs of some tasks: replica by replica, each in an order of its own."""
        pairs: list[tuple[int, Task]] = []
        for replica in range(max((self.replicas_of(task) for task in tasks), default=0)):
            in_replica = [task for task in tasks if replica < self.replicas_of(task)]
            _shuffle(in_replica, f"{self.seed}/{device}/{replica}")
            pairs += [(replica, task) for task in in_replica if (device, *task.spec, replica) not in self.measured]
        return pairs

    def replicas_of(self, task: Task) -> int:
        """How many replicas measure a task."""
        return self.replicas if task.replicas is None else task.replicas


def _shuffle(tasks: list[Task], seed: str) -> None:
    random.Random(seed).shuffle(tasks)  # noqa: S311 - an order that can be repeated, no secret


def devices(tasks: Iterable[Task]) -> tuple[str, ...]:
    """The UUIDs of the devices that have tasks, each once, in order."""
    return tuple(dict.fromkeys(task.device for task in tasks))


def spread(tasks: Sequence[Task], found: Iterable[DeviceInfo], how: Spread) -> tuple[Task, ...]:
    """Deals cases to GPUs.

    Args:
        tasks: every case on every GPU that could measure it.
        found: the GPUs.
        how: ``each-device`` keeps all tasks; ``each-model`` keeps each case on one GPU of each model (``deal``).
    """
    if how == "each-device":
        return tuple(tasks)
    models = {device.uuid: device.model for device in found}
    able: dict[str, dict[tuple[Case, CacheState], list[str]]] = {}
    for task in tasks:
        able.setdefault(models[task.device], {}).setdefault(task.spec, []).append(task.device)
    homes = {model: deal(specs) for model, specs in able.items()}
    return tuple(task for task in tasks if task.device == homes[models[task.device]][task.spec])


def deal(able: Mapping[tuple[Case, CacheState], Sequence[str]]) -> dict[tuple[Case, CacheState], str]:
    """A GPU for each case, of those (by UUID) that can measure it, and about as many cases for each GPU.

    A case goes to its own GPU (``home_device``) while that has room, and else to the next best. So the same cases are
    dealt the same way every night, and one that comes or goes moves few others: consistent hashing with bounded loads,
    of Mirrokni, Thorup and Zadimoghaddam (2018), SODA.
    """
    boards = {board for able_boards in able.values() for board in able_boards}
    room = dict.fromkeys(boards, -(-len(able) // max(1, len(boards))))
    homes: dict[tuple[Case, CacheState], str] = {}
    for spec in sorted(able, key=lambda one: _rank(one, "")):
        with_room = [board for board in able[spec] if room[board] > 0]
        homes[spec] = home_device(spec, with_room or able[spec])
        room[homes[spec]] -= 1
    return homes


def home_device(spec: tuple[Case, CacheState], boards: Iterable[str]) -> str:
    """The one of several GPUs (by UUID) that a case in a cache state belongs to.

    It does not depend on the order of the GPUs nor on the other cases, and a GPU that comes or goes moves only
    the cases that belong to it: the rendezvous hashing of Thaler and Ravishankar (1998), Using name-based mappings to
    increase hit rates, IEEE/ACM Transactions on Networking 6(1).
    """
    return max(boards, key=lambda board: _rank(spec, board))


def _rank(spec: tuple[Case, CacheState], board: str) -> str:
    case, cache = spec
    return digest(f"{case.id}\n{cache}\n{board}".encode())


@dataclass(frozen=True, slots=True)
class AlternatingPlan(Plan):
    """A plan of two tasks on one device; ``replicas`` counts the pairs of processes, each of which measures one task.

    Pairs come by twos, one in either order (A B B A): what the GPU drifts by from process to process weighs on
    both sides alike. Which task begins, the seed decides anew for each two pairs, so that nothing periodic can keep
    in step with one of the sides.

    A replica's number is its process's place in the whole order, from 0.
    """

    def ordered(self, tasks: Sequence[Task], device: str) -> list[tuple[int, Task]]:
        """The pairs of replica and task, a replica for each; none where no task is the device's."""
        if not tasks:
            return []
        chance = random.Random(f"{self.seed}/{device}")  # noqa: S311 - an order that can be repeated, no secret
        order: list[Task] = []
        while len(order) < 2 * self.replicas:
            first, second = chance.sample(tasks, 2)
            order += [first, second, second, first]
        return list(enumerate(order[: 2 * self.replicas]))
