"""What is new of a night, since people were told last."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from perfsvc.model import EventKind, Finding, FindingState, Judgement, Series, Verdict
from perfsvc.store import NightRow, StageRow, StageState, Store
from perfsvc.store.messages import ABANDONED

QUIET = frozenset({FindingState.ACCEPTED, FindingState.IGNORED})
"""The states of findings that a person has dealt with before anybody was told."""

TOLD_BY = "notify"
"""The stage that tells people."""

FAR = 30
"""How many nights that told people are asked when a case last had a right result."""


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
    night = store.nights.get(number)
    told, untold = _before(store, night)
    befell = _befell(store, [one.run for one in (*untold, night) if one.run is not None])
    known = {one.id: one for one in store.findings.all()} if befell else {}
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
        broken=tuple(_broken(store, night, told)) if failed else (),
        stages=tuple(_failed(night, told)) if failed else (),
    )


def _before(store: Store, tonight: NightRow) -> tuple[list[NightRow], list[NightRow]]:
    """The nights of a suite before this one that told people, newest first; and those still to tell of, oldest first.

    Hosts that share a database may have their nights at once, and each tells of its own. What was still under way
    when another one told people is still to be told, if it was killed since.
    """
    now = datetime.now(UTC)
    told: list[NightRow] = []
    untold: list[NightRow] = []
    for night in store.nights.list():
        if night.id >= tonight.id or night.suite != tonight.suite:
            continue
        over_at = _over_at(night, tonight)
        if _told(store, night):
            told.append(night)
        elif over_at and (not told or _was_under_way(night, told, over_at, now)):
            untold.insert(0, night)
    return told, untold


def _was_under_way(night: NightRow, told: Iterable[NightRow], over_at: datetime, now: datetime) -> bool:
    """Whether a night was still under way whenever later ones told people.

    On its own host none was, whatever a clock that was set since says; and an end in the future is such a clock's.
    """
    return all(one.host != night.host and _told_at(one) < over_at <= now for one in told)


def _told_at(night: NightRow) -> datetime:
    """When a night set out to tell people."""
    return next((stage.started for stage in night.stages if stage.name == TOLD_BY), night.started)


def _over_at(night: NightRow, tonight: NightRow) -> datetime | None:
    """When a night ended, or when nobody was at it any more; None where it is under way."""
    abandoned = night.started + ABANDONED
    return night.finished or (abandoned if abandoned < tonight.started else None)


def _told(store: Store, night: NightRow) -> bool:
    """Whether a night came as far as telling people, had it anything to tell or not."""
    over = {stage.name for stage in night.stages if stage.state in {StageState.DONE, StageState.SKIPPED}}
    return TOLD_BY in over or store.messages.get(night.id) is not None


def _befell(store: Store, runs: Iterable[int]) -> dict[int, dict[EventKind, str]]:
    """What runs did to each finding, and what is said of that."""
    befell: dict[int, dict[EventKind, str]] = {}
    for run in runs:
        for event in store.findings.events(run=run):
            befell.setdefault(event.finding, {})[event.kind] = event.text
    return befell


def _news(finding: Finding, befell: Collection[EventKind]) -> EventKind | None:
    """What there is to tell of a finding, of all that befell it: the state that it is in counts most."""
    if finding.state in QUIET:
        return None
    if finding.state is FindingState.RESOLVED:
        return EventKind.RESOLVED if EventKind.RESOLVED in befell else None
    kinds = (EventKind.RAISED, EventKind.REOPENED, EventKind.JOINED)
    return next((kind for kind in kinds if kind in befell), None)


def _broken(store: Store, night: NightRow, told: Iterable[NightRow]) -> list[Judgement]:
    """The series that have no right result tonight, and had one when people were told of them last."""
    broken = {one.series: one for one in _verdicts(store, night) if one.verdict is Verdict.BROKEN}
    known = _known_broken(store, broken.keys(), told) if broken else set()
    return [one for series, one in broken.items() if series not in known]


def _known_broken(store: Store, wanted: Collection[Series], told: Iterable[NightRow]) -> set[Series]:
    """The series that had no right result in the last night that told people and measured them.

    That is not always the night before: that one may have come to no run, or been another host's.
    """
    left, known = set(wanted), set()
    measured = (night for night in told if night.run is not None)
    for night, _ in zip(measured, range(FAR), strict=False):
        seen = {one.series: one.verdict for one in _verdicts(store, night) if one.verdict is not Verdict.MISSING}
        known |= {series for series in left if seen.get(series) is Verdict.BROKEN}
        left -= seen.keys()
        if not left:
            break
    return known


def _verdicts(store: Store, night: NightRow) -> list[Judgement]:
    return [] if night.run is None else store.verdicts.of_run(night.run)


def _failed(night: NightRow, told: Sequence[NightRow]) -> list[StageRow]:
    """The stages that failed tonight, but for those that failed in the same words when people were told last.

    That is by this host, if it ever did. What failed there after people were told is news as well.
    """
    mine = [one for one in told if one.host == night.host] or told
    last = mine[0] if mine else None
    before = set(map(_words, _failures(last)))
    tonight = [stage for stage in _failures(night) if _words(stage) not in before]
    if last is None:
        return tonight
    known = {_words(stage) for one in mine[1:2] for stage in _failures(one)}
    late = [stage for stage in _after(last) if _words(stage) not in known]
    return [*tonight, *(replace(stage, message=f"{stage.message} (in night {last.id})") for stage in late)]


def _words(stage: StageRow) -> tuple[str, str]:
    return stage.name, stage.message


def _failures(night: NightRow | None) -> list[StageRow]:
    stages = night.stages if night else ()
    return [stage for stage in stages if stage.state is StageState.FAILED and stage.name != TOLD_BY]


def _after(night: NightRow) -> list[StageRow]:
    """The stages that failed when people had been told."""
    place = max((stage.number for stage in night.stages if stage.name == TOLD_BY), default=None)
    return [stage for stage in _failures(night) if place is not None and stage.number > place]
