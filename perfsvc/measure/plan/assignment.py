"""Assigning cases to the devices that measure them, if one device of each model measures each case.

A series must stay on its device, so each case belongs to the device that measured it last. The times of earlier runs
show how long each device will measure. Cases move to another device only if that shortens the run considerably.
"""

import statistics
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from perfsvc.measure.plan.budget import BudgetKey
from perfsvc.measure.plan.order import UNKNOWN_COST_S, Spread, Task, TaskKey
from perfsvc.model import CostHistory, DeviceInfo, digest

SMALL_GAIN = 0.1
"""Cases that lose no history move to another device if the slowest device then needs this share less time."""
LARGE_GAIN = 0.25
"""Other cases move only if the slowest device then needs this share less time, because each begins a new series."""
LEAST_GAIN_S = 1.0
"""Cases move only if a replica on the slowest device then takes this many seconds less: times vary by more than a few
milliseconds, and cases would move back and forth."""
NEW_RUNS = 3
"""A case with fewer runs than this loses no history if it moves. The first runs show how long each case takes."""
EVEN = 0.05
"""Once cases move, they move until no device needs more than this share above the mean."""
PROCESS_S = 0.4
"""Seconds to start and end a process. A device starts one in each replica for each benchmark with Python functions."""
_NEVER = datetime.min.replace(tzinfo=UTC)


def spread(
    tasks: Sequence[Task],
    infos: Iterable[DeviceInfo],
    how: Spread,
    past: Mapping[BudgetKey, CostHistory] | None = None,
    begun: Iterable[tuple[str, TaskKey]] = (),
) -> tuple[Task, ...]:
    """Return the tasks to measure: all of them, or one for each case and device model.

    Args:
        tasks: every case on every device that could measure it.
        infos: the devices.
        how: ``each-device`` keeps all tasks; ``each-model`` keeps each case on one device of each model.
        past: the history of the cases, with the costs and the device that measured a case last.
        begun: the devices (UUIDs) and cases that a resumed run has measured already, in that order. These cases stay.
    """
    if how == "each-device":
        return tuple(tasks)
    models = {device.uuid: device.model for device in infos}
    of_model: dict[str, list[Task]] = {}
    for task in tasks:
        of_model.setdefault(models[task.device], []).append(task)
    begun = list(begun)
    homes = {model: _homes(of_model[model], past or {}, begun) for model in of_model}
    kept = [(task, homes[models[task.device]][task.key]) for task in tasks]
    return tuple(replace(task, cost_s=home.cost_s) for task, home in kept if task.device == home.device)


def last_device(key: TaskKey, candidates: Sequence[str], past: Mapping[BudgetKey, CostHistory]) -> str | None:
    """Return the candidate device (UUID) that measured a case last; None if none of them has measured the case."""
    dates = {device: _history(key, device, past).last or _NEVER for device in candidates}
    newest = max(sorted(dates), key=lambda device: dates[device])
    return None if dates[newest] == _NEVER else newest


def home_device(key: TaskKey, candidates: Iterable[str]) -> str:
    """Return a candidate device (UUID) for a case in a cache state, chosen by a hash.

    The choice depends neither on the order of the candidates nor on the other cases. Adding or removing a device moves
    only the cases of that device. The method is the rendezvous hashing of Thaler and Ravishankar (1998), Using
    name-based mappings to increase hit rates, IEEE/ACM Transactions on Networking 6(1).
    """
    return max(candidates, key=lambda device: _rank(key, device))


def hand_over(tasks: Iterable[Task], loads: Mapping[str, float]) -> dict[str, list[Task]]:
    """Divide the tasks of a lost device evenly between other devices, and return the new tasks of each device.

    Args:
        tasks: the tasks of the lost device.
        loads: the seconds of a replica that each other device (UUID) still has to measure.
    """
    together: dict[object, list[Task]] = {}
    for task in tasks:
        together.setdefault(_shared_process(task) or task.key, []).append(task)
    seconds = dict(loads)
    taken: dict[str, list[Task]] = {}
    for unit in sorted(together.values(), key=lambda unit: (-_seconds(unit), _rank(unit[0].key, ""))):
        heir = min(seconds, key=lambda device: (seconds[device], _rank(unit[0].key, device)))
        seconds[heir] += _seconds(unit)
        taken.setdefault(heir, []).extend(replace(task, device=heir) for task in unit)
    return taken


