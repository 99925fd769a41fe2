"""Find what is new in a night since people were last notified."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from perfsvc.model import (
    CacheState,
    Case,
    Cause,
    Direction,
    EventKind,
    ExpectedKind,
    Finding,
    FindingEvent,
    FindingState,
    Judgement,
    MovedSeries,
    Series,
)
from perfsvc.service.notify.weekly import Reminder
from perfsvc.store import NightRow, RunState, StageRow, StageState, Store
from perfsvc.store.messages import ABANDONED

HANDLED = frozenset({FindingState.ACCEPTED, FindingState.IGNORED})
"""The states of findings that a user has handled before anyone was notified."""

NOTIFY = "notify"
"""The stage that notifies people."""

FIRST = "lock"
"""The stage with which a night begins."""

KILLED = "the night was killed or stopped at this stage"
KILLED_AFTER = "the night was killed or stopped after this stage"
KILLED_BEFORE = "the night was killed or stopped before this stage"
REPEATED = "every night repeats this stage; if it is killed each time, see the log of the host"
"""The messages and the cure of the last stage of a night that never ended, or of the first if it has none."""

_OF_ALL_CASES = frozenset({EventKind.RAISED, EventKind.REOPENED})
"""The events that are about all cases of a finding."""

LARGER = 1.5
"""A change on a further device is news if it is more than so many times as large (of logarithms) as elsewhere."""

LATE = timedelta(hours=1)
"""A night reports what a watchdog found that long ago and did not report: it may have no target."""


@dataclass(frozen=True, slots=True)
class ExtendedFinding:
    """An active finding that got more cases or further steps, or of which a part is back.

    Attributes:
        text: the text of the event about more cases, or about the part that is back; empty without such an event.
        steps: the series that moved again, if any.
        evidence: how the steps are known; empty without steps.
        joined: the series that are new in the finding.
    """

    finding: Finding
    text: str
    steps: tuple[MovedSeries, ...] = ()
    evidence: str = ""
    joined: tuple[MovedSeries, ...] = ()


@dataclass(frozen=True, slots=True)
class News:
    """What is new in a night.

    Attributes:
        night: the night; None for the news of ``perfsvc watchdog``.
        raised: new findings.
        reopened: resolved findings that show again.
        stepped: active findings with series that moved again.
        extended: active findings with more cases.
        returned: findings about something missing of which a part is back.
        resolved: findings whose cases are all back.
        stages: failed stages that did not fail with the same message when people were last notified, also stages that
            failed in the night before after it had notified people, and the last stages of killed nights.
        reminders: findings that no person has done anything with for a long time.
        missing: by finding, the cases that are missing; nothing if the finding is about a GPU or a host.
        event: the newest event of ``perfsvc watchdog`` among the news; None without one.
        judgements: all verdicts of the night's run.
        known: the series that stand in findings of earlier nights and did nothing new, each with its finding.
    """

    night: NightRow | None
    raised: tuple[Finding, ...] = ()
    reopened: tuple[Finding, ...] = ()
    stepped: tuple[ExtendedFinding, ...] = ()
    extended: tuple[ExtendedFinding, ...] = ()
    returned: tuple[ExtendedFinding, ...] = ()
    resolved: tuple[Finding, ...] = ()
    stages: tuple[StageRow, ...] = ()
    reminders: tuple[Reminder, ...] = ()
    missing: Mapping[int, Collection[Case]] = field(default_factory=dict)
    event: int | None = None
    judgements: tuple[Judgement, ...] = ()
    known: Mapping[Series, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        findings = (self.raised, self.reopened, self.stepped, self.extended, self.returned, self.resolved)
        return any((*findings, self.reminders, self.stages))


def news_of(store: Store, number: int, about: Collection[str]) -> News:
    """Return what is new in a night, and in earlier nights that were killed before they notified anyone.

    Args:
        store: the database, with the night, its run, and the findings as the run left them.
        number: the night.
        about: what people want to be notified about: ``new``, ``resolved``, ``failed``.
    """
    night = store.nights.get(number)
    notified, pending = _earlier_nights(store, night)
    late = _of_watchdog(store, datetime.now(UTC) - LATE)
    news = _news(store, night, [*_events(store, [*pending, night]), *late], about)
    if "failed" in about:
        news = replace(news, stages=_newly_failed(night, notified, pending))
    runs = {other.run for other in [*pending, night] if other.run is not None}
    return replace(news, judgements=tuple(_verdicts(store, night)), known=_known(store, runs))


def hosts_news(store: Store, about: Collection[str]) -> News:
    """Return the news that ``perfsvc watchdog`` found, without news that a message has reported already.

    Args:
        store: the database, with the findings as the watchdog left them.
        about: what people want to be notified about: ``new``, ``resolved``.
    """
    return _news(store, None, _of_watchdog(store, datetime.now(UTC)), about)


def _news(store: Store, night: NightRow | None, events: Collection[FindingEvent], about: Collection[str]) -> News:
    """Return the news in the events of findings; a finding is reported once, by its most important event."""
    findings = {finding.id: finding for finding in store.findings.all()} if events else {}
    texts: dict[int, dict[EventKind, str]] = defaultdict(dict)
    for event in events:
        earlier = texts[event.finding].get(event.kind)
        texts[event.finding][event.kind] = f"{earlier}; {event.text}" if earlier else event.text
    runs = {event.run for event in events}
    changed: dict[EventKind, list[Finding]] = defaultdict(list)
    for number, of_finding in texts.items():
        if kind := _most_important(findings[number], of_finding, runs):
            changed[kind].append(findings[number])
    news = News(night, event=max((event.id for event in events if _is_of_watchdog(event)), default=None))
    if "new" in about:
        news = replace(
            news,
            raised=tuple(changed[EventKind.RAISED]),
            reopened=tuple(changed[EventKind.REOPENED]),
            stepped=tuple(_stepped(finding, texts[finding.id], runs) for finding in changed[EventKind.STEP]),
            extended=tuple(
                ExtendedFinding(finding, texts[finding.id][EventKind.JOINED], joined=_begun_in(finding, runs))
                for finding in changed[EventKind.JOINED]
            ),
        )
    if "resolved" in about:
        news = replace(
            news,
            returned=tuple(
                ExtendedFinding(finding, texts[finding.id][EventKind.RETURNED])
                for finding in changed[EventKind.RETURNED]
            ),
            resolved=tuple(changed[EventKind.RESOLVED]),
        )
    return news


def missing_cases(store: Store) -> dict[int, list[Case]]:
    """Return the cases that are missing, by the finding that reports them."""
    cases: dict[int, list[Case]] = defaultdict(list)
    for expected in store.expectations.of_host(None):
        if expected.finding is not None and expected.kind is ExpectedKind.CASE:
            benchmark, _, rest = expected.name.partition("/")
            variant, _, point = rest.removesuffix("]").partition("[")
            axes = (value.partition("=")[::2] for value in point.split(",") if value)
            cases[expected.finding].append(Case(benchmark, variant, tuple(axes)))
    return dict(cases)


# --- which nights people know of -------------------------------------------------------------------------------------


def _earlier_nights(store: Store, night: NightRow) -> tuple[list[NightRow], list[NightRow]]:
    """Return the earlier nights of the suite that notified people, newest first, and the pending nights, oldest first.

    A night is pending if it ended without notifying people and no later night has reported its news. Hosts that share a
    database may run nights at the same time, and each night reports only its own news. So a night is also pending if it
    was still running when later nights notified people, and was killed afterwards.
    """
    now = datetime.now(UTC)
    notified: list[NightRow] = []
    pending: list[NightRow] = []
    for earlier in store.nights.list():
        if earlier.id >= night.id or earlier.suite != night.suite:
            continue
        ended = earlier.finished or _abandoned_at(earlier, night)
        if _has_notified(store, earlier):
            notified.append(earlier)
        elif ended and (not notified or _was_running(earlier, notified, ended, now)):
            pending.insert(0, earlier)
    return notified, pending


def _abandoned_at(earlier: NightRow, night: NightRow) -> datetime | None:
    """Return when a night without an end counts as abandoned; None if it may still be running."""
    abandoned = earlier.started + ABANDONED
    return abandoned if abandoned < night.started else None


def _has_notified(store: Store, night: NightRow) -> bool:
    """Return whether a night got as far as notifying people, even if it had nothing new."""
    over = {stage.name for stage in night.stages if stage.state in {StageState.DONE, StageState.SKIPPED}}
    return NOTIFY in over or bool(store.messages.of_night(night.id))


def _was_running(night: NightRow, notified: Iterable[NightRow], ended: datetime, now: datetime) -> bool:
    """Return whether a night was still running each time that one of the ``notified`` nights notified people.

    The clock may have been set, so the times alone do not decide. Nights of one host do not overlap: return False if a
    night of the same host has notified people. Return False also if ``ended`` lies in the future.
    """
    return all(later.host != night.host and _notified_at(later) < ended <= now for later in notified)


def _notified_at(night: NightRow) -> datetime:
    """Return when a night began to notify people."""
    return next((stage.started for stage in night.stages if stage.name == NOTIFY), night.started)


# --- findings --------------------------------------------------------------------------------------------------------


def _events(store: Store, nights: Iterable[NightRow]) -> list[FindingEvent]:
    """Return the events of findings that nights and their runs caused, in this order."""
    events: list[FindingEvent] = []
    for night in nights:
        if night.run is not None:
            events += store.findings.events(run=night.run)
        events += store.findings.events(night=night.id)
    return events


def _of_watchdog(store: Store, before: datetime) -> list[FindingEvent]:
    """Return the events that ``perfsvc watchdog`` caused up to ``before``, except events that a message reported."""
    reported = store.messages.newest_event()
    about_absences = {finding.id for finding in store.findings.all() if finding.cause is Cause.MISSING}
    return [
        event
        for event in (store.findings.events() if about_absences else [])
        if event.id > reported and event.finding in about_absences and _is_of_watchdog(event) and event.at <= before
    ]


def _is_of_watchdog(event: FindingEvent) -> bool:
    return event.run is None and event.night is None and not event.by


def _most_important(finding: Finding, events: Collection[EventKind], runs: Collection[int | None]) -> EventKind | None:
    """Return the kind of event to report about a finding in its present state; None if there is nothing to report."""
    if finding.state in HANDLED:
        return None
    if finding.state is FindingState.RESOLVED:
        return EventKind.RESOLVED if EventKind.RESOLVED in events else None
    kinds = (EventKind.RAISED, EventKind.REOPENED, EventKind.STEP, EventKind.JOINED, EventKind.RETURNED)
    kind = next((kind for kind in kinds if kind in events), None)
    if kind in {EventKind.STEP, EventKind.JOINED} and _is_known_of_another_device(finding, runs):
        return None
    return kind


def _is_known_of_another_device(finding: Finding, runs: Collection[int | None]) -> bool:
    """Return whether each change that ``runs`` added to a finding had been seen on another device by an earlier run.

    Two hosts may measure a commit one after the other. The changes on the second host are then no news, unless a change
    is more than ``LARGER`` times as large (of logarithms) as on all other devices.
    """

    def change(moved: MovedSeries) -> tuple[Case, str, CacheState, int, Direction]:
        series = moved.series
        return series.case, series.metric, series.cache, moved.step, moved.direction

    def size(moved: MovedSeries) -> float:
        return abs(math.log(moved.ratio)) if moved.ratio else math.inf

    of_runs = [moved for moved in finding.moved if moved.first_run in runs]
    earlier: dict[tuple[Case, str, CacheState, int, Direction], float] = {}
    for moved in finding.moved:
        if moved.first_run not in runs:
            earlier[change(moved)] = max(size(moved), earlier.get(change(moved), 0.0))
    known = (size(moved) <= LARGER * earlier.get(change(moved), -1.0) + math.log(1.01) for moved in of_runs)
    return bool(of_runs) and all(known)


def _stepped(finding: Finding, events: Mapping[EventKind, str], runs: Collection[int | None]) -> ExtendedFinding:
    """Return a finding with the series that moved again or joined the finding in ``runs``, and a text about each."""
    begun = _begun_in(finding, runs)
    steps = tuple(moved for moved in begun if moved.step > 1)
    evidence = events.get(EventKind.STEP, "")
    for moved in steps:  # the message names the step and its commits elsewhere
        evidence = evidence.removeprefix(f"step {moved.step}, {moved.root_cause}: ")
    joined = tuple(moved for moved in begun if moved.step == 1)
    return ExtendedFinding(finding, events.get(EventKind.JOINED, ""), steps, evidence, joined)


def _begun_in(finding: Finding, runs: Collection[int | None]) -> tuple[MovedSeries, ...]:
    """Return the series and the steps that some runs brought into a finding."""
    return tuple(moved for moved in finding.moved if moved.first_run in runs)


def _known(store: Store, runs: Collection[int]) -> dict[Series, int]:
    """Return the series that active findings reported before ``runs``, each with the number of its finding."""
    about = {event.finding for run in runs for event in store.findings.events(run=run) if event.kind in _OF_ALL_CASES}
    active = store.findings.active()
    begun = {moved.series for finding in active for moved in _begun_in(finding, runs)}
    return {
        moved.series: finding.id
        for finding in active
        if finding.id not in about
        for moved in finding.standing
        if moved.series not in begun
    }


# --- failures --------------------------------------------------------------------------------------------------------


def _verdicts(store: Store, night: NightRow) -> list[Judgement]:
    return [] if night.run is None else store.verdicts.of_run(night.run)


def _newly_failed(night: NightRow, notified: Sequence[NightRow], pending: Iterable[NightRow]) -> tuple[StageRow, ...]:
    """Return the failed stages, except stages that failed with the same message when people were last notified.

    The last night that notified people is the newest such night of this host; without one, of any host. What failed in
    that night of this host after it had notified people is returned too (``late_failures``), and what failed in the
    ``pending`` nights, with the stages at which they were killed; of several equal failures of a host, only the newest
    counts.
    """
    of_tonight = {(night.host, stage.name, stage.message) for stage in _failed_stages(night)}
    failed_then = {
        key: in_night(stage, earlier)
        for earlier in pending
        if not _may_run(earlier, night)
        for stage in (*_failed_stages(earlier), *late_failures(earlier))
        if (key := (earlier.host, stage.name, stage.message)) not in of_tonight
    }
    of_host = [earlier for earlier in notified if earlier.host == night.host] or notified
    last = of_host[0] if of_host else None
    if last is None:
        return (*_failed_stages(night), *failed_then.values())
    known = {(stage.name, stage.message) for stage in _failed_stages(last)}
    failed = [stage for stage in _failed_stages(night) if (stage.name, stage.message) not in known]
    known_then = {
        (stage.name, stage.message)
        for before in of_host[1:2]
        for stage in (*_failed_stages(before), *late_failures(before))
    }
    late = late_failures(last) if last.host == night.host else ()
    failed += [in_night(stage, last) for stage in late if (stage.name, stage.message) not in known_then]
    known_to_host = {(last.host, *failure) for failure in known}
    return (*failed, *(stage for key, stage in failed_then.items() if key not in known_to_host))


def late_failures(night: NightRow) -> tuple[StageRow, ...]:
    """Return the stages that failed after a night had notified people, and its last stage if the night was killed.

    The stage at which the night was killed or stopped counts as failed, and so does the last stage of a night that was
    killed between two stages, and the first stage of a night that was killed before it. The night must be over.
    """
    notified_at = next((stage.number for stage in night.stages if stage.name == NOTIFY), math.inf)
    late = [stage for stage in _failed_stages(night) if stage.number > notified_at]
    if night.state in {RunState.RUNNING, RunState.INTERRUPTED}:
        if night.stages:
            last = night.stages[-1]
            message = KILLED if last.state is StageState.RUNNING else KILLED_AFTER
        else:
            last, message = StageRow(FIRST, 0, StageState.FAILED, night.started), KILLED_BEFORE
        late.append(replace(last, state=StageState.FAILED, message=message, cure=REPEATED))
    return tuple(late)


def _may_run(earlier: NightRow, night: NightRow) -> bool:
    """Return whether an earlier night may still be running on another host: a person may have resumed it."""
    begun = max((stage.started for stage in earlier.stages), default=earlier.started)
    return earlier.state is RunState.RUNNING and earlier.host != night.host and begun > night.started - ABANDONED


def in_night(stage: StageRow, night: NightRow) -> StageRow:
    """Return a failed stage of an earlier night, whose message names the night."""
    return replace(stage, message=f"{stage.message} (in night {night.id})")


def _failed_stages(night: NightRow) -> list[StageRow]:
    return [stage for stage in night.stages if stage.state is StageState.FAILED and stage.name != NOTIFY]
