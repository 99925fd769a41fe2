"""The ids of cases and devices, and the names of cases.

A case is stored under its name together with all its former names; names that share a history form a lineage. So the
order of measuring does not matter: a former name that is measured later, from an old commit, is already in the lineage.
All functions are safe between processes.
"""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    delete,
    exists,
    insert,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy import (
    case as sql_case,
)

from perfsvc.errors import DatabaseError, NotMeasuredError
from perfsvc.model import CacheState, Case, Series
from perfsvc.store.schema.base import Base
from perfsvc.store.schema.column_types import readable_text, report_damaged
from perfsvc.store.schema.engine import POSTGRESQL, among, new_id
from perfsvc.store.schema.judging_tables import Exclusions, Pins
from perfsvc.store.schema.tables import Cases, Devices, Lineages, Measurements, OverBudgetCases

CaseIds = tuple[int, int, CacheState]
"""A ``CaseKey`` in the database: the ids of lineage and device, and the cache state."""

CASE_COLUMNS = (Cases.benchmark, Cases.variant, Cases.point, Cases.version)
"""The columns from which ``case_of`` makes a case."""

NAMES_AT_ONCE = 500
"""How many cases a statement looks up by their names, each of which takes four parameters."""

_NAMED = attrgetter("case_id", "lineage_id", "benchmark", "variant", "point", "version", "present_variant")
"""What ``present_cases`` reads of a row."""

_PRESENT, _OTHER_NAME, _ALSO_MEASURED = Cases.__table__.alias(), Cases.__table__.alias(), Measurements.__table__.alias()
"""Aliases of tables that a query joins a second time; making an alias takes longer than most queries."""

# --- storing and finding ids -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Name:
    """One stored name of a case."""

    id: int
    lineage: int
    former: bool


def case_id(connection: Connection, case: Case) -> int:
    """Return the id of a case; a new case is stored, and shares the lineage (the history) of its former names."""
    names = _stored_names(connection, case)
    if not _is_complete(case, names):
        if connection.dialect.name == POSTGRESQL:  # SQLite has one writer at a time
            connection.execute(text("LOCK TABLE cases IN SHARE ROW EXCLUSIVE MODE"))
            names = _stored_names(connection, case)
        if not _is_complete(case, names):
            _store_names(connection, case, names)
            names = _stored_names(connection, case)
    return names[case.variant].id


def case_ids(connection: Connection, cases: Iterable[Case]) -> dict[Case, int]:
    """Return the id of each case; store the cases that are new."""
    wanted = dict.fromkeys((case, case.formerly) for case in cases)  # equal cases may differ in their former names
    names = {case: (case.benchmark, case.variant, _point_json(case), case.version) for case, _ in wanted}
    query = select(*CASE_COLUMNS, Cases.id)
    stored: dict[tuple[Any, ...], int] = {}
    remaining = iter(names.values())
    while part := list(islice(remaining, NAMES_AT_ONCE)):
        for *name, number in connection.execute(query.where(tuple_(*CASE_COLUMNS).in_(part))):
            stored[tuple(name)] = number
    ids: dict[Case, int] = {}
    for case, formerly in wanted:
        known = stored.get(names[case])
        ids[case] = case_id(connection, case) if known is None or formerly else known
    return ids


def _stored_names(connection: Connection, case: Case) -> dict[str, _Name]:
    """Return the stored rows of a case's present and former names, by variant."""
    query = select(Cases.variant, Cases.id, Cases.lineage_id, Cases.former).where(
        Cases.benchmark == case.benchmark,
        Cases.point == _point_json(case),
        Cases.version == case.version,
        Cases.variant.in_((case.variant, *case.formerly)),
    )
    return {row.variant: _Name(row.id, row.lineage_id, row.former) for row in connection.execute(query)}


def _is_complete(case: Case, names: Mapping[str, _Name]) -> bool:
    """Return True if all names of a case are stored in one lineage."""
    return {case.variant, *case.formerly} <= names.keys() and not _to_take_over(case, names)


