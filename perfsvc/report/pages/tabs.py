"""The tabs of a series' page: the other metrics of the same case, device and cache state over the same runs."""

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from perfsvc import units
from perfsvc.model import ENERGY, MAX_ERROR, TIME, CacheState, Case, Difference, Exclusion, Series
from perfsvc.report import peaks, wording
from perfsvc.report.pages.details import RunQuantities, rounded
from perfsvc.report.pages.site import SeriesView, series_page
from perfsvc.report.pages.spark import runs_drawn, spark
from perfsvc.report.pages.views import EnvironmentChange, Views
from perfsvc.report.rows import value_change
from perfsvc.text import LONGEST_LABEL, cut, shortened

MOST_NAMED = 12
"""A case with more named metrics has no tabs for them: its page links to the pages of these metrics."""

PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,40}")

MOST_DIFFERENCES = 20
"""How many differences of two full environments the page of a series shows."""


@dataclass(frozen=True, slots=True)
class Tab:
    """A metric of a case over the runs of its main series.

    Attributes:
        key: what the address of the page holds (``#tab=energy``).
        name: what the tab shows.
        newest: the newest known value as text; empty without one.
        line: the values as a sparkline.
        page: the path of the page of the metric's own series; empty if the metric has none.
        chart: the data of the chart; empty for the main series, whose data the page has already.
    """

    key: str
    name: str
    newest: str
    line: Markup
    page: str
    chart: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A metric that is computed for the tabs: how its values are read, written and drawn."""

    key: str
    name: str
    values: Callable[[RunQuantities], NDArray[np.float64]]
    text: Callable[[float, str], str]
    """Takes a value and the name of the peak that the case comes nearest to."""
    unit: Callable[[float], tuple[float, str]]
    """Takes the largest value; returns the factor and the unit in which values are drawn."""


def _rate_unit(largest: float) -> tuple[float, str]:
    power = next((power for power in sorted(units.LARGE, reverse=True) if largest >= 10.0**power), 0)
    return 10.0**-power, f"{units.LARGE[power]}B/s"


def _unscaled(unit: str) -> Callable[[float], tuple[float, str]]:
    return lambda _: (1.0, unit)


_QUANTITIES = (
    _Quantity("error", "error", lambda of: of.error, lambda value, _: units.error(value), _unscaled("")),
    _Quantity("registers", "registers", lambda of: of.registers, lambda value, _: str(int(value)), _unscaled("")),
    _Quantity("spills", "spills", lambda of: of.spilled_bytes, lambda value, _: units.size(int(value)), _unscaled("B")),
    _Quantity(
        "peak",
        "share of peak",
        lambda of: of.peak_share,
        lambda value, peak: peaks.share(peak, value),
        lambda _: (100.0, "%"),
    ),
    _Quantity("bandwidth", "bandwidth", lambda of: of.bandwidth, lambda value, _: units.rate(value), _rate_unit),
)
"""In the order of the tabs, after the time and the energy."""


@dataclass(frozen=True)
class SeriesTabs:
    """Answers what the template of a series' page asks beyond the history of the series."""

    views: Views

    def _group(self, view: SeriesView) -> list[SeriesView]:
        """Return the series of a case on a device in a cache state: the first is the main series, with tabs."""

        def same(series: Series) -> tuple[Case, str, CacheState]:
            return series.case, series.device, series.cache

        of_case = self.views.site.series.of_case(view.series.case.id)
        return [other for other in of_case if same(other.series) == same(view.series)]

    def main(self, view: SeriesView) -> SeriesView:
        """Return the series whose page has a tab for this series: that of the time, if the case has one."""
        return self._group(view)[0]

    def link(self, view: SeriesView) -> str:
        """Return the path of the page with the tabs, and the tab of this series if there is one."""
        main, *others = self._group(view)
        metric = view.series.metric
        if metric == MAX_ERROR:
            known = self.views.site.details.quantities(main.series)
            has_tab = known is not None and not np.isnan(known.error).all()
        else:
            has_tab = metric == ENERGY or self._shows_named(others)
        return f"{series_page(main.series)}{f'#tab={_key(metric)}' if has_tab else ''}"

    @staticmethod
    def _shows_named(others: Iterable[SeriesView]) -> bool:
        """Return True if the page of a main series has tabs for the named metrics among the other series."""
        return sum(other.series.metric not in {TIME, ENERGY, MAX_ERROR} for other in others) <= MOST_NAMED

    def tabs(self, view: SeriesView) -> list[Tab]:
        """Return the tabs of a main series, its own first; a metric that no run has is left out."""
        group = self._group(view)
        others = {other.series.metric: other for other in group if other is not view}
        named = [metric for metric in others if metric not in {TIME, ENERGY, MAX_ERROR}]
        shown = [ENERGY, *(named if self._shows_named(others.values()) else [])]
        of_series = [self._of_series(view, others[metric]) for metric in shown if metric in others]
        energy = [tab for tab in of_series if tab.key == "energy"]
        quantities = [
            tab
            for quantity in _QUANTITIES
            if (tab := self._of_quantity(view, quantity, others.get(MAX_ERROR) if quantity.key == "error" else None))
        ]
        return [self._own(view), *energy, *quantities, *(tab for tab in of_series if tab.key != "energy")]

    def _own(self, view: SeriesView) -> Tab:
        metric = view.series.metric
        known = view.points.level[~np.isnan(view.points.level)]
        text = wording.level(float(known[-1]), metric) if known.size else ""
        line = self.views.spark(view.series)
        return Tab(_key(metric), _name(metric), text, line, series_page(view.series), {})

    def _of_series(self, main: SeriesView, view: SeriesView) -> Tab:
        """Return the tab of a metric that has a series of its own."""
        drawn = self.views.data(view.series)
        at = _places(view.points.runs, main.points.runs)
        known = np.flatnonzero(at >= 0)
        columns = {name: np.full(len(main.points), np.nan) for name in ("level", "low", "high")}
        for name, column in columns.items():
            column[at[known]] = drawn[name][known]
        place = at.tolist()
        chart = {
            **columns,
            "unit": drawn["unit"],
            "suffix": drawn["suffix"],
            "judges": True,
            "texts": {place[old]: text for old, text in drawn["texts"].items() if place[old] >= 0},
            "levels": [
                [place[first], place[last], level]
                for first, last, level in drawn["levels"]
                if place[first] >= 0 and place[last] >= 0
            ],
            "findings": [[place[first], *rest] for first, *rest in drawn["findings"] if place[first] >= 0],
        }
        own = self._own(view)
        return Tab(own.key, own.name, own.newest, own.line, own.page, chart)

    def _of_quantity(self, main: SeriesView, quantity: _Quantity, own: SeriesView | None) -> Tab | None:
        """Return the tab of a computed metric; None if no run of the series has it.

        Args:
            main: the series whose runs the tab shows.
            quantity: the metric.
            own: the series of this metric; None if it has none.
        """
        of_runs = self.views.site.details.quantities(main.series)
        if of_runs is None:
            return None
        values = quantity.values(of_runs)
        known = np.flatnonzero(~np.isnan(values))
        if not known.size:
            return None
        factor, unit = quantity.unit(float(values[known].max()))
        newest = int(known[-1])
        chart = {
            "level": rounded(values, factor),
            "low": np.full(len(values), np.nan),
            "high": np.full(len(values), np.nan),
            "unit": unit,
            "suffix": unit,
            "judges": quantity.key == "error",
            "texts": {},
            "levels": [],
            "findings": [],
        }
        judged = values.copy()
        judged[list(main.points.excluded)] = np.nan
        label = f"{quantity.name} in {runs_drawn(len(values))}"
        page = series_page(own.series) if own else ""
        return Tab(
            quantity.key,
            quantity.name,
            quantity.text(float(values[newest]), of_runs.peak[newest]),
            spark(judged, label=label),
            page,
            chart,
        )

    # --- the data of the page's scripts ------------------------------------------------------------------------------

    def data(self, view: SeriesView, tabs: Sequence[Tab]) -> dict[str, Any]:
        """Return the data of the page's scripts: that of the chart, the tabs, and what compares two nights."""
        drawn = self.views.data(view.series)
        place = self.views.places(view)
        return {
            **drawn,
            "judges": True,
            "tabs": [{"key": tab.key, "name": shortened(tab.name, LONGEST_LABEL), **tab.chart} for tab in tabs],
            "case": cut(shlex.quote(view.series.case.id)),
            "pages": [place[run] for run in sorted(self.views.site.compared) if run in place],
            "judged": [
                [
                    place[nights.base],
                    place[nights.new],
                    nights.verdict,
                    wording.change_and_interval(nights.ratio, nights.low, nights.high),
                    nights.reason,
                ]
                for nights in self.views.site.details.compared.get(view.series, ())
                if nights.base in place and nights.new in place
            ],
        }

    # --- exclusions and environments ---------------------------------------------------------------------------------

    def exclusions(self, view: SeriesView) -> list[Exclusion]:
        """Return who excluded the runs of a series from judging, when and why, the newest run first."""
        found = []
        for at, reason in sorted(view.points.excluded.items(), reverse=True):
            of_run = self.views.site.runs[int(view.points.runs[at])].excluded
            of_case = [each for each in of_run if not each.case or each.reason == reason]
            found += [each for each in of_case if each.case in {"", view.series.case.id}] or of_case[:1]
        return found

    def differences(self, view: SeriesView, change: EnvironmentChange) -> list[str]:
        """Return a line for each part in which the full environments around a change differ for this device."""
        known = self.views.site.details.differences.get((change.before, change.run))
        concerned = [each for each in known.differences if _concerns(each, view)] if known else []
        lines = [f"{each.name} {value_change(each)}" for each in concerned[:MOST_DIFFERENCES]]
        more = len(concerned) - len(lines)
        command = f"perfsvc runs environment {change.before} {change.run}"
        return [*lines, f"and {more} more: {command}"] if more else lines

    def environment(self, view: SeriesView) -> list[tuple[str, str]]:
        """Return the parts of the full environment of a series' newest run by name; empty if it is not stored."""
        full = self.views.site.details.environments.get(view.points[-1].run)
        return sorted({**full.common, **full.devices.get(view.series.device, {})}.items()) if full else []


def _concerns(difference: Difference, view: SeriesView) -> bool:
    return not difference.devices or view.series.device in difference.devices


def _places(some: NDArray[np.int64], runs: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the index in ``runs``, which are in ascending order, of each of some runs; -1 for a run that is not."""
    at = np.searchsorted(runs, some).clip(max=len(runs) - 1)
    return np.where(runs[at] == some, at, -1)


def _key(metric: str) -> str:
    """Return what names a metric in the address of a page: no named metric has the key of a computed one."""
    known = {TIME: "time", ENERGY: "energy", MAX_ERROR: "error"}
    if metric in known:
        return known[metric]
    return f"m-{metric if PLAIN_KEY.fullmatch(metric) else hashlib.sha256(metric.encode()).hexdigest()[:8]}"


def _name(metric: str) -> str:
    return {ENERGY: "energy", MAX_ERROR: "error"}.get(metric, metric)
