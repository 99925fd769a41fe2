"""The charts of a benchmark's page: SVG without style or script, which takes its colours from the page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, floor, log10
from statistics import median

from markupsafe import Markup, escape

from perfsvc import units
from perfsvc.model import Finding, MovedSeries
from perfsvc.report import peaks, wording
from perfsvc.report.pages.benchmarks import PointPanel, ScalingPanel, VariantBar, references
from perfsvc.text import label

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 22, 12, 36
LOW, LOW_BOTTOM = 160, 20
"""The height of the chart of the fastest variants, and of the part below its axis."""
BAR, THICK = 240, 16
"""The length of the longest bar, and the height of its row."""
LONGEST = 8.0
"""A bar ends at this multiple of the middle time, with an arrow: a longer one would squeeze all others."""
LOGARITHMIC = 10.0
"""An axis is logarithmic if its largest value is at least so many times its smallest."""
STYLES, MARKS = 6, 4
"""How many colours and forms the marks of variants have."""
MOST_LINES = 12
"""How many variants a chart draws: more lines cannot be told apart. The table has all."""
MOST_TICKS = 6
HUNDRED = 100
EXACT = 1e5
"""Values of an axis below this number are written with all digits."""
MOST_DOTS = 60
"""How many runs get a mark of their own."""


class ChartScale:
    """An axis of a chart, logarithmic if its values span a factor of ten.

    Args:
        values: what it has to show, at least one; all positive for a logarithmic axis.
        first: the coordinate of its smallest value.
        last: the coordinate of its largest value.
        from_zero: whether a linear axis begins at zero.
        linear: whether it is linear in any case.
    """

    def __init__(
        self, values: Sequence[float], first: float, last: float, *, from_zero: bool = False, linear: bool = False
    ) -> None:
        low, high = min(values), max(values)
        self.is_log = not linear and low > 0 and high >= LOGARITHMIC * low
        if not self.is_log and from_zero and low >= 0:
            low = 0.0
        if low == high:
            low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        self.low, self.high, self._first = low, high, first
        self._begin, end = (log10(low), log10(high)) if self.is_log else (low, high)
        self._range, self._length = end - self._begin, last - first

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        at = log10(value) if self.is_log else value
        return self._first + (at - self._begin) / self._range * self._length

    def ticks(self) -> list[float]:
        """Return some round values between both ends."""
        if not self.is_log:
            step = _round_step((self.high - self.low) / MOST_TICKS)
            return [number * step for number in range(ceil(self.low / step), floor(self.high / step) + 1)]
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        factors = (1, 2, 5) if self.high < HUNDRED * self.low else (1,)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        inside = [tick for tick in ticks if self.low <= tick <= self.high]
        return inside[:: ceil(len(inside) / MOST_TICKS) or 1]


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 and 10, times a power of ten, that is at least ``least``."""
    size = 10.0 ** floor(log10(least))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= least * (1 - 1e-9))


def short(value: float, unit: str = "") -> str:
    """Return a value for an axis, with four digits at most: ``20 µs``, ``1.049 M``."""
    if not value:
        return "0"
    prefixes = units.SMALL if unit == "s" else units.LARGE
    power = min(max(3 * floor(log10(abs(value)) / 3 + 1e-9), min(prefixes)), max(prefixes))
    return f"{value / 10.0**power:.4g} {prefixes[power]}{unit}".strip()


def _share(value: float, _: str) -> str:
    return f"{HUNDRED * value:.3g} %"


# --- bars ------------------------------------------------------------------------------------------------------------


def bar(panel: PointPanel, shown: VariantBar) -> Markup:
    """Return the bar of a variant: its time, the part of it that the measured peak would need, and its interval."""
    scale = _bar_scale(panel)
    if shown.time_s is None or not scale:
        return Markup("")
    end = min(shown.time_s * scale, BAR)
    is_best = bool(panel.ranked) and shown is panel.ranked[0]
    kind = "best" if is_best else "reference" if shown.variant in panel.references else "time"
    parts = [_RECT.format(kind, end, THICK - 6)]
    if shown.peak_share:
        parts.append(_RECT.format("floor", min(shown.time_s * min(shown.peak_share, 1.0) * scale, BAR), THICK - 6))
    if shown.low_s is not None and shown.high_s is not None and shown.low_s * scale <= BAR:
        low, high = shown.low_s * scale, min(shown.high_s * scale, BAR)
        parts.append(_WHISKER.format(low, high))
    if _is_cut(shown, scale):
        parts.append(_BEYOND.format(BAR - 7, BAR))
    return Markup(_BAR.format(BAR + 2, THICK, "".join(parts)))  # noqa: S704 - numbers


def is_any_cut(panel: PointPanel) -> bool:
    """Return whether a bar of a panel is longer than its drawing."""
    return any(_is_cut(each, _bar_scale(panel)) for each in panel.timed)


