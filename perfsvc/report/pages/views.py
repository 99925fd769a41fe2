"""What each page shows, worked out of the site: lists in their order, links where there is a page to go to."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
from markupsafe import Markup

from perfsvc import units
from perfsvc.model import Environment, EventKind, Finding, FindingState, Judgement, MovedSeries, Series, Status, Verdict
from perfsvc.report.pages import words
from perfsvc.report.pages.site import (
    BoardShown,
    Chronicle,
    FindingShown,
    RunShown,
    Seen,
    Site,
    StageShown,
    Stretch,
)
from perfsvc.report.pages.spark import spark

FRESH = frozenset({EventKind.RAISED, EventKind.JOINED, EventKind.REOPENED})
"""What a run does to a finding that somebody has to hear of."""

OVER = frozenset({FindingState.ACCEPTED, FindingState.RESOLVED})
"""The states of findings that nobody needs to look at any more."""

COUNTED = (
    (Verdict.REGRESSION, "regressions"),
    (Verdict.BROKEN, "broken"),
    (Verdict.MISSING, "missing"),
    (Verdict.IMPROVEMENT, "improvements"),
    (Verdict.INCONCLUSIVE, "inconclusive"),
    (Verdict.NEW, "new"),
    (Verdict.UNCHANGED, "unchanged"),
)
"""The verdicts in the order of their weight, and what several are called."""

MOVED = (Verdict.REGRESSION, Verdict.MISSING, Verdict.IMPROVEMENT)
BAD = frozenset({Status.WRONG, Status.FAILED})


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of a series for people, with what its level changes the one before by."""

    first: int
    last: int
    level: str
    change: str


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of the environment: the letter that the chart knows it by, its first run, and what changed."""

    letter: str
    run: int
    told: tuple[str, ...]


@dataclass(frozen=True)
class Views:
    """The site with everything found that one page needs of another."""

    site: Site

    @cached_property
    def chronicles(self) -> Mapping[Series, Chronicle]:
        """The series that have a page."""
        return {one.series: one for one in self.site.chronicles}

    @cached_property
    def findings_of(self) -> Mapping[Series, Sequence[tuple[Finding, MovedSeries]]]:
        """The findings that tell of each series, newest first."""
        found: dict[Series, list[tuple[Finding, MovedSeries]]] = defaultdict(list)
        for shown in self.site.findings:
            for moved in shown.finding.moved:
                found[moved.series].append((shown.finding, moved))
        return found

    @cached_property
    def of_case(self) -> Mapping[str, Sequence[Chronicle]]:
        """All series of each case."""
        found: dict[str, list[Chronicle]] = defaultdict(list)
        for one in self.site.chronicles:
            found[one.series.case.id].append(one)
        return found

    def link(self, series: Series) -> str:
        """The path of a series' page; empty where it has none, since none of the runs shown measured it."""
        return words.page_of(series) if series in self.chronicles else ""

    # --- tonight ---------------------------------------------------------------------------------------------------

    @property
    def fresh(self) -> list[FindingShown]:
        """The findings that tonight raised, or opened again."""
        return [one for one in self.site.findings if one.news in FRESH and one.finding.state not in OVER]

    @property
    def standing(self) -> list[FindingShown]:
        """Those of earlier nights that somebody has to look at still."""
        fresh = {one.finding.id for one in self.fresh}
        return [one for one in self.site.findings if one.finding.state not in OVER and one.finding.id not in fresh]

    @property
    def resolved(self) -> list[FindingShown]:
        """Those that tonight resolved."""
        return [
            one
            for one in self.site.findings
            if one.news is EventKind.RESOLVED and one.finding.state is FindingState.RESOLVED
        ]

    @property
    def counts(self) -> list[tuple[Verdict, str, int]]:
        """How many series have each verdict tonight."""
        found = Counter(judgement.verdict for judgement in self.site.verdicts)
        return [
            (verdict, verdict.value if found[verdict] == 1 else plural, found[verdict]) for verdict, plural in COUNTED
        ]

    @property
    def moved(self) -> list[Judgement]:
        """What moved tonight or went missing, the worst first."""

        def weight(one: Judgement) -> tuple[int, float]:
            return MOVED.index(one.verdict), -abs((one.ratio or 1.0) - 1)

        return sorted((one for one in self.site.verdicts if one.verdict in MOVED), key=weight)

    @property
    def failed(self) -> list[tuple[Chronicle, Seen]]:
        """The cases that tonight's run has no right result of."""
        return [(one, seen) for one, seen in self._tonight if seen.status in BAD]

    @property
    def failed_stages(self) -> list[StageShown]:
        """The stages of the night that failed."""
        return [stage for stage in self.site.stages if stage.state == "failed"]

    @property
    def skipped(self) -> int:
        """How many cases a GPU cannot run."""
        return sum(seen.status is Status.SKIPPED for _, seen in self._tonight)

    @property
    def _tonight(self) -> Iterable[tuple[Chronicle, Seen]]:
        run = self.site.tonight.run if self.site.tonight else None
        return ((one, one.seen[-1]) for one in self.site.chronicles if one.seen[-1].run == run)

    @property
    def unsure(self) -> int:
        """Of how many series nobody can tell whether they moved."""
        return sum(number for verdict, _, number in self.counts if verdict is Verdict.INCONCLUSIVE)

    @property
    def headline(self) -> str:
        """The first thing to know in the morning, in a few words."""
        if self.site.tonight is None:
            return "Nothing was measured yet"
        failed = len(self.failed) + len(self.failed_stages)
        told = (
            (units.count(len(self.fresh), "new finding") if self.fresh else "Nothing new", True),
            (f"{units.count(len(self.standing), 'finding')} standing", self.standing and not self.fresh),
            (f"{failed} failed", failed),
            (f"{units.count(len(self.resolved), 'finding')} resolved", self.resolved),
        )
        return ", ".join(words for words, is_so in told if is_so)

    def peak(self, board: BoardShown) -> tuple[str, str, Markup]:
        """A GPU's measured peak tonight, what it changes the usual one by, and its history."""
        best = [peak.best_bytes_per_s for peak in board.peaks]
        if not best:
            return "", "", Markup("")
        usual = sorted(best)[len(best) // 2]
        line = spark(best, label=f"its measured peak in {units.count(len(best), 'run')}")
        return units.rate(best[-1]), words.change(best[-1] / usual) if len(best) > 1 else "", line

    # --- series ----------------------------------------------------------------------------------------------------

    def spark(self, series: Series, since: int | None = None) -> Markup:
        """A series as a line, with a rule at the first run from ``since`` on."""
        chronicle = self.chronicles.get(series)
        if chronicle is None:
            return Markup("")
        place = next((at for at, one in enumerate(chronicle.seen) if since is not None and one.run >= since), None)
        label = f"{words.named(series)} in {units.count(len(chronicle.seen), 'run')}"
        return spark([one.level for one in chronicle.seen], place, label=label)

    def levels(self, chronicle: Chronicle) -> list[Level]:
        """The levels of a series, newest first; none where it never had a right result."""

        def level(old: Stretch | None, new: Stretch) -> Level:
            changed = words.change(new.level / old.level) if old and old.level else ""
            return Level(new.first, new.last, words.value(new.level, chronicle.series.metric), changed)

        parts = chronicle.stretches
        return [level(old, new) for old, new in zip([None, *parts], parts, strict=False)][::-1]

    def switches(self, chronicle: Chronicle) -> list[Switch]:
        """The changes of a series' environment, oldest first."""
        found = [(old, new) for old, new in pairwise(chronicle.seen) if old.segment != new.segment]
        known = self.site.environments
        return [
            Switch(_letter(place), new.run, differences(known[old.segment], known[new.segment]))
            for place, (old, new) in enumerate(found)
        ]

    def data(self, chronicle: Chronicle) -> dict[str, Any]:
        """What the charts of a series draw, as JSON knows it: columns by night, in the unit that they are shown in."""
        factor, unit = words.scale(chronicle)
        place = {one.run: at for at, one in enumerate(chronicle.seen)}
        runs = [self.site.runs[one.run] for one in chronicle.seen]
        drawn = {name: [_digits(getattr(one, name), factor) for one in chronicle.seen] for name in _ENDS}
        return {
            "metric": chronicle.series.metric,
            "unit": unit,
            "runs": [run.run for run in runs],
            "started": [f"{run.started:%Y-%m-%d %H:%M:%S}" for run in runs],
            "commits": [words.commit(run) for run in runs],
            "dirty": [at for at, run in enumerate(runs) if run.dirty],
            **drawn,
            "told": {at: _told(one) for at, one in enumerate(chronicle.seen) if _told(one)},
            "failed": [at for at, one in enumerate(chronicle.seen) if one.status in BAD],
            "levels": [
                [place[part.first], place[part.last], _digits(part.level, factor)] for part in chronicle.stretches
            ],
            "switches": [[place[one.run], one.letter] for one in self.switches(chronicle)],
            "findings": self._marks(chronicle, place),
            "samples": {
                place[run]: [_column(thinned(times), factor) for times in replicas]
                for run, replicas in chronicle.samples.items()
                if run in place
            },
        }

    def _marks(self, chronicle: Chronicle, place: Mapping[int, int]) -> list[list[Any]]:
        """The nights that raised a finding of a series, with its number and where it moved."""
        told = self.findings_of.get(chronicle.series, ())
        return [[place[one.first_run], one.id, moved.direction.value] for one, moved in told if one.first_run in place]


_ENDS = ("level", "low", "high")

MOST_SAMPLES = 200
"""The samples of a replica that are drawn at most."""


def thinned(times: Sequence[float]) -> Sequence[float]:
    """At most ``MOST_SAMPLES``, evenly taken from all."""
    step = -(-len(times) // MOST_SAMPLES)
    return times[:: step or 1]


def differences(old: Environment, new: Environment) -> tuple[str, ...]:
    """What two environments differ in: ``driver 575.57 → 580.95``."""
    parts = (
        ("driver", old.driver, new.driver),
        ("toolkit", old.toolkit, new.toolkit),
        ("power limit", f"{old.power_limit_w:g} W", f"{new.power_limit_w:g} W"),
    )
    return tuple(f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in parts if before != after)


def run_facts(run: RunShown) -> list[tuple[str, str]]:
    """Where a run comes from, in the order in which a person asks for it."""
    wall = None if run.finished is None else (run.finished - run.started).total_seconds()
    facts = (
        ("label", run.label),
        ("commit", words.commit(run)),
        ("took", "" if wall is None or wall < 0 else words.took(wall)),
        ("host", run.host),
        ("suite", run.suite),
        ("cases", str(run.cases)),
        ("ended", "" if run.state == "finished" else run.state),
    )
    return [(name, told) for name, told in facts if told]


def tonight_of(chronicle: Chronicle) -> str:
    """The newest level of a series as a list shows it."""
    seen = chronicle.seen[-1]
    return words.value(seen.level, chronicle.series.metric) if seen.status is Status.OK else seen.status.value


def has_failed(chronicle: Chronicle) -> bool:
    """Whether any run got a series wrong."""
    return any(one.status in BAD for one in chronicle.seen)


def _told(seen: Seen) -> str:
    """What a night tells beside its level."""
    if seen.status is not Status.OK:
        return f"{seen.status.value}: {seen.reason}" if seen.reason else seen.status.value
    return seen.verdict.value if seen.verdict else ""


def _digits(number: float | None, factor: float) -> float | None:
    """Six digits, which is more than a chart resolves; nothing of what has no end, for which JSON has no word."""
    return float(f"{number * factor:.6g}") if number is not None and isfinite(number) else None


def _column(times: Sequence[float], factor: float) -> list[float]:
    """``_digits`` of times, which lie close together, all at once."""
    scaled = np.asarray(times) * factor
    decimals = 5 - int(np.floor(np.log10(scaled.max()))) if scaled.size and scaled.max() > 0 else 0
    column: list[float] = np.round(scaled, decimals).tolist()
    return column


def _letter(place: int) -> str:
    """A, B, … Z, then A2, B2 and on."""
    turn, at = divmod(place, 26)
    return chr(ord("A") + at) + (str(turn + 1) if turn else "")
