"""The plan of a comparison on one device: two tasks that take turns, a fresh process each time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from perfsvc.measure.plan import Plan, Task


@dataclass(frozen=True, slots=True)
class Alternation(Plan):
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
