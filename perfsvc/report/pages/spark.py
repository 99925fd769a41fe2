"""A history as a line the size of a word: SVG without style or script, so that no security policy has to allow any."""

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT, EDGE = 120, 24, 2.5
MOST_VALUES = 120
"""How many of the newest values are drawn."""
LEAST_RANGE = 0.02
"""A history that moves by less than this share is drawn as if it moved by it, so that noise looks like noise."""


def spark(values: Sequence[float | None], mark: int | None = None, *, label: str = "") -> Markup:
    """Return a sparkline as an SVG element, with a dot at its newest value; nothing if all values are None.

    Args:
        values: oldest first; None for a gap.
        mark: the index of the value that gets a vertical rule; None for no rule.
        label: the description for screen readers, which skip a sparkline without a description.
    """
    first = max(len(values) - MOST_VALUES, 0)
    shown = values[first:]
    known = [value for value in shown if value is not None]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    center, half = (low + high) / 2, max((high - low) / 2, LEAST_RANGE / 2 * abs(low + high) / 2) or 1.0
    step = (WIDTH - 2 * EDGE) / max(len(shown) - 1, 1)

    def x(index: int) -> float:
        return EDGE + index * step

    def y(value: float) -> float:
        return HEIGHT / 2 - (value - center) / half * (HEIGHT / 2 - EDGE)

    lines = _without_gaps([None if value is None else (x(index), y(value)) for index, value in enumerate(shown)])
    description = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    rule = _RULE.format(x(mark - first), HEIGHT) if mark is not None and mark >= first else ""
    drawn = Markup("").join(_LINE.format(" ".join(f"{a:.1f},{b:.1f}" for a, b in line)) for line in lines)
    return _SPARK.format(WIDTH, HEIGHT, description, rule, drawn, *lines[-1][-1])


_SPARK = Markup('<svg class="spark" viewBox="0 0 {} {}" {}>{}{}<circle cx="{:.1f}" cy="{:.1f}" r="2"/></svg>')
_LINE = Markup('<polyline points="{}"/>')
_RULE = Markup('<line x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"/>')


def _without_gaps(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Split the points at each None; return the lists of consecutive points."""
    lines: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            lines.append([])
        else:
            lines[-1].append(point)
    return [line for line in lines if line]
