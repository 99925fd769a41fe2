"""Histories in bulk: what the runs say of every series, and of the GPUs it was measured on."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, CacheState, Case, Environment, Peak, Series, Status, Verdict
from perfsvc.store.engine import transaction
from perfsvc.store.interning import case_of
from perfsvc.store.naming import own_name
from perfsvc.store.reading import samples_of
from perfsvc.store.rows import BoardInRun, InRun, Told
from perfsvc.store.tables import Batches, Cases, Devices, Environments, Measurements, Metrics, Peaks, Verdicts

QUIET = (Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.NEW)
"""Verdicts that tell of no event in a history."""

_Spot = tuple[int, int, int, CacheState]
"""A place in the database: lineage, own name, device, cache state."""


class Historied:
    """The part of ``Store`` that reads many runs at once; each method is one transaction."""

    _engine: Engine

    def histories(self, runs: Collection[int], *, errors: bool = False) -> dict[Series, list[InRun]]:
        """Every series that is judged in some runs, oldest first, under the present names of their cases.

        The errors of results, which hardly ever move and are as many as the times, are left out unless ``errors``. A
        run that did not measure a series is absent there. A case that any replica got wrong has a time without
        values, with that status and reason.
        """
        with transaction(self._engine, writes=False) as connection:
            return histories(connection, runs, errors=errors)

    def told(self, runs: Collection[int]) -> dict[Series, list[Told]]:
        """The verdicts of some runs that tell of an event, oldest first, under the present names of their cases."""
        with transaction(self._engine, writes=False) as connection:
            return told(connection, runs)

    def samples(self, runs: Collection[int]) -> dict[Series, dict[int, tuple[tuple[float, ...], ...]]]:
        """The samples of the times of some runs, in seconds, a tuple a replica; of what is ok alone."""
        with transaction(self._engine, writes=False) as connection:
            return samples(connection, runs)

    def environments(self) -> dict[int, Environment]:
        """Every stored environment by the id that histories name as a segment."""
        with transaction(self._engine, writes=False) as connection:
            rows = connection.execute(
                select(Environments.id, Environments.driver, Environments.toolkit, Environments.power_limit_w)
            )
            return {number: Environment(driver, toolkit, limit) for number, driver, toolkit, limit in rows}

    def boards(self, run: int) -> list[BoardInRun]:
        """What the GPUs of a run were like, in the order in which they were first stored."""
        with transaction(self._engine, writes=False) as connection:
            return boards(connection, run)

    def peaks_of(self, runs: Collection[int]) -> dict[str, dict[int, Peak]]:
        """The measured peaks of GPUs by UUID and run, oldest first."""
        with transaction(self._engine, writes=False) as connection:
            query = (
                select(Devices.uuid, Peaks.run_id, Peaks.copy_bytes_per_s, Peaks.read_bytes_per_s)
                .join(Devices, Devices.id == Peaks.device_id)
                .where(Peaks.run_id.in_(runs))
                .order_by(Peaks.run_id)
            )
            found: dict[str, dict[int, Peak]] = defaultdict(dict)
            for uuid, run, copied, read in connection.execute(query):
                found[uuid][run] = Peak(copied, read)
            return dict(found)


def histories(connection: Connection, runs: Collection[int], *, errors: bool = False) -> dict[Series, list[InRun]]:
    """See ``Store.histories``."""
    named = _named(connection, runs)
    names = _Names(connection)
    found: dict[Series, list[InRun]] = defaultdict(list)
    rows = connection.execute(_measured(runs, Measurements.status, Measurements.reason, *_NUMBERS))
    for run, measured in groupby(rows, attrgetter("run_id")):
        replicas: dict[_Spot, list[Any]] = defaultdict(list)
        for row in measured:
            replicas[_spot(row)].append(row)
        for spot, of_case in replicas.items():
            for metric, one in _in_run(run, of_case, named, errors=errors):
                found[names.series(spot, metric)].append(one)
    return dict(found)


_NUMBERS = (
    Measurements.id,
    Measurements.median_s,
    Measurements.low_s,
    Measurements.high_s,
    Measurements.max_error,
    Measurements.environment_id,
)


def _measured(runs: Collection[int], *columns: Any) -> Any:
    """Columns of the measurements of some runs, oldest first, with what ``_spot`` needs of them."""
    return (
        select(
            Measurements.run_id,
            Cases.lineage_id,
            own_name(Measurements.run_id),
            Measurements.device_id,
            Measurements.cache,
            *columns,
        )
        .join(Cases, Cases.id == Measurements.case_id)
        .where(Measurements.run_id.in_(runs))
        .order_by(Measurements.run_id, Measurements.case_id, Measurements.replica)
    )


def _spot(row: Any) -> _Spot:
    return row.lineage_id, row.own_name, row.device_id, row.cache


def _named(connection: Connection, runs: Collection[int]) -> Mapping[int, Sequence[tuple[str, float]]]:
    """The metrics of the runs' measurements that are judged, by the measurements' ids."""
    query = (
        select(Metrics.measurement_id, Metrics.name, Metrics.value)
        .join(Measurements, Measurements.id == Metrics.measurement_id)
        .where(Measurements.run_id.in_(runs), Metrics.name.not_in(UNJUDGED))
    )
    found: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for measurement, name, value in connection.execute(query):
        if value is not None:
            found[measurement].append((name, value))
    return found


class _Names:
    """What places in the database are called: devices, and cases by their present names."""

    def __init__(self, connection: Connection) -> None:
        rows = connection.execute(
            select(
                Cases.id,
                Cases.lineage_id,
                Cases.benchmark,
                Cases.variant,
                Cases.point,
                Cases.version,
                Cases.former,
            ).order_by(Cases.former.desc(), Cases.id)
        ).all()
        cases = {row.id: case_of(row.benchmark, row.variant, row.point, row.version) for row in rows}
        self._cases: Mapping[int, Case] = cases
        self._present = {row.lineage_id: cases[row.id] for row in rows}  # those that are not former come last
        devices = connection.execute(select(Devices.id, Devices.uuid, Devices.model))
        self._devices = {number: (uuid, model) for number, uuid, model in devices}

    def series(self, spot: _Spot, metric: str) -> Series:
        lineage, own, device, cache = spot
        return Series(self._cases[own] if own else self._present[lineage], *self._devices[device], metric, cache)


def _in_run(
    run: int, replicas: Sequence[Any], named: Mapping[int, Sequence[tuple[str, float]]], *, errors: bool
) -> Iterator[tuple[str, InRun]]:
    """What the replicas of a case measured in a run, by metric."""
    first = replicas[0]
    if any(row.status is not Status.OK for row in replicas):
        worst = max(replicas, key=lambda row: row.status.severity)
        yield TIME, InRun(run, first.environment_id, worst.status, worst.reason, ())
        return
    if times := tuple(row.median_s for row in replicas if row.median_s is not None):
        yield TIME, InRun(run, first.environment_id, Status.OK, "", times, first.low_s, first.high_s)
    values: dict[str, list[float]] = defaultdict(list)
    for row in replicas if named or errors else ():
        for metric, value in named.get(row.id, ()):
            values[metric].append(value)
        if errors and row.max_error is not None:
            values[MAX_ERROR].append(row.max_error)
    for metric, held in values.items():
        yield metric, InRun(run, first.environment_id, Status.OK, "", tuple(held))


def told(connection: Connection, runs: Collection[int]) -> dict[Series, list[Told]]:
    """See ``Store.told``."""
    query = (
        select(
            Verdicts.run_id,
            Verdicts.metric,
            Verdicts.cache,
            Verdicts.device_id,
            Verdicts.verdict,
            Verdicts.ratio,
            Verdicts.cause,
            Cases.lineage_id,
        )
        .join(Cases, Cases.id == Verdicts.case_id)
        .where(Verdicts.run_id.in_(runs), Verdicts.verdict.not_in(QUIET))
        .order_by(Verdicts.run_id)
    )
    names = _Names(connection)
    found: dict[Series, list[Told]] = defaultdict(list)
    for row in connection.execute(query):
        series = names.series((row.lineage_id, 0, row.device_id, row.cache), row.metric)
        found[series].append(Told(row.run_id, row.verdict, row.ratio, row.cause))
    return dict(found)


def samples(connection: Connection, runs: Collection[int]) -> dict[Series, dict[int, tuple[tuple[float, ...], ...]]]:
    """See ``Store.samples``."""
    query = _measured(runs, Measurements.samples).where(
        Measurements.samples.is_not(None), Measurements.status == Status.OK
    )
    names = _Names(connection)
    found: dict[Series, dict[int, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
    for row in connection.execute(query):
        series = names.series(_spot(row), TIME)
        found[series][row.run_id].append(samples_of(row.samples, series.case))
    return {series: {run: tuple(held) for run, held in of_runs.items()} for series, of_runs in found.items()}


def boards(connection: Connection, run: int) -> list[BoardInRun]:
    """See ``Store.GPUs``."""
    bad = (Status.WRONG, Status.FAILED)
    query = (
        select(
            Devices.uuid,
            Devices.model,
            func.count().filter(Measurements.status != Status.SKIPPED).label("measured"),
            func.count().filter(Measurements.status.in_(bad)).label("failed"),
            func.min(Measurements.sm_clock_hz).label("sm_clock_hz"),
            func.max(Measurements.temperature_c).label("temperature_c"),
            func.max(Measurements.power_w).label("power_w"),
            func.sum(Measurements.rejected_batches).label("rejected_batches"),
        )
        .join(Devices, Devices.id == Measurements.device_id)
        .where(Measurements.run_id == run)
        .group_by(Devices.id, Devices.uuid, Devices.model)
        .order_by(Devices.id)
    )
    rows = connection.execute(query).mappings().all()
    faults = _faults(connection, run)
    return [_board(row, faults.get(row["uuid"], ())) for row in rows]


def _board(row: Mapping[Any, Any], batches: Sequence[Any]) -> BoardInRun:
    known = {name: row[name] for name in row if name not in {"uuid", "model"}}
    return BoardInRun(
        device=row["uuid"],
        device_model=row["model"],
        **known,
        slowdowns=_items(batch.slowdowns for batch in batches),
        ecc_errors=sum(int(batch.ecc_errors) for batch in batches),
        xids=_items(batch.xids for batch in batches),
        others=_items(batch.others for batch in batches),
    )


def _faults(connection: Connection, run: int) -> Mapping[str, Sequence[Any]]:
    """What batches of a run tell of slowdowns, errors, faults and other processes, by the GPUs' UUIDs."""
    lists = Devices.uuid, Batches.slowdowns, Batches.xids, Batches.others
    query = (
        select(*lists, func.sum(Batches.ecc_errors).label("ecc_errors"))
        .join(Measurements, Measurements.id == Batches.measurement_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .where(Measurements.run_id == run)
        .group_by(*lists)
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for batch in connection.execute(query):
        found[batch.uuid].append(batch)
    return found


def _items(lists: Iterable[str]) -> tuple[str, ...]:
    """What lists as text hold, each once, sorted."""
    return tuple(sorted({item for text in lists for item in text.split(", ") if item}))
