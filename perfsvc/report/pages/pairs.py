"""The A/B pairs of a confirmation as SVG without style or script, which takes its colours from the page.

One drawing has the level of each process, old and new, pair by pair. The other has the change with its interval, and
the threshold that the change has to exceed.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import median

from markupsafe import Markup

from perfsvc import units
from perfsvc.model import Confirmation, Measurement
from perfsvc.report import wording

WIDTH = 340
LEFT, RIGHT = 66, 12
PAIRS_HEIGHT, TOP, BOTTOM = 156, 12, 34
CHANGE_HEIGHT, AXIS = 96, 62
SIZE = 4.0
"""The radius of a mark."""
MOST_PAIRS = 24
"""How many of the newest pairs are drawn; A/B pairs end after twelve."""


def levels(confirmation: Confirmation) -> list[tuple[float, float]]:
    """Return the level of the old and of the new code in each A/B pair, in seconds or in the metric's own unit.

    A pair of which a process has no result is left out.
    """
    metric = confirmation.suspect.series.metric
    both = (
        (_level(old, metric), _level(new, metric))
        for old, new in zip(confirmation.baseline, confirmation.candidate, strict=False)
    )
    return [(old, new) for old, new in both if old is not None and new is not None][-MOST_PAIRS:]


def _level(measurement: Measurement, metric: str) -> float | None:
    values = measurement.values_of(metric)
    return median(values) if values and all(map(isfinite, values)) else None


def usual(measurements: Sequence[Measurement], metric: str) -> float | None:
    """Return the median level of some processes; None if no process has a result."""
    known = [level for measurement in measurements if (level := _level(measurement, metric)) is not None]
    return median(known) if known else None


def smallest(threshold: float) -> str:
    """Return a threshold, a fraction, in per cent: ``0.5 %``."""
    return f"{100 * threshold:.3g} %"


def drawn_pairs(confirmation: Confirmation) -> Markup:
    """Return the level of each process, a hollow mark for the old code and a filled mark for the new code."""
    pairs, metric = levels(confirmation), confirmation.suspect.series.metric
    if not pairs:
        return Markup("")
    low, high = (chosen(value for pair in pairs for value in pair) for chosen in (min, max))
    scale = _Axis(low, high, PAIRS_HEIGHT - BOTTOM, TOP)
    parts = [
        *_axis_of_levels(scale, metric),
        *(_pair(number, old, new, len(pairs), scale) for number, (old, new) in enumerate(pairs, 1)),
        _text((LEFT + WIDTH - RIGHT) / 2, PAIRS_HEIGHT - 4, "A/B pairs in the order of measuring", "middle"),
    ]
    described = "; ".join(
        f"pair {number}: {wording.level(old, metric)} → {wording.level(new, metric)}"
        for number, (old, new) in enumerate(pairs, 1)
    )
    return _PICTURE.format(WIDTH, PAIRS_HEIGHT, described, Markup("").join(parts))


class _Axis:
    """A linear axis with some room at both ends: ``axis(value)`` is a coordinate.

    Args:
        low: the smallest value.
        high: the largest value.
        first: the coordinate of the smallest value.
        last: the coordinate of the largest value.
    """

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        room = (high - low) * 0.08 or abs(high) * 0.01 or 1.0
        self.low, self.high = low, high
        self._start, self._first = low - room, first
        self._step = (last - first) / (high - low + 2 * room)

    def __call__(self, value: float) -> float:
        return self._first + (value - self._start) * self._step


def _axis_of_levels(scale: _Axis, metric: str) -> Iterator[Markup]:
    """Yield a line and a text for the smallest and for the largest level."""
    for value in dict.fromkeys((scale.low, scale.high)):
        yield _LINE.format("grid", LEFT, scale(value), WIDTH - RIGHT, scale(value))
        yield _text(LEFT - 6, scale(value) + 4, wording.level(value, metric), "end")


def _pair(number: int, old: float, new: float, count: int, scale: _Axis) -> Markup:
    """Return a pair: two marks and the line between them, with the number of the pair below."""
    width = (WIDTH - RIGHT - LEFT) / count
    x = LEFT + (number - 0.5) * width
    apart = min(width / 5, 8.0)
    return Markup("").join(
        (
            _LINE.format("link", x - apart, scale(old), x + apart, scale(new)),
            _MARK.format("before", x - apart, scale(old), SIZE),
            _MARK.format("after", x + apart, scale(new), SIZE),
            _text(x, PAIRS_HEIGHT - BOTTOM + 15, str(number), "middle"),
        )
    )


def drawn_change(confirmation: Confirmation) -> Markup:
    """Return the change with its interval beside the threshold, and the change of each pair as a tick."""
    ratio, threshold = confirmation.ratio, confirmation.threshold
    if ratio is None or not isfinite(ratio):
        return Markup("")
    ends = [end for end in (confirmation.low, confirmation.high) if end is not None and isfinite(end)]
    each = [new / old for old, new in levels(confirmation) if old > 0]
    # At most three times as far as the interval, so that one odd pair does not squeeze the rest of the drawing.
    reach = 3 * max(abs(value - 1) for value in (ratio, *ends, 1 + threshold))
    near = [value for value in each if abs(value - 1) <= reach]
    values = [1 - threshold, 1 + threshold, ratio, *ends, *near]
    x = _Axis(min(values), max(values), LEFT - 40, WIDTH - RIGHT)
    middle = AXIS - 26
    parts = [
        _BAND.format(x(1 - threshold), TOP, x(1 + threshold) - x(1 - threshold), AXIS - TOP),
        _LINE.format("zero", x(1), TOP, x(1), AXIS),
        *(_LINE.format("each", x(value), AXIS - 9, x(value), AXIS) for value in near),
        _LINE.format("grid", LEFT - 40, AXIS, WIDTH - RIGHT, AXIS),
        *([_LINE.format("interval", x(min(ends)), middle, x(max(ends)), middle)] if ends else []),
        _MARK.format("change", x(ratio), middle, SIZE + 0.5),
        *_texts_of_change(x, ratio, threshold),
    ]
    described = f"change {units.percent(ratio)}"
    described += f", interval {wording.interval(min(ends), max(ends))}" if ends else ""
    described += f", threshold {smallest(threshold)}"
    return _PICTURE.format(WIDTH, CHANGE_HEIGHT, described, Markup("").join(parts))


def _texts_of_change(x: _Axis, ratio: float, threshold: float) -> Iterator[Markup]:
    """Yield the texts below the axis: no change and the new level; the ends of the threshold if there is room."""
    taken: list[float] = []
    for value, text in ((ratio, units.percent(ratio)), (1.0, "0"), (1 + threshold, f"± {smallest(threshold)}")):
        at = min(max(x(value), LEFT - 20), WIDTH - RIGHT - 20)
        if all(abs(at - other) > 44 for other in taken):  # noqa: PLR2004 - the width of a text
            taken.append(at)
            yield _text(at, AXIS + 15, text, "middle")
    yield _text((LEFT - 40 + WIDTH - RIGHT) / 2, CHANGE_HEIGHT - 4, "change; grey: too small to matter", "middle")


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return _TEXT.format(x, y, anchor, text)


_PICTURE = Markup('<svg class="again" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_LINE = Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
_TEXT = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
_MARK = Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>')
_BAND = Markup('<rect class="band" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
