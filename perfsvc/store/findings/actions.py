"""Findings as persons change them: looked at, accepted, resolved, ignored, opened again; given to somebody, commented.

Each may be meant of some of a finding's series alone: they become a finding of their own first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, select, update

from perfsvc.errors import UsageError
from perfsvc.model import EventKind, Finding, FindingState, Series
from perfsvc.store.findings import events
from perfsvc.store.findings.read import STANDING, get, places, standing
from perfsvc.store.findings.update import same_place
from perfsvc.store.schema.engine import new_id
from perfsvc.store.schema.judging_tables import FindingCases, Findings

KINDS: Mapping[FindingState, EventKind] = {
    FindingState.OPEN: EventKind.REOPENED,
    FindingState.ACKNOWLEDGED: EventKind.ACKNOWLEDGED,
    FindingState.ACCEPTED: EventKind.ACCEPTED,
    FindingState.RESOLVED: EventKind.RESOLVED,
    FindingState.IGNORED: EventKind.IGNORED,
}

FROM: Mapping[FindingState, Collection[FindingState]] = {
    FindingState.OPEN: frozenset(FindingState) - {FindingState.OPEN},
    FindingState.ACKNOWLEDGED: {FindingState.OPEN, FindingState.IGNORED},
    FindingState.ACCEPTED: STANDING,
    FindingState.RESOLVED: STANDING,
    FindingState.IGNORED: STANDING,
}
"""From which states a person may bring a finding into each; one that is ignored may be ignored for longer."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What a person does to a finding.

    Attributes:
        by: who does it.
        series: of which of its series; None for all.
        now: when.
    """

    by: str
    series: Collection[Series] | None
    now: datetime

    @classmethod
    def done(cls, by: str, series: Collection[Series] | None = None) -> "Deed":
        """One that is done now."""
        return cls(by, series, datetime.now(UTC))


def put_state(
    connection: Connection, number: int, state: FindingState, deed: Deed, *, reason: str, until: datetime | None
) -> Finding:
    """Brings a finding, or some of its series, into a state; see ``Store.put_finding_state``."""
    found = get(connection, number)
    if found.state not in FROM[state]:
        why = f": {found.reason}" if found.reason else ""
        cure = f"perfsvc findings reopen {number}" if found.state not in STANDING else f"perfsvc findings show {number}"
        raise UsageError(f"finding {number} is {found.state.value} already{why}", cure=cure)
    finding = _split(connection, found, deed)
    if state is FindingState.OPEN:
        _open(connection, finding)
    values = {"state": state, "reason": reason, "set_by": deed.by, "set_at": deed.now, "ignored_until": until}
    connection.execute(update(Findings).where(Findings.id == finding.id).values(values))
    said = "; ".join(filter(None, [reason, f"until {until:%Y-%m-%d}" if until else ""]))
    _note(connection, finding.id, KINDS[state], said, deed)
    return get(connection, finding.id)


def assign(connection: Connection, number: int, owner: str, deed: Deed) -> Finding:
    """Gives a finding, or some of its series, to somebody; see ``Store.assign_finding``."""
    finding = _split(connection, get(connection, number), deed)
    connection.execute(update(Findings).where(Findings.id == finding.id).values(owner=owner))
    _note(connection, finding.id, EventKind.ASSIGNED, owner or "nobody", deed)
    return get(connection, finding.id)


def comment(connection: Connection, number: int, text: str, deed: Deed) -> Finding:
    """Notes what somebody has to say of a finding, or of some of its series; see ``Store.comment_finding``."""
    finding = _split(connection, get(connection, number), deed)
    _note(connection, finding.id, EventKind.COMMENTED, text, deed)
    return finding


def _note(connection: Connection, finding: int, kind: EventKind, said: str, deed: Deed) -> None:
    events.put(connection, [finding], kind, said, by=deed.by, at=deed.now)


def _open(connection: Connection, finding: Finding) -> None:
    """Lets a finding speak for its series again, those that were back included; another one must not by now."""
    told = {(one.series, one.direction) for one in finding.moved}
    for other in standing(connection):
        shared = [one.series.case.id for one in other.moved if (one.series, one.direction) in told]
        if other.id != finding.id and shared:
            raise UsageError(
                f"finding {other.id} tells of {shared[0]} by now", cure=f"perfsvc findings show {other.id}"
            )
    if finding.state is FindingState.RESOLVED:
        back = update(FindingCases).where(FindingCases.finding_id == finding.id)
        connection.execute(back.values(recovered_run_id=None))


def _split(connection: Connection, finding: Finding, deed: Deed) -> Finding:
    """The finding of the series that are meant: a new one, like that which they were in, unless they are all of it."""
    chosen = {one.series for one in finding.moved} if deed.series is None else set(deed.series)
    rows = [row for row, series in places(connection, [finding.id]) if series in chosen]
    if len(rows) == len(finding.moved):
        return finding
    if not rows:
        raise UsageError(f"finding {finding.id} tells of none of these", cure=f"perfsvc findings show {finding.id}")
    like = connection.execute(select(Findings).where(Findings.id == finding.id)).mappings().one()
    own = {name: value for name, value in like.items() if name != "id"} | {
        "last_run_id": max(r.last_run_id for r in rows)
    }
    number = new_id(connection, Findings, own)
    for row in rows:
        connection.execute(update(FindingCases).where(*same_place(row)).values(finding_id=number))
    names = ", ".join(sorted({series.case.id for series in chosen}))
    _note(connection, finding.id, EventKind.SPLIT, f"{names} is finding {number} from now on", deed)
    _note(connection, number, EventKind.SPLIT, f"{names} was part of finding {finding.id}", deed)
    return get(connection, number)
