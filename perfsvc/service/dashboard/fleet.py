"""The hosts and their GPUs as the page of the fleet shows them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perfsvc import judge
from perfsvc.model import (
    DeviceInfo,
    Expected,
    ExpectedKind,
    NightRow,
    Peak,
    RunRow,
    RunState,
    Slowdown,
)
from perfsvc.report.pages.fleet import Fleet, GpuView, Health, HostView, NightHealth, SiblingRatio
from perfsvc.service.siblings import is_gpu, sibling_ratios
from perfsvc.store import DeviceInRun, Store

HEALTH_NIGHTS = 100
"""How many of the newest nights of a host have a cell for each of its GPUs."""


def gather_fleet(store: Store, rows: Sequence[RunRow]) -> Fleet:
    """Return the hosts with GPUs that the runs measured on, or that nights are expected to have.

    Args:
        store: the database.
        rows: the runs of the site, the newest first.
    """
    devices = store.devices.all()
    gpus = {uuid: info for uuid, info in devices.items() if is_gpu(info, devices)}
    nights = store.nights.list(len(rows) + HEALTH_NIGHTS)
    expected = store.expectations.of_host(None)
    logs = _logs(rows, nights, gpus)
    numbers = {entry.run.id for log in logs.values() for entry in log if entry.run}
    measured = {(run, row.device): row for run, of_run in store.devices.in_runs(numbers).items() for row in of_run}
    peaks = store.devices.peaks_of([row.id for row in rows])
    # The logs are in the order of time, so that the newest run of each GPU on a host stays.
    newest_runs = {
        (host, uuid): entry.run
        for host, log in logs.items()
        for entry in log
        if entry.run
        for uuid in entry.run.devices
    }
    environments = store.devices.environments()
    full = store.devices.full_environments({run.id for run in newest_runs.values()})
    last_host = {uuid: row.provenance.host for row in reversed(rows) for uuid in row.devices}
    siblings = sibling_ratios(store, gpus.values(), until=max((row.id for row in rows), default=0))
    hosts = []
    gpus_expected = {(row.host, row.name): row for row in expected if row.kind is ExpectedKind.GPU}
    hosts_expected = {row.name: row for row in expected if row.kind is ExpectedKind.HOST}
    for name in sorted({*logs, *(host for host, uuid in gpus_expected if uuid in gpus)}):
        log = logs.get(name, [])
        views = []
        for uuid, info in gpus.items():
            row = gpus_expected.get((name, uuid))
            newest = newest_runs.get((name, uuid))
            if newest is None and row is None:
                continue
            now = measured.get((newest.id, uuid)) if newest else None
            of_run = full.get(newest.id) if newest else None
            ratios = siblings.get(uuid, ())
            slower = judge.is_slower_than_siblings([(ratio.ratio, ratio.siblings) for _, ratio in ratios])
            views.append(
                GpuView(
                    info,
                    newest.provenance.started if newest else row.seen if row else None,
                    newest.id if newest else None,
                    row.finding if row else None,
                    environments[now.environment_id] if now else None,
                    {**of_run.common, **of_run.devices.get(uuid, {})} if of_run else {},
                    now.sm_clock_hz if now else None,
                    now.temperature_c if now else None,
                    now.power_w if now else None,
                    _health(log, uuid, measured, is_expected=row is not None),
                    _peaks_on(name, peaks.get(uuid, {}), rows),
                    tuple(
                        SiblingRatio(number, of.ratio, of.low, of.high, of.cases, of.siblings) for number, of in ratios
                    ),
                    slower,
                    host if (host := last_host.get(uuid, name)) != name else "",
                )
            )
        if views:
            hosts.append(_host(name, log, nights, hosts_expected.get(name), views))
    least = judge.SIBLING_DEVIATIONS * judge.SIBLING_SPREAD
    others = {devices[uuid].model for uuid in last_host if uuid in devices and uuid not in gpus}
    return Fleet(
        tuple(hosts),
        least,
        judge.sibling_threshold(1),
        judge.AGREEING_NIGHTS,
        judge.SIBLING_NIGHTS,
        tuple(sorted(others)),
    )


def _host(
    name: str,
    log: Sequence["_NightOrRun"],
    nights: Iterable[NightRow],
    expected: Expected | None,
    views: Iterable[GpuView],
) -> HostView:
    night = next((night for night in nights if night.host == name), None)
    times = [entry.started for entry in log[-1:]] + ([night.started] if night else [])
    seen = max(times) if times else expected.seen if expected else None
    return HostView(name, seen, night.id if night else None, expected.finding if expected else None, tuple(views))


def _peaks_on(host: str, peaks: Mapping[int, Peak], rows: Sequence[RunRow]) -> tuple[Peak, ...]:
    """Return the measured peaks of a GPU while it was in a host, oldest first."""
    here = {row.id for row in rows if row.provenance.host == host}
    return tuple(peak for run, peak in peaks.items() if run in here)


# --- health ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NightOrRun:
    """A night of a host, or a run outside of nights: ``asked`` are the devices that the night's settings name."""

    started: datetime
    run: RunRow | None
    night: int | None = None
    asked: str = ""


