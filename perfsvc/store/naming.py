"""The name under which a stored case is handed out: its present one."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, literal_column, select
from sqlalchemy.orm import aliased

from perfsvc.model import CacheState, Case
from perfsvc.store.interning import case_of
from perfsvc.store.tables import Cases, Devices, Measurements, NoiseOfCases, OverBudget

Place = tuple[str, Case, CacheState]
"""What a run measures once a replica: a case on a device (its UUID) in a cache state."""
Spot = tuple[int, int, CacheState]
"""The same in the database: lineage, device, cache state."""


def of_cases(of: type[Measurements | NoiseOfCases | OverBudget], *columns: Any) -> Select[Any]:
    """A query of some columns of rows that have a case and a device, with what ``present_cases`` needs of them."""
    present = aliased(Cases)
    return (
        select(
            *columns,
            of.case_id,
            of.cache,
            Cases.lineage_id,
            Cases.benchmark,
            Cases.variant,
            Cases.point,
            Cases.version,
            present.variant.label("present_variant"),
            Devices.uuid,
            Devices.model,
        )
        .join(Cases, Cases.id == of.case_id)
        .outerjoin(present, and_(present.lineage_id == Cases.lineage_id, present.former.is_(False)))
        .join(Devices, Devices.id == of.device_id)
        .order_by(of.case_id, of.device_id, of.cache)
    )


@cache
def own_name(run: Any) -> ColumnElement[int]:
    """Of a row with a case and a run: the case's id where it is handed out under its own, former name, else 0.

    It is where the run measured another name of its lineage beside it, as ``present_cases`` has it: that name was given
    anew, to what has no part in its heir's levels and history. A query that groups by lineage groups by this as well.
    """
    beside, other = aliased(Measurements), aliased(Cases)
    shared = exists().where(
        other.lineage_id == Cases.lineage_id, other.id != Cases.id, beside.case_id == other.id, beside.run_id == run
    )
    none: ColumnElement[int] = literal_column(
        "0"
    )  # no parameter: PostgreSQL groups by an expression only where it is known to be the same
    return case((and_(Cases.former, shared.correlate_except(beside, other)), Cases.id), else_=none).label("own_name")


def present_cases(rows: Sequence[Any]) -> dict[int, Case]:
    """The cases of one run's rows by their ids, under their present names.

    Where a former name was given anew, a run may have two names of one lineage: then each keeps its own.
    """
    names: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        names[row.lineage_id].add(row.case_id)
    one_each = {row.case_id: row for row in rows}
    return {case: _named(row, own=len(names[row.lineage_id]) > 1) for case, row in one_each.items()}


def _named(row: Any, *, own: bool) -> Case:
    variant = row.variant if own else row.present_variant or row.variant
    return case_of(row.benchmark, variant, row.point, row.version)