def _seconds(tasks: Iterable[Task]) -> float:
    return sum(task.cost_s for task in tasks)


def _shared_process(task: Task) -> tuple[str, str, str] | None:
    """Return what the points of a variant have in common if they share a process; None for all other cases."""
    return (task.bench, task.record.case.benchmark, task.record.case.variant) if task.bench else None


# --- the devices of one model ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Home:
    """The device that measures a case, and the seconds that a replica takes."""

    device: str
    cost_s: float


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Cases that stay together: a single case, or the points of a variant that calls Python functions.

    Points of such a variant share a process in each replica, and with it the import of libraries such as Triton, which
    takes seconds.

    Attributes:
        costs_s: the cases, with the seconds that a replica of each takes.
        cost_s: the seconds that a replica of all cases takes.
        rank: a pseudorandom rank, the same every time.
        bench: the text of the benchmark file with the Python functions; empty if there are none.
        candidates: the devices that can measure the cases.
        runs: how many runs measured the cases on each candidate.
        home: the device that measured the cases last; None for new cases.
        begun: whether a resumed run has already measured some of the cases, so that they must stay.
    """

    costs_s: Mapping[TaskKey, float]
    cost_s: float
    rank: str
    bench: str
    candidates: tuple[str, ...]
    runs: Mapping[str, int]
    home: str | None
    begun: bool

    @property
    def first(self) -> TaskKey:
        """The first case."""
        return next(iter(self.costs_s))

    def loses_history(self, device: str) -> bool:
        """Return whether the series of the cases would begin anew or become shorter on another device."""
        home_runs = self.runs[self.home] if self.home else 0
        return sum(self.runs.values()) >= NEW_RUNS and self.runs[device] < home_runs

    @property
    def by_cost(self) -> tuple[float, str]:
        """The key by which the units of a device are sorted."""
        return self.cost_s, self.rank

    def targets(self, *, lose_history: bool) -> tuple[tuple[bool, str], ...]:
        """Return the devices that the unit may move to, and before each whether the unit is new to the device."""
        allowed = (device for device in self.candidates if lose_history or not self.loses_history(device))
        return tuple((not self.runs[device], device) for device in sorted(allowed))


@dataclass(slots=True)
class _Loads:
    """Where units are measured, and the seconds that a replica takes on each device."""

    seconds: dict[str, float]
    homes: dict[_Unit, str] = field(default_factory=dict)
    benches: Counter[tuple[str, str]] = field(default_factory=Counter)  # units by device and benchmark file

    @property
    def slowest_s(self) -> float:
        """The seconds of the device that takes longest."""
        return max(self.seconds.values())

    @property
    def has_idle_device(self) -> bool:
        """Whether a device has nothing to do."""
        return 0.0 in self.seconds.values()

    def copy(self) -> "_Loads":
        """Return an independent copy."""
        return _Loads(dict(self.seconds), dict(self.homes), self.benches.copy())

    def with_unit(self, unit: _Unit, device: str) -> float:
        """Return the seconds of a device if it also measures a unit."""
        starts_process = bool(unit.bench) and not self.benches[device, unit.bench]
        return self.seconds[device] + unit.cost_s + PROCESS_S * starts_process

    def without_unit(self, unit: _Unit) -> float:
        """Return the seconds of a unit's device if it does not measure the unit."""
        device = self.homes[unit]
        saves_process = bool(unit.bench) and self.benches[device, unit.bench] == 1
        return self.seconds[device] - unit.cost_s - PROCESS_S * saves_process

    def put(self, unit: _Unit, device: str) -> None:
        """Assign a unit to a device, and take it from the device that it was assigned to."""
        if unit in self.homes:
            self.seconds[self.homes[unit]] = self.without_unit(unit)
            self.benches[self.homes[unit], unit.bench] -= 1
        self.seconds[device] = self.with_unit(unit, device)
        self.benches[device, unit.bench] += 1
        self.homes[unit] = device


