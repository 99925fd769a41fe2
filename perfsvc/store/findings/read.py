"""Reading findings: each with the series it moved, under the names that these are handed out by."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, or_, select
from sqlalchemy.orm import aliased

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Finding, FindingState, MovedSeries, Series
from perfsvc.store.cases import case_of, own_name
from perfsvc.store.schema.code_tables import Explanations
from perfsvc.store.schema.judging_tables import FindingCases, Findings
from perfsvc.store.schema.tables import Cases, Devices

STANDING = (FindingState.OPEN, FindingState.ACKNOWLEDGED, FindingState.IGNORED)
"""The states in which a finding still speaks for its series: no other is raised of them."""

_FINDINGS: Any = bindparam("findings", expanding=True)


def get(connection: Connection, number: int) -> Finding:
    """One finding; raises ``NotMeasuredError`` where there is none."""
    found = findings(connection, Findings.id == number)
    if not found:
        raise NotMeasuredError(f"there is no finding {number}", cure="perfsvc findings --all")
    return found[0]


def standing(connection: Connection) -> list[Finding]:
    """Those that still speak for their series, newest first."""
    return findings(connection, Findings.state.in_(STANDING))


def findings(connection: Connection, *where: ColumnElement[bool]) -> list[Finding]:
    """Findings, newest first, each with what it moved."""
    rows = connection.execute(select(Findings).where(*where).order_by(Findings.id.desc())).all()
    if not rows:
        return []
    numbers = {row.id for row in rows}
    moved: dict[int, list[MovedSeries]] = defaultdict(list)
    for row, series in places(connection, numbers):
        moved[row.finding_id].append(_moved(row, series))
    why = _why(connection, numbers)
    return [_finding(row, moved[row.id], why.get(row.id, "")) for row in rows]


def places(connection: Connection, numbers: Collection[int]) -> list[tuple[Any, Series]]:
    """The rows of what some findings moved, each with its series as it is handed out.

    That is under the case's present name; a former name that was given anew has its own (``naming.own_name``).
    """
    return [(row, _series(row)) for row in connection.execute(_places(), {"findings": list(numbers)})]


@cache
def _places() -> Any:
    """The query behind ``places``; to build it takes longer than to run it, and a night asks often."""
    present, own = aliased(Cases), own_name(FindingCases.last_run_id)
    named = or_(and_(own == 0, present.former.is_(False)), present.id == own)
    return (
        select(
            FindingCases,
            Cases.lineage_id,
            own,
            present.benchmark,
            present.variant,
            present.point,
            present.version,
            Devices.uuid,
            Devices.model,
        )
        .join(Cases, Cases.id == FindingCases.case_id)
        .join(Devices, Devices.id == FindingCases.device_id)
        .join(present, and_(present.lineage_id == Cases.lineage_id, named))
        .where(FindingCases.finding_id.in_(_FINDINGS))
        .order_by(*(getattr(FindingCases, name) for name in ("finding_id", "case_id", "device_id", "metric", "cache")))
    )


def _series(row: Any) -> Series:
    case = case_of(row.benchmark, row.variant, row.point, row.version)
    return Series(case, row.uuid, row.model, row.metric, row.cache)


def _why(connection: Connection, numbers: Collection[int]) -> Mapping[int, str]:
    """The newest sentence on any of the cases that each finding moved."""
    return {row.id: row.sentence for row in connection.execute(_sentences(), {"findings": list(numbers)})}


@cache
def _sentences() -> Any:
    """All sentences on the cases that some findings moved, the oldest first."""
    of_case = and_(
        Explanations.case_id == FindingCases.case_id,
        Explanations.device_id == FindingCases.device_id,
        Explanations.run_id.between(Findings.first_run_id, FindingCases.last_run_id),
    )
    return (
        select(Findings.id, Explanations.sentence)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(Explanations, of_case)
        .where(Findings.id.in_(_FINDINGS), Explanations.sentence != "")
        .order_by(Explanations.id)
    )


def _finding(row: Any, moved: Sequence[MovedSeries], why: str) -> Finding:
    return Finding(
        id=row.id,
        cause=row.cause,
        root_cause=row.root_cause,
        first_run=row.first_run_id,
        last_run=row.last_run_id,
        state=row.state,
        evidence=row.evidence,
        reason=row.reason,
        by=row.set_by,
        at=row.set_at,
        moved=tuple(moved),
        owner=row.owner,
        ignored_until=row.ignored_until,
        why=why,
    )


def _moved(row: Any, series: Series) -> MovedSeries:
    return MovedSeries(
        series,
        row.ratio,
        row.low,
        row.high,
        baseline_run=row.baseline_run_id,
        baseline_s=row.baseline_s,
        candidate_s=row.candidate_s,
        last_run=row.last_run_id,
        recovered_run=row.recovered_run_id,
        change=row.change,
        direction=row.direction,
    )
