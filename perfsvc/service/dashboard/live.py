"""The pages of the site, rendered one at a time from the store, for a server."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock, RLock
from typing import overload

from perfsvc import judge
from perfsvc.model import MAX_ERROR, TIME, Case, Series
from perfsvc.report.pages.render import FLEET, INDEX, SERIES, SitePages
from perfsvc.report.pages.site import RunPoint, SeriesView, SeriesViews, Site, benchmark_page, finding_page, series_page
from perfsvc.report.pages.spark import MOST_VALUES
from perfsvc.report.pages.views import OVER
from perfsvc.service.compare.compare import compare
from perfsvc.service.compare.side_by_side import against_baseline, side_by_side, thresholds_of, with_verdicts
from perfsvc.service.dashboard.build import LAST, PLOTLY, comparison, newest_results, of_tonight, outline
from perfsvc.service.dashboard.details import FindingDetailsReader, FindingPictures
from perfsvc.service.dashboard.fleet import gather_fleet
from perfsvc.service.dashboard.series import place, read_newest, read_series, reported_errors
from perfsvc.service.dashboard.series_details import gather_details
from perfsvc.service.environment import since_baseline
from perfsvc.store import Store


class StoredSeries(SeriesViews):
    """The series of a site as the database was in one state. Threads may share an object.

    Args:
        store: the database.
        site: the runs and the findings in this state.
    """

    def __init__(self, store: Store, site: Site) -> None:
        super().__init__()
        self._store = store
        self._site = site
        self._rows = list(site.runs.values())[::-1]
        self._findings = [view.finding for view in site.findings]
        self._read: dict[Case, tuple[SeriesView, ...]] = {}
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._measured)

    @overload
    def __getitem__(self, index: int) -> SeriesView: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SeriesView, ...]: ...

    def __getitem__(self, index: int | slice) -> SeriesView | tuple[SeriesView, ...]:
        """Return the view with this index; this reads all series."""
        return self._all[index]

    @cached_property
    def _all(self) -> tuple[SeriesView, ...]:
        return self._views_of(self._measured)

    @cached_property
    def _measured(self) -> frozenset[Series]:
        """Every series that the site has; one of errors only if a finding or an event reports it."""
        runs = [row.id for row in self._rows]
        errors = reported_errors(self._store, runs, self._findings)
        return frozenset(one for one in self._store.series.measured(runs) if one.metric != MAX_ERROR or one in errors)

    @cached_property
    def newest(self) -> SeriesViews:
        """The series as lists show them, which are read faster than all that their pages show."""
        return SeriesViews(read_newest(self._store, self._rows, self._site.tonight, self._findings, MOST_VALUES))

    def read(self, series: Iterable[Series]) -> None:
        """Read the cases of some series together, before a page asks for one after the other."""
        with self._lock:
            if cases := {one.case for one in series} - self._read.keys():
                self._read |= dict.fromkeys(cases, ())
                for view in read_series(self._store, self._rows, self._site.tonight, self._findings, cases):
                    self._read[view.series.case] += (view,)

    def _views_of(self, series: Iterable[Series]) -> tuple[SeriesView, ...]:
        """Return the views of all series of the cases of some series, in order."""
        cases = {one.case for one in series}
        self.read(Series(case, "", "") for case in cases)
        return tuple(sorted((view for case in cases for view in self._read[case]), key=lambda view: place(view.series)))

    def get(self, series: Series) -> SeriesView | None:
        """Return the view of a series; None if no run on the site measured it."""
        return next((view for view in self._views_of([series]) if view.series == series), None)

    def of_case(self, case: str) -> Sequence[SeriesView]:
        """Return the views of all series of a case, by the id of the case."""
        return self._views_of(one for one in self._measured if one.case.id == case)

    def of_benchmark_at(self, path: str) -> Sequence[SeriesView]:
        """Return the series of the benchmark whose page lies at a path; empty if there is none, or it has no time."""
        return self._views_of(
            one for one in self._measured if one.metric == TIME and benchmark_page(one.case.benchmark) == path
        )

    def at(self, path: str) -> SeriesView | None:
        """Return the view of the series whose page lies at a path; None if there is none."""
        return next((self.get(one) for one in self._measured if series_page(one) == path), None)

    def known(self, series: Iterable[Series]) -> set[Series]:
        """Return which of some series the site has."""
        return set(series) & self._measured

    def bad(self, run: int) -> Sequence[tuple[Series, RunPoint]]:
        """Return the series that a run measured without a correct result; excluded data is left out."""
        found = []
        for series, history in self._store.series.unsuccessful(run).items():
            found.append((series, RunPoint(run, int(history.segments[0]), *history.bad[0])))
        return sorted(found, key=lambda item: place(item[0]))


OF_TWO_RUNS = re.compile(r"compare/(\d{1,18})-(\d{1,18})\.html")
"""The path of the page that compares two runs: ``compare/6-7.html`` judges run 7 against run 6."""
OF_ONE_RUN = re.compile(r"compare/(\d{1,18})\.html")
"""The path of the page that compares a run with its baseline."""


@dataclass
class _State:
    """The site as the database was in one state."""

    version: str
    pages: SitePages
    series: StoredSeries


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
        """Return what the pages show of the database as it is now."""
        return self._now().pages.site

    def listed(self) -> Site:
        """Return the same with all series as lists show them: their newest points, and no levels."""
        return self._listed(self._now())

    @staticmethod
    def _listed(state: _State) -> Site:
        return replace(state.pages.site, series=state.series.newest)

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
                known = self._state.pages.site.runs if self._state else {}
                site = outline(self._store, self._store.runs.list(self._last, known), datetime.now(UTC))
                series = StoredSeries(self._store, site)
                self._state = _State(version, self._pages(replace(site, series=series)), series)
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
        if path == INDEX:
            to_see = (view for view in state.pages.site.findings if view.news or view.finding.state not in OVER)
            state.series.read(view.finding.worst.series for view in to_see if view.finding.worst)
            return self._pages(of_tonight(self._store, state.pages.site)).list(INDEX)
        if one := OF_ONE_RUN.fullmatch(path):
            return self._judged(state, int(one[1]))
        for shown in state.pages.site.findings:
            if path == finding_page(shown.finding.id):
                state.series.read(moved.series for moved in shown.finding.moved)
        if path == SERIES:
            return self._pages(self._listed(state)).list(SERIES)
        if path == FLEET:
            site = state.pages.site
            fleet = gather_fleet(self._store, list(site.runs.values())[::-1])
            return self._pages(replace(site, fleet=fleet)).list(FLEET)
        if of_benchmark := state.series.of_benchmark_at(path):
            return state.pages.benchmark(of_benchmark)
        view = state.series.at(path)
        return state.pages.page(path) if view is None else self._series(state, view)

    def _series(self, state: _State, view: SeriesView) -> str:
        """Return the page of a series; the details are read of its case alone."""
        site, case = state.pages.site, view.series.case
        rows = list(site.runs.values())[::-1]
        of_case = state.series.of_case(case.id)
        details = gather_details(self._store, rows, of_case, site.environments, self._threshold, cases={case})
        return self._pages(replace(site, details=details)).series(view)

    def _judged(self, state: _State, run: int) -> str | None:
        """Return the page that compares a run with its baseline; None if the run has no verdicts, or is excluded."""
        site = state.pages.site
        if run in site.compared:
            return state.pages.comparison(comparison(self._store, site, run, self._threshold))
        row = self._store.runs.get(run)
        if not with_verdicts(self._store, [row]):
            return None
        before, after = (
            number if number and with_verdicts(self._store, [self._store.runs.get(number)]) else None
            for number in self._store.runs.neighbours(run, None)
        )
        return state.pages.comparison(against_baseline(self._store, row, (before, after), self._threshold))

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
        return state.pages.comparison(sides)
