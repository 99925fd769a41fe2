"""What a verdict compares against: a pin if there is one, else the last accepted level of the series."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
)

from perfsvc.errors import NotMeasuredError
from perfsvc.model import CacheState, Series, Status
from perfsvc.store import segments
from perfsvc.store.cases import CaseIds, case_of, lineages_of, own_name
from perfsvc.store.level_queries import (
    AMONG_RUNS,
    BETWEEN_RUNS,
    IS_ACCEPTED,
    PASSING,
    accepted_ever,
    first_ok_of,
    former_names,
)
from perfsvc.store.rows import Pin
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import Database
from perfsvc.store.schema.judging_tables import Pins, Verdicts
from perfsvc.store.schema.tables import Cases, Devices, Measurements, Runs
from perfsvc.store.series import levels_in

Key = tuple[int, int, str, CacheState]
"""A series in the database: lineage, device, metric, cache state."""
_Line = tuple[int, int]
"""Whose levels a series has: its lineage and, of a former name that was given anew, ``cases.own_name``, else 0."""
_Held = tuple[_Line, int, str, CacheState]
"""A series in the database, apart from others of its lineage that one run measured beside it."""


@dataclass(frozen=True, slots=True)
class _Board:
    """A device, as stored."""

    id: int
    uuid: str


FIRST_RUNS = 8
"""How many runs are looked through at first for the first level of a series."""


class BaselineStore:
    """Baselines and pins; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accepted(self, series: Iterable[Series], before_run: int) -> dict[Series, int]:
        """The run that holds the last accepted level of each series, among earlier ones.

        That is the newest whose stored verdict was new, or an improvement that the code may have brought: of the same
        code a faster night is the environment's or noise. A regression moves nothing until a person accepts it, and
        unchanged or inconclusive keep the level: else a slow drift would walk it away. A run with uncommitted changes
        never accepts a level, whatever its verdict: an experiment that is thrown away would be a bar for every night
        after it.

        Where no verdict took a level, it is that of the earliest run with a right result: of those without uncommitted
        changes, or of all where each has some. A series that has neither is absent.

        A level that a person accepted with a finding counts like one that a verdict took. A segment has levels of its
        own: those of earlier ones count only for the night that begins it.
        """
        with self._database.reading() as connection:
            return accepted_levels(connection, series, before_run)

    def get(self, series: Iterable[Series], before_run: int) -> dict[Series, int]:
        """The run that each series is compared with: its pin, else its last accepted level.

        A series that has neither borrows: in its place stand the same series on the other GPUs of its model, each
        with that GPU's pin or last accepted level. A series that finds none to borrow is absent.
        """
        with self._database.reading() as connection:
            return baselines(connection, series, before_run)

    def pins(self) -> list[Pin]:
        """All pins, under the present names of their cases."""
        with self._database.reading() as connection:
            return pins(connection)

    def pin(self, run: int, series: Iterable[Series], *, by: str = "", comment: str = "") -> None:
        """Makes a run the baseline of each series until it is unpinned or pinned anew.

        Raises ``NotMeasuredError``, and pins none, where the run holds no right result of one of them.
        """
        with self._database.writing() as connection:
            pin(connection, run, series, by=by, comment=comment)

    def unpin(self, series: Iterable[Series] | None = None) -> int:
        """Takes the pins of some series, or all, away; returns how many there were."""
        with self._database.writing() as connection:
            return unpin(connection, series)


def baselines(connection: Connection, series: Iterable[Series], before_run: int) -> dict[Series, int]:
    """The run that each series is compared with, under the series that lend it; see ``Store.baselines``."""
    boards = _boards(connection)
    devices = {board.uuid: board.id for of_model in boards.values() for board in of_model}
    keys = _held(connection, series, before_run, devices)
    found = _accepted(connection, keys.values(), before_run) | _pinned(connection, keys.values())
    lent = {
        replace(one, device=board.uuid): found[_on(board, key)]
        for one, key in keys.items()
        if key not in found
        for board in boards[one.device_model]
        if _on(board, key) in found
    }
    return lent | {one: found[key] for one, key in keys.items() if key in found}


