"""The plan of a run: which case is measured in which replica on which device, in which order."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, DeviceInfo, ReplayRecord, Tolerance, digest

TaskKey = tuple[Case, CacheState]
"""What a task measures, regardless of the device."""
MeasurementKey = tuple[str, Case, CacheState, int]
"""A device's UUID, a case, a cache state and a replica."""
Spread = Literal["each-device", "each-model"]
"""Which devices measure a case: every device, or one device of each model, the same device every night."""


@dataclass(frozen=True, slots=True)
class Task:
    """A case in one cache state to be measured on one device, once in each replica.

    Attributes:
        modules: the binaries, in the order of ``record.modules``.
        arrays: how to make the inputs and references.
        bench: the text of the benchmark file if a step calls its functions. It is the text and not the path, so that a
            case of an earlier night calls the code of that night.
        python_modules: names and texts of modules; the benchmark file imports them, and not today's files.
        replicas: how many replicas measure the task; None for the number of the plan.
    """

    device: str  # UUID
    record: ReplayRecord
    modules: tuple[bytes, ...]
    cache: CacheState
    sampling: Sampling
    tolerance: Tolerance
    arrays: Recipe
    bench: str = ""
    python_modules: tuple[tuple[str, str], ...] = ()
    replicas: int | None = None

    @property
    def key(self) -> TaskKey:
        """The case and the cache state."""
        return self.record.case, self.cache


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pool measures.

    Attributes:
        tasks: every case on every device that measures it.
        replicas: how many fresh processes measure each task that has no number of its own.
        seed: decides the order.
        limit_s: seconds a case may take in one replica before its worker is killed. The seconds that a case may wait
            for a disturbed device to recover (``Sampling.recovery_s``) are added.
        first: tasks that a device measures before all others, once, in its first replica.
        helper_kernels: the binary of each device's helper kernels, by UUID; a device that needs none is missing.
        spread: how the tasks were assigned to devices. With ``each-model``, another device of the model takes over
            the tasks of a lost device.
        budget_s: seconds after which a device begins no further case; None for no limit.
        measured: what a resumed run has measured already. The order of the remaining cases does not depend on it.
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
        """Return the (replica, task) pairs of one device: ``opening``, then ``ordered``; empty if it has no tasks."""
        ordered = self.ordered([task for task in self.tasks if task.device == device], device)
        return self.opening(device) + ordered if ordered else []

    def opening(self, device: str) -> list[tuple[int, Task]]:
        """Return the (replica, task) pairs of the tasks that a device measures before all others."""
        return [(0, task) for task in self.first if task.device == device]

    def ordered(self, tasks: Sequence[Task], device: str) -> list[tuple[int, Task]]:
        """Return the (replica, task) pairs still to measure, replica by replica, each replica in a random order.

        The tasks that call Python functions of one benchmark file follow each other, because they share a process with
        no other benchmark.
        """
        pairs: list[tuple[int, Task]] = []
        for replica in range(max((self.replicas_of(task) for task in tasks), default=0)):
            in_replica = [task for task in tasks if replica < self.replicas_of(task)]
            random.Random(f"{self.seed}/{device}/{replica}").shuffle(in_replica)  # noqa: S311 - repeatable, no secret
            first = {task.bench: position for position, task in reversed([*enumerate(in_replica)]) if task.bench}
            grouped = sorted(enumerate(in_replica), key=lambda entry: first.get(entry[1].bench, entry[0]))
            pairs += [(replica, task) for _, task in grouped if (device, *task.key, replica) not in self.measured]
        return pairs

    def replicas_of(self, task: Task) -> int:
        """Return how many replicas measure a task."""
        return self.replicas if task.replicas is None else task.replicas


@dataclass(frozen=True, slots=True)
class AlternatingPlan(Plan):
    """A plan of A/B pairs: two tasks on one device, each measured in a fresh process every time.

    ``replicas`` counts the pairs. Every second pair has the opposite order (A B B A), so that a slow drift of the
    device affects both tasks alike. For every two pairs the seed decides anew which task begins, so that a periodic
    disturbance does not always hit the same task.

    A replica's number is the position of its process in the whole order, from 0.
    """

    def ordered(self, tasks: Sequence[Task], device: str) -> list[tuple[int, Task]]:
        """Return the task of each process, in the order A B B A or B A A B, drawn anew for every four processes.

        Each process is a replica; the result is a list of (replica, task), with replicas numbered from 0.
        """
        if not tasks:
            return []
        chance = random.Random(f"{self.seed}/{device}")  # noqa: S311 - repeatable, no secret
        order: list[Task] = []
        while len(order) < 2 * self.replicas:
            first, second = chance.sample(tasks, 2)
            order += [first, second, second, first]
        return list(enumerate(order[: 2 * self.replicas]))


def devices(tasks: Iterable[Task]) -> tuple[str, ...]:
    """Return the UUIDs of the devices that have tasks, each once, in the order of the tasks."""
    return tuple(dict.fromkeys(task.device for task in tasks))


def spread(tasks: Sequence[Task], infos: Iterable[DeviceInfo], how: Spread) -> tuple[Task, ...]:
    """Return the tasks to measure: all of them, or one for each case and device model.

    Args:
        tasks: every case on every device that could measure it.
        infos: the devices.
        how: ``each-device`` keeps all tasks; ``each-model`` keeps each case on one device of each model.
    """
    if how == "each-device":
        return tuple(tasks)
    models = {device.uuid: device.model for device in infos}
    candidates: dict[str, dict[TaskKey, list[str]]] = {}  # devices by model and case
    for task in tasks:
        candidates.setdefault(models[task.device], {}).setdefault(task.key, []).append(task.device)
    homes = {model: assign_devices(cases) for model, cases in candidates.items()}
    return tuple(task for task in tasks if task.device == homes[models[task.device]][task.key])


def assign_devices(candidates: Mapping[TaskKey, Sequence[str]]) -> dict[TaskKey, str]:
    """Assign each case to one of its candidate devices (UUIDs), and about the same number of cases to each device.

    A case goes to its ``home_device`` or, if that device is full, to the next best device. So the same cases go to the
    same devices every night, and adding or removing a case moves few others. The method is consistent hashing with
    bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018, SODA).
    """
    all_devices = {device for devices_of_case in candidates.values() for device in devices_of_case}
    room = dict.fromkeys(all_devices, -(-len(candidates) // max(1, len(all_devices))))
    homes: dict[TaskKey, str] = {}
    for key in sorted(candidates, key=lambda key: _rank(key, "")):
        with_room = [device for device in candidates[key] if room[device] > 0]
        homes[key] = home_device(key, with_room or candidates[key])
        room[homes[key]] -= 1
    return homes


def home_device(key: TaskKey, candidates: Iterable[str]) -> str:
    """Return the candidate device (UUID) that a case in a cache state belongs to.

    The choice depends neither on the order of the candidates nor on the other cases. Adding or removing a device moves
    only the cases of that device. The method is the rendezvous hashing of Thaler and Ravishankar (1998), Using
    name-based mappings to increase hit rates, IEEE/ACM Transactions on Networking 6(1).
    """
    return max(candidates, key=lambda device: _rank(key, device))


def _rank(key: TaskKey, device: str) -> str:
    """Return a pseudorandom rank of a case on a device, the same every time."""
    case, cache = key
    return digest(f"{case.id}\n{cache}\n{device}".encode())
