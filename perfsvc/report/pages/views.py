"""What each page shows, computed from the site: lists in their order, and links to pages that exist."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, pairwise
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
from perfsvc.report.pages.benchmarks import times_by_benchmark
from perfsvc.report.pages.site import (
    DevicePanel,
    FindingView,
    LevelRange,
    RunPoint,
    SeriesView,
    Site,
    benchmark_page,
    series_page,
)
from perfsvc.report.pages.spark import spark

FRESH = frozenset({EventKind.RAISED, EventKind.JOINED, EventKind.STEP, EventKind.REOPENED, EventKind.RETURNED})
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

MOST_OTHERS = 30
"""How many other series of its case the page of a series links to."""
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
        """The view of each series."""
        return {view.series: view for view in self.site.series}

    @cached_property
    def findings_of(self) -> Mapping[Series, Sequence[tuple[Finding, MovedSeries]]]:
        """The findings that hold each series, newest first, each with its record of how the series moved."""
        findings: dict[Series, list[tuple[Finding, MovedSeries]]] = defaultdict(list)
        for view in self.site.findings:
            for moved in view.finding.moved:
                findings[moved.series].append((view.finding, moved))
        return findings

    @cached_property
    def series_of_case(self) -> Mapping[tuple[str, str | None], Sequence[SeriesView]]:
        """The series of each case, by the case's id and the metric; all series of the case under the metric None."""
        series: dict[tuple[str, str | None], list[SeriesView]] = defaultdict(list)
        for view in self.site.series:
            series[view.series.case.id, view.series.metric].append(view)
            series[view.series.case.id, None].append(view)
        return series

    @cached_property
    def times(self) -> Mapping[str, Sequence[SeriesView]]:
        """The times of each benchmark that has a page."""
        return times_by_benchmark(self.site.series)

    def others(self, view: SeriesView) -> tuple[list[SeriesView], int]:
        """Return the other series of a case, series of the same metric first, and how many more the case has.

        At most ``MOST_OTHERS`` are returned: a host variant may have thousands of metrics, each with a page of its own.
        """
        case, metric = view.series.case.id, view.series.metric
        of_case = self.series_of_case[case, None]
        other_metrics = (other for other in of_case if other.series.metric != metric)
        ordered = chain(self.series_of_case[case, metric], other_metrics)
        shown = list(islice((other for other in ordered if other is not view), MOST_OTHERS))
        return shown, len(of_case) - 1 - len(shown)

    def link(self, series: Series) -> str:
        """Return the path of a series' page; an empty text if no run on the site measured the series."""
        return series_page(series) if series in self.by_series else ""

    def benchmark_link(self, series: Series) -> str:
        """Return the path of the page of a series' benchmark; an empty text if the benchmark has none."""
        return benchmark_page(series.case.benchmark) if series.case.benchmark in self.times else ""

    def links(self, judgements: Iterable[Judgement], root: str) -> dict[Series, str]:
        """Return the paths of the pages of judged series, for a page in a folder from which ``root`` leads to them."""
        return {row.series: root + series_page(row.series) for row in judgements if row.series in self.by_series}

    def has_comparison(self, run: RunRow) -> bool:
        """Return True if the site has a page that compares a run with its baseline."""
        return any(sides.new.run == run.id for sides in self.site.comparisons)

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
        """Each outcome with its noun and the number of tonight's series with this outcome, in order of importance."""
        numbers, nouns = wording.tally(self.site.verdicts), wording.OUTCOME_NOUNS
        return [(word, nouns[word][numbers[word] != 1], numbers[word]) for word in COUNTED]  # [0] singular, [1] plural

    @property
    def moved(self) -> list[Judgement]:
        """The verdicts on series that moved or went missing tonight, the worst first."""

        def rank(judgement: Judgement) -> tuple[int, float]:
            return MOVED.index(wording.outcome(judgement)), -abs((judgement.ratio or 1.0) - 1)

        moved = [judgement for judgement in self.site.verdicts if wording.outcome(judgement) in MOVED]
        return sorted(moved, key=rank)

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
        """The number of series that tonight's run skipped because their GPU cannot run them."""
        return sum(point.status is Status.SKIPPED for _, point in self._tonight)

    @property
    def _tonight(self) -> Iterable[tuple[SeriesView, RunPoint]]:
        """The series that tonight's run measured, each with its point of that run; excluded points are ignored."""
        run = self.site.tonight.id if self.site.tonight else None
        newest = ((view, view.points[-1]) for view in self.site.series)
        return ((view, point) for view, point in newest if point.run == run and not point.excluded)

    @property
    def inconclusive(self) -> int:
        """The number of inconclusive verdicts tonight."""
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
        """Return a GPU's measured peak tonight, its change from the median peak, and a sparkline of all its peaks."""
        best = [peak.best_bytes_per_s for peak in device.peaks]
        if not best:
            return "", "", Markup("")
        usual = sorted(best)[len(best) // 2]
        line = spark(best, label=f"its measured peak in {units.count(len(best), 'run')}")
        return units.rate(best[-1]), change(best[-1] / usual) if len(best) > 1 else "", line

    # --- series ----------------------------------------------------------------------------------------------------

    def spark(self, series: Series, since: int | None = None) -> Markup:
        """Return the sparkline of a series, with a vertical line at its first run from number ``since`` on."""
        view = self.by_series.get(series)
        if view is None:
            return Markup("")
        rule = next((index for index, point in enumerate(view.points) if since and point.run >= since), None)
        label = f"{wording.series_name(series)} in {units.count(len(view.points), 'run')}"
        return spark([None if point.excluded else point.level for point in view.points], rule, label=label)

    def levels(self, view: SeriesView) -> list[LevelRow]:
        """Return the levels of a series as rows of a table, newest first; an empty list without a correct result."""

        def row(old: LevelRange | None, new: LevelRange) -> LevelRow:
            changed = change(new.level / old.level) if old and old.level else ""
            return LevelRow(new.first, new.last, wording.level(new.level, view.series.metric), changed)

        return [row(old, new) for old, new in zip([None, *view.levels], view.levels, strict=False)][::-1]

    def environment_changes(self, view: SeriesView) -> list[EnvironmentChange]:
        """Return the changes of a series' environment, oldest first."""
        changes = [(old, new) for old, new in pairwise(view.points) if old.segment != new.segment]
        environments = self.site.environments
        return [
            EnvironmentChange(_letter(index), new.run, environments[old.segment].changes_to(environments[new.segment]))
            for index, (old, new) in enumerate(changes)
        ]

    def data(self, view: SeriesView) -> dict[str, Any]:
        """Return the data of a series' charts as JSON values.

        A list such as ``level`` has an item for each run; ``dirty``, ``excluded`` and ``failed`` hold indices of runs.
        Levels and samples are in ``unit``.
        """
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
    """Return a ratio as a change in per cent: ``+2.1 %`` for 1.021; a dash for None."""
    return wording.or_dash(ratio, units.percent)


def thinned(times: Sequence[float]) -> Sequence[float]:
    """Return at most ``MOST_SAMPLES`` of the times, evenly spaced."""
    step = -(-len(times) // MOST_SAMPLES)
    return times[:: step or 1]


def commit(run: RunRow) -> str:
    """Return the first nine digits of a run's commit, with ``+`` for uncommitted changes; nothing without a commit."""
    provenance = run.provenance
    return wording.commit_text(provenance.commit, dirty=provenance.dirty) if provenance.commit else ""


def run_facts(run: RunRow) -> list[tuple[str, str]]:
    """Return the name and the value of each known fact about a run, such as its label, commit, wall time and host."""
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
    """Return the level of a series in its newest run as text; the status if that run has no correct result."""
    point = view.points[-1]
    return wording.level(point.level, view.series.metric) if point.status is Status.OK else point.status.value


def has_failed(view: SeriesView) -> bool:
    """Return True if the series failed or gave a wrong result in any run."""
    return any(point.status in BAD for point in view.points)


def _event(point: RunPoint) -> str:
    """Return the text of an event in the chart; an empty text if the run is no event.

    An event is an excluded run, a run whose status is not ok, or a run with a verdict that the chart marks.
    """
    if point.excluded:
        return f"excluded: {point.excluded}"
    if point.status is not Status.OK:
        return f"{point.status.value}: {point.reason}" if point.reason else point.status.value
    return point.verdict.value if point.verdict else ""


def _scale(view: SeriesView) -> tuple[float, str]:
    """Return the factor and the unit in which the levels of a series are drawn.

    The unit has the largest prefix (ms, µs, ns) with which the median level is at least 1.
    """
    levels = [abs(point.level) for point in view.points if point.level]
    unit = {TIME: "s", ENERGY: "J"}.get(view.series.metric)
    if unit is None or not levels:
        return 1.0, unit or view.series.metric
    usual = median(levels)
    power = next((power for power in sorted(units.SMALL, reverse=True) if usual >= 10.0**power), min(units.SMALL))
    return 10.0**-power, f"{units.SMALL[power]}{unit}"


def _digits(number: float | None, factor: float) -> float | None:
    """Return a number times the factor, rounded to six digits; None if it is None or not finite."""
    return float(f"{number * factor:.6g}") if number is not None and isfinite(number) else None


def _column(times: Sequence[float], factor: float) -> list[float]:
    """Return the times multiplied by the factor, rounded to the six leading digits of the longest time."""
    scaled = np.asarray(times) * factor
    decimals = 5 - int(np.floor(np.log10(scaled.max()))) if scaled.size and scaled.max() > 0 else 0
    column: list[float] = np.round(scaled, decimals).tolist()
    return column


def _letter(index: int) -> str:
    """Return the letter of the change with this index: A to Z, then A2 to Z2 and so on."""
    completed_alphabets, letter = divmod(index, 26)
    return chr(ord("A") + letter) + (str(completed_alphabets + 1) if completed_alphabets else "")
