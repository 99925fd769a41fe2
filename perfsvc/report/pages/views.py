"""What each page shows, computed from the site: lists in their order, and links to pages that exist."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain, islice
from math import isnan
from typing import Any

import numpy as np
from markupsafe import Markup, escape

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
from perfsvc.report.pages.details import drawn_samples, rounded
from perfsvc.report.pages.site import (
    DevicePanel,
    FindingView,
    LevelRange,
    RunPoint,
    RunPoints,
    SeriesView,
    Site,
    benchmark_page,
    series_page,
)
from perfsvc.report.pages.spark import runs_drawn, spark
from perfsvc.text import LONGEST_LABEL, LONGEST_PARAGRAPH, cut, shortened, visible

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


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A level of a series as text, and its change from the level before."""

    first: int
    last: int
    level: str
    change: str


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """A change of the environment: its letter in the chart, its first run, the run before, and what changed."""

    letter: str
    run: int
    before: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _RunTexts:
    """Some runs as the chart of a series names them; ``index`` and ``dirty`` have their places."""

    numbers: list[int]
    index: Mapping[int, int]
    started: list[str]
    commits: list[str]
    dirty: list[int]


@dataclass(frozen=True)
class Views:
    """Answers what the templates ask about the site."""

    site: Site

    @cached_property
    def findings_of(self) -> Mapping[Series, Sequence[tuple[Finding, MovedSeries]]]:
        """The findings that hold each series, newest first, each with its record of how the series moved."""
        findings: dict[Series, list[tuple[Finding, MovedSeries]]] = defaultdict(list)
        for view in self.site.findings:
            for moved in view.finding.moved:
                findings[moved.series].append((view.finding, moved))
        return findings

    def others(self, view: SeriesView) -> tuple[list[SeriesView], int]:
        """Return the other series of a case, series of the same metric first, and how many more the case has.

        At most ``MOST_OTHERS`` are returned: a host variant may have thousands of metrics, each with a page of its own.
        """
        metric = view.series.metric
        of_case = self.site.series.of_case(view.series.case.id)
        same_metric = (other for other in of_case if other.series.metric == metric)
        ordered = chain(same_metric, (other for other in of_case if other.series.metric != metric))
        shown = list(islice((other for other in ordered if other is not view), MOST_OTHERS))
        return shown, len(of_case) - 1 - len(shown)

    def link(self, series: Series) -> str:
        """Return the path of a series' page; an empty text if no run on the site measured the series."""
        return self.site.series.page(series)

    def benchmark_link(self, series: Series) -> str:
        """Return the path of the page of a benchmark that has this time on it; an empty text for other series."""
        return benchmark_page(series.case.benchmark) if series.metric == TIME and self.link(series) else ""

    def links(self, judgements: Iterable[Judgement], root: str) -> dict[Series, str]:
        """Return the paths of the pages of judged series, for a page in a folder from which ``root`` leads to them."""
        judged = {judgement.series for judgement in judgements}
        return {series: root + series_page(series) for series in judged & self.site.series.known}

    def has_comparison(self, run: RunRow) -> bool:
        """Return True if the site has a page that compares a run with its baseline."""
        return run.id in self.site.compared

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

    @cached_property
    def counts(self) -> list[tuple[wording.Outcome, str, int]]:
        """Each outcome with its noun and the number of tonight's series with this outcome, in order of importance."""
        numbers, nouns = wording.tally(self.site.verdicts), wording.OUTCOME_NOUNS
        return [(word, nouns[word][numbers[word] != 1], numbers[word]) for word in COUNTED]  # [0] singular, [1] plural

    @cached_property
    def moved(self) -> list[Judgement]:
        """The verdicts on series that moved or went missing tonight, the worst first."""

        def rank(judgement: Judgement) -> tuple[int, float]:
            return MOVED.index(wording.outcome(judgement)), -abs((judgement.ratio or 1.0) - 1)

        moved = [judgement for judgement in self.site.verdicts if wording.outcome(judgement) in MOVED]
        return sorted(moved, key=rank)

    @property
    def failed(self) -> list[tuple[Series, RunPoint]]:
        """The series that failed or were wrong in tonight's run."""
        return [(series, point) for series, point in self.site.bad if point.status in BAD]

    @property
    def failed_stages(self) -> list[StageRow]:
        """The stages that failed in this night, or late in the night before."""
        return [stage for stage in self.site.stages if stage.state is StageState.FAILED] + list(self.site.late)

    @property
    def skipped(self) -> int:
        """The number of series that tonight's run skipped because their device cannot run them."""
        return sum(point.status is Status.SKIPPED for _, point in self.site.bad)

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
        line = spark(best, label=f"its measured peak in {runs_drawn(len(best))}")
        return units.rate(best[-1]), change(best[-1] / usual) if len(best) > 1 else "", line

    # --- the list of series ----------------------------------------------------------------------------------------

    def list_of_series(self) -> Markup:
        """Return all series as rows of a table, for the same reason as ``rows``; nothing without series."""
        cell = cache(lambda text: escape(cut(text, most=LONGEST_PARAGRAPH)))
        rows = []
        for view in self.site.series:
            series, judged = view.series, view.tonight
            outcome = wording.outcome(judged).value if judged else ""
            rows.append(
                _LISTED
                % (
                    self.link(series),
                    escape(short(wording.series_name(series))),
                    cell(series.device_model),
                    cell(series.device),
                    escape(newest_level(view)),
                    change(judged.ratio if judged else None),
                    f'<span class="verdict {outcome}">{outcome}</span>' if outcome else "",
                    self._spark_of(view),
                )
            )
        return Markup("\n  ".join(rows))  # noqa: S704 - escaped above

    # --- series ----------------------------------------------------------------------------------------------------

    def spark(self, series: Series, since: int | None = None) -> Markup:
        """Return the sparkline of a series, with a vertical line at its first run from number ``since`` on."""
        view = self.site.series.get(series)
        return self._spark_of(view, since) if view else Markup("")

    @staticmethod
    def _spark_of(view: SeriesView, since: int | None = None) -> Markup:
        at = int(np.searchsorted(view.points.runs, since)) if since else len(view.points)
        rule = at if at < len(view.points) else None
        label = f"{wording.series_name(view.series)} in {runs_drawn(len(view.points))}"
        shown = view.points.level.copy()
        shown[list(view.points.excluded)] = np.nan
        return spark(shown, rule, label=label)

    def levels(self, view: SeriesView) -> list[LevelRow]:
        """Return the levels of a series as rows of a table, newest first; an empty list without a correct result."""

        def row(old: LevelRange | None, new: LevelRange) -> LevelRow:
            changed = change(new.level / old.level) if old and old.level else ""
            return LevelRow(new.first, new.last, wording.level(new.level, view.series.metric), changed)

        return [row(old, new) for old, new in zip([None, *view.levels], view.levels, strict=False)][::-1]

    def rows(self, view: SeriesView, most: int) -> Markup:
        """Return the newest runs of a series as rows of a table, newest first.

        The rows are made here, because a template takes several times as long, and a site has a table for each series.
        """
        points, metric = view.points, view.series.metric
        first = max(len(points) - most, 0)
        columns = (points.runs, points.level, points.low, points.high, points.replicas)
        newest = zip(*(column[first:].tolist() for column in columns), strict=True)
        rows = []
        for at, (run, center, low, high, replicas) in enumerate(newest, first):
            level = wording.level(None if isnan(center) else center, metric)  # digits and a unit: nothing to escape
            known = not (isnan(center) or isnan(low) or isnan(high))
            spread = wording.spread(center, low, high) if known else ""
            kind, events = "", ""
            if at in points.excluded:
                kind, level = ' class="excluded"', f"<s>{level}</s>"
                events = f"excluded: {escape(cut(points.excluded[at], most=LONGEST_PARAGRAPH))} "
            if at in points.verdicts:
                events += f'<span class="verdict {points.verdicts[at]}">{points.verdicts[at]}</span> '
            if at in points.bad:
                status, reason = points.bad[at]
                events += escape(cut(f"{status.value}: {reason}"))
            rows.append(_ROW % (kind, self._run_cells(run), level, spread, replicas, events))
        return Markup("\n    ".join(rows[::-1]))  # noqa: S704 - escaped above

    @cached_property
    def _run_cells(self) -> Callable[[int], str]:
        """Returns the number, the start and the commit of a run as cells of a table."""

        def cells(number: int) -> str:
            run = self.site.runs[number]
            started = wording.moment(run.provenance.started)
            return str(_RUN.format(number, started[:10], started[10:], commit(run)))

        return lru_cache(maxsize=None)(cells)

    def places(self, view: SeriesView) -> Mapping[int, int]:
        """Return the index of each run of a series, by the run's number."""
        return self._of_runs(view.points.runs.tobytes()).index

    def environment_changes(self, view: SeriesView) -> list[EnvironmentChange]:
        """Return the changes of a series' environment, oldest first."""
        environments, segments = self.site.environments, view.points.segments
        changed = np.flatnonzero(segments[1:] != segments[:-1]).tolist()
        return [
            EnvironmentChange(
                _letter(number),
                int(view.points.runs[at + 1]),
                int(view.points.runs[at]),
                environments[int(segments[at])].changes_to(environments[int(segments[at + 1])]),
            )
            for number, at in enumerate(changed)
        ]

    def data(self, series: Series) -> Mapping[str, Any]:
        """Return the data of the charts of a series of the site as numbers, texts and arrays.

        A list such as ``level`` has an item for each run; ``dirty``, ``excluded`` and ``failed`` hold indices of runs.
        Levels and samples are in ``unit``. ``suffix`` is the unit if it is one of perfsvc's own, else empty: plotly.js
        would interpret markup in the name of a metric.
        """
        return self._data(series)

    @cached_property
    def _data(self) -> Callable[[Series], Mapping[str, Any]]:
        """Returns the data of a series; the pages of one case, which follow each other, share it."""
        return lru_cache(maxsize=16)(lambda series: self._data_of(self.site.series.of(series)))

    def _data_of(self, view: SeriesView) -> Mapping[str, Any]:
        factor, unit = _scale(view)
        points = view.points
        of_runs = self._of_runs(points.runs.tobytes())
        index = of_runs.index
        events = sorted({*points.bad, *points.verdicts, *points.excluded})
        level, low, high = rounded(np.stack([points.level, points.low, points.high]), factor)
        return {
            "metric": view.series.metric,
            "unit": unit,
            "suffix": unit if view.series.metric in {TIME, ENERGY} else "",
            "runs": of_runs.numbers,
            "started": of_runs.started,
            "commits": of_runs.commits,
            "dirty": of_runs.dirty,
            "excluded": sorted(points.excluded),
            "level": level,
            "low": low,
            "high": high,
            "texts": {at: text for at in events if (text := _event(points, at))},
            "failed": [at for at, (status, _) in sorted(points.bad.items()) if status in BAD],
            "levels": [
                [index[level.first], index[level.last], height]
                for level, height in zip(
                    view.levels, rounded(np.array([level.level for level in view.levels]), factor).tolist(), strict=True
                )
            ],
            "switches": [[index[change.run], change.letter] for change in self.environment_changes(view)],
            "findings": [
                [index[first], finding.id, moved.direction.value]
                for finding, moved in self.findings_of.get(view.series, ())
                if (first := moved.first_run or finding.first_run) is not None and first in index
            ],
            "samples": drawn_samples(
                {index[run]: replicas for run, replicas in view.samples.items() if run in index}, factor
            ),
        }

    @cached_property
    def _of_runs(self) -> Callable[[bytes], _RunTexts]:
        """Returns the texts of runs from the bytes of their numbers: the same runs measured most series."""

        def texts(numbers: bytes) -> _RunTexts:
            runs = np.frombuffer(numbers, np.int64).tolist()
            found = [self.site.runs[run] for run in runs]
            return _RunTexts(
                runs,
                {run: at for at, run in enumerate(runs)},
                [f"{run.provenance.started:%Y-%m-%d %H:%M:%S}" for run in found],
                [commit(run) for run in found],
                [at for at, run in enumerate(found) if run.provenance.dirty],
            )

        return lru_cache(maxsize=64)(texts)


