"""A history as a line the size of a word: SVG without style or script, so that no security policy has to allow any."""

from functools import cache
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike

from perfsvc import units

WIDTH, HEIGHT, EDGE = 120, 24, 2.5
MOST_VALUES = 120
"""How many of the newest values are drawn."""
LEAST_RANGE = 0.02
"""A history that moves by less than this share is drawn as if it moved by it, so that noise looks like noise."""


def runs_drawn(runs: int) -> str:
    """Return of how many runs a sparkline draws the values: ``120 runs``."""
    return units.count(min(runs, MOST_VALUES), "run")


def spark(values: ArrayLike, mark: int | None = None, *, label: str = "") -> Markup:
    """Return a sparkline as an SVG element, with a dot at its newest value; nothing if no value is known.

    Args:
        values: shape (values,), oldest first; None or NaN for a gap.
        mark: the index of the value that gets a vertical rule; None for no rule.
        label: the description for screen readers, which skip a sparkline without a description.
    """
    every = np.asarray(values, np.float64)
    first = max(len(every) - MOST_VALUES, 0)
    shown = every[first:]
    known = np.flatnonzero(~np.isnan(shown))
    if not known.size:
        return Markup("")
    low, high = float(shown[known].min()), float(shown[known].max())
    center, half = (low + high) / 2, max((high - low) / 2, LEAST_RANGE / 2 * abs(low + high) / 2) or 1.0
    step = (WIDTH - 2 * EDGE) / max(len(shown) - 1, 1)
    heights = HEIGHT / 2 - (shown[known] - center) / half * (HEIGHT / 2 - EDGE)
    tenths = np.fmin(np.fmax(np.rint(heights * TENTHS), 0), HEIGHT * TENTHS)  # NaN, where a sum overflowed, becomes 0
    # Texts are looked up: formatting numbers would take most of the time, and a site has thousands of sparklines.
    across = list(map(_across(len(shown)).__getitem__, known.tolist()))
    down = list(map(_DOWN.__getitem__, tenths.astype(np.intp).tolist()))
    points = list(map(",".join, zip(across, down, strict=True)))
    edges = [0, *(np.flatnonzero(known[1:] - known[:-1] > 1) + 1).tolist(), known.size]
    drawn = "".join([f'<polyline points="{" ".join(points[begin:end])}"/>' for begin, end in pairwise(edges)])
    description = f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    rule = _RULE.format(EDGE + (mark - first) * step, HEIGHT) if mark is not None and mark >= first else ""
    line = _SPARK.format(WIDTH, HEIGHT, description, rule, drawn, across[-1], down[-1])
    return Markup(line)  # noqa: S704 - the label is escaped, all else are numbers


@cache
def _across(count: int) -> list[str]:
    """Return the places of so many values from left to right."""
    step = (WIDTH - 2 * EDGE) / max(count - 1, 1)
    return [f"{EDGE + at * step:.1f}" for at in range(count)]


TENTHS = 10
_DOWN = [f"{tenths / TENTHS:.1f}" for tenths in range(HEIGHT * TENTHS + 1)]
"""Each place from top to bottom as text, by its tenths of a unit."""

_SPARK = '<svg class="spark" viewBox="0 0 {} {}" {}>{}{}<circle cx="{}" cy="{}" r="2"/></svg>'
_RULE = '<line x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"/>'
