"""Findings: which series changed for which root cause, and what people decided about it.

``read`` loads findings, ``update`` applies what a run shows, ``actions`` applies what a person does,
``slow_gpus`` applies that a GPU is slower than others of its model,
``sightings`` has the runs that show each step, ``excluded`` derives findings from them again when a person keeps a run
out of judging, and ``bisections`` keeps the searches for their commits.
"""

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Connection

from perfsvc.model import (
    Bisection,
    Finding,
    FindingEvent,
    FindingState,
    FindingUpdates,
    RootCause,
    Series,
    SlowGpu,
    StoredBisection,
)
from perfsvc.store.findings import actions, read, update
from perfsvc.store.findings.actions import Action
from perfsvc.store.findings.update import Recovered
from perfsvc.store.schema.engine import StorePart


class FindingsChangedError(Exception):
    """Another host or a person has changed findings since they were read."""


class FindingStore(StorePart):
    """Findings; each method is one transaction."""

    def get(self, number: int) -> Finding:
        """Return a finding; raises ``NotMeasuredError`` if it does not exist."""
        with self._database.reading() as connection:
            return read.get(connection, number)

    def active(self) -> list[Finding]:
        """Return the active findings (open, acknowledged or ignored), newest first."""
        with self._database.reading() as connection:
            return read.active(connection)

    def all(self) -> list[Finding]:
        """Return all findings, newest first."""
        with self._database.reading() as connection:
            return read.load(connection)

    def events(
        self, *, run: int | None = None, finding: int | None = None, night: int | None = None
    ) -> list[FindingEvent]:
        """Return the events of a run, of a finding or of a night, or all events; oldest first."""
        with self._database.reading() as connection:
            return read.load_events(connection, run=run, finding=finding, night=night)

    def newest_event(self) -> int:
        """Return the number of the newest event of any finding; 0 if there is none."""
        with self._database.reading() as connection:
            return read.newest_event(connection)

    def update(
        self,
        run: int,
        recovered: Collection[Recovered],
        causes: Collection[RootCause],
        *,
        steps: Collection[RootCause] = (),
        moved_again: AbstractSet[Series] = frozenset(),
        rebased: AbstractSet[Series] = frozenset(),
        now: datetime | None = None,
        since: int | None = None,
    ) -> FindingUpdates:
        """Apply everything that a run shows to the findings, in one transaction.

        1. Recovered steps are marked. An active finding is resolved when all steps of its series have recovered. A step
           cannot recover before the newest run that shows it.
        2. Each suspect goes to the first of these findings:

           - the active finding that holds its series in this direction;
           - the resolved finding of the same change (cause, root cause and baseline run): that finding is reopened;
           - the open or acknowledged finding that ``RootCause.finding`` names: it shows the change on another device;
           - the newest open or acknowledged finding with the same cause and root cause;
           - a new finding.

           If a suspect with a confirmed cause goes to an unconfirmed finding of its series, the finding takes this
           cause.
        3. Each suspect of ``steps`` adds a step to the active finding that holds its series. If only one of the finding
           and the step is due to the code, the step goes to the finding of its root cause instead.
        4. Ignored findings whose time is over are reopened.

        So a step of a series never has two active findings in one direction. Each change is recorded as an event of the
        run. Updating again with the same arguments changes nothing, whatever people did in between.

        Args:
            run: the run.
            recovered: for each recovery, the number of the finding, the series, and the step that it has recovered
                from.
            causes: the suspects of the run by their root cause. If the root cause is unknown (empty), its suspects join
                no existing finding.
            steps: the series of active findings that moved again, by root cause, each compared with the level after
                its last step.
            moved_again: all series of active findings that seem to have moved again, whatever the reason; their rows
                keep the level after the last step.
            rebased: the series whose next step is judged against this run, because the run is faster or has another
                environment.
            now: the time of the update; by default the current time.
            since: the number of the newest event when the arguments were computed; None if findings may have changed
                since then.

        Raises:
            FindingsChangedError: findings have changed since the event ``since``; nothing is done.
        """
        now = now or datetime.now(UTC)
        shown = update.RunFindings(run, now, recovered, causes, steps, moved_again, rebased)
        with self._changing() as connection:
            if since is not None and read.newest_event(connection) != since:
                raise FindingsChangedError
            return update.update_findings(connection, shown)

    def update_slow_gpus(self, run: int, slow: Collection[SlowGpu], fast: Mapping[str, str]) -> FindingUpdates:
        """Raise, reopen and resolve the findings about GPUs that are slower than the other GPUs of their models.

        A GPU has one finding. A GPU that is in neither argument keeps its finding as it is. A repeated call changes
        nothing.

        Args:
            run: the run.
            slow: the GPUs that are slower than their siblings.
            fast: the GPUs that are as fast as their siblings, by UUID, each with how that is known.
        """
        with self._changing() as connection:
            return actions.update_slow_gpus(connection, run, slow, fast, datetime.now(UTC))

    def set_state(
        self,
        number: int,
        state: FindingState,
        *,
        reason: str = "",
        by: str = "",
        until: datetime | None = None,
        series: Collection[Series] | None = None,
        step: int | None = None,
    ) -> Finding:
        """Set the state of a finding on behalf of a person.

        If a finding is accepted, the baseline of each of its series that has not recovered becomes the newest run that
        shows the change. If the finding is about a missing host, GPU or case, later nights no longer expect it. If a
        resolved finding is reopened, its recovered series count as not recovered.

        Args:
            number: the finding.
            state: its new state.
            reason: why the finding gets this state.
            by: the person who sets the state.
            until: when an ignored finding is reopened; None for never.
            series: the series to act on; if the finding has more, these series are split off first. None for all.
            step: the last step to act on; later steps stay in the finding. None for all steps.

        Returns:
            The finding that holds exactly these series: a new one if they were split off.

        Raises:
            NotMeasuredError: the finding does not exist.
            UsageError: the finding cannot change from its present state to ``state``, or has none of the series or
                steps; or another active finding holds one of its series, so that it cannot be reopened.
        """
        with self._changing() as connection:
            return actions.act(connection, number, state, Action(by, series, step), reason=reason, until=until)

    def assign(self, number: int, owner: str, *, by: str = "", series: Collection[Series] | None = None) -> Finding:
        """Set the owner of a finding, or of some of its series; an empty name removes the owner.

        If the finding has other series too, the given series are split off first; the result is the new finding.

        Raises:
            NotMeasuredError: the finding does not exist.
            UsageError: the finding has none of the series.
        """
        with self._changing() as connection:
            return actions.assign(connection, number, owner, Action(by, series))

    def comment(self, number: int, text: str, *, by: str = "", series: Collection[Series] | None = None) -> Finding:
        """Record a person's comment on a finding, or on some of its series.

        If the finding has other series too, the given series are split off first; the result is the new finding.

        Raises:
            NotMeasuredError: the finding does not exist.
            UsageError: the finding has none of the series.
        """
        with self._changing() as connection:
            return actions.comment(connection, number, text, Action(by, series))

    def put_bisection(self, number: int, bisection: Bisection) -> None:
        """Store a bisection with a finding, for people to read. Of the samples of each process, the median is stored.

        Raises:
            NotMeasuredError: the finding does not exist.
        """
        with self._changing() as connection:
            read.get(connection, number)
            actions.put_bisection(connection, number, bisection)

    def bisections(self, number: int) -> list[StoredBisection]:
        """Return the bisections of a finding, the newest first; none if it does not exist."""
        with self._database.reading() as connection:
            return actions.load_bisections(connection, number)

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Run a transaction that changes findings; such transactions run one at a time."""
        with self._database.writing() as connection:
            read.lock(connection)
            yield connection
