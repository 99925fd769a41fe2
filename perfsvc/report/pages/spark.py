"""A history as a line a word long: SVG without a style or a script, so that no policy has to allow any."""

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT, EDGE = 120, 24, 2.5
NIGHTS = 120
"""How many values are drawn at most: of more, the newest."""
LEAST = 0.02
"""A history that moves by less than this share is drawn as moving by it, so that noise looks like noise."""


def spark(values: Sequence[float | None], mark: int | None = None, *, label: str = "") -> Markup:
    """The line, with a dot at its end.

    Args:
        values: oldest first; None where nothing was measured.
        mark: the place of the value that a rule stands at; None for no rule.
        label: what it shows, for whoever does not see it; without one it is hidden from them.
    """
    first = max(len(values) - NIGHTS, 0)
    shown = values[first:]
    known = [one for one in shown if one is not None]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    center, half = (low + high) / 2, max((high - low) / 2, LEAST / 2 * abs(low + high) / 2) or 1.0
    step = (WIDTH - 2 * EDGE) / max(len(shown) - 1, 1)

    def x(place: int) -> float:
        return EDGE + place * step

    def y(one: float) -> float:
        return HEIGHT / 2 - (one - center) / half * (HEIGHT / 2 - EDGE)

    runs = _runs([None if one is None else (x(place), y(one)) for place, one in enumerate(shown)])
    seen = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    rule = _RULE.format(x(mark - first), HEIGHT) if mark is not None and mark >= first else ""
    lines = Markup("").join(_LINE.format(" ".join(f"{a:.1f},{b:.1f}" for a, b in run)) for run in runs)
    return _SPARK.format(WIDTH, HEIGHT, seen, rule, lines, *runs[-1][-1])


_SPARK = Markup('<svg class="spark" viewBox="0 0 {} {}" {}>{}{}<circle cx="{:.1f}" cy="{:.1f}" r="2"/></svg>')
_LINE = Markup('<polyline points="{}"/>')
_RULE = Markup('<line x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"/>')


def _runs(places: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """The places that follow each other without a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if place is None:
            runs.append([])
        else:
            runs[-1].append(place)
    return [run for run in runs if run]
