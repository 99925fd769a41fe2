"""What is new of a night, since people were told last."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perfsvc.model import EventKind, Finding, FindingState, Judgement, Verdict
from perfsvc.store import NightRow, StageRow, StageState, Store

QUIET = frozenset({FindingState.ACCEPTED, FindingState.IGNORED})
"""The states of findings that a person has dealt with before anybody was told."""

TOLD_BY = "notify"
"""The stage that tells people."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A finding that stands, and what it tells of since."""

    finding: Finding
    said: str


@dataclass(frozen=True, slots=True)
class News:
    """What is new of a night.

    Attributes:
        night: of which.
        raised: the findings that are new.
        reopened: those that were resolved and show again.
        joined: those that stand and have more cases.
        resolved: those whose cases are all back.
        broken: the series without a right result that had one when people were told last.
        stages: what failed of the night itself and did not fail like that then.
    """

    night: NightRow
    raised: tuple[Finding, ...] = ()
    reopened: tuple[Finding, ...] = ()
    joined: tuple[Joined, ...] = ()
    resolved: tuple[Finding, ...] = ()
    broken: tuple[Judgement, ...] = ()
    stages: tuple[StageRow, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return any((self.raised, self.reopened, self.joined, self.resolved, self.broken, self.stages))


def news_of(store: Store, number: int, about: Collection[str]) -> News:
    """What is new of a night, also of nights before it that were killed before they told anybody.

    Args:
        store: holds the night, its run, and the findings as that run left them.
        number: of the night.
        about: what people want to hear of: ``new``, ``resolved``, ``failed``.
    """
    untold, last = _nights(store, number)
    night = untold[0]
    befell = _befell(store, [one.run for one in reversed(untold) if one.run is not None])
    known = {one.id: one for one in store.findings(every=True)} if befell else {}
    of_kind = {
        kind: [known[number] for number in befell if _news(known[number], befell[number]) is kind]
        for kind in (EventKind.RAISED, EventKind.REOPENED, EventKind.JOINED, EventKind.RESOLVED)
    }
    new, failed = "new" in about, "failed" in about
    return News(
        night,
        raised=tuple(of_kind[EventKind.RAISED]) if new else (),
        reopened=tuple(of_kind[EventKind.REOPENED]) if new else (),
        joined=tuple(Joined(one, befell[one.id][EventKind.JOINED]) for one in of_kind[EventKind.JOINED]) if new else (),
        resolved=tuple(of_kind[EventKind.RESOLVED]) if "resolved" in about else (),
        broken=tuple(_broken(store, night, last)) if failed else (),
        stages=tuple(_failed(night, last)) if failed else (),
    )


def _nights(store: Store, number: int) -> tuple[list[NightRow], NightRow | None]:
    """A night and those before it that told nobody, newest first; and the newest one that did."""
    tonight = store.night(number)
    untold = [tonight]
    for night in store.nights_held():
        if night.id < number and night.suite == tonight.suite:
            if _told(store, night):
                return untold, night
            untold.append(night)
    return untold, None


def _told(store: Store, night: NightRow) -> bool:
    """Whether a night came as far as telling people, had it anything to tell or not."""
    over = {stage.name for stage in night.stages if stage.state in {StageState.DONE, StageState.SKIPPED}}
    return TOLD_BY in over or store.message(night.id) is not None


def _befell(store: Store, runs: Iterable[int]) -> dict[int, dict[EventKind, str]]:
    """What runs did to each finding, and what is said of that."""
    befell: dict[int, dict[EventKind, str]] = {}
    for run in runs:
        for event in store.finding_events(run=run):
            befell.setdefault(event.finding, {})[event.kind] = event.said
    return befell


def _news(finding: Finding, befell: Collection[EventKind]) -> EventKind | None:
    """What there is to tell of a finding, of all that befell it: the state that it is in counts most."""
    if finding.state in QUIET:
        return None
    if finding.state is FindingState.RESOLVED:
        return EventKind.RESOLVED if EventKind.RESOLVED in befell else None
    kinds = (EventKind.RAISED, EventKind.REOPENED, EventKind.JOINED)
    return next((kind for kind in kinds if kind in befell), None)


def _broken(store: Store, night: NightRow, last: NightRow | None) -> list[Judgement]:
    """The series that have no right result tonight, and had one when people were told last."""
    before = {one.series for one in _without_result(store, last)}
    return [one for one in _without_result(store, night) if one.series not in before]


def _without_result(store: Store, night: NightRow | None) -> list[Judgement]:
    if night is None or night.run is None:
        return []
    return [one for one in store.verdicts(night.run) if one.verdict is Verdict.BROKEN]


def _failed(night: NightRow, last: NightRow | None) -> list[StageRow]:
    """The stages that failed tonight, but for those that failed in the same words when people were told last."""
    before = {(stage.name, stage.said) for stage in _failures(last)}
    return [stage for stage in _failures(night) if (stage.name, stage.said) not in before]


def _failures(night: NightRow | None) -> list[StageRow]:
    stages = night.stages if night else ()
    return [stage for stage in stages if stage.state is StageState.FAILED and stage.name != TOLD_BY]
