"""The ids of cases and devices, and the names of cases.

A case is one row, under its present name. ``formerly=`` renames the row; ``former_names`` has what it was called, so
that an old commit that is measured later finds it. All functions are safe between processes.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    PrimaryKeyConstraint,
    Select,
    UniqueConstraint,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    tuple_,
    update,
)

from perfsvc.errors import DatabaseError, NotMeasuredError
from perfsvc.model import (
    MAX_ERROR,
    TIME,
    CacheState,
    Case,
    Series,
)
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.base import Base
from perfsvc.store.schema.column_types import stored_json
from perfsvc.store.schema.engine import POSTGRESQL, among, insert_new, new_id
from perfsvc.store.schema.judging_tables import Exclusions, Pins
from perfsvc.store.schema.tables import Cases, Devices, FormerNames, Levels, Measurements, Runs, SeriesRows

CASE_COLUMNS = (Cases.benchmark, Cases.variant, Cases.point, Cases.version)
"""The columns from which ``case_of`` makes a case."""

TIME_OF_MEASUREMENT = and_(
    SeriesRows.case_id == Measurements.case_id,
    SeriesRows.device_id == Measurements.device_id,
    SeriesRows.cache == Measurements.cache,
    SeriesRows.metric == TIME,
)
"""Joins a measurement with the series of its time; a run that has not ended may have measurements without one."""

NAMES_AT_ONCE = 500
"""How many cases a statement looks up by their names, each of which takes four parameters."""

_Name = tuple[str, str, str, int]
"""Benchmark, variant, point and version of a case: the values of ``CASE_COLUMNS``."""

# --- storing and finding ids -----------------------------------------------------------------------------------------


def case_id(connection: Connection, case: Case) -> int:
    """Return what ``case_ids`` returns of one case."""
    return case_ids(connection, [case])[case]


def case_ids(connection: Connection, cases: Iterable[Case]) -> dict[Case, int]:
    """Return the id of each case; store new cases, and rename those that are stored under a former name.

    A name that no case has now is a former name of the case that had it last. But if that case is in ``cases`` as
    well, the name belongs to a new variant.
    """
    wanted = dict.fromkeys((case, case.formerly) for case in cases)  # equal cases may differ in their former names
    stored = _stored(connection, [_name(case) for case, _ in wanted])
    new = [case for case, formerly in wanted if formerly or _name(case) not in stored]
    if new and not _are_known(connection, new, stored):
        if connection.dialect.name == POSTGRESQL:  # SQLite has one writer at a time
            connection.execute(text("LOCK TABLE cases IN SHARE ROW EXCLUSIVE MODE"))
        own = {_name(case): case for case, _ in wanted}
        known = {_name(case): _store(connection, case, own) for case in sorted(new, key=lambda case: not case.formerly)}
        stored = _stored(connection, own) | known
        # A renamed case has left its former name to a new variant.
        stored |= {name: _store(connection, own[name], own) for name in own.keys() - stored.keys()}
    return {case: stored[_name(case)] for case, _ in wanted}


def ids_of(connection: Connection, cases: Iterable[Case]) -> dict[Case, int]:
    """Return the id of each case by its present or a former name; a case that is not stored is absent."""
    wanted = list(cases)
    names = {case: [_name(case, variant) for variant in (case.variant, *case.formerly)] for case in wanted}
    query = select(*CASE_COLUMNS, Cases.id).where(Cases.benchmark.in_({case.benchmark for case in wanted}))
    stored = {tuple(name): number for *name, number in connection.execute(query)}
    former = _formerly(connection, [name for of_case in names.values() if of_case[0] not in stored for name in of_case])
    found = {
        case: next((ids[name] for name in of_case for ids in (stored, former) if name in ids), None)
        for case, of_case in names.items()
    }
    return {case: number for case, number in found.items() if number is not None}


def id_of_name(connection: Connection, name: str) -> int:
    """Return the id of the newest version of a case by its present or a former name (``benchmark/variant[point]``).

    Raises ``NotMeasuredError`` if the name is unknown.
    """
    newest = Cases.version.desc(), Cases.id.desc()
    number = connection.scalar(select(Cases.id).where(Cases.name == name).order_by(*newest).limit(1))
    if number is None:
        former = select(Cases.id).join(FormerNames, FormerNames.case_id == Cases.id).where(FormerNames.name == name)
        last_holder = Cases.version.desc(), func.coalesce(FormerNames.until_run, 0).desc(), Cases.id
        number = connection.scalar(former.order_by(*last_holder).limit(1))
    if number is None:
        measured = select(Cases.name).where(exists().where(Measurements.case_id == Cases.id)).distinct()
        near = get_close_matches(name, connection.scalars(measured), n=3)
        raise NotMeasuredError(
            f"{name} was never measured", cure=f"did you mean {' or '.join(near)}?" if near else "perfsvc runs"
        )
    return number


def _stored(connection: Connection, names: Iterable[_Name]) -> dict[_Name, int]:
    """Return the id of each case that has one of some names now."""
    query = select(*CASE_COLUMNS, Cases.id)
    return _by_name(connection, query, CASE_COLUMNS, names)


def _formerly(connection: Connection, names: Iterable[_Name]) -> dict[_Name, int]:
    """Return the id of the case that had each of some former names last."""
    own = (Cases.benchmark, FormerNames.variant, Cases.point, Cases.version)
    query = select(*own, Cases.id).join(FormerNames, FormerNames.case_id == Cases.id)
    last = func.coalesce(FormerNames.until_run, 0)
    return _by_name(connection, query.order_by(last, Cases.id.desc()), own, names)


def _by_name(connection: Connection, query: Any, columns: Sequence[Any], names: Iterable[_Name]) -> dict[_Name, int]:
    """Return what a query of names and ids finds of some names; of several rows with a name, the last one."""
    found: dict[_Name, int] = {}
    remaining = iter(dict.fromkeys(names))
    while part := list(islice(remaining, NAMES_AT_ONCE)):
        for benchmark, variant, point, version, number in connection.execute(query.where(tuple_(*columns).in_(part))):
            found[benchmark, variant, point, version] = number
    return found


def _are_known(connection: Connection, cases: Sequence[Case], stored: Mapping[_Name, int]) -> bool:
    """Return whether all cases are stored, with all their former names."""
    ids = {_name(case): stored.get(_name(case)) for case in cases}
    if None in ids.values():
        return False
    query = select(FormerNames.case_id, FormerNames.variant).where(among(FormerNames.case_id, set(stored.values())))
    former = {(number, variant) for number, variant in connection.execute(query)}
    return former >= {(ids[_name(case)], variant) for case in cases for variant in _former_variants(case)}


def _store(connection: Connection, case: Case, here: Collection[_Name]) -> int:
    """Return the id of a case, after storing it or renaming it, and noting its former names.

    ``here`` has the names of the cases of its run.
    """
    own, before = _name(case), [_name(case, variant) for variant in _former_variants(case)]
    stored = _stored(connection, [own, *before])
    number = stored.get(own)
    if number is None:
        old = next((name for name in before if name in stored), None)
        if old:
            number = stored.pop(old)
            _rename(connection, number, old, own)
        elif heir := _formerly(connection, [own]).get(own):
            name_of_heir = connection.execute(select(*CASE_COLUMNS).where(Cases.id == heir)).one()
            number = None if tuple(name_of_heir) in here else heir
    if number is None:
        columns = dict(zip(("benchmark", "variant", "point", "version"), own, strict=True))
        number = new_id(connection, Cases, {"name": _id_of(own), **columns})
    if not before:
        return number
    noted = set(connection.scalars(select(FormerNames.variant).where(FormerNames.case_id == number)))
    for name in before:
        if name[1] in noted:
            continue
        old_number = stored.get(name)
        if old_number is None or name in here or _measured_together(connection, number, old_number):
            _note_former_name(connection, number, name, is_claimed=True)
        else:
            _merge(connection, old_number, into=number)
            _note_former_name(connection, number, name)
    return number


def _rename(connection: Connection, number: int, old: _Name, new: _Name) -> None:
    """Give a case another variant."""
    _note_former_name(connection, number, old)
    connection.execute(delete(FormerNames).filter_by(case_id=number, variant=new[1]))  # it may have the name again
    connection.execute(update(Cases).where(Cases.id == number).values(variant=new[1], name=_id_of(new)))


def _note_former_name(connection: Connection, number: int, name: _Name, *, is_claimed: bool = False) -> None:
    """Note a former name of a case, and the last run that knew the case by it; a name that is only claimed has none."""
    last = None if is_claimed else connection.scalar(select(func.max(Measurements.run_id)).filter_by(case_id=number))
    row = {"case_id": number, "variant": name[1], "name": _id_of(name), "until_run": last}
    insert_new(connection, FormerNames, row)


def former_variants(connection: Connection, cases: Collection[int] | None = None) -> dict[int, tuple[str, ...]]:
    """Return the former variants of cases by id, the newest name first; of all cases, or of some."""
    query = select(FormerNames.case_id, FormerNames.variant).order_by(func.coalesce(FormerNames.until_run, 0).desc())
    former: dict[int, tuple[str, ...]] = {}
    for case, variant in connection.execute(query if cases is None else query.where(among(FormerNames.case_id, cases))):
        former[case] = (*former.get(case, ()), variant)
    return former


def _merge(connection: Connection, old: int, into: int) -> None:
    """Let everything that refers to one case refer to another one, and remove the first.

    Of two rows that would be the same row then, the second case's stays; of two pins the newer one.
    """
    _merge_series(connection, old, into)
    _refer_to(connection, "case_id", old, into)
    connection.execute(delete(Cases).where(Cases.id == old))


def _merge_series(connection: Connection, old: int, into: int) -> None:
    """Let everything that refers to a series of a case refer to the same series of another case, where it has one."""
    own, other = SeriesRows.__table__, SeriesRows.__table__.alias()
    same = (own.c[name] == other.c[name] for name in ("device_id", "metric", "cache"))
    pairs = select(own.c.id, other.c.id).where(own.c.case_id == old, other.c.case_id == into, *same)
    for series, kept in connection.execute(pairs).all():
        set_at = select(Pins.set_at).where(Pins.series_id == series).scalar_subquery()
        connection.execute(delete(Pins).where(Pins.series_id == kept, Pins.set_at < set_at))
        old_levels = Levels.__table__.alias().c  # of two levels of a run, the measured one stays, not "missing"
        measured = exists().where(old_levels.series_id == series, old_levels.run_id == Levels.run_id)
        measured = measured.where(old_levels.status.is_not(None))
        connection.execute(delete(Levels).where(Levels.series_id == kept, Levels.status.is_(None), measured))
        _refer_to(connection, "series_id", series, kept)
    connection.execute(delete(SeriesRows).where(SeriesRows.id.in_([series for series, _ in connection.execute(pairs)])))


def _refer_to(connection: Connection, name: str, old: int, new: int) -> None:
    """Let all rows with a number in a column have another number; of two rows that are the same then, one stays."""
    for table in metadata().sorted_tables:
        if name not in table.c:
            continue
        keys = [key.columns for key in table.constraints if isinstance(key, (PrimaryKeyConstraint, UniqueConstraint))]
        for key in (key for key in keys if name in key):
            same = table.alias()
            others = [same.c[column.name] == column for column in key if column.name != name]
            is_there = exists().where(same.c[name] == new, *others)
            connection.execute(delete(table).where(table.c[name] == old, is_there))
        connection.execute(update(table).where(table.c[name] == old).values({name: new}))


def _measured_together(connection: Connection, first: int, second: int) -> bool:
    """Return whether a run measured two cases: they are two variants then, whatever they are called."""
    runs = [select(Measurements.run_id).where(Measurements.case_id == case) for case in (first, second)]
    return connection.scalar(select(exists().where(Runs.id.in_(runs[0]), Runs.id.in_(runs[1])))) or False


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


def _name(case: Case, variant: str | None = None) -> _Name:
    """Return the name of a case as ``cases`` holds it, perhaps with another variant."""
    point = json.dumps(dict(case.point), separators=(",", ":"), ensure_ascii=False)
    return case.benchmark, variant or case.variant, point, case.version


def _former_variants(case: Case) -> list[str]:
    return [variant for variant in dict.fromkeys(case.formerly) if variant != case.variant]


def _id_of(name: _Name) -> str:
    return case_of(*name).id


@lru_cache(maxsize=1 << 15)
def case_of(benchmark: str, variant: str, point: str, version: int) -> Case:
    """Return the case of a row of ``cases``."""
    return Case(benchmark, variant, tuple(axes_of(point).items()), version)


@lru_cache(maxsize=1024)
def axes_of(point: str) -> dict[str, Any]:
    """Return the axes of a point as ``cases.point`` holds it; many cases share a point."""
    axes: dict[str, Any] = stored_json(point)
    return axes


def series_of(row: Any) -> Series:
    """Return the series of a row with the columns of a case, a device, a metric and a cache state."""
    return Series(
        case_of(row.benchmark, row.variant, row.point, row.version), row.uuid, row.model, row.metric, row.cache
    )


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


def reasons_of_exclusion(connection: Connection, runs: Iterable[int] | None) -> dict[tuple[int, int | None], str]:
    """Return the reasons of exclusions by run and case; the case is None if the whole run is excluded.

    ``runs`` limits the exclusions to some runs; None means all runs.
    """
    query = select(Exclusions.run_id, Exclusions.case_id, Exclusions.reason).where(Exclusions.included_at.is_(None))
    if runs is not None:
        query = query.where(among(Exclusions.run_id, set(runs)))
    return {(run, case): reason for run, case, reason in connection.execute(query)}


def reason_of_exclusion(reasons: Mapping[tuple[int, int | None], str], run: int, case: int) -> str:
    """Return why a case is excluded in a run, from the result of ``reasons_of_exclusion``; empty if it is judged."""
    return reasons.get((run, None)) or reasons.get((run, case), "")


def with_case(table: type[Base]) -> Select[Any]:
    """Return a query of a table's rows with the columns that ``series_of`` needs.

    Each row of the table must have a case and a device.
    """
    rows: Any = table
    return (
        select(rows, *CASE_COLUMNS, Devices.uuid, Devices.model)
        .join(Cases, Cases.id == rows.case_id)
        .join(Devices, Devices.id == rows.device_id)
    )


# --- series -----------------------------------------------------------------------------------------------------------


class SeriesKey(NamedTuple):
    """A row of ``series``: the ids of a case and a device, a metric and a cache state."""

    case: int
    device: int
    metric: str
    cache: CacheState


def put_series(connection: Connection, series: Iterable[Series]) -> dict[Series, int]:
    """Return the id of each series; store those that are new. Raises ``DatabaseError`` for an unknown device."""
    wanted = list(series)
    cases = case_ids(connection, (of.case for of in wanted))
    devices = device_ids(connection, (of.device for of in wanted))
    keys = {of: SeriesKey(cases[of.case], devices[of.device], of.metric, of.cache) for of in wanted}
    ids = put_series_rows(connection, set(keys.values()))
    return {of: ids[key] for of, key in keys.items()}


def put_series_rows(connection: Connection, keys: Collection[SeriesKey]) -> dict[SeriesKey, int]:
    """Return the id of each series; store those that are new."""
    stored = _series_rows(connection, {key.case for key in keys})
    if new := [key for key in keys if key not in stored]:
        rows = [{"case_id": key.case, "device_id": key.device, "metric": key.metric, "cache": key.cache} for key in new]
        insert_new(connection, SeriesRows, rows)
        stored = _series_rows(connection, {key.case for key in keys})
    return stored


def series_ids(connection: Connection, series: Iterable[Series]) -> dict[Series, int]:
    """Return the id of each series; a series that is not stored is absent."""
    wanted = list(series)
    cases = ids_of(connection, {(of.case, of.case.formerly): of.case for of in wanted}.values())
    devices: dict[str, int] = dict(connection.execute(select(Devices.uuid, Devices.id)).all())
    stored = _series_rows(connection, set(cases.values()))
    keys = {
        of: SeriesKey(cases[of.case], devices[of.device], of.metric, of.cache)
        for of in wanted
        if of.case in cases and of.device in devices
    }
    return {of: stored[key] for of, key in keys.items() if key in stored}


def _series_rows(connection: Connection, cases: Collection[int]) -> dict[SeriesKey, int]:
    query = select(SeriesRows.case_id, SeriesRows.device_id, SeriesRows.metric, SeriesRows.cache, SeriesRows.id)
    rows: Iterable[Any] = connection.execute(query.where(among(SeriesRows.case_id, cases)))
    return {SeriesKey(*key): number for *key, number in rows}


def load_series(connection: Connection, *where: ColumnElement[bool]) -> dict[int, Series]:
    """Return series by their id, in the order of cases, devices and cache states; the time of a case comes first."""
    query = (
        select(SeriesRows.id, *CASE_COLUMNS, Devices.uuid, Devices.model, SeriesRows.metric, SeriesRows.cache)
        .join(Cases, Cases.id == SeriesRows.case_id)
        .join(Devices, Devices.id == SeriesRows.device_id)
        .where(*where)
        .order_by(SeriesRows.case_id, SeriesRows.device_id, SeriesRows.cache)
        .order_by(SeriesRows.metric != TIME, SeriesRows.metric == MAX_ERROR, SeriesRows.metric)
    )
    rows: Iterable[Any] = connection.execute(query)  # plain tuples
    return {number: Series(case_of(*rest[:4]), *rest[4:]) for number, *rest in rows}


def with_series(table: type[Base]) -> Select[Any]:
    """Return a query of a table's rows, each of which has a series, with the columns that ``series_of`` needs."""
    rows: Any = table
    return (
        select(rows, *CASE_COLUMNS, Devices.uuid, Devices.model)
        .add_columns(SeriesRows.metric, SeriesRows.cache, SeriesRows.case_id, SeriesRows.device_id)
        .join(SeriesRows, SeriesRows.id == rows.series_id)
        .join(Cases, Cases.id == SeriesRows.case_id)
        .join(Devices, Devices.id == SeriesRows.device_id)
    )


def is_judged(run: Any, series: Any) -> ColumnElement[bool]:
    """Return an SQL condition that is true if a series is not excluded from judging in a run, by their columns."""
    level = (Levels.run_id == run, Levels.series_id == series, Levels.excluded.is_not(None))
    return ~exists().where(*level).correlate_except(Levels)
