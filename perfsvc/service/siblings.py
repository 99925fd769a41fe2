"""GPUs against the other GPUs of their models, and the findings about the slow ones."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import timedelta

import numpy as np

from perfsvc import judge, units
from perfsvc.model import OF_THE_MACHINE, DeviceInfo, Direction, Finding, FindingUpdates, SlowGpu
from perfsvc.store import GpuRun, Store
from perfsvc.store.devices import CaseTimes

NEAR = timedelta(hours=24)
"""The runs of two hosts belong to one night if they began within this time."""

APART = timedelta(hours=12)
"""Only the newest of several runs within this time counts as a night: an hour of heat is one piece of evidence."""

LOOKED_AT = 2 * judge.SIBLING_NIGHTS
"""How many nights of each GPU are looked at: a sibling may have measured more often."""

RUNS = 100
"""How many of the newest runs of all GPUs are searched for these nights."""

MOST_CASES = 300
"""How many cases of a model are compared; if there are more, they are chosen evenly."""

FEWEST_CASES = 5
"""A finding needs so many cases: fewer may be slow for a reason of their own."""

Night = tuple[int, judge.RatioToSiblings]
"""A run of a GPU, and the GPU's ratio to its siblings in this run."""


def is_gpu(info: DeviceInfo, devices: Container[str]) -> bool:
    """Return True for a single GPU of a host: no processor, no group, and no device of an imported run.

    A UUID with a plus is that of a group if its parts are known GPUs, or have the form of NVIDIA's UUIDs.
    """
    is_group = info.gpus > 1 and any(part in devices or part.startswith("GPU-") for part in info.members)
    return info.kind not in {"cpu", "host"} and info.spec != "" and not is_group


def sibling_ratios(
    store: Store, gpus: Iterable[DeviceInfo], *, until: int, only: Collection[str] | None = None
) -> dict[str, tuple[Night, ...]]:
    """Return each GPU against the other GPUs of its model in its newest nights, the newest first.

    Only cases with the same binary are compared. Runs that have not ended, runs with uncommitted changes and excluded
    data do not count. A GPU without siblings is absent.

    Args:
        store: the database.
        gpus: the GPUs.
        until: the newest run that counts.
        only: the UUIDs of the GPUs that are returned; None for all.
    """
    models: dict[str, list[str]] = defaultdict(list)
    for info in gpus:
        models[info.model].append(info.uuid)
    several = {uuid for uuids in models.values() if len(uuids) > 1 for uuid in uuids}
    nights: dict[str, list[GpuRun]] = defaultdict(list)
    for gpu_run in store.devices.runs_on(several, RUNS, until=until) if several else ():
        of_gpu = nights[gpu_run.device]
        is_apart = all(abs(gpu_run.started - night.started) >= APART for night in of_gpu)
        if is_apart and len(of_gpu) < LOOKED_AT:
            of_gpu.append(gpu_run)
    ratios: dict[str, tuple[Night, ...]] = {}
    for uuids in models.values():
        wanted = [uuid for uuid in uuids if nights[uuid] and (only is None or uuid in only)]
        if len(uuids) == 1 or not wanted:
            continue
        runs = {uuid: {night.run for night in nights[uuid]} for uuid in uuids}
        times = store.devices.case_times(runs, newest=max(nights[uuid][0].run for uuid in wanted), most=MOST_CASES)
        for uuid in wanted:
            siblings = [nights[other] for other in uuids if other != uuid]
            compared = ((night, _ratio(night, siblings, times)) for night in nights[uuid][: judge.SIBLING_NIGHTS])
            ratios[uuid] = tuple((night.run, ratio) for night, ratio in compared if ratio is not None)
    return ratios


def _ratio(night: GpuRun, siblings: Iterable[Sequence[GpuRun]], times: CaseTimes) -> judge.RatioToSiblings | None:
    """Return a GPU in a night against the nearest night of each sibling; None if they share no case."""
    own = times.get((night.device, night.run), {})
    nearest = []
    for sibling in siblings:
        near = min(sibling, key=lambda other: (abs(other.started - night.started), other.run), default=None)
        if near is not None and abs(near.started - night.started) <= NEAR:
            nearest.append(times.get((near.device, near.run), {}))
    matrix = np.array([[of_sibling.get(key, np.nan) for key in own] for of_sibling in nearest], np.float64)
    return judge.ratio_to_siblings(np.array(list(own.values())), matrix)


# --- findings --------------------------------------------------------------------------------------------------------


def update_slow_gpus(store: Store, run: int) -> FindingUpdates:
    """Raise, reopen and resolve the findings about the GPUs of a run that are slower than their siblings.

    A GPU that most of a finding about the environment is about already, such as a new power limit, raises no finding.
    """
    devices = store.devices.all()
    gpus = [info for info in devices.values() if is_gpu(info, devices)]
    row = store.runs.get(run)
    slow: dict[str, tuple[Night, ...]] = {}
    fast: dict[str, str] = {}
    for uuid, nights in sibling_ratios(store, gpus, until=run, only=row.devices).items():
        if not nights or nights[0][0] != run:
            continue
        compared = [(ratio.ratio, ratio.siblings) for _, ratio in nights]
        if judge.is_slower_than_siblings(compared) and nights[0][1].cases >= FEWEST_CASES:
            slow[uuid] = nights
        elif judge.is_as_fast_as_siblings(compared):
            both = " and ".join(str(number) for number, _ in reversed(nights[: judge.RECOVERED_NIGHTS]))
            fast[uuid] = f"as fast as the other GPUs of its model in runs {both}"
    if slow:
        slow = _not_explained(store.findings.active(), slow)
    conditions = {row.device: row.slowdowns for row in store.devices.in_run(run)} if slow else {}
    gpus_slow = [
        SlowGpu(uuid, devices[uuid].model, row.provenance.host, _evidence(nights, conditions.get(uuid, ())))
        for uuid, nights in slow.items()
    ]
    return store.findings.update_slow_gpus(run, gpus_slow, fast)


def _not_explained(findings: Iterable[Finding], slow: Mapping[str, tuple[Night, ...]]) -> dict[str, tuple[Night, ...]]:
    """Return the slow GPUs of which no finding about the environment holds half of the compared cases or more."""
    held: dict[str, set[object]] = defaultdict(set)
    for finding in findings:
        for moved in finding.standing if finding.cause in OF_THE_MACHINE else ():
            if moved.direction is Direction.SLOWER:
                held[moved.series.device].add((moved.series.case, moved.series.cache))
    return {uuid: nights for uuid, nights in slow.items() if 2 * len(held[uuid]) < nights[0][1].cases}


def _evidence(nights: Sequence[Night], slowdowns: Collection[str]) -> str:
    """Return how much slower a GPU is in its newest night, over how many cases, and which nights show that."""
    _, newest = nights[0]
    low, high = (units.percent(bound) for bound in newest.interval)
    slower = [
        str(number) for number, ratio in reversed(nights) if ratio.ratio > 1 + judge.sibling_threshold(ratio.siblings)
    ]
    runs = f"{', '.join(slower[:-1])} and {slower[-1]}"
    limited = f"; its clock was lowered: {', '.join(slowdowns)}" if slowdowns else ""
    others = units.count(newest.siblings, "other GPU")
    return (
        f"{units.percent(newest.ratio)} against {others} of its model (interval {low} to {high}), over "
        f"{units.count(newest.cases, 'case')} with the same binaries, in runs {runs}{limited}"
    )
