"""The roofline of two launches: what each did for a byte of DRAM, and what the device would let it do.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (4), 2009. Work and ceilings are Nsight Compute's.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan2, degrees, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsvc import units
from perfsvc.errors import ReportError
from perfsvc.model import Profile
from perfsvc.report.plots import variants
from perfsvc.report.plots.variants import BLUE, FAINT, FONT, GRID, HEADING, INK, ORANGE, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRECISIONS: Mapping[str, tuple[str, str]] = {
    "fp32": ("float32", "o"),
    "fp64": ("float64", "s"),
    "tensor": ("tensor cores", "^"),
}
"""What operations are counted by, how a picture calls it, and its mark."""
ROOM = 4.0
"""By which factor the axes reach beyond what they show."""
WIDTH, HEIGHT = 8.0, 5.0


@dataclass(frozen=True, slots=True)
class Point:
    """A launch's operations of one kind: how many for a byte of DRAM, and how many a second."""

    name: str
    flops_per_byte: float
    flops_per_s: float
    after: bool
    mark: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """What two launches did under the ceilings of their device.

    Attributes:
        bandwidth: of DRAM, in bytes a second.
        ceilings: operations a second, by what they are called.
        points: of both launches; none of a launch that did no floating-point operation.
    """

    bandwidth: float
    ceilings: Mapping[str, float]
    points: tuple[Point, ...]


def roofline(before: Profile, after: Profile) -> Roofline:
    """The operations and bytes of two launches under the ceilings of the second one's device.

    Raises:
        ReportError: they do not say what the device could do.
    """
    bandwidth = after.metrics.get("dram_peak_bytes_per_s")
    peaks = {name: after.metrics.get(f"{kind}_peak_flops_per_s") for kind, (name, _) in PRECISIONS.items()}
    ceilings = {name: peak for name, peak in peaks.items() if peak}
    if not bandwidth or not ceilings:
        raise ReportError(
            f"the profile of {after.kernel} does not say what its device could do at most",
            cure="profile it with the section that does: ncu --section SpeedOfLight_RooflineChart",
        )
    return Roofline(bandwidth, ceilings, (*_points(before, after=False), *_points(after, after=True)))


def _points(profile: Profile, *, after: bool) -> Sequence[Point]:
    names = ("duration_s", "dram_read_bytes", "dram_write_bytes")
    duration, read, written = (profile.metrics.get(name) for name in names)
    moved = (read or 0.0) + (written or 0.0)
    done = {look: profile.metrics.get(f"{kind}_flops") for kind, look in PRECISIONS.items()}
    which = "after" if after else "before"
    return [
        Point(f"{which}: {profile.kernel}, {name}", flops / moved, flops / duration, after, mark)
        for (name, mark), flops in done.items()
        if flops and moved and duration
    ]


def write(found: Roofline, title: str, destination: Path) -> None:
    """Draws a roofline into a file, which is replaced.

    Args:
        found: what to draw.
        title: the device.
        destination: an SVG, PNG or PDF file, by its ending.

    Raises:
        UsageError: the file cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    variants.save(lambda: _drawn(found, title), destination)


def svg(found: Roofline, title: str) -> str:
    """The picture as an SVG element, for a page; raises ``MissingPackageError`` without Matplotlib."""
    file = io.BytesIO()
    variants.save(lambda: _drawn(found, title), file, ".svg")
    text = file.getvalue().decode()
    return text[text.index("<svg") :]


def _drawn(found: Roofline, title: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", size=HEADING, weight="bold", color=INK, parse_math=False)
    axes.set_xlabel("operations for a byte of DRAM (FLOP/B)", size=FONT, color=FAINT)
    axes.set_ylabel("operations a second (FLOP/s)", size=FONT, color=FAINT)
    axes.set(xscale="log", yscale="log")
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_color(GRID)
    _draw_ceilings(axes, found)
    _draw_points(axes, found)
    _draw_ticks(axes)
    figure.draw_without_rendering()  # settles the layout, by which the slope has its angle
    _draw_bandwidth(axes, found)
    return figure


def _draw_ticks(axes: "Axes") -> None:
    """Powers of ten as numbers with an SI prefix, and nothing between them."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(EngFormatter())
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", labelsize=SMALL, labelcolor=FAINT, color=GRID)


def _draw_ceilings(axes: "Axes", found: Roofline) -> None:
    """DRAM's slope up to the highest ceiling, and each ceiling from the slope on."""
    ridges = [peak / found.bandwidth for peak in found.ceilings.values()]
    reached = [point.flops_per_byte for point in found.points]
    left, right = min([*reached, *ridges]) / ROOM, max([*reached, *ridges]) * ROOM
    top = max(found.ceilings.values())
    axes.plot([left, max(ridges)], [left * found.bandwidth, top], color=INK, linewidth=1.4)
    for name, peak in found.ceilings.items():
        axes.plot([peak / found.bandwidth, right], [peak, peak], color=INK, linewidth=1.4)
        _label(axes, f"{name} {units.flop_rate(peak)}", (right, peak), (-4, 4), ha="right", va="bottom")
    lowest = min([left * found.bandwidth, *(point.flops_per_s for point in found.points)])
    axes.set(xlim=(left, right), ylim=(lowest / 2, top * ROOM))


def _draw_bandwidth(axes: "Axes", found: Roofline) -> None:
    """What the slope is, along it, in the middle of what lies below the lowest ceiling."""
    first, last = axes.get_xlim()[0], min(found.ceilings.values()) / found.bandwidth
    ends = axes.transData.transform([(x, x * found.bandwidth) for x in (first, last)])
    angle = degrees(atan2(ends[1][1] - ends[0][1], ends[1][0] - ends[0][0]))
    middle = sqrt(first * last)
    look = {"rotation": angle, "rotation_mode": "anchor", "ha": "center", "va": "bottom"}
    _label(axes, f"DRAM {units.rate(found.bandwidth)}", (middle, middle * found.bandwidth), (-4, 4), **look)


def _draw_points(axes: "Axes", found: Roofline) -> None:
    for point in found.points:
        colour = ORANGE if point.after else BLUE
        label = f"{point.name}: {units.flop_rate(point.flops_per_s)}"
        axes.plot(
            [point.flops_per_byte], [point.flops_per_s], point.mark, color=colour, markersize=8, zorder=3, label=label
        )
    if found.points:
        legend = axes.legend(loc="lower right", fontsize=SMALL, frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)
    else:
        nothing = "no floating-point operation was counted"
        _label(axes, nothing, (1, 0), (-8, 8), ha="right", va="bottom", xycoords="axes fraction")


def _label(axes: "Axes", text: str, at: tuple[float, float], moved: tuple[float, float], **look: Any) -> None:
    """A text at a place, moved by some points."""
    style = {"xycoords": "data", "textcoords": "offset points", "size": SMALL, "color": FAINT, **look}
    axes.annotate(text, at, moved, **style)
