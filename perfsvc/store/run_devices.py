"""What a run measured on each of its devices: one row for each, stored when the run ends."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from perfsvc.model import Peak, Status
from perfsvc.store.cases import device_ids
from perfsvc.store.rows import DeviceInRun
from perfsvc.store.schema.column_types import damaged
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.tables import Devices, Measurements, RunDevices, Runs

PEAKS = ("copy_bytes_per_s", "read_bytes_per_s")
"""The columns that are stored at the start of a run; measurements show the others."""
_SHOWN = (
    *("environment_id", "statuses", "rejected_batches", "ecc_errors", "sm_clock_hz", "temperature_c", "power_w"),
    *("slowdowns", "xids", "others"),
)
_LISTS = ("slowdowns", "xids", "others")


def put_peaks(connection: Connection, run: int, peaks: Mapping[str, Peak]) -> None:
    """Store the measured peaks of a run's devices by UUID; they replace the run's earlier peaks."""
    of_run = RunDevices.run_id == run
    connection.execute(update(RunDevices).where(of_run).values(dict.fromkeys(PEAKS)))
    for uuid, device in device_ids(connection, peaks).items():
        peak = peaks[uuid]
        rates = {"copy_bytes_per_s": peak.copy_bytes_per_s, "read_bytes_per_s": peak.read_bytes_per_s}
        known = connection.execute(update(RunDevices).where(of_run, RunDevices.device_id == device).values(rates))
        if known.rowcount == 0:
            connection.execute(insert(RunDevices), [{"run_id": run, "device_id": device, **rates}])


def write_run_devices(connection: Connection, run: int) -> bool:
    """Compute what a run measured on each device, and how many cases; return True if something else was stored."""
    cases = connection.scalar(select(_distinct_cases()).where(Measurements.run_id == run)) or 0
    changed = connection.scalar(select(Runs.cases).where(Runs.id == run)) != cases
    connection.execute(update(Runs).where(Runs.id == run).values(cases=cases))
    query = select(RunDevices).where(RunDevices.run_id == run).order_by(RunDevices.device_id)
    stored = [dict(row) for row in connection.execute(query).mappings()]
    peaks = {row["device_id"]: {name: row[name] for name in PEAKS} for row in stored if row[PEAKS[0]] is not None}
    found = {row["device_id"]: row for row in _computed(connection, [run])}
    unknown = {"run_id": run, **dict.fromkeys((*PEAKS, *_SHOWN))}
    rows = [
        {**unknown, "device_id": device, **peaks.get(device, {}), **found.get(device, {})}
        for device in sorted(peaks.keys() | found.keys())
    ]
    if rows == stored:
        return changed
    connection.execute(delete(RunDevices).where(RunDevices.run_id == run))
    if rows:
        connection.execute(insert(RunDevices), rows)
    return True


def forget_run_devices(connection: Connection, run: int) -> None:
    """Store that a run goes on: its devices are computed from its measurements again until it ends."""
    connection.execute(update(Runs).where(Runs.id == run).values(cases=None))
    connection.execute(update(RunDevices).where(RunDevices.run_id == run).values(dict.fromkeys(_SHOWN)))


def read_run_devices(connection: Connection, runs: Collection[int]) -> dict[int, list[DeviceInRun]]:
    """Return what runs measured on each of their devices; a run that measured nothing is absent.

    The devices of a run are in the order in which they were first stored. Of a run that has not ended, they are
    computed from its measurements.
    """
    columns = select(RunDevices.run_id, RunDevices.device_id, *(getattr(RunDevices, name) for name in _SHOWN))
    ended = columns.where(among(RunDevices.run_id, runs), RunDevices.environment_id.is_not(None))
    ended = ended.order_by(RunDevices.run_id, RunDevices.device_id)
    rows: list[Any] = [dict(row) for row in connection.execute(ended).mappings()]
    if running := set(runs) - {row["run_id"] for row in rows}:
        rows += _computed(connection, running)
    named = {row.id: row for row in connection.execute(select(Devices.id, Devices.uuid, Devices.model))}
    found: dict[int, list[DeviceInRun]] = defaultdict(list)
    for row in rows:
        device = named[row["device_id"]]
        shown: dict[str, Any] = {name: _items([row[name]]) if name in _LISTS else row[name] for name in _SHOWN}
        shown["statuses"] = _counts(row["statuses"])
        found[row["run_id"]].append(DeviceInRun(device.uuid, device.model, **shown))
    return dict(found)


def _counts(statuses: Any) -> dict[Status, int]:
    """Return the number of measurements by status from stored JSON; raises ``DamagedError``."""
    try:
        return {Status(name): int(count) for name, count in statuses.items()}
    except (AttributeError, ValueError, TypeError) as error:
        raise damaged(f"the statuses {statuses!r}") from error


def count_cases(connection: Connection, runs: Collection[int]) -> dict[int, int]:
    """Return how many cases each of some runs has measured, from the measurements."""
    query = select(Measurements.run_id, _distinct_cases()).where(among(Measurements.run_id, runs))
    return dict(connection.execute(query.group_by(Measurements.run_id)).all()) if runs else {}


def _distinct_cases() -> Any:
    return func.count(Measurements.case_id.distinct())


def _computed(connection: Connection, runs: Collection[int]) -> list[dict[str, Any]]:
    """Return the rows of runs without peaks, from their measurements."""
    texts = (Measurements.slowdowns, Measurements.xids, Measurements.others)
    kinds = (Measurements.run_id, Measurements.device_id, Measurements.status, *texts)
    numbers = (
        func.count().label("count"),
        func.max(Measurements.environment_id).label("environment_id"),
        func.sum(Measurements.rejected_batches).label("rejected_batches"),
        func.sum(Measurements.ecc_errors).label("ecc_errors"),
        func.min(Measurements.sm_clock_hz).label("sm_clock_hz"),
        func.max(Measurements.temperature_c).label("temperature_c"),
        func.max(Measurements.power_w).label("power_w"),
    )
    query = select(*kinds, *numbers).where(among(Measurements.run_id, runs)).group_by(*kinds)
    groups: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for group in connection.execute(query.order_by(Measurements.run_id, Measurements.device_id)):
        groups[group.run_id, group.device_id].append(group)
    rows = []
    for (run, device), of_device in groups.items():
        statuses: dict[str, int] = defaultdict(int)
        for group in of_device:
            statuses[group.status.value] += group.count
        rows.append(
            {
                "run_id": run,
                "device_id": device,
                "environment_id": max(group.environment_id for group in of_device),
                "statuses": dict(statuses),
                "rejected_batches": sum(int(group.rejected_batches) for group in of_device),
                "ecc_errors": sum(int(group.ecc_errors) for group in of_device),
                "sm_clock_hz": min(_known(group.sm_clock_hz for group in of_device), default=None),
                "temperature_c": max(_known(group.temperature_c for group in of_device), default=None),
                "power_w": max(_known(group.power_w for group in of_device), default=None),
                **{name: ", ".join(_items(getattr(group, name) for group in of_device)) for name in _LISTS},
            }
        )
    return rows


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _items(lists: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct items of comma-separated lists, sorted."""
    return tuple(sorted({item for text in lists for item in text.split(", ") if item}))
