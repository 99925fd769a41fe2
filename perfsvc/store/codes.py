"""What the measurements of a run were made of: their binaries, and the environment they ran in."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, select
from sqlalchemy.orm import aliased

from perfsvc.model import Environment, ReplayRecord
from perfsvc.model.codec import decode
from perfsvc.store.interning import lineages_of
from perfsvc.store.naming import Place, of_cases, present_cases
from perfsvc.store.reading import OF_PLACES, OF_RUN, by_run, damaged, places_of
from perfsvc.store.rows import BinaryRow, Built
from perfsvc.store.tables import Binaries, BinaryFiles, Cases, Devices, Environments, Measurements


def built(connection: Connection, run: int) -> dict[Place, Built]:
    """Of what each case of a run was made, and where it ran; see ``Store.built``."""
    return _of_run(connection.execute(_built(OF_RUN), {"run": run}).all())


def built_of(connection: Connection, wanted: Collection[tuple[int, Place]]) -> dict[tuple[int, Place], Built]:
    """The same of some cases, each in a run of its own; see ``Store.built_of``."""
    places = places_of(connection, {(run, case) for run, (_, case, _) in wanted})
    if not places:
        return {}
    found = {run: _of_run(rows) for run, rows in by_run(connection.execute(_built(OF_PLACES), places))}
    return {(run, place): found[run][place] for run, place in wanted if place in found.get(run, ())}


def _of_run(rows: Sequence[Any]) -> dict[Place, Built]:
    """Of what the cases of one run were made, by the rows of all names of each."""
    cases = present_cases(rows)
    return {
        (row.uuid, cases[row.case_id], row.cache): Built(
            row.binary_id, Environment(row.driver, row.toolkit, row.power_limit_w)
        )
        for row in rows
    }


@cache
def _built(which: ColumnElement[bool]) -> Any:
    """The query behind ``built``, of the last replica of some measurements; to build it takes longer than to run it."""
    later = aliased(Measurements)
    same = (getattr(later, name) == getattr(Measurements, name) for name in ("run_id", "case_id", "device_id", "cache"))
    environment = (Environments.driver, Environments.toolkit, Environments.power_limit_w)
    return (
        of_cases(Measurements, Measurements.run_id, Measurements.binary_id, *environment)
        .join(Environments, Environments.id == Measurements.environment_id)
        .where(which, ~exists().where(*same, later.replica > Measurements.replica))
    )


def ran(connection: Connection, place: Place, runs: Collection[int]) -> dict[int, int]:
    """The binary of one case in each of some runs; see ``Store.ran``."""
    uuid, case, cache = place
    lineage = lineages_of(connection, [case]).get(case)
    names = connection.scalars(select(Cases.id).where(Cases.lineage_id == lineage)).all()
    device = connection.scalar(select(Devices.id).where(Devices.uuid == uuid))
    query = (
        select(Measurements.run_id, Measurements.case_id, Measurements.binary_id)
        .where(Measurements.case_id.in_(names), Measurements.device_id == device, Measurements.cache == cache)
        .where(Measurements.run_id.between(min(runs, default=0), max(runs, default=0)))  # a range is read in its order
        .distinct()
    )
    wanted = set(runs)
    told: dict[int, list[int | None]] = defaultdict(list)
    for run, _, binary in connection.execute(query):
        if run in wanted:
            told[run].append(binary)
    return {run: of_run[0] for run, of_run in told.items() if len(of_run) == 1 and of_run[0] is not None}


def binaries(connection: Connection, numbers: Collection[int]) -> dict[int, BinaryRow]:
    """Stored binaries by their ids; see ``Store.binaries``."""
    sources: dict[int, set[tuple[str, str]]] = {number: set() for number in numbers}
    files = select(BinaryFiles.binary_id, BinaryFiles.name, BinaryFiles.sha256).where(
        BinaryFiles.binary_id.in_(sources), BinaryFiles.role == "source"
    )
    for binary, name, sha256 in connection.execute(files):
        sources[binary].add((name, sha256))
    records = select(Binaries.id, Binaries.record).where(Binaries.id.in_(sources))
    return {
        number: BinaryRow(_record(number, text), frozenset(sources[number]))
        for number, text in connection.execute(records)
    }


def _record(number: int, text: str) -> ReplayRecord:
    try:
        return decode(ReplayRecord, text)
    except ValueError as error:
        raise damaged(f"the replay record of binary {number}") from error
