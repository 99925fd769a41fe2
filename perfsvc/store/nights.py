"""The nights of a run's series: what each earlier run measured of them, and in which environment."""

from collections import defaultdict

from sqlalchemy import Connection, select

from perfsvc.model import Status
from perfsvc.store.lookup import ENDED, run
from perfsvc.store.naming import Place, Spot, of_cases, present_cases
from perfsvc.store.rows import Night
from perfsvc.store.tables import Cases, Measurements, Runs


def nights(connection: Connection, number: int, last: int) -> dict[Place, list[Night]]:
    """What the nights up to a run say of all that it timed; see ``Store.nights``."""
    numbers = _numbers(connection, number, last)
    tonight = connection.execute(
        of_cases(Measurements, Measurements.device_id).where(Measurements.run_id == number)
    ).all()
    cases = present_cases(tonight)
    places = {(row.lineage_id, row.device_id, row.mode): (row.uuid, cases[row.case_id], row.mode) for row in tonight}
    found: dict[Spot, dict[int, list[tuple[Status, float | None, int]]]] = defaultdict(lambda: defaultdict(list))
    query = (
        select(
            Cases.lineage_id,
            Measurements.device_id,
            Measurements.mode,
            Measurements.run_id,
            Measurements.status,
            Measurements.median_s,
            Measurements.environment_id,
        )
        .join(Cases, Cases.id == Measurements.case_id)
        .where(Measurements.run_id.in_(numbers))
        .order_by(Measurements.run_id)
    )
    for row in connection.execute(query):
        spot = row.lineage_id, row.device_id, row.mode
        if spot in places:
            found[spot][row.run_id].append((row.status, row.median_s, row.environment_id))
    return {places[spot]: [_night(night, rows) for night, rows in by_run.items()] for spot, by_run in found.items()}


def _night(number: int, rows: list[tuple[Status, float | None, int]]) -> Night:
    """A case that any replica got wrong has no time that night."""
    right = all(status is Status.OK for status, _, _ in rows)
    return Night(number, rows[0][2], tuple(median for _, median, _ in rows if right and median is not None))


def _numbers(connection: Connection, number: int, last: int) -> list[int]:
    """The newest runs of a run's scope up to itself, those with uncommitted changes left out; oldest first."""
    scope = run(connection, number).provenance.scope
    earlier = (Runs.id < number, Runs.scope == scope, Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
    newest = select(Runs.id).where(*earlier).order_by(Runs.id.desc()).limit(last - 1)
    return [*sorted(connection.scalars(newest)), number]