def _homes(
    tasks: Sequence[Task], past: Mapping[BudgetKey, CostHistory], begun: Collection[tuple[str, TaskKey]]
) -> dict[TaskKey, _Home]:
    """Return the home of each case, for the devices of one model.

    Each case goes to its home of earlier runs, and new cases fill the devices with the least work, the longest case
    first (Graham, 1969, Bounds on multiprocessing timing anomalies). Cases leave their homes for a ``SMALL_GAIN`` if
    they lose no history, else for a ``LARGE_GAIN`` or if a device would have nothing to do.
    """
    units = sorted(_units(tasks, past, begun), key=lambda unit: (-unit.cost_s, unit.rank))
    kept = _Loads(dict.fromkeys(sorted({task.device for task in tasks}), 0.0))
    for unit in units:
        if unit.home:
            kept.put(unit, unit.home)
    for unit in units:
        if not unit.home:
            kept.put(unit, _emptiest(unit, kept))
    final = kept
    evened = _evened(kept, lose_history=False)
    if _gains(kept, evened, SMALL_GAIN):
        final = evened
    evened = _evened(final, lose_history=True)
    if _gains(final, evened, LARGE_GAIN) or final.has_idle_device:
        final = evened
    return {key: _Home(device, cost_s) for unit, device in final.homes.items() for key, cost_s in unit.costs_s.items()}


def _gains(kept: _Loads, evened: _Loads, share: float) -> bool:
    """Return whether moving cases saves this share of the slowest device's time, and ``LEAST_GAIN_S``."""
    gain_s = kept.slowest_s - evened.slowest_s
    return gain_s > share * kept.slowest_s and gain_s >= LEAST_GAIN_S


def _emptiest(unit: _Unit, loads: _Loads) -> str:
    """Return the device that would have the least work with a unit; a hash decides between equal devices."""
    return min(unit.candidates, key=lambda device: (loads.with_unit(unit, device), _rank(unit.first, device)))


def _evened(kept: _Loads, *, lose_history: bool) -> _Loads:
    """Return an assignment in which units moved from the slowest device to others until no move helps.

    A unit that its new device has measured before moves first: the cases of a device that is back return to it. Among
    the others, the unit moves that evens the two devices most, so that few cases move.

    Args:
        kept: the assignment before the moves.
        lose_history: whether units may move that lose history.
    """
    loads = kept.copy()
    enough_s = (1 + EVEN) * statistics.fmean(kept.seconds.values())
    # The units of a list differ only in their cost, so the unit to move is found without a look at all of them.
    alike: dict[str, dict[_Alike, list[_Unit]]] = {device: {} for device in loads.seconds}
    kinds = {unit: (unit.bench, unit.targets(lose_history=lose_history)) for unit in loads.homes if not unit.begun}
    for unit in sorted(kinds, key=lambda unit: unit.by_cost):
        alike[loads.homes[unit]].setdefault(kinds[unit], []).append(unit)
    while (slowest_s := loads.slowest_s) > enough_s:
        slowest = next(device for device, seconds in loads.seconds.items() if seconds == slowest_s)
        moves = [
            (is_new, after_s, unit.rank, target, unit)
            for (_, targets), units in alike[slowest].items()
            for is_new, target in targets
            if units and target != slowest
            for after_s, unit in _most_even(units, target, loads)
            if after_s < slowest_s
        ]
        if not moves:
            break
        *_, target, unit = min(moves, key=lambda move: move[:4])
        units = alike[slowest][kinds[unit]]
        del units[bisect_left(units, unit.by_cost, key=lambda each: each.by_cost)]
        insort(alike[target].setdefault(kinds[unit], []), unit, key=lambda each: each.by_cost)
        loads.put(unit, target)
    return loads


