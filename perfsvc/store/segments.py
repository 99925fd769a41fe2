"""Segments: where in its history the environment of a series changed."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, Subquery, and_, func, select

from perfsvc.store.lookup import ENDED
from perfsvc.store.naming import Spot
from perfsvc.store.tables import Cases, Measurements, Runs


def starts(connection: Connection, lineages: Iterable[int], run: int) -> dict[Spot, int]:
    """The last run before the segment that a run is in: the newest earlier one that measured a spot elsewhere.

    Elsewhere is in another environment. A run with uncommitted changes ends no segment: whoever tries another compiler
    on it changes nothing for the nights after. A spot that was always measured in the environment of the run, or that
    the run did not measure, is absent.
    """
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.mode)
    of_lineages = Cases.lineage_id.in_(set(lineages))
    tonight = (
        select(*spot, Measurements.environment_id)
        .join(Cases, Cases.id == Measurements.case_id)
        .where(of_lineages, Measurements.run_id == run)
        .distinct()
        .subquery()
    )
    return _last_elsewhere(connection, tonight, of_lineages, Measurements.run_id < run)


def present(connection: Connection) -> dict[Spot, int]:
    """The same for every spot as of the newest run that has ended, without uncommitted changes."""
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.mode)
    newest_first = func.row_number().over(partition_by=spot, order_by=Measurements.run_id.desc())
    ranked = (
        select(*spot, Measurements.environment_id, newest_first.label("place"))
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
        .subquery()
    )
    return _last_elsewhere(connection, select(ranked).where(ranked.c.place == 1).subquery())


def _last_elsewhere(connection: Connection, tonight: Subquery, *where: ColumnElement[bool]) -> dict[Spot, int]:
    """The newest run that measured each spot of ``tonight`` in another environment than it says."""
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.mode)
    elsewhere = and_(
        tonight.c.lineage_id == Cases.lineage_id,
        tonight.c.device_id == Measurements.device_id,
        tonight.c.mode == Measurements.mode,
        tonight.c.environment_id != Measurements.environment_id,
    )
    query = (
        select(*spot, func.max(Measurements.run_id))
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .join(tonight, elsewhere)
        .where(Runs.git_dirty.is_(False), Runs.state.in_(ENDED), *where)
        .group_by(*spot)
    )
    return {(lineage, device, mode): last for lineage, device, mode, last in connection.execute(query)}
