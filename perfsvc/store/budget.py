"""Runs under a budget: what they left out, and what a case costs and how well it is known, for whoever plans one."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, func, insert, select

from perfsvc.model import CacheState, Case
from perfsvc.store.interning import case_id, device_id, lineages_of
from perfsvc.store.lookup import ENDED
from perfsvc.store.naming import Place, Spot, of_cases, present_cases
from perfsvc.store.rows import Past
from perfsvc.store.tables import Cases, Devices, Measurements, NoiseOfCases, OverBudget, Runs


def put_over_budget(connection: Connection, run: int, places: Iterable[Place]) -> None:
    """Stores what a run left out, in place of what was stored of it before."""
    connection.execute(delete(OverBudget).where(OverBudget.run_id == run))
    rows = [
        {"run_id": run, "case_id": case_id(connection, case), "device_id": device_id(connection, uuid), "cache": cache}
        for uuid, case, cache in dict.fromkeys(places)
    ]
    if rows:
        connection.execute(insert(OverBudget), rows)


def over_budget(connection: Connection, run: int) -> list[Place]:
    """What a run left out, under the present names of the cases."""
    rows = connection.execute(of_cases(OverBudget).where(OverBudget.run_id == run)).all()
    cases = present_cases(rows)
    return [(row.uuid, cases[row.case_id], row.cache) for row in rows]


def past(connection: Connection, cases: Iterable[Case], before: int | None) -> dict[tuple[str, str, CacheState], Past]:
    """What runs tell of some cases; see ``Store.past``."""
    lineages = lineages_of(connection, cases)
    known = set(lineages.values())
    uuids = dict(connection.execute(select(Devices.id, Devices.uuid)).all())
    between = _newest_between(connection, known, before)
    told: dict[int, dict[tuple[str, CacheState], Past]] = {lineage: {} for lineage in known}
    for lineage, device, cache, cost_s, last in connection.execute(_costs(known, before)):
        told[lineage][uuids[device], cache] = Past(cost_s, between.get((lineage, device, cache)), last)
    return {
        (uuid, case.id, cache): one
        for case, lineage in lineages.items()
        for (uuid, cache), one in told[lineage].items()
    }


def _costs(lineages: set[int], before: int | None) -> Select[Any]:
    """Lineage, device, cache state, the mean seconds of a replica in the newest run that has ended, and the latest of all.

    What took no time never came to its device (it did not compile, it was skipped), so it says nothing of either.
    """
    spot = (Cases.lineage_id, Measurements.device_id, Measurements.cache)
    earlier = () if before is None else (Measurements.run_id < before,)
    newest = (
        select(
            *spot,
            func.max(Measurements.run_id).filter(Runs.state.in_(ENDED)).label("run"),
            func.max(Measurements.measured_at).label("last"),
        )
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Cases.lineage_id.in_(lineages), Measurements.wall_s > 0, *earlier)
        .group_by(*spot)
        .subquery()
    )
    in_newest = and_(
        newest.c.lineage_id == Cases.lineage_id,
        newest.c.device_id == Measurements.device_id,
        newest.c.cache == Measurements.cache,
        newest.c.run == Measurements.run_id,
    )
    return (
        select(*spot, func.avg(Measurements.wall_s), newest.c.last)
        .join(Cases, Cases.id == Measurements.case_id)
        .join(newest, in_newest)
        .where(Measurements.wall_s > 0)
        .group_by(*spot, newest.c.last)
    )


def _newest_between(connection: Connection, lineages: set[int], before: int | None) -> dict[Spot, float]:
    """The noise between replicas from the newest run that could tell it."""
    spot = (Cases.lineage_id, NoiseOfCases.device_id, NoiseOfCases.cache)
    earlier = () if before is None else (NoiseOfCases.run_id < before,)
    newest_first = func.row_number().over(partition_by=spot, order_by=NoiseOfCases.run_id.desc())
    ranked = (
        select(*spot, NoiseOfCases.noise_between, newest_first.label("place"))
        .join(Cases, Cases.id == NoiseOfCases.case_id)
        .where(Cases.lineage_id.in_(lineages), NoiseOfCases.noise_between.is_not(None), *earlier)
        .subquery()
    )
    rows = connection.execute(select(ranked).where(ranked.c.place == 1))
    return {(lineage, device, cache): between for lineage, device, cache, between, _ in rows}