def _to_take_over(case: Case, names: Mapping[str, _Name]) -> list[_Name]:
    """Return the former names of a case that are still the present name of another lineage (a case with its history).

    If a third variant has already taken over a former name, the name stays with this variant.
    """
    own = names.get(case.variant)
    stored = [names[variant] for variant in case.formerly if variant in names and variant != case.variant]
    return [name for name in stored if not name.former and (own is None or name.lineage != own.lineage)]


def _store_names(connection: Connection, case: Case, names: Mapping[str, _Name]) -> None:
    """Store the missing names of a case and merge the lineages of its former names into the case's own lineage."""
    predecessors = _to_take_over(case, names)
    if case.variant in names:
        lineage = names[case.variant].lineage
    elif predecessors:
        lineage = predecessors[0].lineage
    else:
        lineage = new_id(connection, Lineages, {"started_at": datetime.now(UTC)})
    for name in predecessors:
        connection.execute(update(Cases).where(Cases.id == name.id).values(former=True))
        if name.lineage != lineage:
            _merge_lineages(connection, name.lineage, lineage)
    for variant in dict.fromkeys((case.variant, *case.formerly)):
        if variant not in names:
            row = {
                "lineage_id": lineage,
                "name": Case(case.benchmark, variant, case.point, case.version).id,
                "benchmark": case.benchmark,
                "variant": variant,
                "point": _point_json(case),
                "version": case.version,
                "former": variant != case.variant,
            }
            connection.execute(insert(Cases), row)


def _merge_lineages(connection: Connection, old: int, into: int) -> None:
    """Move all names and pins of one lineage into another; if both pin the same series, the newer pin stays."""
    pins = connection.execute(select(Pins).where(Pins.lineage_id.in_((old, into))).order_by(Pins.set_at)).mappings()
    newest = {(pin["device_id"], pin["metric"], pin["cache"]): {**pin, "lineage_id": into} for pin in pins}
    connection.execute(delete(Pins).where(Pins.lineage_id.in_((old, into))))
    if newest:
        connection.execute(insert(Pins), list(newest.values()))
    connection.execute(update(Cases).where(Cases.lineage_id == old).values(lineage_id=into))
    connection.execute(delete(Lineages).where(Lineages.id == old))


def lineage_of(connection: Connection, case_id: str) -> int:
    """Return the lineage of the newest version of a case; ``case_id`` is any of the case's names.

    A lineage is the id that a case keeps when it is renamed. Raises ``NotMeasuredError`` if the name is unknown.
    """
    newest_version = select(Cases.lineage_id).where(Cases.name == case_id).order_by(Cases.version.desc()).limit(1)
    lineage = connection.scalar(newest_version)
    if lineage is None:
        measured = select(Cases.name).where(exists().where(Measurements.case_id == Cases.id)).distinct()
        near = get_close_matches(case_id, connection.scalars(measured), n=3)
        raise NotMeasuredError(
            f"{case_id} was never measured", cure=f"did you mean {' or '.join(near)}?" if near else "perfsvc runs"
        )
    return lineage


def lineages_of(connection: Connection, cases: Iterable[Case]) -> dict[Case, int]:
    """Return the lineage (the id that survives renaming) of each case; a case without any stored name is absent."""
    wanted = list(cases)
    query = select(*CASE_COLUMNS, Cases.lineage_id).where(Cases.benchmark.in_({case.benchmark for case in wanted}))
    stored = {tuple(name): lineage for *name, lineage in connection.execute(query)}
    lineages: dict[Case, int] = {}
    for case in wanted:
        for variant in (case.variant, *case.formerly):
            lineage = stored.get((case.benchmark, variant, _point_json(case), case.version))
            if lineage is not None:
                lineages[case] = lineage
                break
    return lineages


def namesakes_of(connection: Connection, cases: Iterable[Case]) -> dict[Case, list[int]]:
    """Return the ids of all present and former names of each stored case."""
    lineages = lineages_of(connection, cases)
    ids: dict[int, list[int]] = defaultdict(list)
    query = select(Cases.lineage_id, Cases.id).where(among(Cases.lineage_id, set(lineages.values())))
    for lineage, number in connection.execute(query):
        ids[lineage].append(number)
    return {case: ids[lineage] for case, lineage in lineages.items()}


