"""The pages of benchmarks: which variant is the fastest, on which GPU model, at which size, and since when."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf, log
from typing import Literal, TypeGuard

from perfsvc.model import CacheState, Finding, MovedSeries, Series, Status, Value
from perfsvc.report import wording

Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class PointChoice:
    """What the chooser of a page offers: a point of the axes in a cache state."""

    point: Point
    cache: CacheState

    @property
    def text(self) -> str:
        """The point as people read it: ``n=4096, dtype=f32 warm``; ``the only size`` for a benchmark without axes."""
        values = ", ".join(f"{axis}={value}" for axis, value in self.point)
        cache = "" if self.cache is CacheState.COLD else self.cache.value
        return " ".join(filter(None, (values, cache))) or "the only size"

    @property
    def size(self) -> tuple[float, bool]:
        """Grows with each numeric axis; of equal points, the cold one is the larger."""
        numbers = (value for _, value in self.point if is_number(value) and value > 0)
        return sum(map(log, numbers)), self.cache is CacheState.COLD


@dataclass(frozen=True, slots=True)
class VariantBar:
    """A variant at a point on the GPUs of a model, in the newest run that measured it there.

    Attributes:
        series: its series, one for each GPU of the model that this run used.
        run: the number of this run.
        status: ``ok`` if a GPU has a time, else that of the worst GPU.
        reason: why a GPU has no time; empty if all of them have one.
        time_s: the median over the GPUs, in seconds; None if no GPU has a time.
        low_s: the lower end of the time's interval, the lowest over the GPUs; None if it is unknown.
        high_s: the upper end, the highest over the GPUs.
        peak: the measured peak that the variant comes nearest to; empty if none is known.
        peak_share: its share of this peak, the median over the GPUs.
        bandwidth_bytes_per_s: the median over the GPUs; None if the work is unknown.
        flops_per_s: likewise.
        relative_to: the reference variant; empty if there is none.
        relative_speed: the speed over that of the reference variant.
        dirty: True if the run had uncommitted changes.
    """

    series: tuple[Series, ...]
    run: int
    status: Status
    reason: str = ""
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    peak: str = ""
    peak_share: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    relative_to: str = ""
    relative_speed: float | None = None
    dirty: bool = False

    @property
    def variant(self) -> str:
        """The name of the variant."""
        return self.series[0].case.variant


@dataclass(frozen=True, slots=True)
class BestTime:
    """The fastest variant at a run and its time in seconds; None for both if no variant has a correct result."""

    run: int
    variant: str | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class Reign:
    """Consecutive runs with the same fastest variant: the first and the last run, and its times in them, in seconds."""

    variant: str
    first: int
    last: int
    first_s: float
    last_s: float


@dataclass(frozen=True)
class PointPanel:
    """The variants at a point on the GPUs of a model.

    A reference variant, which others are compared with, may solve another problem. So it is never the fastest variant.

    Attributes:
        bars: the variants in the order of their times, variants without a time last.
        retired: the variants that are no longer measured, each with the last run that measured it.
        history: the fastest variant at each run, oldest first.
        series: the series of all variants.
    """

    choice: PointChoice
    bars: tuple[VariantBar, ...]
    series: tuple[Series, ...] = ()
    retired: tuple[tuple[str, int], ...] = ()
    history: tuple[BestTime, ...] = ()

    @property
    def timed(self) -> list[VariantBar]:
        """The variants with a time, in the order of their times."""
        return [bar for bar in self.bars if bar.time_s is not None]

    @cached_property
    def references(self) -> set[str]:
        """The names of the variants that others are compared with."""
        return references(self.bars)

    @cached_property
    def ranked(self) -> list[VariantBar]:
        """The variants with a time that are no reference, the fastest first."""
        names = self.references
        return [bar for bar in self.timed if bar.variant not in names]

    @property
    def why_skipped(self) -> str:
        """Why all variants were skipped, each reason once; empty if a variant was not skipped."""
        if any(bar.status is not Status.SKIPPED for bar in self.bars):
            return ""
        return "; ".join(dict.fromkeys(bar.reason for bar in self.bars)) or "without a reason"

    @property
    def run(self) -> int:
        """The newest run that measured a variant here."""
        return max(bar.run for bar in self.bars)

    def slowness(self, bar: VariantBar) -> float | None:
        """Return the time of a variant over that of the fastest; None without a time."""
        fastest_s = self.ranked[0].time_s if self.ranked else None
        return bar.time_s / fastest_s if fastest_s and bar.time_s is not None else None

    def is_tied(self, bar: VariantBar) -> bool:
        """Return True if the interval of a slower variant overlaps that of the fastest: noise may order them."""
        fastest = self.ranked[0] if self.ranked else bar
        if bar is fastest or bar.variant in self.references or bar.low_s is None or fastest.high_s is None:
            return False
        return bar.low_s <= fastest.high_s

    @cached_property
    def reigns(self) -> list[Reign]:
        """The fastest variants one after the other, the newest first."""
        known = [best for best in self.history if best.variant is not None and best.time_s is not None]
        reigns = []
        for variant, group in groupby(known, key=lambda best: best.variant or ""):
            runs = list(group)
            reigns.append(Reign(variant, runs[0].run, runs[-1].run, runs[0].time_s or 0.0, runs[-1].time_s or 0.0))
        return reigns[::-1]


@dataclass(frozen=True, slots=True)
class ScalingPanel:
    """How the variants scale over a numeric axis while the other axes and the cache state stay fixed.

    Attributes:
        axis: its name.
        fixed: the values of the other axes.
        places: the indices of the choices that lie on it.
        values: of the axis, in ascending order.
        lines: for each variant, its bar at each value; None where it was not measured.
        quantity: what is drawn beside the time: the share of the nearest peak, or the rate if no peak is known; empty
            if the work is unknown.
    """

    axis: str
    fixed: str
    places: tuple[int, ...]
    values: tuple[float, ...]
    lines: Mapping[str, tuple[VariantBar | None, ...]]
    quantity: Literal["% of peak", "FLOP/s", "B/s", ""]

    def other(self, bar: VariantBar | None) -> float | None:
        """Return what is drawn beside the time of a variant: a fraction, or a rate a second; None if it is unknown."""
        if bar is None or bar.time_s is None:
            return None
        values = {"% of peak": bar.peak_share, "FLOP/s": bar.flops_per_s, "B/s": bar.bandwidth_bytes_per_s}
        return values.get(self.quantity)


@dataclass(frozen=True, slots=True)
class ModelSection:
    """A benchmark on the GPUs of a model; ``panels`` has a panel for each choice of the page that they measured."""

    device_model: str
    devices: tuple[str, ...]
    panels: Mapping[int, PointPanel]
    scalings: tuple[ScalingPanel, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchmarkView:
    """The page of a benchmark.

    Attributes:
        name: the benchmark.
        choices: the points, in ascending order of the numeric axes.
        shown: the index of the choice that a page shows at first: the largest point.
        variants: by name, also those that are no longer measured; the index of a variant is that of its mark.
    """

    name: str
    choices: tuple[PointChoice, ...]
    shown: int
    sections: tuple[ModelSection, ...]
    variants: tuple[str, ...] = ()

    @property
    def present(self) -> int:
        """The number of variants that are still measured."""
        return len(
            {bar.variant for section in self.sections for panel in section.panels.values() for bar in panel.bars}
        )


def references(bars: Iterable[VariantBar]) -> set[str]:
    """Return the names of the variants that some variants are compared with."""
    return {bar.relative_to for bar in bars if bar.relative_to}


def is_number(value: Value) -> TypeGuard[int | float]:
    """Return True for the value of a numeric axis; the text ``4096`` is no number, and neither is a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -inf < value < inf