def _bar_scale(panel: PointPanel) -> float:
    """Return the length of a bar of one second; 0 if no bar has a length."""
    times = [each.time_s for each in panel.timed if each.time_s]
    if not times:
        return 0.0
    longest = max(end for each in panel.timed for end in (each.time_s, each.high_s) if end is not None)
    return BAR / min(longest, LONGEST * median(times))


def _is_cut(shown: VariantBar, scale: float) -> bool:
    return (shown.time_s or 0.0) * scale > BAR + 1e-6


_BAR = '<svg class="bar" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>'
_RECT = '<rect class="{}" x="0" y="3" width="{:.1f}" height="{}"/>'
_WHISKER = '<path class="whisker" d="M{0:.1f} 4V12M{0:.1f} 8H{1:.1f}M{1:.1f} 4V12"/>'
_BEYOND = '<path class="beyond" d="M{0} 1L{1} 8L{0} 15Z"/>'


# --- scaling ---------------------------------------------------------------------------------------------------------


def drawn_variants(panel: ScalingPanel) -> list[str]:
    """Return the variants that the charts of an axis draw: references, and the fastest ones at their largest value."""
    names = references(bar for bars in panel.lines.values() for bar in bars if bar)

    def rank(variant: str) -> tuple[bool, int, float]:
        times = [(-place, each.time_s) for place, each in enumerate(panel.lines[variant]) if each and each.time_s]
        return variant not in names, *min(times, default=(1, 0.0))

    return sorted(sorted(panel.lines, key=rank)[:MOST_LINES])


def scaling_times(panel: ScalingPanel, variants: Sequence[str]) -> Markup:
    """Return the chart of the time over an axis; ``variants`` are those of the page, which decide the marks."""
    times = {variant: [each.time_s if each else None for each in bars] for variant, bars in panel.lines.items()}
    return _scaling(panel, variants, times, ("time", "s", short))


def scaling_rates(panel: ScalingPanel, variants: Sequence[str]) -> Markup:
    """Return the chart of the share of the peak, or of the rate, over an axis; nothing if neither is known."""
    rates = {variant: [panel.other(each) for each in bars] for variant, bars in panel.lines.items()}
    write = _share if panel.quantity == "% of peak" else short
    return _scaling(panel, variants, rates, (panel.quantity, panel.quantity, write))


def _scaling(
    panel: ScalingPanel,
    variants: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    quantity: tuple[str, str, Callable[[float, str], str]],
) -> Markup:
    """Return the chart of a quantity over an axis.

    Args:
        panel: the axis.
        variants: those of the page.
        values: of each variant at each value of the axis; None where it has none.
        quantity: its name, its unit, and the function that writes its values.
    """
    name, unit, write = quantity
    lines = {variant: values[variant] for variant in drawn_variants(panel)}
    known = [number for numbers in lines.values() for number in numbers if number is not None]
    if not known:
        return Markup("")
    x = ChartScale(panel.values, LEFT, WIDTH - RIGHT)
    y = ChartScale(known, HEIGHT - BOTTOM, TOP, from_zero=True, linear=name == "% of peak")
    parts = [*_y_axis(y, unit, write, HEIGHT - BOTTOM), *_x_axis(x, panel)]
    for variant, numbers in lines.items():
        at = [(x(place), y(number)) for place, number in zip(panel.values, numbers, strict=True) if number is not None]
        if at:
            style = variants.index(variant)
            joined = " ".join(f"{left:.1f},{top:.1f}" for left, top in at)
            marks = "".join(_mark(style, left, top) for left, top in at)
            parts.append(_LINE.format(style % STYLES, joined, marks, escape(label(variant))))
    logs = " and ".join(axis for axis, scale in ((label(panel.axis), x), (name, y)) if scale.is_log)
    scale = f", logarithmic in {logs}" if logs else ""
    description = (
        f"{name} of {units.count(len(lines), 'variant')} over {label(panel.axis)}{scale}; the table has the numbers"
    )
    return Markup(_CHART.format(WIDTH, HEIGHT, escape(description), "".join(parts)))  # noqa: S704 - escaped above


