"""Bar charts of a run: a panel for each benchmark and point, a bar for each variant, the numbers beside the bars."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from perfsvc import units
from perfsvc.files import write_output
from perfsvc.model import L2, MEMORY, PEAK_NAMES, CacheState, Status
from perfsvc.report import peaks, wording
from perfsvc.report.plots.figure import (
    BLUE,
    FAINT,
    FONT,
    GRID,
    HEADING,
    INK,
    ORANGE,
    RED,
    SMALL,
    TITLE,
    picture,
    require_suffix,
)
from perfsvc.text import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PEAK_IN_SIGHT = 0.25
"""The measured peak is drawn if a variant reaches this share of it; otherwise its line would squeeze all bars."""

INK_OF_STATUS = {Status.OK: INK, Status.SKIPPED: FAINT}

POINTS = 72
"""Points in an inch; the layout below is in inches."""
MARGIN, TITLES, HEADINGS, ROW, TICKS, BARS, COLUMN = 0.25, 0.78, 0.52, 0.27, 0.38, 5.0, 0.95
"""The margin, the titles, the space above a panel, a row, the space below a panel, the longest bar, a column."""
TICK_PAD, ABOVE = 3.5, 6.0
"""Points between the bars and the scale below them, and between the bars and the text above them."""
BAR_SHARE = 0.68
"""The height of a bar as a share of its row."""
MOST_TICKS = 6
HEADROOM = 1.02
"""The scale ends a little beyond the highest value, so that its line is not the edge."""


@dataclass(frozen=True, slots=True)
class VariantRate:
    """A variant at a point: its rate, its relative speed and its share of the nearest peak; None for the unknown."""

    variant: str
    status: Status
    rate: float | None
    relative_speed: float | None
    peak: str
    peak_share: float | None


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """A benchmark at a point in a cache state, on one device.

    Attributes:
        cache: the cache state to show; empty if the benchmark is only measured cold.
        unit: the unit of the rates: bytes a second, or operations a second if the work is mostly arithmetic.
        variants: in the suite's order.
        relative_to: the reference variant; empty if there is none.
        relative_rate: the rate of the reference variant; None if it was not measured.
        peak: the measured peak of the GPU in this unit that a variant comes nearest to; None if it is far above all
            bars, or if none is known.
        peak_name: the name of this peak, such as ``memory`` or ``bf16``.
    """

    benchmark: str
    point: str
    cache: str
    unit: Literal["B/s", "FLOP/s"]
    variants: tuple[VariantRate, ...]
    relative_to: str = ""
    relative_rate: float | None = None
    peak: float | None = None
    peak_name: str = ""

    @property
    def top(self) -> float:
        """The highest value in the panel."""
        rates = [variant.rate for variant in self.variants if variant.rate]
        return max([*rates, *filter(None, (self.relative_rate, self.peak))])


def panels(summary: pd.DataFrame) -> list[PlotPanel]:
    """Return the panels of one run on one device; a panel without any rate is dropped.

    Args:
        summary: the rows of this run and device in the result of ``frames.summary``.
    """
    groups = summary.groupby(["benchmark", "version", "point", "cache"], sort=False)
    caches = {name: set(rows["cache"]) for name, rows in summary.groupby("benchmark")}
    every_panel = [
        _panel(records, show_cache=caches[records[0]["benchmark"]] != {CacheState.COLD.value})
        for records in (rows.to_dict("records") for _, rows in groups)
    ]
    return [panel for panel in every_panel if any(variant.rate for variant in panel.variants)]


def _panel(records: list[dict[Any, Any]], *, show_cache: bool) -> PlotPanel:
    """Return the panel of a benchmark at a point.

    Args:
        records: a row of the summary for each variant.
        show_cache: whether the heading names the cache state.
    """
    rows: list[dict[Any, Any]] = [
        {name: None if pd.isna(value) else value for name, value in record.items()} for record in records
    ]
    arithmetic = any(peaks.is_arithmetic(row["flops_per_s"], row["bandwidth_bytes_per_s"]) for row in rows)
    rate = "flops_per_s" if arithmetic else "bandwidth_bytes_per_s"
    variants = tuple(
        VariantRate(
            row["variant"],
            Status(row["status"]),
            row[rate],
            row.get("relative_speed"),
            row["peak"] or "",
            row["peak_share"],
        )
        for row in rows
    )
    first = rows[0]
    # The reference may be a variant of another panel: its rate follows from any variant's relative speed.
    reference_rates = [row.rate / row.relative_speed for row in variants if row.rate and row.relative_speed]
    of_unit = [row for row in variants if row.peak and (row.peak not in {MEMORY, L2}) == arithmetic]
    nearest = max(of_unit, key=lambda row: row.peak_share or 0.0, default=None)
    return PlotPanel(
        benchmark=first["benchmark"],
        point=first["point"],
        cache=first["cache"] if show_cache else "",
        unit="FLOP/s" if arithmetic else "B/s",
        variants=variants,
        relative_to=first.get("relative_to") or "",
        relative_rate=reference_rates[0] if reference_rates else None,
        peak=_peak(nearest) if nearest else None,
        peak_name=nearest.peak if nearest else "",
    )


def _peak(nearest: VariantRate) -> float | None:
    """Return the peak that a variant comes nearest to; None if it is far above the variant's bar."""
    share = nearest.peak_share or 0.0
    return nearest.rate / share if nearest.rate and share > PEAK_IN_SIGHT else None


