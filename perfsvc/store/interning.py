"""Natural keys to ids, safe between processes; and lineages, which join a case's names.

A case is stored under its name together with all its former names. So it does not matter which is measured first: a
former name that turns up later, when an old commit is measured again, already lies in the lineage.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Connection, Insert, Table, bindparam, delete, insert, inspect, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from perfsvc.errors import DatabaseError
from perfsvc.model import Case, DeviceInfo, Environment
from perfsvc.store.engine import POSTGRESQL
from perfsvc.store.tables import Base, Cases, Devices, Environments, Lineages, Pins

_DEVICE = select(Devices.id).where(Devices.uuid == bindparam("uuid"))
_ENVIRONMENT = select(Environments.id).where(
    Environments.driver == bindparam("driver"),
    Environments.toolkit == bindparam("toolkit"),
    Environments.power_limit_w == bindparam("power_limit_w"),
)
_NAMES = select(Cases.variant, Cases.id, Cases.lineage_id, Cases.former).where(
    Cases.benchmark == bindparam("benchmark"),
    Cases.point == bindparam("point"),
    Cases.version == bindparam("version"),
    Cases.variant.in_(bindparam("variants", expanding=True)),
)
"""Built once, as ``insert_into``: what every case of every run asks for."""


@dataclass(frozen=True, slots=True)
class _Name:
    """One name of a case, as stored."""

    id: int
    lineage: int
    former: bool


def table(of: type[Base]) -> Table:
    """The table of a mapped class."""
    mapped = inspect(of).local_table
    assert isinstance(mapped, Table)  # noqa: S101 - for mypy: none of ours maps a join
    return mapped


@cache
def insert_into(of: type[Base]) -> Insert:
    """The statement that inserts rows; to build one, and its key among those compiled, takes longer than to run it."""
    return insert(table(of))


@cache
def _insert_unless_there(dialect: str, of: type[Base]) -> Insert:
    words = postgresql if dialect == POSTGRESQL else sqlite
    statement: Insert = words.insert(table(of)).on_conflict_do_nothing()
    return statement


def insert_new(connection: Connection, of: type[Base], row: Mapping[str, Any]) -> None:
    """Inserts a row unless one with its key is there, made by this process or another."""
    connection.execute(_insert_unless_there(connection.dialect.name, of), row)


def new_id(connection: Connection, of: type[Base], row: Mapping[str, Any]) -> int:
    """Inserts a row and returns its id."""
    result = connection.execute(insert_into(of), row)
    key = result.inserted_primary_key
    assert key is not None  # noqa: S101 - for mypy: only an insert of many rows has none
    return int(key[0])


def point_json(case: Case) -> str:
    """A case's point as ``cases.point`` holds it."""
    return json.dumps(dict(case.point), separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=4096)
def case_of(benchmark: str, variant: str, point: str, version: int) -> Case:
    """The case that a row of ``cases`` stands for."""
    return Case(benchmark, variant, tuple(json.loads(point).items()), version)


def lineages_of(connection: Connection, cases: Iterable[Case]) -> dict[Case, int]:
    """The lineage of each case that is stored by its name or, as yet, by a former one alone."""
    wanted = list(cases)
    names = (Cases.benchmark, Cases.variant, Cases.point, Cases.version)
    rows = connection.execute(
        select(*names, Cases.lineage_id).where(Cases.benchmark.in_({case.benchmark for case in wanted}))
    )
    stored = {(benchmark, variant, point, version): lineage for benchmark, variant, point, version, lineage in rows}
    found: dict[Case, int] = {}
    for case in wanted:
        known = [
            stored[name]
            for variant in (case.variant, *case.formerly)
            if (name := (case.benchmark, variant, point_json(case), case.version)) in stored
        ]
        if known:
            found[case] = known[0]
    return found


def namesakes_of(connection: Connection, cases: Iterable[Case]) -> dict[Case, list[int]]:
    """The ids of all the names that each stored case has and had."""
    lineages = lineages_of(connection, cases)
    names: dict[int, list[int]] = defaultdict(list)
    of_theirs = select(Cases.lineage_id, Cases.id).where(Cases.lineage_id.in_(set(lineages.values())))
    for lineage, name in connection.execute(of_theirs):
        names[lineage].append(name)
    return {case: names[lineage] for case, lineage in lineages.items()}


def put_device(connection: Connection, info: DeviceInfo) -> int:
    """Stores a device, or what it says of itself by now, and returns its id."""
    words = table(Devices).columns.keys()
    row = {name: getattr(info, name) for name in words if name != "id"}
    if connection.scalar(_DEVICE, {"uuid": info.uuid}) is None:  # PostgreSQL spends an id on an insert of nothing, too
        insert_new(connection, Devices, row)
    connection.execute(update(Devices).where(Devices.uuid == info.uuid).values(row))
    return device_id(connection, info.uuid)


