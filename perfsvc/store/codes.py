"""What the measurements of a run were made of: their binaries, and the environment they ran in."""

from collections import defaultdict
from collections.abc import Collection
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, select

from perfsvc.codec import decode
from perfsvc.model import Environment, ReplayRecord
from perfsvc.store.interning import lineages_of
from perfsvc.store.naming import Place, of_cases, present_cases
from perfsvc.store.reading import damaged
from perfsvc.store.rows import BinaryRow, Built
from perfsvc.store.tables import Binaries, BinaryFiles, Cases, Devices, Environments, Measurements


def built(connection: Connection, run: int) -> dict[Place, Built]:
    """Of what each case of a run was made, and where it ran; see ``Store.built``."""
    rows = connection.execute(_built(), {"run": run}).all()
    cases = present_cases(rows)
    replicas = {(row.uuid, row.case_id, row.mode): row for row in rows}
    return {
        (uuid, cases[case], mode): Built(row.binary_id, Environment(row.driver, row.toolkit, row.power_limit_w))
        for (uuid, case, mode), row in replicas.items()
    }


@cache
def _built() -> Any:
    """The query behind ``built`` for a run (``run``); to build it takes longer than to run it."""
    environment = (Environments.driver, Environments.toolkit, Environments.power_limit_w)
    return (
        of_cases(Measurements, Measurements.binary_id, *environment)
        .join(Environments, Environments.id == Measurements.environment_id)
        .where(Measurements.run_id == bindparam("run"))
    )


def ran(connection: Connection, place: Place, runs: Collection[int]) -> dict[int, int]:
    """The binary of one case in each of some runs; see ``Store.ran``."""
    uuid, case, mode = place
    lineage = lineages_of(connection, [case]).get(case)
    names = connection.scalars(select(Cases.id).where(Cases.lineage_id == lineage)).all()
    device = connection.scalar(select(Devices.id).where(Devices.uuid == uuid))
    query = (
        select(Measurements.run_id, Measurements.case_id, Measurements.binary_id)
        .where(Measurements.case_id.in_(names), Measurements.device_id == device, Measurements.mode == mode)
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
