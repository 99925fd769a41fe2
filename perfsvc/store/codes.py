"""What the measurements of a run were made of: their binaries, and the environment they ran in."""

from collections.abc import Collection

from sqlalchemy import Connection, select

from perfsvc.codec import decode
from perfsvc.model import Environment, ReplayRecord
from perfsvc.store.naming import Place, of_cases, present_cases
from perfsvc.store.reading import damaged
from perfsvc.store.rows import BinaryRow, Built
from perfsvc.store.tables import Binaries, BinaryFiles, Environments, Measurements


def built(connection: Connection, run: int) -> dict[Place, Built]:
    """Of what each case of a run was made, and where it ran; see ``Store.built``."""
    environment = (Environments.driver, Environments.toolkit, Environments.power_limit_w)
    query = (
        of_cases(Measurements, Measurements.binary_id, *environment)
        .join(Environments, Environments.id == Measurements.environment_id)
        .where(Measurements.run_id == run)
    )
    rows = connection.execute(query).all()
    cases = present_cases(rows)
    return {
        (row.uuid, cases[row.case_id], row.mode): Built(
            row.binary_id, Environment(row.driver, row.toolkit, row.power_limit_w)
        )
        for row in rows
    }


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
