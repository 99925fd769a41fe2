"""The roofline of two launches: the operations of each for a byte of DRAM, under the ceilings of the device.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (4), 2009. The work is Nsight Compute's. The ceilings are the measured
peaks of the GPU; one that was not measured is what Nsight Compute computes from the clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan2, degrees, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from perfsvc import units
from perfsvc.errors import ReportError
from perfsvc.files import write_output
from perfsvc.model import L2, MEMORY, PEAK_NAMES, Profile, Rates
from perfsvc.report.plots.figure import BLUE, FAINT, FONT, GRID, HEADING, INK, ORANGE, SMALL, picture
from perfsvc.text import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS: Mapping[str, str] = {"fp32": "o", "fp64": "s"}
"""The mark of a point, by the precision of its operations."""
TENSOR_MARK = "^"
"""The mark of operations of the tensor cores, in any precision."""
ALWAYS = "fp32"
"""The precision whose ceiling is drawn even if no launch used it."""
COMPUTING = tuple(name for name in PEAK_NAMES if name not in {MEMORY, L2})
"""The names of the peaks of arithmetic, which are the prefixes of the metrics that count the operations."""
CLOSE = 1.4
"""The names of ceilings that differ by less than this factor would overlap, so they are written as one text."""
ROOM = 4.0
"""The factor by which the axes reach beyond what they show."""
WIDTH, HEIGHT = 8.0, 5.0


@dataclass(frozen=True, slots=True)
class LaunchPoint:
    """The operations of one precision in a launch: how many for a byte of DRAM, and how many a second."""

    name: str
    flops_per_byte: float
    flops_per_s: float
    after: bool
    mark: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """Two launches under the ceilings of their device.

    Attributes:
        bandwidth: of DRAM, in bytes a second.
        ceilings: operations a second, by name.
        computed: the names of the ceilings, ``DRAM`` included, that were not measured on the GPU.
        points: of both launches; a launch without floating-point operations has none.
    """

    bandwidth: float
    ceilings: Mapping[str, float]
    points: tuple[LaunchPoint, ...]
    computed: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Where the ceilings come from; empty if all were measured."""
        if not self.computed:
            return ""
        if len(self.computed) > len(self.ceilings):
            return "the ceilings are computed from the clock, not measured"
        return f"computed from the clock, not measured: {', '.join(self.computed)}"

    @property
    def labels(self) -> list[tuple[float, str]]:
        """The texts at the ceilings: a rate at which each stands, and the names and rates of one ceiling or several."""
        groups: list[list[tuple[str, float]]] = []
        for name, peak in sorted(self.ceilings.items(), key=lambda ceiling: ceiling[1]):
            if groups and peak < CLOSE * groups[-1][0][1]:
                groups[-1].append((name, peak))
            else:
                groups.append([(name, peak)])
        return [
            (group[-1][1], ", ".join(f"{name} {units.flop_rate(peak)}" for name, peak in group)) for group in groups
        ]


def roofline(before: Profile, after: Profile, peaks: Rates = MappingProxyType({})) -> Roofline:
    """Return the roofline with the points of both launches, under the peaks of the device of ``after``.

    Args:
        before: the first launch.
        after: the second launch.
        peaks: the measured peaks of the device, as far as they are known.

    Raises:
        ReportError: the profile ``after`` does not contain the device's peaks.
    """
    bandwidth = peaks.get(MEMORY) or after.metrics.get("dram_peak_bytes_per_s")
    used = [name for name in COMPUTING if any(profile.metrics.get(f"{name}_flops") for profile in (before, after))]
    computed = {
        name: after.metrics.get(f"{name}_peak_flops_per_s") or before.metrics.get(f"{name}_peak_flops_per_s")
        for name in dict.fromkeys((ALWAYS, *used))
    }
    ceilings = {PEAK_NAMES[name]: rate for name, other in computed.items() if (rate := peaks.get(name) or other)}
    if not bandwidth or not ceilings:
        raise ReportError(
            f"the profile of {after.kernel} does not contain the peaks of its device",
            cure="profile it with the section that has them: ncu --section SpeedOfLight_RooflineChart",
        )
    not_measured = [PEAK_NAMES[name] for name in computed if name not in peaks and PEAK_NAMES[name] in ceilings]
    return Roofline(
        bandwidth,
        ceilings,
        (*_points(before, after=False), *_points(after, after=True)),
        (*([] if MEMORY in peaks else ["DRAM"]), *not_measured),
    )


def _points(profile: Profile, *, after: bool) -> Sequence[LaunchPoint]:
    """Return a point for each precision in which the launch counted operations."""
    names = ("duration_s", "dram_read_bytes", "dram_write_bytes")
    duration_s, read_bytes, written_bytes = (profile.metrics.get(name) for name in names)
    moved_bytes = (read_bytes or 0.0) + (written_bytes or 0.0)
    operations = {name: profile.metrics.get(f"{name}_flops") for name in COMPUTING}
    side = "after" if after else "before"
    return [
        LaunchPoint(
            f"{side}: {profile.kernel}, {PEAK_NAMES[name]}",
            flops / moved_bytes,
            flops / duration_s,
            after,
            MARKS.get(name, TENSOR_MARK),
        )
        for name, flops in operations.items()
        if flops and moved_bytes and duration_s
    ]