_Alike = tuple[str, tuple[tuple[bool, str], ...]]
"""What units have in common that differ only in their cost: the benchmark file, and ``_Unit.targets``."""


def _most_even(units: Sequence[_Unit], target: str, loads: _Loads) -> Iterator[tuple[float, _Unit]]:
    """Yield the one or two units that even their device and a target most, with the seconds of the slower device then.

    Args:
        units: units of one device that differ only in their cost, sorted by ``_Unit.by_cost``; at least one.
        target: the device that they could move to.
        loads: where the units are.
    """
    first = units[0]
    apart_s = loads.without_unit(first) - loads.with_unit(first, target) + 2 * first.cost_s
    at = bisect_left(units, apart_s / 2, key=lambda unit: unit.cost_s)
    nearest = [*units[at : at + 1]]
    if at:  # of several units with the same cost, the first has the lowest rank
        nearest.append(units[bisect_left(units, units[at - 1].cost_s, key=lambda unit: unit.cost_s)])
    for unit in nearest:
        yield max(loads.with_unit(unit, target), loads.without_unit(unit)), unit


def _units(
    tasks: Sequence[Task], past: Mapping[BudgetKey, CostHistory], begun: Collection[tuple[str, TaskKey]]
) -> list[_Unit]:
    """Return the units of the cases on the devices of one model."""
    of_case: dict[TaskKey, dict[str, Task]] = {}
    for task in tasks:
        of_case.setdefault(task.key, {})[task.device] = task
    known = {key: _cost(key, devices, past) for key, devices in of_case.items()}
    usual_s = statistics.median([cost_s for cost_s in known.values() if cost_s is not None] or [UNKNOWN_COST_S])
    begun_on = {key: device for device, key in begun if device in of_case.get(key, ())}
    together: dict[object, list[TaskKey]] = {}
    for key in sorted(of_case, key=lambda key: _rank(key, "")):
        shared = _shared_process(next(iter(of_case[key].values())))
        unit = (shared, frozenset(of_case[key]), begun_on.get(key)) if shared else key
        together.setdefault(unit, []).append(key)
    units = []
    for keys in together.values():
        first, candidates = keys[0], tuple(sorted(of_case[keys[0]]))
        homes = Counter(home for key in keys if (home := begun_on.get(key) or last_device(key, candidates, past)))
        costs_s = {key: usual_s if (cost_s := known[key]) is None else cost_s for key in keys}
        units.append(
            _Unit(
                costs_s=costs_s,
                cost_s=sum(costs_s.values()),
                rank=_rank(first, ""),
                bench=of_case[first][candidates[0]].bench,
                candidates=candidates,
                runs={device: max(_history(key, device, past).runs for key in keys) for device in candidates},
                home=homes.most_common(1)[0][0] if homes else None,
                begun=first in begun_on,
            )
        )
    return units


def _cost(key: TaskKey, devices: Iterable[str], past: Mapping[BudgetKey, CostHistory]) -> float | None:
    """Return the seconds of a replica on the device that measured a case last; None if that is unknown."""
    histories = [_history(key, device, past) for device in devices]
    known = [(history.last or _NEVER, history.cost_s) for history in histories if history.cost_s is not None]
    return max(known)[1] if known else None


def _history(key: TaskKey, device: str, past: Mapping[BudgetKey, CostHistory]) -> CostHistory:
    """Return the history of a case on a device; an empty history if the device has not measured the case."""
    return past.get((device, key[0].id, key[1]), CostHistory())


def _rank(key: TaskKey, device: str) -> str:
    """Return a pseudorandom rank of a case on a device, the same every time."""
    case, cache = key
    return digest(f"{case.id}\n{cache}\n{device}".encode())