def _logs(
    rows: Sequence[RunRow], nights: Sequence[NightRow], gpus: Mapping[str, DeviceInfo]
) -> dict[str, list[_NightOrRun]]:
    """Return the newest nights of each host, and the runs outside of nights that measured on a GPU, oldest first."""
    by_number = {row.id: row for row in rows}
    first = min(by_number, default=0)
    began = min((row.provenance.started for row in rows), default=None)
    logs: dict[str, list[_NightOrRun]] = defaultdict(list)
    for night in nights:
        is_old = night.run < first if night.run is not None else began is None or night.started < began
        if not is_old and not (night.run is None and night.state is RunState.RUNNING):
            asked = str(night.settings.get("run", {}).get("devices", ""))
            logs[night.host].append(_NightOrRun(night.started, by_number.get(night.run or 0), night.id, asked))
    of_nights = {night.run for night in nights}
    for row in rows:
        if row.id not in of_nights and any(uuid in gpus for uuid in row.devices):
            logs[row.provenance.host].append(_NightOrRun(row.provenance.started, row))
    return {host: sorted(log, key=lambda entry: entry.started)[-HEALTH_NIGHTS:] for host, log in logs.items()}


def _health(
    log: Sequence[_NightOrRun], uuid: str, measured: Mapping[tuple[int, str], DeviceInRun], *, is_expected: bool
) -> tuple[NightHealth, ...]:
    """Return the states of a GPU in the nights of its host, oldest first.

    A night misses the GPU if an earlier night that asked for the same devices measured on it. If the GPU is expected no
    longer, its last night is the last that measured on it.
    """
    cells: list[NightHealth] = []
    asked: set[str] = set()
    for entry in log:
        run = entry.run.id if entry.run else None
        known = measured.get((run, uuid)) if run is not None else None
        if known is not None:
            if entry.night is not None:
                asked.add(entry.asked)
            states = tuple(_states(known)) or (Health.OK,)
            cells.append(NightHealth(entry.started, run, entry.night, states, "; ".join(troubles(known))))
        elif entry.night is not None and entry.asked in asked:
            cells.append(NightHealth(entry.started, run, entry.night, (Health.MISSING,)))
    while cells and not is_expected and cells[-1].worst is Health.MISSING:
        cells.pop()
    return tuple(cells)


def _states(conditions: DeviceInRun) -> Iterable[Health]:
    """Yield what was wrong with a GPU, the worst first. Reaching the power limit is usual, and not wrong."""
    if conditions.xids:
        yield Health.XID
    if conditions.ecc_errors:
        yield Health.ECC
    if set(conditions.slowdowns) - {Slowdown.POWER_CAP.value}:
        yield Health.SLOWED
    if conditions.rejected_batches:
        yield Health.REJECTED
    if conditions.others:
        yield Health.SHARED


def troubles(conditions: DeviceInRun) -> list[str]:
    """Return a text for each thing that was wrong with a device during the run."""
    troubles = []
    if conditions.slowdowns:
        troubles.append(", ".join(conditions.slowdowns))
    if conditions.rejected_batches:
        troubles.append(f"{conditions.rejected_batches} batches rejected")
    if conditions.ecc_errors:
        troubles.append(f"{conditions.ecc_errors} errors of its memory")
    if conditions.xids:
        troubles.append(f"Xid {', '.join(conditions.xids)}")
    if conditions.others:
        troubles.append(f"shared with processes {', '.join(conditions.others)}")
    return troubles
