"""The plan of a run: which case is measured in which replica on which device, in which order."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfsvc.measure.sampler import Sampling
from perfsvc.measure.shared import SharedArrays
from perfsvc.model import Mode, ReplayRecord, Tolerance


@dataclass(frozen=True, slots=True)
class Task:
    """A case on a device, to be measured once a replica.

    ``arrays`` makes or finds its inputs and references in shared memory; ``bench`` is the benchmark file's text where
    a step calls into it: the text and not the path, so that a case of an earlier night calls what it called then.
    """

    device: str  # UUID
    record: ReplayRecord
    modules: tuple[bytes, ...]
    mode: Mode
    sampling: Sampling
    tolerance: Tolerance
    arrays: Callable[[], SharedArrays]
    bench: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pool works off.

    Args:
        tasks: every case on every device.
        replicas: how many fresh processes measure each of them.
        seed: decides the order.
        limit_s: seconds a case may take in one replica before its worker is killed.
    """

    tasks: tuple[Task, ...]
    replicas: int
    seed: int
    limit_s: float

    def order(self, device: str) -> list[tuple[int, Task]]:
        """The (replica, task) pairs of one device: replica by replica, each in an order of its own."""
        shuffled: list[tuple[int, Task]] = []
        for replica in range(self.replicas):
            tasks = [task for task in self.tasks if task.device == device]
            _shuffle(tasks, f"{self.seed}/{device}/{replica}")
            shuffled += [(replica, task) for task in tasks]
        return shuffled


def _shuffle(tasks: list[Task], seed: str) -> None:
    random.Random(seed).shuffle(tasks)  # noqa: S311 - an order that can be repeated, no secret


def devices(tasks: Sequence[Task]) -> tuple[str, ...]:
    """The UUIDs of the devices that have tasks, each once, in order."""
    return tuple(dict.fromkeys(task.device for task in tasks))
