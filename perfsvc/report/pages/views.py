"""What each page shows, computed from the site: lists in their order, and links to pages that exist."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any

import numpy as np
from markupsafe import Markup

from perfsvc import units
from perfsvc.model import (
    ENERGY,
    TIME,
    Cause,
    Environment,
    EventKind,
    Finding,
    FindingState,
    Judgement,
    MovedSeries,
    RunRow,
    RunState,
    Series,
    StageRow,
    StageState,
    Status,
    Verdict,
)
from perfsvc.report import wording
from perfsvc.report.pages.site import (
    DevicePanel,
    FindingView,
    LevelRange,
    RunPoint,
    SeriesView,
    Site,
    series_page,
)
from perfsvc.report.pages.spark import spark

FRESH = frozenset({EventKind.RAISED, EventKind.JOINED, EventKind.STEP, EventKind.REOPENED})
"""Events of a finding that a user has to see."""

OVER = frozenset({FindingState.ACCEPTED, FindingState.RESOLVED})
"""States of findings that need no attention any more."""

COUNTED = (
    Verdict.REGRESSION,
    Verdict.BROKEN,
    Verdict.MISSING,
    Verdict.IMPROVEMENT,
    Cause.ENVIRONMENT,
    Cause.NOISE,
    Verdict.INCONCLUSIVE,
    Verdict.NEW,
    Verdict.UNCHANGED,
)
"""The outcomes by importance."""

MOVED = (Verdict.REGRESSION, Verdict.MISSING, Verdict.IMPROVEMENT, Cause.ENVIRONMENT, Cause.NOISE)
BAD = frozenset({Status.WRONG, Status.FAILED})

MOST_SAMPLES = 200
"""How many samples of a replica are drawn."""


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A level of a series as text, and its change from the level before."""

    first: int
    last: int
    level: str
    change: str


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """A change of the environment: its letter in the chart, its first run, and what changed."""

    letter: str
    run: int
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Views:
    """Answers what the templates ask about the site."""

    site: Site

    @cached_property
    def by_series(self) -> Mapping[Series, SeriesView]:
        """Each series through the runs."""
        return {view.series: view for view in self.site.series}

    @cached_property
    def findings_of(self) -> Mapping[Series, Sequence[tuple[Finding, MovedSeries]]]:
        """The findings of each series, newest first, and how the series moved."""
        found: dict[Series, list[tuple[Finding, MovedSeries]]] = defaultdict(list)
        for shown in self.site.findings:
            for moved in shown.finding.moved:
                found[moved.series].append((shown.finding, moved))
        return found

    @cached_property
    def series_of_case(self) -> Mapping[str, Sequence[SeriesView]]:
        """All series of each case."""
        found: dict[str, list[SeriesView]] = defaultdict(list)
        for view in self.site.series:
            found[view.series.case.id].append(view)
        return found

    def link(self, series: Series) -> str:
        """Return the path of a series' page, or nothing if no shown run measured the series."""
        return series_page(series) if series in self.by_series else ""

    # --- tonight ---------------------------------------------------------------------------------------------------

    @property
    def fresh(self) -> list[FindingView]:
        """The findings that tonight raised or reopened."""
        return [view for view in self.site.findings if view.news in FRESH and view.finding.state not in OVER]

    @property
    def standing(self) -> list[FindingView]:
        """The findings of earlier nights that still need attention."""
        fresh = {view.finding.id for view in self.fresh}
        return [view for view in self.site.findings if view.finding.state not in OVER and view.finding.id not in fresh]

    @property
    def resolved(self) -> list[FindingView]:
        """The findings that tonight resolved."""
        return [
            view
            for view in self.site.findings
            if view.news is EventKind.RESOLVED and view.finding.state is FindingState.RESOLVED
        ]

    @property
    def counts(self) -> list[tuple[wording.Outcome, str, int]]:
        """Each outcome with its noun and the number of series that have it tonight, the most important first."""
        found, nouns = wording.tally(self.site.verdicts), wording.OUTCOME_NOUNS
        return [(word, nouns[word][found[word] != 1], found[word]) for word in COUNTED]

    @property
    def moved(self) -> list[Judgement]:
        """What moved or went missing tonight, the worst first."""

        def weight(judgement: Judgement) -> tuple[int, float]:
            return MOVED.index(wording.outcome(judgement)), -abs((judgement.ratio or 1.0) - 1)

        moved = [judgement for judgement in self.site.verdicts if wording.outcome(judgement) in MOVED]
        return sorted(moved, key=weight)

    @property
    def failed(self) -> list[tuple[SeriesView, RunPoint]]:
        """The series without a correct result in tonight's run."""
        return [(view, point) for view, point in self._tonight if point.status in BAD]

    @property
    def failed_stages(self) -> list[StageRow]:
        """The stages of the night that failed."""
        return [stage for stage in self.site.stages if stage.state is StageState.FAILED]

    @property
    def skipped(self) -> int:
        """How many series a GPU cannot run."""
        return sum(point.status is Status.SKIPPED for _, point in self._tonight)

    @property
    def _tonight(self) -> Iterable[tuple[SeriesView, RunPoint]]:
        run = self.site.tonight.id if self.site.tonight else None
        newest = ((view, view.points[-1]) for view in self.site.series)
        return ((view, point) for view, point in newest if point.run == run and not point.excluded)

    @property
    def inconclusive(self) -> int:
        """How many series are inconclusive tonight."""
        return sum(judgement.verdict is Verdict.INCONCLUSIVE for judgement in self.site.verdicts)

    @property
    def headline(self) -> str:
        """The most important news in a few words."""
        if self.site.tonight is None:
            return "Nothing was measured yet"
        failed = len(self.failed) + len(self.failed_stages)
        parts = (
            (units.count(len(self.fresh), "new finding") if self.fresh else "Nothing new", True),
            (f"{units.count(len(self.standing), 'finding')} standing", self.standing and not self.fresh),
            (f"{failed} failed", failed),
            (f"{units.count(len(self.resolved), 'finding')} resolved", self.resolved),
        )
        return ", ".join(text for text, applies in parts if applies)

    def peak(self, device: DevicePanel) -> tuple[str, str, Markup]:
        """Return a GPU's measured peak tonight, its change from the usual peak, and its history."""
        best = [peak.best_bytes_per_s for peak in device.peaks]
        if not best:
            return "", "", Markup("")
        usual = sorted(best)[len(best) // 2]
        line = spark(best, label=f"its measured peak in {units.count(len(best), 'run')}")
        return units.rate(best[-1]), change(best[-1] / usual) if len(best) > 1 else "", line

    # --- series ----------------------------------------------------------------------------------------------------

    def spark(self, series: Series, since: int | None = None) -> Markup:
        """Return the sparkline of a series, with a vertical rule at its first run numbered ``since`` or above."""
        view = self.by_series.get(series)
        if view is None:
            return Markup("")
        rule = next((at for at, point in enumerate(view.points) if since is not None and point.run >= since), None)
        label = f"{wording.series_name(series)} in {units.count(len(view.points), 'run')}"
        return spark([None if point.excluded else point.level for point in view.points], rule, label=label)

    def levels(self, view: SeriesView) -> list[LevelRow]:
        """Return the levels of a series, newest first; none if it never had a correct result."""

        def row(old: LevelRange | None, new: LevelRange) -> LevelRow:
            changed = change(new.level / old.level) if old and old.level else ""
            return LevelRow(new.first, new.last, wording.level(new.level, view.series.metric), changed)

        return [row(old, new) for old, new in zip([None, *view.levels], view.levels, strict=False)][::-1]

    def environment_changes(self, view: SeriesView) -> list[EnvironmentChange]:
        """Return the changes of a series' environment, oldest first."""
        changes = [(old, new) for old, new in pairwise(view.points) if old.segment != new.segment]
        known = self.site.environments
        return [
            EnvironmentChange(_letter(index), new.run, differences(known[old.segment], known[new.segment]))
            for index, (old, new) in enumerate(changes)
        ]

    def data(self, view: SeriesView) -> dict[str, Any]:
        """Return what the charts of a series draw, as JSON values: columns by run, in the unit that is shown."""
        factor, unit = _scale(view)
        index = {point.run: at for at, point in enumerate(view.points)}
        runs = [self.site.runs[point.run] for point in view.points]
        texts = {at: text for at, point in enumerate(view.points) if (text := _event(point))}
        return {
            "metric": view.series.metric,
            "unit": unit,
            "runs": [run.id for run in runs],
            "started": [f"{run.provenance.started:%Y-%m-%d %H:%M:%S}" for run in runs],
            "commits": [commit(run) for run in runs],
            "dirty": [at for at, run in enumerate(runs) if run.provenance.dirty],
            "excluded": [at for at, point in enumerate(view.points) if point.excluded],
            "level": [_digits(point.level, factor) for point in view.points],
            "low": [_digits(point.low, factor) for point in view.points],
            "high": [_digits(point.high, factor) for point in view.points],
            "texts": texts,
            "failed": [at for at, point in enumerate(view.points) if point.status in BAD],
            "levels": [[index[level.first], index[level.last], _digits(level.level, factor)] for level in view.levels],
            "switches": [[index[change.run], change.letter] for change in self.environment_changes(view)],
            "findings": [
                [index[first], finding.id, moved.direction.value]
                for finding, moved in self.findings_of.get(view.series, ())
                if (first := moved.first_run or finding.first_run) in index
            ],
            "samples": {
                index[run]: [_column(thinned(times), factor) for times in replicas]
                for run, replicas in view.samples.items()
                if run in index
            },
        }


def change(ratio: float | None) -> str:
    """Return the change of a ratio, or a dash for None."""
    return wording.or_dash(ratio, units.percent)


def thinned(times: Sequence[float]) -> Sequence[float]:
    """Return at most ``MOST_SAMPLES`` of the times, evenly spaced."""
    step = -(-len(times) // MOST_SAMPLES)
    return times[:: step or 1]


def differences(old: Environment, new: Environment) -> tuple[str, ...]:
    """Return what differs between two environments: ``driver 575.57 → 580.95``."""
    parts = (
        ("driver", old.driver, new.driver),
        ("toolkit", old.toolkit, new.toolkit),
        ("power limit", f"{old.power_limit_w:g} W", f"{new.power_limit_w:g} W"),
    )
    return tuple(f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in parts if before != after)


def commit(run: RunRow) -> str:
    """Return the first nine digits of a run's commit, with ``+`` for uncommitted changes; nothing without a commit."""
    provenance = run.provenance
    return wording.commit_text(provenance.commit, dirty=provenance.dirty) if provenance.commit else ""


def run_facts(run: RunRow) -> list[tuple[str, str]]:
    """Return where a run comes from: label, commit, wall time, host, suite, cases, and how it ended early."""
    provenance = run.provenance
    wall_s = None if run.finished is None else (run.finished - provenance.started).total_seconds()
    facts = (
        ("label", provenance.label),
        ("commit", commit(run)),
        ("took", "" if wall_s is None or wall_s < 0 else wording.wall_time(wall_s)),
        ("host", provenance.host),
        ("suite", provenance.suite),
        ("cases", str(run.cases)),
        ("ended", "" if run.state is RunState.FINISHED else run.state.value),
    )
    return [(name, value) for name, value in facts if value]


def newest_level(view: SeriesView) -> str:
    """Return the newest level of a series, or its status if that is not ok."""
    point = view.points[-1]
    return wording.level(point.level, view.series.metric) if point.status is Status.OK else point.status.value


def has_failed(view: SeriesView) -> bool:
    """Return True if a run failed or got a wrong result."""
    return any(point.status in BAD for point in view.points)


def _event(point: RunPoint) -> str:
    """Return why a run is excluded, else the status and reason of one not ok, else the verdict that marks an event."""
    if point.excluded:
        return f"excluded: {point.excluded}"
    if point.status is not Status.OK:
        return f"{point.status.value}: {point.reason}" if point.reason else point.status.value
    return point.verdict.value if point.verdict else ""


def _scale(view: SeriesView) -> tuple[float, str]:
    """Return the factor and the unit in which the levels of a series are drawn.

    The unit has the largest prefix that leaves the usual level at 1 or above.
    """
    levels = [abs(point.level) for point in view.points if point.level]
    unit = {TIME: "s", ENERGY: "J"}.get(view.series.metric)
    if unit is None or not levels:
        return 1.0, unit or view.series.metric
    usual = median(levels)
    power = next((power for power in sorted(units.SMALL, reverse=True) if usual >= 10.0**power), min(units.SMALL))
    return 10.0**-power, f"{units.SMALL[power]}{unit}"


def _digits(number: float | None, factor: float) -> float | None:
    """Return a number in the unit of the chart to six digits, more than a chart resolves; None if it is not finite."""
    return float(f"{number * factor:.6g}") if number is not None and isfinite(number) else None


def _column(times: Sequence[float], factor: float) -> list[float]:
    """Return times in the unit of the chart, rounded to six digits of the longest time."""
    scaled = np.asarray(times) * factor
    decimals = 5 - int(np.floor(np.log10(scaled.max()))) if scaled.size and scaled.max() > 0 else 0
    column: list[float] = np.round(scaled, decimals).tolist()
    return column


def _letter(index: int) -> str:
    """Return A, B, … Z, then A2, B2 and so on."""
    round_, letter = divmod(index, 26)
    return chr(ord("A") + letter) + (str(round_ + 1) if round_ else "")
