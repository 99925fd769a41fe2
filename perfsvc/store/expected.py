"""What a run should have measured: what the run before it did, also where one of the two had not the time for all."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, func, select, tuple_
from sqlalchemy.orm import aliased

from perfsvc.model import Level, Series, Status
from perfsvc.store.baselines import keys_of
from perfsvc.store.naming import Spot
from perfsvc.store.reading import levels
from perfsvc.store.rows import State
from perfsvc.store.tables import Cases, LeftOut, Measurements, Runs


def expected(connection: Connection, number: int) -> dict[Series, Level]:
    """What a run should have a right result of; see ``Store.expected``."""
    before = _runs_before(connection, number)
    missed = owed(connection, before)
    excused = _excused(connection, number)
    found: dict[Series, Level] = {}
    for run in sorted({*before.values(), *missed.values()}):
        right = {series: level for series, level in levels(connection, run).items() if level.status is Status.OK}
        for series, (lineage, device, _, mode) in keys_of(connection, right).items():
            spot = (lineage, device, mode)
            if run == missed.get(spot, before.get(device)) and spot not in excused:
                found[series] = right[series]
    return found


def _runs_before(connection: Connection, number: int) -> dict[int, int]:
    """For each device of a run (its id) the newest earlier one of its scope that finished and measured there."""
    scope = connection.scalar(select(Runs.scope).where(Runs.id == number))
    if not scope:
        return {}
    left = _devices(connection, number)
    runs = select(Runs.id, Runs.git_dirty).where(Runs.scope == scope, Runs.state == State.FINISHED, Runs.id < number)
    clean: dict[int, int] = {}
    dirty: dict[int, int] = {}
    for run, changed in connection.execute(runs.order_by(Runs.id.desc())).all():
        if not left:
            break
        for device in left & _devices(connection, run):
            (dirty if changed else clean).setdefault(device, run)
        left -= clean.keys()
    return dirty | clean


def _devices(connection: Connection, run: int) -> set[int]:
    return set(connection.scalars(select(Measurements.device_id).where(Measurements.run_id == run).distinct()))


def owed(connection: Connection, before: Mapping[int, int]) -> dict[Spot, int]:
    """For whatever those runs left out on their devices, the newest run before them that measured it."""
    missed = aliased(Cases)
    scope = select(Runs.scope).where(Runs.id == LeftOut.run_id).correlate(LeftOut).scalar_subquery()
    earlier = and_(
        Measurements.case_id == Cases.id,
        Measurements.device_id == LeftOut.device_id,
        Measurements.mode == LeftOut.mode,
        Measurements.run_id < LeftOut.run_id,
    )
    query = (
        select(Cases.lineage_id, Measurements.device_id, Measurements.mode, newest_clean())
        .select_from(LeftOut)
        .join(missed, missed.id == LeftOut.case_id)
        .join(Cases, Cases.lineage_id == missed.lineage_id)
        .join(Measurements, earlier)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(tuple_(LeftOut.device_id, LeftOut.run_id).in_(list(before.items())))
        .where(Runs.scope == scope, Runs.state == State.FINISHED)
        .group_by(Cases.lineage_id, Measurements.device_id, Measurements.mode)
    )
    return {(lineage, device, mode): run for lineage, device, mode, run in connection.execute(query)}


def newest_clean() -> ColumnElement[int]:
    """Of a group of measurements the newest run: of those without uncommitted changes, if there are any."""
    clean = func.max(Measurements.run_id).filter(Runs.git_dirty.is_(False))
    return func.coalesce(clean, func.max(Measurements.run_id))


def _excused(connection: Connection, number: int) -> set[Spot]:
    """What a run itself left out."""
    query = (
        select(Cases.lineage_id, LeftOut.device_id, LeftOut.mode)
        .join(Cases, Cases.id == LeftOut.case_id)
        .where(LeftOut.run_id == number)
    )
    return {(lineage, device, mode) for lineage, device, mode in connection.execute(query)}
