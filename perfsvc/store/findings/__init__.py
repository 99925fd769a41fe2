"""What the store remembers of findings: what they moved, and what befell them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Connection, text

from perfsvc.model import Finding, FindingEvent, FindingState, FindingUpdates, RootCause, Series, Suspect
from perfsvc.store.findings import actions, events, read, update
from perfsvc.store.findings.actions import Deed
from perfsvc.store.schema.engine import POSTGRESQL, Database


class FindingStore:
    """Findings: what runs and people change, and what there is; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- what runs do ----------------------------------------------------------------------------------------------

    def update(
        self, run: int, back: Iterable[tuple[int, Series]], blames: Iterable[RootCause], *, now: datetime | None = None
    ) -> FindingUpdates:
        """Does at once all that a run changes of findings: ``recover``, then ``raise_finding`` of each blame.

        Those that were ignored until now are open again. Each change is an event of the run. Doing it again changes
        nothing, whatever a person did meanwhile.
        """
        with _alone(self._database) as connection:
            return update.update_findings(connection, run, back, blames, now or datetime.now(UTC))

    def raise_finding(self, run: int, suspects: Sequence[Suspect], evidence: str, root_cause: str = "") -> list[int]:
        """Puts suspects of one cause into findings, and returns the numbers of those that tell of them.

        A series that is in a finding which stands (open, acknowledged, ignored) goes there, and so does one that
        recovered from a finding and lost again against the very same baseline: that finding is open again. So a series
        has never two findings of one direction that stand. What is left joins the newest open or acknowledged finding
        of the same cause and origin, or is a new one.

        Args:
            run: the run that shows it.
            suspects: one at least; they share the judgement's cause.
            evidence: why, in a sentence.
            root_cause: what the cause is; empty where nobody knows, and then nothing is joined.
        """
        with _alone(self._database) as connection:
            told = update.raise_finding(
                connection, run, RootCause(root_cause, evidence, tuple(suspects)), datetime.now(UTC)
            )
        return sorted({*told.raised, *told.joined, *told.reopened, *told.seen})

    def recover(self, run: int, back: Iterable[tuple[int, Series]]) -> list[int]:
        """Notes of findings (by their numbers) which series a run shows at their old levels again.

        A change that a later run shows is not over. Returns the numbers of those that are
        resolved by it: that stood, and of which no series is left.
        """
        with _alone(self._database) as connection:
            return update.recover(connection, run, back, datetime.now(UTC))

    # --- what persons do -------------------------------------------------------------------------------------------

    def set_state(
        self,
        number: int,
        state: FindingState,
        *,
        reason: str = "",
        by: str = "",
        until: datetime | None = None,
        series: Collection[Series] | None = None,
    ) -> Finding:
        """Brings a finding into a state, for a person.

        Accepted, the newest run of each of its series is their level, but for those that recovered. Opened again, it
        speaks for all its series, those that were back included.

        Args:
            number: which.
            state: into which.
            reason: why.
            by: who does it.
            until: of one that is ignored, when it is open again; None for without an end.
            series: which of its series are meant: they are split off first; None for all.

        Returns:
            The finding of these series, which is a new one where they were split off.

        Raises:
            NotMeasuredError: there is no such finding.
            UsageError: it cannot come into that state from its own, has none of these series, or, to be opened again,
                moved what another one tells of by now.
        """
        with _alone(self._database) as connection:
            return actions.put_state(connection, number, state, Deed.done(by, series), reason=reason, until=until)

    def assign(self, number: int, owner: str, *, by: str = "", series: Collection[Series] | None = None) -> Finding:
        """Gives a finding, or some of its series, to an owner, or with an empty one to nobody.

        Raises as ``put_finding_state`` does where there is none.
        """
        with _alone(self._database) as connection:
            return actions.assign(connection, number, owner, Deed.done(by, series))

    def comment(self, number: int, text: str, *, by: str = "", series: Collection[Series] | None = None) -> Finding:
        """Notes what somebody has to say of a finding, or of some of its series.

        Raises as ``put_finding_state`` does where there is none.
        """
        with _alone(self._database) as connection:
            return actions.comment(connection, number, text, Deed.done(by, series))

    # --- what there is ---------------------------------------------------------------------------------------------

    def get(self, number: int) -> Finding:
        """One finding; raises ``NotMeasuredError`` where there is none."""
        with self._database.reading() as connection:
            return read.get(connection, number)

    def events(self, *, run: int | None = None, finding: int | None = None) -> list[FindingEvent]:
        """What befell a finding, or what a run did to findings, or all that there is, in its order."""
        with self._database.reading() as connection:
            return events.events(connection, run=run, finding=finding)

    def list(self, *, every: bool = False) -> list[Finding]:
        """The findings that stand (open, acknowledged, ignored), or every one, newest first."""
        with self._database.reading() as connection:
            return read.findings(connection) if every else read.standing(connection)


@contextmanager
def _alone(database: Database) -> Iterator[Connection]:
    """A transaction that changes findings, one at a time: nights of two hosts must not raise one cause each."""
    with database.writing() as connection:
        if connection.dialect.name == POSTGRESQL:  # SQLite's writers are alone anyway
            connection.execute(text("LOCK TABLE findings IN SHARE ROW EXCLUSIVE MODE"))
        yield connection