def device_id(connection: Connection, uuid: str) -> int:
    """Return the id of a stored device; raises ``DatabaseError`` if it was never stored."""
    stored = connection.scalar(select(Devices.id).where(Devices.uuid == uuid))
    if stored is None:
        raise DatabaseError(f"the device {uuid} is not in the database", cure="store it with store.devices.put first")
    return stored


def device_ids(connection: Connection, uuids: Iterable[str]) -> dict[str, int]:
    """Return the ids of stored devices; raises ``DatabaseError`` if one was never stored."""
    return {uuid: device_id(connection, uuid) for uuid in set(uuids)}


# --- names -----------------------------------------------------------------------------------------------------------


def _point_json(case: Case) -> str:
    """Return a case's point as ``cases.point`` holds it."""
    return json.dumps(dict(case.point), separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1 << 15)
def case_of(benchmark: str, variant: str, point: str, version: int) -> Case:
    """Return the case of a row of ``cases``."""
    benchmark, variant, point = map(readable_text, (benchmark, variant, point))
    try:
        return Case(benchmark, variant, _axes_of_valid(point), version)
    except ValueError:
        return Case(benchmark, variant, tuple(axes_of(point).items()), version)


@lru_cache(maxsize=1024)
def _axes_of_valid(point: str) -> tuple[tuple[str, Any], ...]:
    """Return the axes of a point; many cases share a point. Raises ``ValueError`` if the point is damaged."""
    axes = json.loads(point)
    if not isinstance(axes, dict):
        raise ValueError("not an object")  # noqa: TRY004 - like invalid JSON
    return tuple(axes.items())


def axes_of(point: str) -> dict[str, Any]:
    """Return the axes of a point as ``cases.point`` holds it; if it is damaged, report that, and return it as an axis.

    So cases whose points are damaged stay different cases.
    """
    with contextlib.suppress(ValueError):
        axes = json.loads(point)
        if isinstance(axes, dict):
            return axes
    report_damaged(f"the point {point[:40]!r} of a case")
    return {"damaged": point}


def series_of(row: Any) -> Series:
    """Return the series of a row with the columns of a case, a device, a metric and a cache state."""
    return Series(
        case_of(row.benchmark, row.variant, row.point, row.version), row.uuid, row.model, row.metric, row.cache
    )


def of_cases(table: type[Measurements | OverBudgetCases], *columns: Any) -> Select[Any]:
    """Return a query of some columns of a table, with the columns that ``present_cases`` needs."""
    return (
        select(
            *columns,
            table.case_id,
            table.cache,
            Cases.lineage_id,
            *CASE_COLUMNS,
            _PRESENT.c.variant.label("present_variant"),
            Devices.uuid,
            Devices.model,
        )
        .join(Cases, Cases.id == table.case_id)
        .outerjoin(_PRESENT, and_(_PRESENT.c.lineage_id == Cases.lineage_id, _PRESENT.c.former.is_(False)))
        .join(Devices, Devices.id == table.device_id)
        .order_by(table.case_id, table.device_id, table.cache)
    )


def present_cases(rows: Sequence[Any]) -> dict[int, Case]:
    """Return the cases in rows of one run by id, under their present names.

    ``of_cases`` selects the rows.

    A lineage is a case with its former names. If a run measured two names of one lineage, a new variant uses the former
    name. Each case then keeps its name of that run.
    """
    return _under_present_names({row[0]: row for row in map(_NAMED, rows)})


def present_cases_of(connection: Connection, ids: Collection[int]) -> dict[int, Case]:
    """Return what ``present_cases`` returns of a run that measured cases with these ids."""
    query = (
        select(Cases.id, Cases.lineage_id, *CASE_COLUMNS, _PRESENT.c.variant)
        .outerjoin(_PRESENT, and_(_PRESENT.c.lineage_id == Cases.lineage_id, _PRESENT.c.former.is_(False)))
        .where(among(Cases.id, ids))
    )
    with connection.execute(query) as result:
        # SQLAlchemy would make an object of each row, which takes longer than reading the row.
        return _under_present_names({row[0]: row for row in result.cursor.fetchall()})


