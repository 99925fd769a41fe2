"""The series of the site, read from the store case by case, when a page asks for them."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from threading import RLock
from typing import overload

from perfsvc.model import MAX_ERROR, Case, Judgement, Series, Verdict
from perfsvc.report.pages.site import (
    BENCHMARK_PAGES,
    RunPoint,
    SeriesView,
    SeriesViews,
    Site,
    benchmark_page,
    readable_part,
    series_page,
    slug,
)
from perfsvc.report.pages.spark import MOST_VALUES
from perfsvc.service.dashboard.series import place, read_newest, read_series
from perfsvc.store import Store

FEW = 20
"""Up to so many cases are read one by one; for more, it is faster to read what tonight's run measured."""


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
        self._read: dict[Case, tuple[SeriesView, ...]] = {}
        self._measured: set[Series] = set()
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> SeriesView: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SeriesView, ...]: ...

    def __getitem__(self, index: int | slice) -> SeriesView | tuple[SeriesView, ...]:
        """Return the view with this index; this reads all series."""
        return self._all[index]

    @cached_property
    def _all(self) -> tuple[SeriesView, ...]:
        views = self._views_of(None)
        of_cases: dict[Case, tuple[SeriesView, ...]] = dict.fromkeys(self._cases, ())
        for view in views:
            of_cases[view.series.case] = (*of_cases.get(view.series.case, ()), view)
        with self._lock:  # threads may hold the views of cases that were read before, which therefore stay
            self._read |= {case: read for case, read in of_cases.items() if case not in self._read}
        return views

    @cached_property
    def newest(self) -> SeriesViews:
        """The series as lists show them, which are read faster than all that their pages show."""
        findings = [view.finding for view in self._site.findings]
        rows = list(self._site.runs.values())[::-1]
        return SeriesViews(read_newest(self._store, rows, self._site.tonight, findings, MOST_VALUES))

    def _views_of(self, cases: Collection[Case] | None) -> tuple[SeriesView, ...]:
        rows = list(self._site.runs.values())[::-1]
        return read_series(self._store, rows, self._site.tonight, [view.finding for view in self._site.findings], cases)

    def read(self, series: Iterable[Series]) -> None:
        """Read the cases of some series together, before a page asks for one after the other."""
        with self._lock:
            cases = {one.case for one in series} - self._read.keys()
            if cases:
                views = self._views_of(cases)
                self._read |= dict.fromkeys(cases, ())
                for view in views:
                    self._read[view.series.case] += (view,)

    def get(self, series: Series) -> SeriesView | None:
        """Return the view of a series; None if no run on the site measured it."""
        self.read([series])
        return next((view for view in self._read[series.case] if view.series == series), None)

    def of_case(self, case: str) -> Sequence[SeriesView]:
        """Return the views of all series of a case, by the id of the case."""
        same_id = [one for one in self._cases if one.id == case]
        self.read(Series(one, "", "") for one in same_id)
        return sorted((view for one in same_id for view in self._read[one]), key=lambda view: place(view.series))

    def known(self, series: Iterable[Series]) -> set[Series]:
        """Return which of some series the site has."""
        asked = set(series)
        measured = asked & self._measured
        return measured | self._looked_up(asked - measured)

    def add_measured(self, verdicts: Iterable[Judgement]) -> None:
        """Remember the series with verdicts on runs of the site, so that ``known`` need not look them up."""
        measured = (row.series for row in verdicts if row.verdict is not Verdict.MISSING)
        with self._lock:
            self._measured |= {one for one in measured if one.metric != MAX_ERROR}

    def _looked_up(self, asked: set[Series]) -> set[Series]:
        """Return which of some series the site has, from the database."""
        many = sum(one.case not in self._read for one in asked) > FEW
        found = asked & self._of_tonight if many else set()
        errors = {one for one in asked if one.metric == MAX_ERROR}
        if errors:  # the site has them only if a finding or an event reports them
            reported = {moved.series for view in self._site.findings for moved in view.finding.moved}
            reported |= self._store.verdicts.events(list(self._site.runs), {one.case for one in errors}).keys()
            asked = asked - (errors - reported)
        self.read(asked - found)
        return found | {one for one in asked - found if self.get(one)}

    @cached_property
    def _of_tonight(self) -> set[Series]:
        return self._store.series.measured(self._site.tonight.id) if self._site.tonight else set()

    @staticmethod
    def _may_be_named(name: str, case: Case) -> bool:
        """Return whether the page of a series of a case may have this readable part, which begins with the case's."""
        beginning = slug(case.id)
        return not beginning or f"{name}-".startswith(f"{beginning}-")

    @cached_property
    def _cases(self) -> list[Case]:
        return self._store.series.stored_cases()

    def bad(self, run: int) -> Sequence[tuple[Series, RunPoint]]:
        """Return the series that a run measured without a correct result; excluded data is left out."""
        cases = self._store.series.unsuccessful(run)
        histories = self._store.series.histories([run], cases=cases) if cases else {}
        found = []
        for series, history in histories.items():
            if history.bad and not history.excluded:
                (measured,) = history
                found.append((series, RunPoint(run, measured.segment, measured.status, measured.reason)))
        return sorted(found, key=lambda item: place(item[0]))

    def of_benchmark_at(self, path: str) -> Sequence[SeriesView]:
        """Return the series of the benchmark whose page lies at a path; empty if there is none."""
        if not path.startswith(BENCHMARK_PAGES):
            return ()
        cases = [case for case in self._cases if benchmark_page(case.benchmark) == path]
        self.read(Series(case, "", "") for case in cases)
        return sorted((view for case in cases for view in self._read[case]), key=lambda view: place(view.series))

    def at(self, path: str) -> SeriesView | None:
        """Return the view of the series whose page lies at a path; None if there is none."""
        name = readable_part(path)
        if name is None:
            return None
        cases = [case for case in self._cases if self._may_be_named(name, case)]
        self.read(Series(case, "", "") for case in cases)
        views = (view for case in cases for view in self._read[case])
        return next((view for view in views if series_page(view.series) == path), None)
