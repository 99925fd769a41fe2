"""Load findings with the series that they hold."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Finding, FindingState, MovedSeries, Series
from perfsvc.store.cases import series_of, with_series
from perfsvc.store.schema.code_tables import Explanations
from perfsvc.store.schema.judging_tables import FindingCases, Findings

ACTIVE = (FindingState.OPEN, FindingState.ACKNOWLEDGED, FindingState.IGNORED)
"""A series with a finding in one of these states gets no second finding in the same direction."""

KEY = ("finding_id", "case_id", "device_id", "metric", "cache")
"""The primary key of ``finding_cases``."""


def get(connection: Connection, number: int) -> Finding:
    """Return a finding; raises ``NotMeasuredError`` if it does not exist."""
    findings = load(connection, Findings.id == number)
    if not findings:
        raise NotMeasuredError(f"there is no finding {number}", cure="perfsvc findings --all")
    return findings[0]


def active(connection: Connection) -> list[Finding]:
    """Return the active findings, newest first."""
    return load(connection, Findings.state.in_(ACTIVE))


def load(connection: Connection, *where: ColumnElement[bool]) -> list[Finding]:
    """Return findings with the series that they hold, newest first."""
    findings = connection.execute(select(Findings).where(*where).order_by(Findings.id.desc())).all()
    if not findings:
        return []
    numbers = {finding.id for finding in findings}
    moved: dict[int, list[MovedSeries]] = defaultdict(list)
    for row, series in series_rows(connection, numbers):
        moved[row.finding_id].append(
            MovedSeries(
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
        )
    sentences = _sentences(connection, numbers)
    return [
        Finding(
            id=finding.id,
            cause=finding.cause,
            root_cause=finding.root_cause,
            first_run=finding.first_run_id,
            last_run=finding.last_run_id,
            state=finding.state,
            evidence=finding.evidence,
            reason=finding.reason,
            by=finding.set_by,
            at=finding.set_at,
            moved=tuple(moved[finding.id]),
            owner=finding.owner,
            ignored_until=finding.ignored_until,
            why=sentences.get(finding.id, ""),
        )
        for finding in findings
    ]


def series_rows(connection: Connection, numbers: Collection[int]) -> list[tuple[Any, Series]]:
    """Return the ``finding_cases`` rows of some findings, each with its series under the present name of its case."""
    query = with_series(FindingCases, FindingCases.last_run_id).where(FindingCases.finding_id.in_(numbers))
    in_order = query.order_by(*(getattr(FindingCases, name) for name in KEY))
    return [(row, series_of(row)) for row in connection.execute(in_order)]


def _sentences(connection: Connection, numbers: Collection[int]) -> dict[int, str]:
    """Return the newest explanation of each finding's cases; a finding without an explanation is absent."""
    of_finding = and_(
        Explanations.case_id == FindingCases.case_id,
        Explanations.device_id == FindingCases.device_id,
        Explanations.run_id.between(Findings.first_run_id, FindingCases.last_run_id),
    )
    query = (
        select(Findings.id, Explanations.sentence)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(Explanations, of_finding)
        .where(Findings.id.in_(numbers), Explanations.sentence != "")
        .order_by(Explanations.id)
    )
    return {row.id: row.sentence for row in connection.execute(query)}