# --- drawing ---------------------------------------------------------------------------------------------------------


def write(panels: Sequence[PlotPanel], title: str, subtitle: str, destination: Path) -> None:
    """Draw panels one below the other into a file, which is replaced.

    Args:
        panels: at least one.
        title: the device.
        subtitle: the run.
        destination: an SVG, PNG or PDF file, by its suffix.

    Raises:
        UsageError: the suffix is not that of a picture, or the file cannot be written.
        InfrastructureError: the disk is full.
        MissingPackageError: Matplotlib is not installed.
    """
    require_suffix(destination, "variants.svg")
    labelled = [_labelled(panel) for panel in panels]
    write_output(destination, picture(lambda: _draw(labelled, label(title), label(subtitle)), destination.suffix))


def _labelled(panel: PlotPanel) -> PlotPanel:
    """Return a panel with each of its names on one line, cut if it is long."""
    variants = tuple(replace(variant, variant=label(variant.variant)) for variant in panel.variants)
    return replace(
        panel,
        benchmark=label(panel.benchmark),
        point=label(panel.point),
        relative_to=label(panel.relative_to),
        variants=variants,
    )


def _draw(panels: Sequence[PlotPanel], title: str, subtitle: str) -> "Figure":
    """Return the figure; its size, in inches, follows from the texts and the number of bars."""
    from matplotlib.figure import Figure

    columns = max(len(_columns(panel)) for panel in panels)
    names = {variant.variant for panel in panels for variant in panel.variants} | {f"T{panel.unit}" for panel in panels}
    left = 1.5 * MARGIN + max(_text_width(name, FONT) for name in names)
    contents = (
        left + BARS + COLUMN * columns,
        MARGIN + _text_width(title, TITLE),
        MARGIN + _text_width(subtitle, SMALL),
    )
    width = max(contents) + MARGIN
    height = TITLES + sum(HEADINGS + ROW * len(panel.variants) + TICKS for panel in panels) + MARGIN / 2
    figure = Figure(figsize=(width, height), facecolor="white")
    for text, below, size, weight, colour in (
        (title, 0.38, TITLE, "bold", INK),
        (subtitle, 0.62, SMALL, "normal", FAINT),
    ):
        figure.text(MARGIN / width, 1 - below / height, text, size=size, weight=weight, color=colour)
    top = height - TITLES
    for panel in panels:
        rows = ROW * len(panel.variants)
        bottom = top - HEADINGS - rows
        axes = figure.add_axes((left / width, bottom / height, BARS / width, rows / height))
        _draw_bars(axes, panel)
        _draw_ticks(axes, panel)
        _draw_lines(axes, panel)
        _draw_heading(axes, panel, left - MARGIN)
        _draw_numbers(axes, panel)
        top = bottom - TICKS
    return figure


def _draw_bars(axes: "Axes", panel: PlotPanel) -> None:
    """Draw a horizontal bar for each variant, the first variant on top, with its name on the left."""
    rows = range(len(panel.variants))
    colours = [ORANGE if variant.variant == panel.relative_to else BLUE for variant in panel.variants]
    axes.barh(rows, [variant.rate or 0.0 for variant in panel.variants], height=BAR_SHARE, color=colours, zorder=2)
    axes.set_yticks(rows, [variant.variant for variant in panel.variants])
    axes.set_ylim(len(panel.variants) - 0.5, -0.5)
    axes.set_xlim(0, HEADROOM * panel.top)
    axes.tick_params(length=0, labelsize=FONT, labelcolor=INK)
    axes.spines[:].set_visible(False)
    axes.spines["left"].set(visible=True, color=FAINT, linewidth=0.8)


