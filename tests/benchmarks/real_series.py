"""Which alerts the change detector raises on sixty real series of half a year, and how each of them looks.

The series are times of a database under development (tests/data/series). The detector gets them night by night, with a
smallest relevant change of 1 %. The script prints each alert: its first night, the night that raised it, the night of
the return if the change was a plateau, and the size of the change. `--sheet` draws all alerts on one sheet, so that a
person can judge each of them. docs/measured/real-series.md has the judgements. Needs no GPU.

    python tests/benchmarks/real_series.py [--sheet sheet.png] [--json real-series.json]
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from workbench import Claim, finish, parsed, table

from perfsvc.judge import Alert, detect_changes
from perfsvc.model import ChangeKind

Floats = NDArray[np.float64]

SERIES = Path(__file__).parents[1] / "data" / "series" / "nightly.npz"
SMALLEST = 0.01
"""The smallest relevant change: the default threshold of times on a GPU."""
ALERTS = 92
"""How many alerts a person has looked at; more are a change for the worse."""
DRIFTED = 3
"""The level after a drift is the median of this many nights."""


@dataclass(frozen=True)
class Shown:
    """An alert with the levels before and after the change, as the night saw them that raised the alert.

    Attributes:
        name: the number of the series.
        nights: the number of nights of the series.
        alert: the alert.
        first: the first night of the level before the change.
        before: the median of the level before the change.
        after: the median of the nights of the change, or of the last ``DRIFTED`` nights of a drift.
    """

    name: str
    nights: int
    alert: Alert
    first: int
    before: float
    after: float

    @property
    def size(self) -> float:
        """The size of the change, as a fraction of the level before."""
        return self.after / self.before - 1

    @property
    def is_relevant(self) -> bool:
        """Whether the change is at least the smallest relevant change, in either direction."""
        return abs(self.after - self.before) >= SMALLEST * min(self.before, self.after)


def main() -> int:
    """Watch all series, print and draw the alerts, and check the claims."""
    options = parsed(
        __doc__,
        ("--sheet", Path, "draw all alerts on one sheet in this PNG file"),
    )
    with np.load(SERIES) as stored:
        series = {name: stored[name].astype(np.float64) for name in sorted(stored.files)}
    alerts = [shown for name, values in series.items() for shown in watched(name, values)]
    print(table(["series", "since", "raised", "back", "kind", "before", "after", "change"], [*map(row_of, alerts)]))
    if options.sheet:
        draw(alerts, series, options.sheet, columns=8, width=1.9)
    plateaus = sum(shown.alert.end is not None for shown in alerts)
    print(f"{len(alerts)} alerts on {len(series)} series, {plateaus} of them plateaus that ended")
    claims = [
        Claim(f"alerts of changes below {SMALLEST:.0%}", sum(not shown.is_relevant for shown in alerts), 0),
        Claim(f"alerts on {len(series)} real series", len(alerts), ALERTS),
    ]
    rows = [vars(shown) | {"size": shown.size} for shown in alerts]
    return finish(claims, options.json, alerts=rows)


def watched(name: str, values: Floats) -> Iterator[Shown]:
    """Yield the alerts of a series, oldest first."""
    starts = [0]
    for alert in detect_changes(values, smallest=SMALLEST):
        first = max((start for start in starts if start < alert.start), default=0)
        is_drift = alert.kind is ChangeKind.TREND
        old = values[first : max(alert.start, first + DRIFTED) if is_drift else alert.start]
        new = values[alert.raised + 1 - DRIFTED if is_drift else alert.start : alert.raised + 1]
        middle = np.mean if alert.kind is ChangeKind.MIXTURE else np.median
        yield Shown(name, values.size, alert, first, float(middle(old)), float(middle(new)))
        starts.append(alert.raised + 1 - DRIFTED if is_drift else alert.start)
        if alert.end is not None:
            starts.append(alert.end)


def row_of(shown: Shown) -> Sequence[str]:
    """Return the row of an alert in the table."""
    alert = shown.alert
    back = "" if alert.end is None else str(alert.end)
    levels = (f"{level:.4g}" for level in (shown.before, shown.after))
    return [shown.name, str(alert.start), str(alert.raised), back, alert.kind, *levels, f"{shown.size:+.1%}"]


def draw(alerts: Sequence[Shown], series: Mapping[str, Floats], path: Path, *, columns: int, width: float) -> None:
    """Draw each alert in its series: the levels before and after, and the night that raised the alert."""
    from matplotlib.figure import Figure

    rows = -(-len(alerts) // columns)
    figure = Figure(figsize=(columns * width, rows * width * 0.62), dpi=90, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, shown in zip(axes, alerts, strict=False):
        alert, values = shown.alert, series[shown.name]
        low, high = np.percentile(values, [1, 99])
        margin = 0.15 * (high - low)
        low, high = min(low, shown.before, shown.after) - margin, max(high, shown.before, shown.after) + margin
        axis.plot(np.clip(values, low, high), ".", color="0.6", markersize=width)
        seen = np.arange(shown.first, alert.raised + 1)
        axis.plot(seen, np.clip(values[seen], low, high), ".", color="black", markersize=width)
        axis.hlines(shown.before, shown.first, alert.start, color="tab:blue", linewidth=1)
        axis.hlines(shown.after, alert.start, alert.end or alert.raised, color="tab:red", linewidth=1.5)
        axis.axvline(alert.raised, color="tab:red", linewidth=0.6, linestyle=":")
        axis.set_title(f"{shown.name} {alert.kind} {shown.size:+.1%}", fontsize=2 + 2.4 * width**0.6, pad=2)
        axis.set(xticks=[], yticks=[], ylim=(low, high))
    for axis in list(figure.axes)[len(alerts) :]:
        axis.set_axis_off()
    figure.savefig(path, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    sys.exit(main())