def accepted_levels(connection: Connection, series: Iterable[Series], before_run: int) -> dict[Series, int]:
    """The run that holds the last accepted level of each series; see ``Store.accepted_levels``."""
    keys = _held(connection, series, before_run, _devices(connection))
    found = _accepted(connection, keys.values(), before_run)
    return {one: found[key] for one, key in keys.items() if key in found}


def every_level(connection: Connection) -> set[tuple[int, int]]:
    """The runs, each with a lineage, that hold what any run to come may be compared with: pins, levels, their likes.

    That is every pin and every level that was ever accepted, for a newer one may be answered away again; and of each
    series the first right result, of all and of the segment that it is in now.
    """
    accepted = (
        select(Verdicts.run_id, Cases.lineage_id)
        .join(Cases, Cases.id == Verdicts.case_id)
        .join(Runs, Runs.id == Verdicts.run_id)
        .where(IS_ACCEPTED, Runs.git_dirty.is_(False))
        .where(or_(Verdicts.cause.is_(None), Verdicts.cause.not_in(PASSING)))
        .distinct()
    )
    held = {(run, lineage) for run, lineage in connection.execute(accepted)}
    held |= {(run, lineage) for run, lineage in connection.execute(select(Pins.run_id, Pins.lineage_id))}
    lineages = set(connection.scalars(select(Cases.lineage_id)))
    to_come = 1 + (connection.scalar(select(func.max(Runs.id))) or 0)
    first = _first_ok_after(connection, lineages, 0, to_come)
    starts = segments.present(connection)
    within = _first_ok(connection, {key for key in first if _start(starts, key)}, to_come, starts)
    return held | {(run, key[0][0]) for found in (first, within) for key, run in found.items()}


def _boards(connection: Connection) -> dict[str, list[_Board]]:
    boards: dict[str, list[_Board]] = defaultdict(list)
    for number, uuid, model in connection.execute(select(Devices.id, Devices.uuid, Devices.model)):
        boards[model].append(_Board(number, uuid))
    return boards


def _on(board: _Board, key: _Held) -> _Held:
    line, _, metric, cache = key
    return line, board.id, metric, cache


def pin(connection: Connection, run: int, series: Iterable[Series], *, by: str, comment: str) -> None:
    """Pins each series to a run; raises ``NotMeasuredError`` where the run holds no right result of one."""
    wanted = list(dict.fromkeys(series))
    keys = keys_of(connection, wanted)
    right = [one for one, level in levels_in(connection, run).items() if level.status is Status.OK]
    held = set(keys_of(connection, right).values())
    lacking = [one.case.id for one in wanted if keys.get(one) not in held]
    if lacking:
        raise NotMeasuredError(
            f"run {run} holds no right result of {', '.join(lacking)}", cure="pin a run that measured them"
        )
    _remove(connection, keys.values())
    now = datetime.now(UTC)
    rows = [
        {
            "lineage_id": lineage,
            "device_id": device,
            "metric": metric,
            "cache": cache,
            "run_id": run,
            "set_at": now,
            "set_by": by,
            "comment": comment,
        }
        for lineage, device, metric, cache in dict.fromkeys(keys.values())
    ]
    if rows:
        connection.execute(insert(Pins), rows)


def unpin(connection: Connection, series: Iterable[Series] | None) -> int:
    """Takes the pins of some series, or all, away and returns how many there were."""
    if series is None:
        return connection.execute(delete(Pins)).rowcount
    return _remove(connection, keys_of(connection, series).values())


def _remove(connection: Connection, keys: Iterable[Key]) -> int:
    removed = 0
    for lineage, device, metric, cache in dict.fromkeys(keys):
        one = delete(Pins).filter_by(lineage_id=lineage, device_id=device, metric=metric, cache=cache)
        removed += connection.execute(one).rowcount
    return removed


