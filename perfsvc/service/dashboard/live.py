"""The pages of the site, rendered one at a time from the store, for a server."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from threading import Lock

from perfsvc import judge
from perfsvc.model import TIME, Case, Finding, RunRow
from perfsvc.report.pages.render import BENCHMARKS, FINDINGS, FLEET, INDEX, SERIES, SitePages
from perfsvc.report.pages.site import SeriesView, SeriesViews, Site, benchmark_page, finding_page, series_page
from perfsvc.report.pages.spark import MOST_VALUES
from perfsvc.report.pages.views import OVER
from perfsvc.service.compare.compare import compare
from perfsvc.service.compare.side_by_side import against_baseline, side_by_side, thresholds_of, with_verdicts
from perfsvc.service.dashboard.build import LAST, PLOTLY, comparison, newest_results, of_tonight, outline
from perfsvc.service.dashboard.details import FindingDetailsReader, FindingPictures
from perfsvc.service.dashboard.fleet import gather_fleet
from perfsvc.service.dashboard.series import read_newest, read_series, series_with_pages
from perfsvc.service.dashboard.series_details import gather_details
from perfsvc.service.environment import since_baseline
from perfsvc.store import Store

OF_TWO_RUNS = re.compile(r"compare/(\d{1,18})-(\d{1,18})\.html")
"""The path of the page that compares two runs: ``compare/6-7.html`` judges run 7 against run 6."""
OF_ONE_RUN = re.compile(r"compare/(\d{1,18})\.html")
"""The path of the page that compares a run with its baseline."""


@dataclass(frozen=True)
class _State:
    """The site as the database was in one state, without series."""

    version: str
    site: Site
    rows: list[RunRow]
    findings: list[Finding]


class LivePages:
    """Renders any page of the site from the store. Threads may share an object.

    The pages are those of ``perfsvc dashboard build``, at the same paths. A page shows the database as it is when the
    page is asked for: what was read is kept only until the database changes.

    Args:
        store: the database; it stays open as long as pages are asked for.
        last: how many of the newest runs to show.
        threshold: the thresholds of the settings, which comparisons show.
        plotly: the path of plotly.js, relative to the root of the site.
        forms: whether the pages of findings have the place where the server puts the form of its actions.
    """

    def __init__(
        self,
        store: Store,
        *,
        last: int = LAST,
        threshold: judge.ThresholdOption = None,
        plotly: str = PLOTLY,
        forms: bool = False,
    ) -> None:
        self._store = store
        self._last = last
        self._threshold = threshold
        self._plotly = plotly
        self._forms = forms
        self._state: _State | None = None
        self._lock = Lock()

    def site(self) -> Site:
        """Return what the pages show of the database as it is now, without series."""
        return self._now().site

    def listed(self) -> Site:
        """Return the same with all series as lists show them: their newest points, and no levels."""
        return self._listed(self._now())

    def series(self, path: str) -> tuple[Site, SeriesView] | None:
        """Return the site and the view of the series whose page lies at a path; None if there is no such page."""
        state = self._now()
        series = next((one for one in state.site.series.known if series_page(one) == path), None)
        if series is None:
            return None
        site = self._with(state, {series.case})
        view = site.series.get(series)
        return (site, view) if view else None

    def _listed(self, state: _State) -> Site:
        newest = read_newest(self._store, state.rows, state.site.tonight, state.findings, MOST_VALUES)
        return replace(state.site, series=SeriesViews(newest, state.site.series.known))

    def _with(self, state: _State, cases: set[Case]) -> Site:
        """Return the site with all series of some cases."""
        views = read_series(self._store, state.rows, state.site.tonight, state.findings, cases) if cases else ()
        return replace(state.site, series=SeriesViews(views, state.site.series.known))

    def page(self, path: str) -> str | None:
        """Return a page; None if the site has no page at this path.

        Besides the pages of a built site there is ``compare/6-7.html`` for any two runs that can be compared, and
        ``compare/7.html`` for any run with verdicts, so that a link to it stays right.

        Args:
            path: relative to the root of the site, such as ``index.html``, ``series/….html`` or ``findings/3.html``.

        Raises:
            NotMeasuredError: the path of a comparison names a run that does not exist.
            UsageError: a path of two runs names runs that cannot be compared.
            DatabaseError: the database cannot be read.
        """
        state = self._now()
        two = OF_TWO_RUNS.fullmatch(path)
        return self._compare(state, int(two[1]), int(two[2])) if two else self._render(state, path)

    def compare(self, base: int, new: int) -> str:
        """Return the page that judges the run ``new`` against the run ``base``, for a folder below the site's root.

        Raises:
            NotMeasuredError: one of the runs does not exist.
            UsageError: the runs are the same, or cannot be compared.
            DatabaseError: the database cannot be read.
        """
        page = self.page(f"compare/{base}-{new}.html")
        assert page is not None  # noqa: S101 - for mypy: such a path has a page or raises
        return page

    def _now(self) -> _State:
        """Return the state of the site that fits the database."""
        version = self._store.database.state()
        with self._lock:
            if self._state is None or self._state.version != version:
                site = outline(self._store, self._store.runs.list(self._last), datetime.now(UTC))
                rows = list(site.runs.values())[::-1]
                findings = [view.finding for view in site.findings]
                known = SeriesViews((), series_with_pages(self._store, rows, findings))
                self._state = _State(version, replace(site, series=known), rows, findings)
            return self._state

    def _pages(self, site: Site) -> SitePages:
        return SitePages(
            site,
            self._plotly,
            FindingPictures(self._store, site).cases,
            FindingDetailsReader(self._store, site).of,
            lambda run: comparison(self._store, site, run, self._threshold),
            results=lambda views: newest_results(self._store, site, views),
            forms=self._forms,
        )

    def _render(self, state: _State, path: str) -> str | None:
        """Return a page that a built site has too; None if there is no such page."""
        site = state.site
        if path in {SERIES, BENCHMARKS}:
            site = self._listed(state)
        elif path == FLEET:
            site = replace(site, fleet=gather_fleet(self._store, state.rows))
        elif path in {INDEX, FINDINGS}:
            listed = [view for view in site.findings if path == FINDINGS or view.news or view.finding.state not in OVER]
            site = self._with(state, {view.finding.worst.series.case for view in listed if view.finding.worst})
            site = of_tonight(self._store, site) if path == INDEX else site
        elif one := OF_ONE_RUN.fullmatch(path):
            return self._judged(state, int(one[1]))
        elif path.startswith("benchmarks/"):
            return self._benchmark(state, path)
        elif path.startswith("series/"):
            return self._series(state, path)
        else:
            moved = (view.finding.moved for view in site.findings if path == finding_page(view.finding.id))
            site = self._with(state, {each.series.case for each in chain(*moved)})
        return self._pages(site).page(path)

    def _benchmark(self, state: _State, path: str) -> str | None:
        """Return the page of a benchmark; None if there is none."""
        times = {one.case for one in state.site.series.known if one.metric == TIME}
        site = self._with(state, {case for case in times if benchmark_page(case.benchmark) == path})
        return self._pages(site).benchmark(site.series) if len(site.series) else None

    def _series(self, state: _State, path: str) -> str | None:
        """Return the page of a series; None if there is none."""
        found = self.series(path)
        if found is None:
            return None
        site, view = found
        case = view.series.case
        of_case = site.series.of_case(case.id)
        details = gather_details(self._store, state.rows, of_case, site.environments, self._threshold, cases={case})
        return self._pages(replace(site, details=details)).series(view)

    def _judged(self, state: _State, run: int) -> str | None:
        """Return the page that compares a run with its baseline; None if the run has no verdicts, or is excluded."""
        site, pages = state.site, self._pages(state.site)
        if run in site.compared:
            return pages.comparison(comparison(self._store, site, run, self._threshold))
        row = self._store.runs.get(run)
        if not with_verdicts(self._store, [row]):
            return None
        before, after = (
            number if number and with_verdicts(self._store, [self._store.runs.get(number)]) else None
            for number in self._store.runs.neighbours(run, None)
        )
        return pages.comparison(against_baseline(self._store, row, (before, after), self._threshold))

    def _compare(self, state: _State, base: int, new: int) -> str:
        """Return the page of a comparison of two runs."""
        # The runs are numbers, so no revision is looked up in the folder.
        compared = compare(self._store, str(base), str(new), folder=Path(), threshold=self._threshold)
        sides = side_by_side(
            compared,
            thresholds_of(self._store, compared.judgements, self._threshold),
            environment=since_baseline(self._store, base, new, compared.judgements),
            neighbours=self._store.runs.neighbours(new, base),
        )
        return self._pages(state.site).comparison(sides)