# --- findings --------------------------------------------------------------------------------------------------------


def findings_at(
    panel: PointPanel, findings_of: Mapping[Series, Sequence[tuple[Finding, MovedSeries]]]
) -> dict[int, list[tuple[Finding, MovedSeries]]]:
    """Return the findings on the series of a point by the run in which they begin, the oldest run first.

    Args:
        panel: the point.
        findings_of: the findings on each series.
    """
    runs = {best.run for best in panel.history}
    by_run: dict[int, list[tuple[Finding, MovedSeries]]] = defaultdict(list)
    for series in panel.series:
        for finding, moved in findings_of.get(series, ()):
            first = moved.first_run or finding.first_run
            if first in runs and all(finding.id != other.id for other, _ in by_run[first]):
                by_run[first].append((finding, moved))
    return {run: by_run[run] for run in sorted(by_run)}


@dataclass(frozen=True, slots=True)
class BenchmarkOnModel:
    """A row of the list of benchmarks: the largest point of a benchmark that the GPUs of a model measured."""

    benchmark: str
    device_model: str
    panel: PointPanel


def rows_of_list(view: BenchmarkView) -> Iterator[BenchmarkOnModel]:
    """Yield a row of the list of benchmarks for each GPU model."""
    for section in view.sections:
        place = max(section.panels, key=lambda place: view.choices[place].size)
        yield BenchmarkOnModel(view.name, section.device_model, section.panels[place])


# --- words -----------------------------------------------------------------------------------------------------------


def slowness_text(panel: PointPanel, bar: VariantBar) -> str:
    """Return how a variant compares with the fastest: ``fastest``, ``1.32×``; empty if one of them has no time."""
    if bar.time_s is None:
        return ""
    if panel.ranked and panel.ranked[0] is bar:
        return "fastest" if len(panel.bars) > 1 else "the only one"
    slowness = panel.slowness(bar)
    return "" if slowness is None else wording.speed(slowness)