def _under_present_names(of_cases: Mapping[int, tuple[Any, ...]]) -> dict[int, Case]:
    """Return the cases of a run, from what ``_NAMED`` names of each, by id."""
    names = Counter(lineage for _, lineage, *_ in of_cases.values())
    return {
        number: case_of(benchmark, variant if names[lineage] > 1 else present or variant, point, version)
        for number, lineage, benchmark, variant, point, version, present in of_cases.values()
    }


def own_name(run: Any) -> ColumnElement[int]:
    """Return an SQL expression for a row with a case and a run: the case's id if its name was reused, else 0.

    If a run measured a former name and also another name of its lineage, the former name was given to a new variant (as
    in ``present_cases``). The new variant does not share the levels and the history of the renamed case. A query that
    groups by lineage must therefore also group by this expression.
    """
    shared = exists().where(
        _OTHER_NAME.c.lineage_id == Cases.lineage_id,
        _OTHER_NAME.c.id != Cases.id,
        _ALSO_MEASURED.c.case_id == _OTHER_NAME.c.id,
        _ALSO_MEASURED.c.run_id == run,
    )
    zero: ColumnElement[int] = literal_column("0")  # no parameter: PostgreSQL could not group by the expression
    former = and_(Cases.former, shared.correlate_except(_ALSO_MEASURED, _OTHER_NAME))
    return sql_case((former, Cases.id), else_=zero).label("own_name")


def judged(run: Any, case: Any = None) -> ColumnElement[bool]:
    """Return an SQL condition that is true if a run, or a case in a run, is not excluded from judging.

    Args:
        run: the column of the run.
        case: the column of the case; None to ask for the whole run only.
    """
    whole = Exclusions.case_id.is_(None)
    covered = whole if case is None else or_(whole, Exclusions.case_id == case)
    excluded = exists().where(Exclusions.run_id == run, Exclusions.included_at.is_(None), covered)
    return ~excluded.correlate_except(Exclusions)


HAS_CASE_OR_NONE = or_(Exclusions.case_id.is_(None), Cases.id.is_not(None))
"""The condition, for exclusions that are joined with their cases, that a row is readable: no case is the whole run."""


def reasons_of_exclusion(connection: Connection, runs: Iterable[int] | None) -> dict[tuple[int, int | None], str]:
    """Return the reasons of exclusions by run and case; the case is None if the whole run is excluded.

    ``runs`` limits the exclusions to some runs; None means all runs. An exclusion whose case is damaged excludes
    nothing, and above all not the whole run.
    """
    is_whole = Exclusions.case_id.is_(None)
    query = select(Exclusions.run_id, Exclusions.case_id, Exclusions.reason, is_whole)
    query = query.where(Exclusions.included_at.is_(None))
    if runs is not None:
        query = query.where(among(Exclusions.run_id, set(runs)))
    rows = connection.execute(query)
    return {(run, case): reason for run, case, reason, whole in rows if whole or case is not None}


def reason_of_exclusion(reasons: Mapping[tuple[int, int | None], str], run: int, case: int) -> str:
    """Return why a case is excluded in a run, from the result of ``reasons_of_exclusion``; empty if it is judged."""
    return reasons.get((run, None)) or reasons.get((run, case), "")


class PresentNames:
    """Makes series from database ids; it holds the present names of lineages, and all devices.

    Args:
        connection: a transaction.
        ids: the ids of all names of the lineages that are needed; None for all lineages.
    """

    def __init__(self, connection: Connection, ids: Collection[int] | None = None) -> None:
        query = select(Cases.id, Cases.lineage_id, *CASE_COLUMNS).order_by(Cases.former.desc(), Cases.id)
        if ids is not None:
            query = query.where(among(Cases.id, ids))
        self._cases: dict[int, Case] = {}
        self._present: dict[int, Case] = {}
        for number, lineage, *name in connection.execute(query).all():
            # Present names come last, and replace former names.
            self._cases[number] = self._present[lineage] = case_of(*name)
        devices = connection.execute(select(Devices.id, Devices.uuid, Devices.model))
        self._devices = {number: (uuid, model) for number, uuid, model in devices}

    def series(self, lineage: int, own: int, device: int, metric: str, cache: CacheState) -> Series | None:
        """Return a series by the ids of its lineage, its ``own_name`` and its device; None if it has no device."""
        if device not in self._devices:
            return report_damaged(f"the device {device} of a row")
        case = self._cases[own] if own else self._present[lineage]
        return Series(case, *self._devices[device], metric, cache)