_RUN = Markup('<td class="number">{}</td><td>{}<span class="wide">{}</span></td><td class="wide"><code>{}</code></td>')
_LISTED = (
    '<tr>\n    <th scope="row"><a href="%s">%s</a></th>\n'
    '    <td class="wide device-name" data-name="device">%s <small>%s</small></td>\n'
    '    <td class="number" data-name="newest">%s</td>\n'
    '    <td class="number" data-name="change">%s</td>\n'
    '    <td data-name="verdict">%s</td>\n'
    '    <td class="line">%s</td>\n  </tr>'
)
_ROW = (
    '<tr%s>%s<td class="number">%s</td><td class="number wide">%s</td><td class="number wide">%d</td>'
    '<td class="reason">%s</td></tr>'
)


def short(name: str) -> str:
    """Return a name that stands in a table, in a heading or beside a drawing: a long one has ``…`` for its middle."""
    return shortened(visible(name), 2 * LONGEST_LABEL)


def change(ratio: float | None) -> str:
    """Return a ratio as a change in per cent: ``+2.1 %`` for 1.021; a dash for None."""
    return wording.or_dash(ratio, units.percent)


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
    return any(status in BAD for status, _ in view.points.bad.values())


def _event(points: RunPoints, at: int) -> str:
    """Return the text of an event in the chart, by its index; an empty text if the run is no event.

    An event is an excluded run, a run whose status is not ok, or a run with a verdict that the chart marks.
    """
    if points.excluded.get(at):
        return f"excluded: {points.excluded[at]}"
    if at in points.bad:
        status, reason = points.bad[at]
        return f"{status.value}: {reason}" if reason else status.value
    return points.verdicts[at].value if at in points.verdicts else ""


def _scale(view: SeriesView) -> tuple[float, str]:
    """Return the factor and the unit in which the levels of a series are drawn.

    The unit has the largest prefix (ms, µs, ns) with which the median level is at least 1.
    """
    levels = np.abs(view.points.level)
    levels = levels[levels > 0]
    unit = {TIME: "s", ENERGY: "J"}.get(view.series.metric)
    if unit is None or not levels.size:
        return 1.0, unit or view.series.metric
    ordered = np.sort(levels)
    usual = float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
    power = next((power for power in sorted(units.SMALL, reverse=True) if usual >= 10.0**power), min(units.SMALL))
    return 10.0**-power, f"{units.SMALL[power]}{unit}"


def _letter(index: int) -> str:
    """Return the letter of the change with this index: A to Z, then A2 to Z2 and so on."""
    completed_alphabets, letter = divmod(index, 26)
    return chr(ord("A") + letter) + (str(completed_alphabets + 1) if completed_alphabets else "")