def pins(connection: Connection) -> list[Pin]:
    """All pins, under the present names of their cases."""
    query = (
        select(Pins, Cases.benchmark, Cases.variant, Cases.point, Cases.version, Devices.uuid, Devices.model)
        .join(Cases, and_(Cases.lineage_id == Pins.lineage_id, Cases.former.is_(False)))
        .join(Devices, Devices.id == Pins.device_id)
        .order_by(Cases.id, Devices.id, Pins.metric, Pins.cache)
    )
    return [
        Pin(
            Series(
                case_of(row.benchmark, row.variant, row.point, row.version), row.uuid, row.model, row.metric, row.cache
            ),
            row.run_id,
            row.set_at,
            row.set_by,
            row.comment,
        )
        for row in connection.execute(query)
    ]


def spots_of(connection: Connection, series: Iterable[Series], run: int) -> dict[Series, _Held]:
    """Where the levels of each series of a run lie: like ``keys_of``, with a former name that was given anew apart."""
    return _held(connection, series, run, _devices(connection))


def keys_of(connection: Connection, series: Iterable[Series]) -> dict[Series, Key]:
    """Where each series lies in the database; one whose case or device was never stored is absent."""
    return _keys(connection, list(series), _devices(connection))


def _devices(connection: Connection) -> dict[str, int]:
    """All devices by their UUIDs."""
    return dict(connection.execute(select(Devices.uuid, Devices.id)).all())


def _keys(connection: Connection, wanted: Sequence[Series], devices: Mapping[str, int]) -> dict[Series, Key]:
    cases = {(one.case, one.case.formerly): one.case for one in wanted}  # a case has several series
    lineages = lineages_of(connection, cases.values())
    keys: dict[Series, Key] = {}
    for one in wanted:
        lineage, device = lineages.get(one.case), devices.get(one.device)
        if lineage is not None and device is not None:
            keys[one] = (lineage, device, one.metric, one.cache)
    return keys


def _held(
    connection: Connection, series: Iterable[Series], run: int, devices: Mapping[str, int]
) -> dict[Series, _Held]:
    """Where the levels of each series of a run lie, under the names that the run has."""
    rows = connection.execute(former_names(), {"run": run})
    names = {case_of(row.benchmark, row.variant, row.point, row.version): row.own_name for row in rows}
    keys = _keys(connection, list(series), devices).items()
    return {
        one: ((lineage, names.get(one.case, 0)), device, metric, cache)
        for one, (lineage, device, metric, cache) in keys
    }


def _lineages(keys: Iterable[_Held]) -> set[int]:
    return {lineage for (lineage, _), *_ in keys}


def _pinned(connection: Connection, keys: Iterable[_Held]) -> dict[_Held, int]:
    """The pins, which are a lineage's: of one on a run that measured two of its names each has its own level."""
    wanted = set(keys)
    series = (Pins.lineage_id, literal(0), Pins.device_id, Pins.metric, Pins.cache)
    pinned = _by_key(connection.execute(select(*series, Pins.run_id).where(Pins.lineage_id.in_(_lineages(wanted)))))
    names = {name for (_, name), *_ in wanted if name}
    apart = _measured_apart(connection, names, pinned.values()) if names else set()
    heirs = {key: ((key[0][0], 0), *key[1:]) for key in wanted}
    return pinned | {key: pinned[heir] for key, heir in heirs.items() if (key[0][1], pinned.get(heir)) in apart}


def _measured_apart(connection: Connection, names: Iterable[int], runs: Iterable[int]) -> set[tuple[int, int]]:
    """Which former names were measured in which runs beside another name of their lineage."""
    own = own_name(Measurements.run_id)
    query = (
        select(own, Measurements.run_id)
        .join(Cases, Cases.id == Measurements.case_id)
        .where(Measurements.case_id.in_(set(names)), Measurements.run_id.in_(set(runs)))
    )
    return {(name, run) for name, run in connection.execute(query)}