def _x_axis(x: ChartScale, panel: ScalingPanel) -> Iterator[str]:
    """Yield the values of the axis below the chart, as many as have room, and the axis's name."""
    free = -1e9
    for value in panel.values:
        text = f"{value:g}" if abs(value) < EXACT else short(value)
        half = 3.6 * len(text) + 3
        at = x(value)
        if at - half >= free:
            yield _TEXT.format(at, HEIGHT - BOTTOM + 14, "middle", escape(text))
            free = at + half
    yield _TEXT.format((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, "middle", escape(label(panel.axis)))


def _y_axis(y: ChartScale, unit: str, write: Callable[[float, str], str], bottom: float) -> Iterator[str]:
    """Yield the grid and its values."""
    yield _GRID.format("base", LEFT, bottom, WIDTH - RIGHT, bottom)
    for tick in y.ticks():
        yield _GRID.format("grid", LEFT, y(tick), WIDTH - RIGHT, y(tick))
        yield _TEXT.format(LEFT - 5, y(tick) + 4, "end", escape(write(tick, unit)))


# --- the fastest variants --------------------------------------------------------------------------------------------


def fastest(
    panel: PointPanel, variants: Sequence[str], found: Mapping[int, Sequence[tuple[Finding, MovedSeries]]]
) -> Markup:
    """Return the chart of the fastest time at each run; nothing if fewer than two runs have one.

    Args:
        panel: the variants at a point.
        variants: those of the page, which decide the marks.
        found: the findings that begin at each run, as ``findings_at`` returns them.
    """
    times = [(place, best) for place, best in enumerate(panel.history) if best.time_s is not None]
    if len(times) < 2:  # noqa: PLR2004 - a line needs two points
        return Markup("")
    x = ChartScale([0, len(panel.history) - 1], LEFT, WIDTH - RIGHT)
    y = ChartScale(_with_room([best.time_s or 0.0 for _, best in times]), LOW - LOW_BOTTOM, TOP + 10)
    parts = list(_y_axis(y, "s", short, LOW - LOW_BOTTOM))
    points = [(x(place), y(best.time_s or 0.0), best) for place, best in times]
    parts.append(_STEP.format(" ".join(f"{left:.1f},{top:.1f}" for left, top, _ in points)))
    before = None
    for left, top, best in points:
        if best.variant != before or len(points) <= MOST_DOTS or best is points[-1][2]:
            style = variants.index(best.variant or "")
            title = f"run {best.run}: {label(best.variant or '')} {units.seconds(best.time_s or 0.0)}"
            parts.append(_BEST.format(style % STYLES, _mark(style, left, top), escape(title)))
        if before is not None and best.variant != before:
            parts.append(_GRID.format("change", left, TOP, left, LOW - LOW_BOTTOM))
        before = best.variant
    for place, best in enumerate(panel.history):
        if best.run in found:
            numbers = ", ".join(f"finding {finding.id}" for finding, _ in found[best.run])
            parts.append(_FOUND.format(x(place) - 5, TOP - 8, numbers))
    for place, anchor in ((0, "start"), (len(panel.history) - 1, "end")):
        parts.append(_TEXT.format(x(place), LOW - LOW_BOTTOM + 14, anchor, f"run {panel.history[place].run}"))
    newest = points[-1][2]
    description = (
        f"the fastest time in {units.count(len(panel.history), 'run')}, now {units.seconds(newest.time_s or 0.0)} of "
        f"{label(newest.variant or '')}; {units.count(len(panel.reigns) - 1, 'change')} of the fastest variant"
    )
    return Markup(_CHART.format(WIDTH, LOW, escape(description), "".join(parts)))  # noqa: S704 - escaped above


def _with_room(times: Sequence[float]) -> list[float]:
    """Return the times with both ends of an axis: noise of less than a per cent must not look like a change."""
    low, high = min(times), max(times)
    room = max((high - low) * 0.1, high * 0.01)
    return [*times, max(low - room, low / 2), high + room]


# --- marks -----------------------------------------------------------------------------------------------------------


def key(style: int) -> Markup:
    """Return the mark of a variant for a legend; ``style`` is the index of the variant on the page."""
    return Markup(_KEY.format(style % STYLES, _mark(style, 7, 7)))  # noqa: S704 - numbers


def _mark(style: int, left: float, top: float) -> str:
    # The form changes with the colour, and once more when the colours begin again: so 24 variants look different.
    return _MARKS[(style + style // STYLES) % MARKS].format(left, top, left - 3.2, top - 3.2)


def rate_text(quantity: str, value: float | None, peak: str) -> str:
    """Return the share or the rate beside a time as text; a dash for None."""
    if quantity == "% of peak":
        return wording.or_dash(value, lambda share: peaks.share(peak, share))
    return wording.or_dash(value, units.flop_rate if quantity == "FLOP/s" else units.rate)


# Plain texts, because formatting markup takes ten times as long: what others have written is escaped where it is used.
_CHART = '<svg class="lines" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
_GRID = '<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
_TEXT = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>'
_LINE = '<g class="v{}"><polyline points="{}"/>{}<title>{}</title></g>'
_STEP = '<polyline class="best" points="{}"/>'
_BEST = '<g class="v{}">{}<title>{}</title></g>'
_FOUND = '<path class="found" d="M{:.1f} {:.1f}h10l-5 8Z"><title>{}</title></path>'
_KEY = '<svg class="key" viewBox="0 0 14 14" aria-hidden="true"><g class="v{}">{}</g></svg>'
_MARKS = (
    '<circle cx="{0:.1f}" cy="{1:.1f}" r="3.6"/>',
    '<rect x="{2:.1f}" y="{3:.1f}" width="6.4" height="6.4"/>',
    '<path d="M{0:.1f} {1:.1f}m0 -4.4l4.4 7.6h-8.8Z"/>',
    '<path d="M{0:.1f} {1:.1f}m0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8Z"/>',
)
