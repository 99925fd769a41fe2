"""The series of the site, read from the store case by case, when a page asks for them."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import RLock
from typing import overload

from perfsvc.model import MAX_ERROR, TIME, Case, Series
from perfsvc.report.pages.site import RunPoint, SeriesView, SeriesViews, Site, benchmark_page, series_page
from perfsvc.report.pages.spark import MOST_VALUES
from perfsvc.service.dashboard.series import place, read_newest, read_series, reported_errors
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
            (measured,) = history
            found.append((series, RunPoint(run, measured.segment, measured.status, measured.reason)))
        return sorted(found, key=lambda item: place(item[0]))
