"""Dividing a time budget: which cases are measured, and in how many replicas."""

import heapq
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from perfsvc.measure.plan.order import Task, devices
from perfsvc.model import CacheState, CostHistory, OverBudget

LEAST_REPLICAS = 2
"""A case gets at least this many replicas or none, because a single replica shows no noise between replicas."""
MOST = 2
"""A case gets at most this many times the replicas that were asked for.

Student's interval of a mean reaches t / sqrt(n) standard deviations to each side: 2.48 with three replicas, 1.05 with
six. Halving the interval once more takes seventeen replicas, and the time of a night is better spent on other cases.
"""
USUAL_NOISE = 0.005
"""The relative deviation between replicas that is assumed if it is known for no case."""
LEAST_NOISE = 0.0001
"""Smaller deviations count as this deviation, because a few replicas may agree by chance."""
LEAST_COST_S = 0.001
"""The smallest cost of a replica in seconds; smaller costs count as this cost."""
DAY = timedelta(days=1)

BudgetKey = tuple[str, str, CacheState]
"""A device's UUID, a case's id and a cache state."""


@dataclass(frozen=True, slots=True)
class Division:
    """The tasks to measure, each with its replicas, and the cases that the budget has no room for."""

    tasks: tuple[Task, ...]
    over_budget: tuple[OverBudget, ...]


@dataclass(slots=True)
class _Share:
    """The part of the budget that goes to one task."""

    task: Task
    cost_s: float
    noise: float
    last: datetime | None
    replicas: int = 0

    @property
    def gain(self) -> float:
        """The reduction of the level's variance by one more replica, per second of the replica's cost."""
        return self.noise**2 / (self.replicas * (self.replicas + 1)) / self.cost_s


def divide(
    tasks: Sequence[Task], past: Mapping[BudgetKey, CostHistory], budget_s: float, replicas: int, now: datetime
) -> Division:
    """Divide the budget of each device among its tasks.

    Cases that were never measured come first, then the cases that have waited longest. Each case gets
    ``LEAST_REPLICAS`` replicas or none. The remaining time goes to further replicas, each for the case whose interval
    it narrows most.

    Args:
        tasks: every case on every device.
        past: the history of the cases; a case that is missing was never measured.
        budget_s: seconds for each device.
        replicas: how many replicas of each case the user asked for.
        now: the present time; a case has waited from its last measurement until now.
    """
    least, most = min(LEAST_REPLICAS, replicas), MOST * replicas
    divided: dict[int, int] = {}
    over_budget: list[OverBudget] = []
    for device in devices(tasks):
        shares = _shares([task for task in tasks if task.device == device], past)
        left_s = budget_s
        for share in sorted(shares, key=lambda share: _priority(share, now)):
            if least * share.cost_s <= left_s:
                share.replicas = least
                left_s -= least * share.cost_s
            else:
                reason = f"{least} replicas of about {share.cost_s:.2g} s did not fit the budget of {budget_s:g} s"
                over_budget.append(OverBudget(device, *share.task.key, reason))
        _spend([share for share in shares if share.replicas], left_s, most)
        divided |= {id(share.task): share.replicas for share in shares if share.replicas}
    return Division(
        tuple(replace(task, replicas=divided[id(task)]) for task in tasks if id(task) in divided), tuple(over_budget)
    )


def _shares(tasks: Sequence[Task], past: Mapping[BudgetKey, CostHistory]) -> list[_Share]:
    """Return the tasks of one device with their cost and noise; an unknown value is the median of the known values.

    If no task has a known cost, each replica is assumed to cost the longest sampling time of its case.
    """
    histories = [past.get((task.device, task.record.case.id, task.cache), CostHistory()) for task in tasks]
    usual_cost = _median((history.cost_s for history in histories), lambda task: task.sampling.seconds)
    usual_noise = _median((history.between for history in histories), lambda _: USUAL_NOISE)
    return [
        _Share(
            task,
            cost_s=max(usual_cost(task) if history.cost_s is None else history.cost_s, LEAST_COST_S),
            noise=max(usual_noise(task) if history.between is None else history.between, LEAST_NOISE),
            last=history.last,
        )
        for task, history in zip(tasks, histories, strict=True)
    ]


def _median(values: Iterable[float | None], otherwise: Callable[[Task], float]) -> Callable[[Task], float]:
    """Return a function that gives every task the median of the known values; ``otherwise`` if none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return otherwise
    median = statistics.median(known)
    return lambda _: median


def _priority(share: _Share, now: datetime) -> tuple[bool, int, float, str, CacheState]:
    """Return the sort key of a case: never measured first, then by the days that it has waited, then the cheapest."""
    days = 0 if share.last is None else round((now - share.last) / DAY)
    return share.last is not None, -days, share.cost_s, share.task.record.case.id, share.task.cache


def _spend(shares: Sequence[_Share], left_s: float, most: int) -> None:
    """Add replicas one by one, each to the task that gains most, until no replica fits into ``left_s`` seconds."""
    waiting = [(-share.gain, number, share) for number, share in enumerate(shares) if share.replicas < most]
    heapq.heapify(waiting)
    while waiting:
        _, number, share = heapq.heappop(waiting)
        if share.cost_s > left_s:
            continue
        share.replicas += 1
        left_s -= share.cost_s
        if share.replicas < most:
            heapq.heappush(waiting, (-share.gain, number, share))
