"""Dividing a time budget: which cases are measured at all, and in how many replicas each."""

import heapq
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from perfsvc.measure.plan.order import OverBudget, Task, devices
from perfsvc.model import CacheState

LEAST_REPLICAS = 2
"""A case gets so many or none: fewer show nothing of the noise between replicas."""
MOST = 2
"""A case gets at most so many times the replicas that were asked for.

Student's interval of a mean is t / sqrt(n) standard deviations wide to each side: 2.48 of them with three replicas,
1.05 with six. To halve it once more takes seventeen, and nights have better uses than that.
"""
USUAL_NOISE = 0.005
"""Relative deviation between replicas where no case has a known one."""
LEAST_NOISE = 0.0001
"""The least that is believed: few replicas may happen to agree."""
LEAST_COST_S = 0.001
"""The least that is believed of a replica's cost."""
DAY = timedelta(days=1)

Key = tuple[str, str, CacheState]
"""A device's UUID, a case's id and a cache state."""


@dataclass(frozen=True, slots=True)
class CostHistory:
    """What earlier runs tell of a case on a device in a cache state; None where they cannot.

    Attributes:
        cost_s: seconds of a replica.
        between: relative standard deviation between replicas.
        last: when it was last measured; None for never.
    """

    cost_s: float | None = None
    between: float | None = None
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """The tasks that are measured, each with its replicas, and what the budget has no room for."""

    tasks: tuple[Task, ...]
    over_budget: tuple[OverBudget, ...]


@dataclass(slots=True)
class _Share:
    """One task's part of the budget."""

    task: Task
    cost_s: float
    noise: float
    last: datetime | None
    replicas: int = 0

    @property
    def gain(self) -> float:
        """What one more replica takes from the variance of the case's level, for each second that it costs."""
        return self.noise**2 / (self.replicas * (self.replicas + 1)) / self.cost_s


def divide(
    tasks: Sequence[Task], past: Mapping[Key, CostHistory], budget_s: float, replicas: int, now: datetime
) -> Division:
    """Divides the budget of each device among its tasks.

    What was never measured comes first, then what was not measured for longest, and each gets the least replicas
    that tell anything, or none. The time that remains goes where it narrows the interval of a level most.

    Args:
        tasks: every case on every device.
        past: what is known of them; what is missing was never measured.
        budget_s: seconds a device.
        replicas: how many were asked for.
        now: the moment from which the waiting of cases counts.
    """
    least, most = min(LEAST_REPLICAS, replicas), MOST * replicas
    divided: dict[int, int] = {}
    over_budget: list[OverBudget] = []
    for device in devices(tasks):
        shares = _shares([task for task in tasks if task.device == device], past)
        left_s = budget_s
        for share in sorted(shares, key=lambda share: _turn(share, now)):
            if least * share.cost_s <= left_s:
                share.replicas = least
                left_s -= least * share.cost_s
            else:
                reason = f"{least} replicas of about {share.cost_s:.2g} s did not fit the budget of {budget_s:g} s"
                over_budget.append(OverBudget(device, *share.task.spec, reason))
        _spend([share for share in shares if share.replicas], left_s, most)
        divided |= {id(share.task): share.replicas for share in shares if share.replicas}
    return Division(
        tuple(replace(task, replicas=divided[id(task)]) for task in tasks if id(task) in divided), tuple(over_budget)
    )


def _shares(tasks: Sequence[Task], past: Mapping[Key, CostHistory]) -> list[_Share]:
    """The tasks of one device with what is known of them, and the middle of the others' where it is not.

    Where no cost is known at all, it is the time that a case is sampled for at most.
    """
    known = [past.get((task.device, task.record.case.id, task.cache), CostHistory()) for task in tasks]
    usual_cost = _median((one.cost_s for one in known), lambda task: task.sampling.seconds)
    usual_noise = _median((one.between for one in known), lambda _: USUAL_NOISE)
    return [
        _Share(
            task,
            cost_s=max(usual_cost(task) if one.cost_s is None else one.cost_s, LEAST_COST_S),
            noise=max(usual_noise(task) if one.between is None else one.between, LEAST_NOISE),
            last=one.last,
        )
        for task, one in zip(tasks, known, strict=True)
    ]


def _median(values: Iterable[float | None], otherwise: Callable[[Task], float]) -> Callable[[Task], float]:
    known = [value for value in values if value is not None]
    if not known:
        return otherwise
    middle = statistics.median(known)
    return lambda _: middle


def _turn(share: _Share, now: datetime) -> tuple[bool, int, float, str, CacheState]:
    """Sorts by how long ago a case was measured, in days: of one night's cases, the cheap ones come first."""
    days = 0 if share.last is None else round((now - share.last) / DAY)
    return share.last is not None, -days, share.cost_s, share.task.record.case.id, share.task.cache


def _spend(shares: Sequence[_Share], left_s: float, most: int) -> None:
    """Adds replicas one by one, each where it gains most, while there is time for any."""
    waiting = [(-share.gain, place, share) for place, share in enumerate(shares) if share.replicas < most]
    heapq.heapify(waiting)
    while waiting:
        _, place, share = heapq.heappop(waiting)
        if share.cost_s > left_s:
            continue
        share.replicas += 1
        left_s -= share.cost_s
        if share.replicas < most:
            heapq.heappush(waiting, (-share.gain, place, share))