def device_id(connection: Connection, uuid: str) -> int:
    """The id of a stored device; raises ``DatabaseError`` where it never was."""
    found = connection.scalar(_DEVICE, {"uuid": uuid})
    if found is None:
        raise DatabaseError(f"the device {uuid} is not in the database", cure="store it with put_device first")
    return found


def environment_id(connection: Connection, environment: Environment) -> int:
    """The id of an environment, stored now if it never was."""
    row = {
        "driver": environment.driver,
        "toolkit": environment.toolkit,
        "power_limit_w": environment.power_limit_w,
    }
    found = connection.scalar(_ENVIRONMENT, row)
    if found is None:
        insert_new(connection, Environments, row)
        found = connection.execute(_ENVIRONMENT, row).scalar_one()
    return int(found)


def case_id(connection: Connection, case: Case) -> int:
    """The id of a case, stored now if it never was, in the lineage of its former names."""
    known = _names(connection, case)
    if not _is_settled(case, known):
        _one_at_a_time(connection)
        known = _names(connection, case)
        if not _is_settled(case, known):
            _settle(connection, case, known)
            known = _names(connection, case)
    return known[case.variant].id


def settled_ids(connection: Connection, cases: Collection[Case]) -> dict[Case, int]:
    """The ids of those of many cases that are stored in the lineage of their former names, asked for at once."""
    query = (Cases.benchmark, Cases.point, Cases.version, Cases.variant, Cases.id, Cases.lineage_id, Cases.former)
    stored: dict[tuple[str, str, int], dict[str, _Name]] = defaultdict(dict)
    of_theirs = select(*query).where(Cases.benchmark.in_({case.benchmark for case in cases}))
    for benchmark, point, version, variant, number, lineage, former in connection.execute(of_theirs):
        stored[benchmark, point, version][variant] = _Name(number, lineage, former)
    known = {case: stored[case.benchmark, point_json(case), case.version] for case in cases}
    return {case: names[case.variant].id for case, names in known.items() if _is_settled(case, names)}


def _names(connection: Connection, case: Case) -> dict[str, _Name]:
    named = {"benchmark": case.benchmark, "point": point_json(case), "version": case.version}
    rows = connection.execute(_NAMES, {**named, "variants": (case.variant, *case.formerly)})
    return {variant: _Name(number, lineage, former) for variant, number, lineage, former in rows}


def _is_settled(case: Case, known: Mapping[str, _Name]) -> bool:
    return {case.variant, *case.formerly} <= known.keys() and not _to_take_over(case, known)


def _to_take_over(case: Case, known: Mapping[str, _Name]) -> list[_Name]:
    """The former names that still lead another lineage. One that a third name took over is that one's, not ours."""
    mine = known.get(case.variant)
    rows = [known[name] for name in case.formerly if name in known and name != case.variant]
    return [row for row in rows if not row.former and (mine is None or row.lineage != mine.lineage)]


def _one_at_a_time(connection: Connection) -> None:
    if connection.dialect.name == POSTGRESQL:  # SQLite's writers are alone anyway
        connection.execute(text("LOCK TABLE cases IN SHARE ROW EXCLUSIVE MODE"))


def _settle(connection: Connection, case: Case, known: Mapping[str, _Name]) -> None:
    predecessors = _to_take_over(case, known)
    mine = known.get(case.variant)
    lineages = ([mine.lineage] if mine else []) + [row.lineage for row in predecessors]
    lineage = lineages[0] if lineages else new_id(connection, Lineages, {"started_at": datetime.now(UTC)})
    for row in predecessors:
        connection.execute(update(Cases).where(Cases.id == row.id).values(former=True))
        if row.lineage != lineage:
            _merge(connection, row.lineage, lineage)
    for name in dict.fromkeys((case.variant, *case.formerly)):
        if name not in known:
            _insert_case(connection, case, name, lineage)


def _insert_case(connection: Connection, case: Case, variant: str, lineage: int) -> None:
    named = Case(case.benchmark, variant, case.point, case.version)
    row = {
        "lineage_id": lineage,
        "name": named.id,
        "benchmark": case.benchmark,
        "variant": variant,
        "point": point_json(case),
        "version": case.version,
        "former": variant != case.variant,
    }
    new_id(connection, Cases, row)


def _merge(connection: Connection, old: int, into: int) -> None:
    """Moves all of one lineage into another; of two pins of one series the newer stays."""
    pins = connection.execute(
        select(table(Pins)).where(Pins.lineage_id.in_((old, into))).order_by(Pins.set_at)
    ).mappings()
    newest = {(pin["device_id"], pin["metric"], pin["cache"]): {**pin, "lineage_id": into} for pin in pins}
    connection.execute(delete(Pins).where(Pins.lineage_id.in_((old, into))))
    if newest:
        connection.execute(insert(Pins), list(newest.values()))
    connection.execute(update(Cases).where(Cases.lineage_id == old).values(lineage_id=into))
    connection.execute(delete(Lineages).where(Lineages.id == old))
