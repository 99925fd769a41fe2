"""What is sent by the calendar: reminders of findings that no person has looked at, and digests of quiet weeks."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perfsvc.model import EventKind, Finding, FindingEvent, FindingState, Judgement
from perfsvc.store import NightRow, RunState, StageState, Store

WEEK = timedelta(days=7)

EARLY = timedelta(hours=12)
"""A period is over this much earlier, because nights do not notify people at the same time each day."""

NEWS = frozenset({EventKind.RAISED, EventKind.JOINED, EventKind.STEP, EventKind.REOPENED, EventKind.RETURNED})
"""The events that a message reports while a finding is open, if no person caused them."""

BY_PEOPLE = frozenset({EventKind.ACKNOWLEDGED, EventKind.ASSIGNED, EventKind.COMMENTED, EventKind.SPLIT})
"""The events that show that a person has seen an open finding."""


@dataclass(frozen=True, slots=True)
class Reminder:
    """An open finding that no person has done anything with.

    Attributes:
        since: when a message last reported the finding as news.
        days: the whole days since then.
    """

    finding: Finding
    since: datetime
    days: int


@dataclass(frozen=True, slots=True)
class Digest:
    """A week in which a target received nothing.

    Attributes:
        since: when the week began.
        nights: the nights of all hosts since then, newest first.
        runs: for each host, the newest run that is not excluded.
        judgements: the verdicts of these runs.
        open: the number of open findings.
    """

    since: datetime
    nights: tuple[NightRow, ...]
    runs: tuple[int, ...]
    judgements: tuple[Judgement, ...]
    open: int

    @property
    def failed(self) -> tuple[NightRow, ...]:
        """The nights that were stopped, or of which a stage failed."""
        return tuple(
            night
            for night in self.nights
            if night.state is RunState.INTERRUPTED or any(stage.state is StageState.FAILED for stage in night.stages)
        )


def reminders(store: Store, night: NightRow, period: timedelta, now: datetime) -> tuple[Reminder, ...]:
    """Return the open findings that are due for a reminder, the oldest first.

    A finding is due one period after the last message about it, unless a person has acted on the finding since.
    Findings of other suites are left out: the nights of those suites send their reminders.
    """
    elsewhere = {other.run for other in store.nights.list() if other.suite != night.suite and other.run is not None}
    unseen = {
        finding.id: finding
        for finding in store.findings.active()
        if finding.state is FindingState.OPEN and finding.first_run not in elsewhere
    }
    events: dict[int, list[FindingEvent]] = defaultdict(list)
    for event in store.findings.events() if unseen else ():
        events[event.finding].append(event)
    due = (_reminder(finding, events[finding.id], period, now) for finding in unseen.values())
    return tuple(sorted(filter(None, due), key=lambda reminder: reminder.since))


def _reminder(finding: Finding, events: Sequence[FindingEvent], period: timedelta, now: datetime) -> Reminder | None:
    """Return the reminder of an open finding if the reminder is due, else None."""
    news = [event.at for event in events if event.kind in NEWS and not event.by]
    reminded = [event.at for event in events if event.kind is EventKind.REMINDED]
    since = max(news, default=now)
    last = max([since, *reminded])
    is_seen = any(event.at > since for event in events if event.by or event.kind in BY_PEOPLE)
    if is_seen or now - last < period - min(EARLY, period / 2):
        return None
    return Reminder(finding, since, (now - since + EARLY) // timedelta(days=1))


def quiet_targets(store: Store, night: NightRow, targets: Collection[str], now: datetime) -> dict[str, datetime]:
    """Return the targets that have received nothing for a week, each with the start of that week.

    A target without any message counts from the first night.
    """
    newest = store.messages.newest(night.suite)
    first = min((other.started for other in store.nights.list() if other.suite == night.suite), default=now)
    begun = {target: newest.get(target, first) for target in targets}
    return {target: max(since, now - WEEK) for target, since in begun.items() if now - since >= WEEK - EARLY}


def digest(store: Store, night: NightRow, since: datetime) -> Digest:
    """Return what happened in the nights of a suite since a moment."""
    nights = tuple(
        other
        for other in store.nights.list()
        if other.suite == night.suite and since < other.started <= night.started and other.id <= night.id
    )
    measured = {other.run: other.host for other in nights if other.run is not None}
    excluded = {exclusion.run for exclusion in store.exclusions.of_runs(measured) if not exclusion.case}
    runs: dict[str, int] = {}
    for run, host in measured.items():
        if run not in excluded:
            runs.setdefault(host, run)
    judgements = tuple(judgement for run in runs.values() for judgement in store.verdicts.of_run(run))
    is_open = [finding for finding in store.findings.active() if finding.state is FindingState.OPEN]
    return Digest(since, nights, tuple(sorted(runs.values())), judgements, len(is_open))
