"""The plan of a run: which case is measured in which replica on which device, in which order."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, Kind, ReplayRecord, RunProgram, Tolerance

GROUP = 16
"""So many suspects at most share the processes of their first A/B pairs. They share the costs of starting a process.
With more suspects little more is shared, and more measurements would be lost when the time budget ends."""

PROGRAM_GRACE_S = 20.0
"""Seconds that a worker may need in addition to a program: to write its files, and to read and parse its result."""

PythonSource = tuple[str, tuple[tuple[str, str], ...]]
"""The text of a benchmark file, and the names and texts of the modules that it imports."""
NO_PYTHON: PythonSource = ("", ())

TaskKey = tuple[Case, CacheState]
"""What a task measures, regardless of the device."""
MeasurementKey = tuple[str, Case, CacheState, int]
"""A device's UUID, a case, a cache state and a replica."""
Spread = Literal["each-device", "each-model"]
"""Which devices measure a case: every device, or one device of each model, the same device every night."""

UNKNOWN_COST_S = 1.0
"""The cost of every task if no cost is known."""


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
        cost_s: the seconds that a replica probably takes. Costs are only compared with each other.
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
    cost_s: float = UNKNOWN_COST_S

    @property
    def is_program(self) -> bool:
        """Whether the task runs a program, and needs a worker that does not open the device."""
        return self.record.kind is Kind.PROGRAM

    @property
    def key(self) -> TaskKey:
        """The case and the cache state."""
        return self.record.case, self.cache

    @property
    def python_source(self) -> PythonSource:
        """The source of the Python functions that the task's steps call; ``NO_PYTHON`` if they call none."""
        return (self.bench, self.python_modules) if self.bench else NO_PYTHON


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
            in_replica = [(task,) for task in tasks if replica < self.replicas_of(task)]
            grouped = _shuffled(in_replica, f"{self.seed}/{device}/{replica}")
            pairs += [(replica, task) for (task,) in grouped if (device, *task.key, replica) not in self.measured]
        return pairs

    def needs(self, task: Task) -> bool:  # noqa: ARG002 - an alternating plan looks at the task
        """Return whether the remaining replicas of a task are still needed."""
        return True

    def limits_s(self, task: Task) -> tuple[float, float]:
        """Return the seconds that a task may take in one replica, and the part of them for its program.

        The second number is 0 if the task is no program.
        """
        own = [step.limit_s or self.limit_s for step in task.record.steps if isinstance(step, RunProgram)]
        if own:
            return sum(own) + PROGRAM_GRACE_S, sum(own)
        return self.limit_s + task.sampling.recovery_s, 0.0

    def replicas_of(self, task: Task) -> int:
        """Return how many replicas measure a task."""
        return self.replicas if task.replicas is None else task.replicas


@dataclass(frozen=True, slots=True)
class AlternatingPlan(Plan):
    """A plan of A/B pairs: each process measures one side of many suspects, the next process the other side.

    ``tasks`` has the old and the new side of each suspect, one after the other, the most urgent suspect first. Both
    sides are tasks of one device. ``replicas`` counts the pairs.

    Every second pair has the opposite order (A B B A), so that a slow drift of the device affects both sides alike. For
    every two pairs the seed decides anew which side begins, so that a periodic disturbance does not always hit the same
    side. In both processes of a pair the suspects have the same random order, so that they have the same neighbours.

    The suspects of a device are measured in groups: first the ``first_pairs`` pairs of one group after the other, then
    the remaining pairs of all suspects together.

    A replica's number is the position of its process in the order of its device, from 0.

    Attributes:
        first_pairs: so many pairs of a group are measured before the next group begins.
        is_decided: returns True once no further process has to measure a task.
    """

    first_pairs: int = 1
    is_decided: Callable[[Task], bool] = lambda _: False

    def needs(self, task: Task) -> bool:
        """Return whether a task's suspect is undecided."""
        return not self.is_decided(task)

    def ordered(self, tasks: Sequence[Task], device: str) -> list[tuple[int, Task]]:
        """Return the tasks of each process as a list of (replica, task)."""
        processes: list[list[Task]] = []
        for suspects in _without_duplicates(list(zip(tasks[::2], tasks[1::2], strict=True))):
            for first in range(0, len(suspects), GROUP):
                processes += self._processes(suspects[first : first + GROUP], range(self.first_pairs), device)
            processes += self._processes(suspects, range(self.first_pairs, self.replicas), device)
        return [(number, task) for number, process in enumerate(filter(None, processes)) for task in process]

    def _processes(self, suspects: Sequence[tuple[Task, ...]], pairs: range, device: str) -> list[list[Task]]:
        """Return the tasks of the processes that measure some pairs of some suspects."""
        processes = []
        for pair in pairs:
            measured = [sides for sides in suspects if pair < self.replicas_of(sides[0])]
            neighbours = _shuffled(measured, f"{self.seed}/{device}/{pair}")
            chance = random.Random(f"{self.seed}/{device}/{pair // 2}/side")  # noqa: S311 - repeatable, no secret
            first = chance.randrange(2) ^ pair % 2
            processes += [[sides[side] for sides in neighbours] for side in (first, 1 - first)]
        return processes


def _shuffled(entries: Sequence[tuple[Task, ...]], seed: str) -> list[tuple[Task, ...]]:
    """Return entries of one or two tasks in a random order.

    Entries whose tasks call the same Python code follow each other, because a process runs no other Python code. So do
    programs, because their workers do not open the device.
    """
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - repeatable, no secret
    first: dict[object, int] = {}
    for position, entry in enumerate(shuffled):
        if any(task.bench or task.is_program for task in entry):
            first.setdefault(_worker_needs(entry), position)
    by_position = sorted(enumerate(shuffled), key=lambda item: first.get(_worker_needs(item[1]), item[0]))
    return [entry for _, entry in by_position]


def _worker_needs(entry: Iterable[Task]) -> object:
    return tuple((task.is_program, task.python_source) for task in entry)


def _without_duplicates(suspects: Sequence[tuple[Task, Task]]) -> list[list[tuple[Task, Task]]]:
    """Return the suspects in as few lists as possible, so that no list has a case in one cache state twice.

    A process measures such a case once: its measurements carry the case, and not the suspect. A case is a suspect twice
    if, for example, its time and its energy changed.
    """
    lists: list[tuple[list[tuple[Task, Task]], set[TaskKey]]] = []
    for sides in suspects:
        keys = {task.key for task in sides}
        room = next((entry for entry in lists if entry[1].isdisjoint(keys)), None)
        if room is None:
            room = ([], set())
            lists.append(room)
        room[0].append(sides)
        room[1].update(keys)
    return [entry[0] for entry in lists]


def devices(tasks: Iterable[Task]) -> tuple[str, ...]:
    """Return the UUIDs of the devices that have tasks, each once, in the order of the tasks."""
    return tuple(dict.fromkeys(task.device for task in tasks))