def _draw_ticks(axes: "Axes", panel: PlotPanel) -> None:
    """Draw the scale below the bars in round numbers, with the unit on its left."""
    from matplotlib.ticker import MaxNLocator

    # The unit's SI prefix is 10 ** power, with a power divisible by three: G for rates from 1e9 on.
    power = min(max(3 * floor(log10(panel.top) / 3), min(units.LARGE)), max(units.LARGE))
    scaled = MaxNLocator(MOST_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(0, panel.top / 10.0**power)
    ticks = [tick for tick in scaled if tick * 10.0**power <= panel.top]
    axes.set_xticks([tick * 10.0**power for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.tick_params(axis="x", labelsize=SMALL, labelcolor=FAINT, pad=TICK_PAD)
    axes.annotate(
        f"{units.LARGE[power]}{panel.unit}",
        (0, 0),
        (-SMALL, -TICK_PAD),
        xycoords="axes fraction",
        textcoords="offset points",
        size=SMALL,
        color=FAINT,
        ha="right",
        va="top",
    )
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_lines(axes: "Axes", panel: PlotPanel) -> None:
    """Draw the reference variant and the measured peak as lines through all bars, with a legend above."""
    lines = []
    if panel.relative_rate:
        lines.append(axes.axvline(panel.relative_rate, color=ORANGE, linewidth=1.4, zorder=3, label=panel.relative_to))
    if panel.peak:
        unit = units.rate if panel.unit == "B/s" else units.flop_rate
        name = "peak" if panel.peak_name == MEMORY else f"{PEAK_NAMES[panel.peak_name]} peak"
        text = f"{name}, {unit(panel.peak)}"
        lines.append(axes.axvline(panel.peak, color=INK, linewidth=1.2, linestyle=(0, (3, 2)), zorder=3, label=text))
    if lines:
        axes.legend(
            handles=lines,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            borderaxespad=ABOVE / SMALL - 0.25,
            borderpad=0,
            frameon=False,
            ncols=2,
            fontsize=SMALL,
            handlelength=1.8,
            columnspacing=1.4,
        )


def _draw_heading(axes: "Axes", panel: PlotPanel, indent: float) -> None:
    """Write the benchmark and the point above the bars, aligned with the title.

    Args:
        axes: the axes of the panel.
        panel: the panel.
        indent: inches from the title to the bars.
    """
    after = _text_width(panel.benchmark, HEADING, "bold") * POINTS + HEADING - indent * POINTS
    point = f"{panel.point.replace(',', ', ')} {panel.cache}".strip()
    _write_above(axes, 0, panel.benchmark, size=HEADING, weight="bold", start=-indent * POINTS)
    _write_above(axes, 0, point, size=FONT, color=FAINT, start=after)


def _draw_numbers(axes: "Axes", panel: PlotPanel) -> None:
    """Write the numbers of the bars in columns beside them."""
    for number, (name, cells) in enumerate(_columns(panel).items(), 1):
        right = 1 + number * COLUMN / BARS
        _write_above(axes, right, name, size=SMALL, color=FAINT, ha="right")
        for row, (cell, variant) in enumerate(zip(cells, panel.variants, strict=True)):
            axes.text(
                right,
                row,
                cell,
                transform=axes.get_yaxis_transform(),
                size=FONT,
                color=INK_OF_STATUS.get(variant.status, RED),
                ha="right",
                va="center_baseline",
            )


def _write_above(axes: "Axes", at: float, text: str, *, start: float = 0.0, **look: Any) -> None:
    """Write a text above the bars.

    Args:
        axes: the axes of the panel.
        at: the horizontal position, as a share of the axes' width.
        text: the text.
        start: a further horizontal offset, in typographic points.
        look: the style of the text, for Matplotlib.
    """
    axes.annotate(text, (at, 1), (start, ABOVE), xycoords="axes fraction", textcoords="offset points", **look)


def _columns(panel: PlotPanel) -> dict[str, list[str]]:
    """Return the columns of numbers beside the bars, by heading, with a cell for each variant.

    The rates have no heading. The share of the peak and the relative speed have a column if a variant has a value.
    """
    columns = {"": [_rate(variant, panel) for variant in panel.variants]}
    if any(variant.peak_share is not None for variant in panel.variants):
        columns["% of peak"] = [peaks.share(variant.peak, variant.peak_share) for variant in panel.variants]
    if any(variant.relative_speed is not None for variant in panel.variants):
        speeds = (variant.relative_speed for variant in panel.variants)
        columns[f"vs {panel.relative_to}"] = ["" if speed is None else wording.speed(speed) for speed in speeds]
    return columns


def _rate(variant: VariantRate, panel: PlotPanel) -> str:
    """Return a variant's rate as text, or its status if it is not ok."""
    if variant.status is not Status.OK:
        return variant.status.value
    return wording.or_dash(variant.rate, units.rate if panel.unit == "B/s" else units.flop_rate)


def _text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight)).get_extents().xmax) / POINTS
