"""Segments: where in its history the environment of a series changed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import ColumnElement, Connection, func, select

from perfsvc.store.cases import CaseIds
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.tables import Cases, Environments, Measurements, Runs


def starts(connection: Connection, lineages: Iterable[int], run: int) -> dict[CaseIds, int]:
    """The last run before the segment that a run is in: the newest earlier one that measured a spot elsewhere.

    Elsewhere is in another environment. A run with uncommitted changes ends no segment: whoever tries another compiler
    on it changes nothing for the nights after. A spot that was always measured in the environment of the run, or that
    the run did not measure, is absent.
    """
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.cache)
    of_lineages = Cases.lineage_id.in_(set(lineages))
    known = select(func.count()).select_from(Environments).scalar_subquery()
    measured = select(*spot, Measurements.environment_id, known).join(Cases, Cases.id == Measurements.case_id)
    tonight: dict[int, set[CaseIds]] = defaultdict(set)
    for lineage, device, cache, here, environments in connection.execute(
        measured.where(of_lineages, Measurements.run_id == run).distinct()
    ):
        if environments > 1:  # where there is no other, nothing was ever measured elsewhere
            tonight[here].add((lineage, device, cache))
    found: dict[CaseIds, int] = {}
    for here, spots in tonight.items():
        newest = _newest(connection, spots, here, run)
        for one in spots & newest.keys():
            found[one] = max(newest[one], found.get(one, 0))
    return found


def _newest(connection: Connection, spots: AbstractSet[CaseIds], here: int, before_run: int) -> dict[CaseIds, int]:
    """The newest clean run before another in which each spot was measured in another environment than one.

    For most of them that is the newest run of all that measured anything there; the others are looked for in all runs.
    """
    elsewhere = connection.scalars(select(Environments.id).where(Environments.id != here)).all()
    last = max((_last_in(connection, one, before_run) for one in elsewhere), default=0)
    newest = _newest_of(connection, {lineage for lineage, *_ in spots}, elsewhere, Measurements.run_id == last)
    left = {lineage for lineage, *_ in spots - newest.keys()}
    return _newest_of(connection, left, elsewhere, Measurements.run_id < last) | newest


def _last_in(connection: Connection, environment: int, before_run: int) -> int:
    """The newest clean run before another that measured anything in an environment; 0 where none did."""
    ended = Runs.git_dirty.is_(False) & Runs.state.in_(ENDED)
    while before_run:
        there = (Measurements.environment_id == environment, Measurements.run_id < before_run)
        before_run = connection.scalar(select(func.max(Measurements.run_id)).where(*there)) or 0
        if connection.scalar(select(Runs.id).where(Runs.id == before_run, ended)):
            break
    return before_run


def _newest_of(
    connection: Connection, lineages: AbstractSet[int], elsewhere: Sequence[int], among: ColumnElement[bool]
) -> dict[CaseIds, int]:
    """The newest clean run among some in which each spot of lineages was measured in one of some environments."""
    if not lineages:
        return {}
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.cache)
    query = (
        select(*spot, func.max(Measurements.run_id))
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Measurements.environment_id.in_(elsewhere), Cases.lineage_id.in_(lineages), among)
        .where(Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
        .group_by(*spot)
    )
    return {(lineage, device, cache): last for lineage, device, cache, last in connection.execute(query)}


def present(connection: Connection) -> dict[CaseIds, int]:
    """The same for every spot as of the newest run that has ended, without uncommitted changes."""
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.cache)
    query = (
        select(*spot, func.max(Measurements.run_id))
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
        .group_by(*spot, Measurements.environment_id)
    )
    last: dict[CaseIds, list[int]] = defaultdict(list)
    for lineage, device, cache, run in connection.execute(query):
        last[lineage, device, cache].append(run)
    return {one: sorted(runs)[-2] for one, runs in last.items() if len(runs) > 1}