def with_case(table: type[Base]) -> Select[Any]:
    """Return a query of a table's rows with the columns that ``series_of`` needs.

    Each row of the table must have a case and a device. Cases have the names under which they were measured.
    """
    rows: Any = table
    return (
        select(rows, *CASE_COLUMNS, Devices.uuid, Devices.model)
        .join(Cases, Cases.id == rows.case_id)
        .join(Devices, Devices.id == rows.device_id)
    )


def with_series(table: type[Base], run: Any) -> Select[Any]:
    """Return a query of a table's rows with the columns that ``series_of`` needs, under the present names of cases.

    Args:
        table: a table whose rows have a case and a device.
        run: the column with the number of the run that decides whether a former name belongs to a new variant.
    """
    rows: Any = table
    own = own_name(run)
    named = or_(and_(own == 0, _PRESENT.c.former.is_(False)), _PRESENT.c.id == own)
    names = (_PRESENT.c.benchmark, _PRESENT.c.variant, _PRESENT.c.point, _PRESENT.c.version)
    return (
        select(rows, *names, Devices.uuid, Devices.model)
        .join(Cases, Cases.id == rows.case_id)
        .join(Devices, Devices.id == rows.device_id)
        .join(_PRESENT, and_(_PRESENT.c.lineage_id == Cases.lineage_id, named))
    )


# --- keys of series ---------------------------------------------------------------------------------------------------


class SeriesKey(NamedTuple):
    """A series in the database.

    Attributes:
        lineage: the lineage of its case.
        own_name: the id of its case if the case is a new variant with the former name of another case, else 0.
        device: the id of its device.
    """

    lineage: int
    own_name: int
    device: int
    metric: str
    cache: CacheState

    @property
    def case_ids(self) -> CaseIds:
        """Return the ids of lineage and device, and the cache state."""
        return self.lineage, self.device, self.cache


def lineage_keys(
    connection: Connection, series: Iterable[Series], devices: Mapping[str, int] | None = None
) -> dict[Series, SeriesKey]:
    """Return the key of each series, with ``own_name`` 0. A series whose case or device is not stored is absent.

    ``devices`` holds the ids of all devices by UUID, if the caller has read them.
    """
    wanted = list(series)
    cases = {(series.case, series.case.formerly): series.case for series in wanted}  # a case has several series
    lineages = lineages_of(connection, cases.values())
    if devices is None:
        devices = {row.uuid: row.id for row in connection.execute(select(Devices.uuid, Devices.id))}
    return {
        series: SeriesKey(lineages[series.case], 0, devices[series.device], series.metric, series.cache)
        for series in wanted
        if series.case in lineages and series.device in devices
    }


def series_keys(
    connection: Connection, series: Iterable[Series], run: int, devices: Mapping[str, int] | None = None
) -> dict[Series, SeriesKey]:
    """Return the key of each series, with its ``own_name`` in a run; absent if its case or device is not stored.

    ``devices`` holds the ids of all devices by UUID, if the caller has read them.
    """
    query = (
        select(Cases.benchmark, Cases.variant, Cases.point, Cases.version, own_name(Measurements.run_id))
        .join(Measurements, Measurements.case_id == Cases.id)
        .where(Measurements.run_id == run, Cases.former)
        .distinct()
    )
    own_names = {
        case_of(row.benchmark, row.variant, row.point, row.version): row.own_name for row in connection.execute(query)
    }
    keys = lineage_keys(connection, series, devices)
    return {series: key._replace(own_name=own_names.get(series.case, 0)) for series, key in keys.items()}
