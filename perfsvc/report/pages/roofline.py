"""The roofline of two launches for a page: SVG without style or script, which takes its colours from the page."""

from collections.abc import Iterator, Sequence
from math import atan2, ceil, degrees, floor, log10, sqrt

from markupsafe import Markup

from perfsvc import units
from perfsvc.report.plots.roofline import ROOM, LaunchPoint, Roofline
from perfsvc.report.tables.profiles import three_digits
from perfsvc.text import label

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 14, 36
SIZE = 5.0
"""Half the size of a mark."""
MOST_TICKS = 7


class _Scale:
    """A logarithmic axis.

    Args:
        low: the smallest value.
        high: the largest value.
        first: the coordinate of the smallest value.
        last: the coordinate of the largest value.
    """

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self.low, self.high, self.first, self.last = low, high, first, last
        self._step = (last - first) / (log10(high) - log10(low))

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        return self.first + (log10(value) - log10(self.low)) * self._step

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield the coordinate and the text of some powers of ten."""
        powers = range(ceil(log10(self.low)), floor(log10(self.high)) + 1)
        for power in powers[:: ceil(len(powers) / MOST_TICKS) or 1]:
            yield self(10.0**power), _power(power)


def _power(power: int) -> str:
    """Return a power of ten with an SI prefix: ``100 G``, or as a decimal fraction below one."""
    if power < 0:
        return f"{10.0**power:g}"
    prefix = min(3 * (power // 3), max(units.LARGE))
    return f"{10 ** (power - prefix)} {units.LARGE[prefix]}".rstrip()


def drawn(launches: Roofline) -> Markup:
    """Return the picture of a roofline with points as an SVG element."""
    ridges = [peak / launches.bandwidth for peak in launches.ceilings.values()]
    across = [*ridges, *(point.flops_per_byte for point in launches.points)]
    left, right, top = min(across) / ROOM, max(across) * ROOM, max(launches.ceilings.values())
    bottom = min([left * launches.bandwidth, *(point.flops_per_s for point in launches.points)]) / 2
    x = _Scale(left, right, LEFT, WIDTH - RIGHT)
    y = _Scale(bottom, top * ROOM, HEIGHT - BOTTOM, TOP)
    parts = [*_axes(x, y), *_roofs(launches, x, y), *(_point(point, x, y) for point in launches.points)]
    return _PICTURE.format(WIDTH, HEIGHT, _description(launches), Markup("").join(parts))


def _description(launches: Roofline) -> str:
    """Return the picture in words."""
    roofs = [f"DRAM {units.rate(launches.bandwidth)}"]
    roofs += [f"{name} {units.flop_rate(peak)}" for name, peak in launches.ceilings.items()]
    points = [f"{label(point.name)} {units.flop_rate(point.flops_per_s)}" for point in launches.points]
    return f"roofline with {', '.join(roofs)}. {'; '.join(points)}"


def _axes(x: _Scale, y: _Scale) -> Iterator[Markup]:
    """Yield the grid and the texts of the axes."""
    for at, text in x.ticks():
        yield _LINE.format("grid", at, y.first, at, y.last)
        yield _text(at, y.first + 14, text, "middle")
    for at, text in y.ticks():
        yield _LINE.format("grid", x.first, at, x.last, at)
        yield _text(x.first - 5, at + 4, text, "end")
    yield _text((x.first + x.last) / 2, HEIGHT - 6, "operations for a byte of DRAM", "middle")
    yield _text(x.first + 4, y.last + 8, "operations a second", "start")


def _roofs(launches: Roofline, x: _Scale, y: _Scale) -> Iterator[Markup]:
    """Yield the slope of DRAM's bandwidth and the ceilings, with their names."""
    bandwidth, peaks = launches.bandwidth, sorted(launches.ceilings.values())
    lowest, highest = peaks[0], peaks[-1]
    start = max(x.low, y.low / bandwidth)
    yield _LINE.format("roof", x(start), y(start * bandwidth), x(highest / bandwidth), y(highest))
    for peak in peaks:
        yield _LINE.format("roof", x(peak / bandwidth), y(peak), x.last, y(peak))
    for peak, text in launches.labels:
        yield _text(x.last - 2, y(peak) - 4, text, "end")
    ends = [(x(at), y(at * bandwidth)) for at in (start, lowest / bandwidth)]
    angle = degrees(atan2(ends[1][1] - ends[0][1], ends[1][0] - ends[0][0]))
    middle = sqrt(start * lowest / bandwidth)
    yield _text(x(middle) - 3, y(middle * bandwidth) - 5, f"DRAM {units.rate(bandwidth)}", "middle", angle)


def _point(point: LaunchPoint, x: _Scale, y: _Scale) -> Markup:
    """Return the mark of a point: hollow before, filled after; its form is that of the precision."""
    left, top = x(point.flops_per_byte), y(point.flops_per_s)
    form = _FORMS[point.mark].format(left, top, left - SIZE, top - SIZE, left + SIZE, top + SIZE, 2 * SIZE)
    return _MARK.format("after" if point.after else "before", form, label(point.name))


def legend(points: Sequence[LaunchPoint]) -> list[tuple[str, str, Markup, str, str]]:
    """Return the side, the name, the mark, the operations for a byte and the operations a second of each point."""
    return [
        (
            "after" if point.after else "before",
            label(point.name),
            _KEY.format("after" if point.after else "before", _FORMS[point.mark].format(7, 7, 2, 2, 12, 12, 10)),
            f"{three_digits(point.flops_per_byte)} FLOP/B",
            units.flop_rate(point.flops_per_s),
        )
        for point in points
    ]


def _text(x: float, y: float, text: str, anchor: str, angle: float = 0.0) -> Markup:
    turn = Markup(' transform="rotate({:.1f} {:.1f} {:.1f})"').format(angle, x, y) if angle else ""
    return _TEXT.format(x, y, anchor, turn, text)


_PICTURE = Markup('<svg class="roofline" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_LINE = Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
_TEXT = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>')
_MARK = Markup('<g class="{}">{}<title>{}</title></g>')
_KEY = Markup('<svg class="key" viewBox="0 0 14 14" aria-hidden="true"><g class="{}">{}</g></svg>')
_FORMS = {
    "o": Markup('<circle cx="{0:.1f}" cy="{1:.1f}" r="5"/>'),
    "s": Markup('<rect x="{2:.1f}" y="{3:.1f}" width="{6}" height="{6}"/>'),
    "^": Markup('<path d="M{0:.1f} {3:.1f}L{4:.1f} {5:.1f}H{2:.1f}Z"/>'),
}
"""The marks; their fields are the centre, the left top corner, the right bottom corner, and the width."""