def _accepted(connection: Connection, keys: Iterable[_Held], before_run: int) -> dict[_Held, int]:
    """What each series is compared with unless it is pinned; of one without a level also what other GPUs have."""
    wanted = set(keys)
    starts = segments.starts(connection, _lineages(wanted), before_run)
    judged = _last_accepted(connection, wanted, before_run)
    own = {key: run for key, run in judged.items() if run > _start(starts, key)}
    # A new segment has a level of its own from its first night on; that night itself is compared across its start.
    within = _first_ok(connection, {key for key in wanted if _start(starts, key)} - own.keys(), before_run, starts)
    return _first_ok(connection, wanted - judged.keys() - within.keys(), before_run) | judged | within


def _start(starts: Mapping[CaseIds, int], key: _Held) -> int:
    """The last run of the segment before the one that a series is in; 0 where it has but one."""
    (lineage, _), device, _, cache = key
    return starts.get((lineage, device, cache), 0)


def _last_accepted(connection: Connection, keys: Iterable[_Held], before_run: int) -> dict[_Held, int]:
    """The newest earlier run that holds a level to keep: its verdict took it, or a person accepted a finding of it."""
    found: dict[_Held, int] = {}
    rows = connection.execute(accepted_ever(), {"lineages": list(_lineages(keys)), "before_run": before_run})
    for lineage, own, device, metric, cache, run in rows:
        key = ((lineage, own), device, metric, cache)
        found[key] = max(run, found.get(key, 0))
    return found


def _first_ok(
    connection: Connection, keys: Iterable[_Held], before_run: int, starts: Mapping[CaseIds, int] = MappingProxyType({})
) -> dict[_Held, int]:
    """The earliest run that measured a series with every replica ok, of a clean tree if there is any.

    Of a series that is among ``starts`` only what came after that run counts.
    """
    wanted = set(keys)
    found: dict[_Held, int] = {}
    for start in {_start(starts, key) for key in wanted}:
        of_start = {key for key in wanted if _start(starts, key) == start}
        first = _first_ok_sought(connection, of_start, start, before_run)
        found |= {key: run for key, run in first.items() if not starts or key in of_start}
    return found


def _first_ok_sought(connection: Connection, wanted: set[_Held], after: int, before_run: int) -> dict[_Held, int]:
    """What ``_first_ok_after`` says of some series; also of others of their metrics, as long as one of them is sought.

    Runs are looked through some at a time: nearly every series has its first level in one of the very first.
    """
    between = select(Runs.id, Runs.git_dirty).where(Runs.id > after, Runs.id < before_run, Runs.state.in_(ENDED))
    runs = connection.execute(between.order_by(Runs.git_dirty, Runs.id)).all()
    query = first_ok_of(AMONG_RUNS, frozenset(metric for _, _, metric, _ in wanted))
    found: dict[_Held, int] = {}
    for dirty in (False, True):
        left = [run for run, is_dirty in runs if is_dirty is dirty]
        size = FIRST_RUNS
        while left and not wanted <= found.keys():
            some = {"lineages": list(_lineages(wanted)), "runs": left[:size]}
            found = _by_key(connection.execute(query, some)) | found
            left, size = left[size:], 4 * size
    return found


def _first_ok_after(connection: Connection, lineages: Collection[int], after: int, before_run: int) -> dict[_Held, int]:
    """The first run between two with a right result of each series, of a clean tree if there is any."""
    between = {"lineages": list(lineages), "after": after, "before_run": before_run}
    return _by_key(connection.execute(first_ok_of(BETWEEN_RUNS), between))


def _by_key(rows: Iterable[Any]) -> dict[_Held, int]:
    """What is said of each series, of rows of its lineage, own name, device, metric and cache state."""
    return {((lineage, own), device, metric, cache): said for lineage, own, device, metric, cache, said in rows}