def write(launches: Roofline, title: str, destination: Path) -> None:
    """Draw a roofline into a file, which is replaced.

    Args:
        launches: what to draw.
        title: the device.
        destination: an SVG, PNG or PDF file, by its suffix.

    Raises:
        UsageError: the file cannot be written.
        InfrastructureError: the disk is full.
        MissingPackageError: Matplotlib is not installed.
    """
    write_output(destination, picture(lambda: _draw(launches, title), destination.suffix))


def svg(launches: Roofline, title: str) -> str:
    """Return the picture as an SVG element for a page; raise ``MissingPackageError`` without Matplotlib."""
    text = picture(lambda: _draw(launches, title), ".svg").decode()
    return text[text.index("<svg") :]


def _draw(launches: Roofline, title: str) -> "Figure":
    """Return the figure of a roofline."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(label(title), loc="left", size=HEADING, weight="bold", color=INK)
    axes.set_xlabel("operations for a byte of DRAM (FLOP/B)", size=FONT, color=FAINT)
    axes.set_ylabel("operations a second (FLOP/s)", size=FONT, color=FAINT)
    axes.set(xscale="log", yscale="log")
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_color(GRID)
    _draw_ceilings(axes, launches)
    _draw_points(axes, launches)
    _draw_ticks(axes)
    figure.draw_without_rendering()  # fixes the layout, which determines the angle of the slope
    _draw_bandwidth(axes, launches)
    return figure


def _draw_ticks(axes: "Axes") -> None:
    """Label the powers of ten with an SI prefix."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(EngFormatter())
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", labelsize=SMALL, labelcolor=FAINT, color=GRID)


def _draw_ceilings(axes: "Axes", launches: Roofline) -> None:
    """Draw the roofline and set the limits of the axes.

    DRAM's bandwidth is a slope up to the highest ceiling. Each ceiling is a horizontal line that begins at the slope.
    """
    ridges = [peak / launches.bandwidth for peak in launches.ceilings.values()]
    intensities = [point.flops_per_byte for point in launches.points]
    left, right = min([*intensities, *ridges]) / ROOM, max([*intensities, *ridges]) * ROOM
    top = max(launches.ceilings.values())
    axes.plot([left, max(ridges)], [left * launches.bandwidth, top], color=INK, linewidth=1.4)
    for peak in launches.ceilings.values():
        axes.plot([peak / launches.bandwidth, right], [peak, peak], color=INK, linewidth=1.4)
    for peak, text in launches.labels:
        _label(axes, text, (right, peak), (-4, 4), ha="right", va="bottom")
    lowest = min([left * launches.bandwidth, *(point.flops_per_s for point in launches.points)])
    axes.set(xlim=(left, right), ylim=(lowest / 2, top * ROOM))


def _draw_bandwidth(axes: "Axes", launches: Roofline) -> None:
    """Write DRAM's bandwidth along its sloped line, midway between the left edge and the lowest horizontal line."""
    first, last = axes.get_xlim()[0], min(launches.ceilings.values()) / launches.bandwidth
    ends = axes.transData.transform([(x, x * launches.bandwidth) for x in (first, last)])
    angle = degrees(atan2(ends[1][1] - ends[0][1], ends[1][0] - ends[0][0]))
    middle = sqrt(first * last)
    look = {"rotation": angle, "rotation_mode": "anchor", "ha": "center", "va": "bottom"}
    _label(axes, f"DRAM {units.rate(launches.bandwidth)}", (middle, middle * launches.bandwidth), (-4, 4), **look)


def _draw_points(axes: "Axes", launches: Roofline) -> None:
    """Draw the points of both launches with a legend, or a note if no launch counted operations."""
    for point in launches.points:
        colour = ORANGE if point.after else BLUE
        name = f"{label(point.name)}: {units.flop_rate(point.flops_per_s)}"
        axes.plot(
            [point.flops_per_byte], [point.flops_per_s], point.mark, color=colour, markersize=8, zorder=3, label=name
        )
    if launches.note:
        _label(axes, launches.note, (0, 1), (8, -8), ha="left", va="top", xycoords="axes fraction")
    if launches.points:
        axes.legend(loc="lower right", fontsize=SMALL, frameon=False)
    else:
        nothing = "no floating-point operation was counted"
        _label(axes, nothing, (1, 0), (-8, 8), ha="right", va="bottom", xycoords="axes fraction")


def _label(axes: "Axes", text: str, at: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write a text at a position in the axes, with an offset in typographic points; ``look`` overrides its style."""
    style = {"xycoords": "data", "textcoords": "offset points", "size": SMALL, "color": FAINT, **look}
    axes.annotate(text, at, offset, **style)
