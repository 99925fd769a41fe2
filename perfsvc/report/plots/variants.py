"""Bar charts of a run's variants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import pandas as pd

from perfsvc import units
from perfsvc.errors import MissingPackageError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import CacheState, Status
from perfsvc.report.tables.layout import known
from perfsvc.report.tables.run import RIDGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PEAK_IN_SIGHT = 0.25
"""Of the measured peak: where no variant reaches so much, its line would only push all bars into a corner."""


@dataclass(frozen=True, slots=True)
class VariantRate:
    """A variant at a point: its rate, and the shares of the reference variant and the measured peak; None where they are not known."""

    variant: str
    status: Status
    rate: float | None
    relative_speed: float | None
    of_peak: float | None


@dataclass(frozen=True, slots=True)
class Ladder:
    """A benchmark at a point in a cache state, on one device: its variants in their order.

    Attributes:
        cache: what is said of it; empty where the benchmark is measured in one cache state, cold.
        unit: of the rates: bytes a second, or operations where the work is mostly those.
        relative_to: the variant that the others are held against; empty where there is none.
        anchor_rate: what that reaches; None where it was not measured.
        peak: what the GPU's memory was measured to move; None where it is not known, or out of sight.
    """

    benchmark: str
    point: str
    cache: str
    unit: Literal["B/s", "FLOP/s"]
    variants: tuple[VariantRate, ...]
    relative_to: str = ""
    relative_rate: float | None = None
    peak: float | None = None

    @property
    def top(self) -> float:
        """The highest of all that is to be seen."""
        reached = [variant_index.rate for variant_index in self.variants if variant_index.rate]
        return max([*reached, *filter(None, (self.relative_rate, self.peak))])


def ladders(summary: pd.DataFrame) -> list[Ladder]:
    """The ladders of one run on one device, but for those of which nothing has a rate.

    Args:
        summary: rows of what ``perfsvc.report.export.frames.summary`` returns.
    """
    keys = ["benchmark", "version", "point", "cache"]
    groups = [rows.to_dict("records") for _, rows in summary.groupby(keys, sort=False)]
    caches = {name: set(of_it["cache"]) for name, of_it in summary.groupby("benchmark")}
    made = (_ladder(records, said=caches[records[0]["benchmark"]] != {CacheState.COLD.value}) for records in groups)
    return [ladder for ladder in made if any(variant_index.rate for variant_index in ladder.variants)]


def _ladder(records: list[dict[Any, Any]], *, said: bool) -> Ladder:
    known: list[dict[Any, Any]] = [
        {name: None if pd.isna(value) else value for name, value in record.items()} for record in records
    ]
    flops = any((one["flops_per_s"] or 0) > RIDGE * (one["bandwidth_bytes_per_s"] or 0) for one in known)
    rate = "flops_per_s" if flops else "bandwidth_bytes_per_s"
    variants = tuple(_rung(one, rate) for one in known)
    first = known[0]
    references = [
        variant_index.rate / variant_index.relative_speed
        for variant_index in variants
        if variant_index.rate and variant_index.relative_speed
    ]
    return Ladder(
        benchmark=first["benchmark"],
        point=first["point"],
        cache=first["cache"] if said else "",
        unit="FLOP/s" if flops else "B/s",
        variants=variants,
        relative_to=first.get("relative_to") or "",
        relative_rate=references[0] if references else None,
        peak=None if flops else _peak(first, variants),
    )


def _rung(one: Mapping[Any, Any], rate: str) -> VariantRate:
    of_peak = one["peak_share"] if rate == "bandwidth_bytes_per_s" else None
    return VariantRate(one["variant"], Status(one["status"]), one[rate], one.get("relative_speed"), of_peak)


def _peak(one: Mapping[Any, Any], variants: tuple[VariantRate, ...]) -> float | None:
    if one["copy_bytes_per_s"] is None:
        return None
    peak = float(max(one["copy_bytes_per_s"], one["read_bytes_per_s"]))
    return peak if any((variant_index.of_peak or 0) > PEAK_IN_SIGHT for variant_index in variants) else None


METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "perfsvc"},
    ".pdf": {"CreationDate": None, "Creator": "perfsvc"},
    ".png": {"Software": "perfsvc"},
}
"""What each kind of file says of itself, by the ending of its name."""

BLUE, ORANGE, RED = "#0072B2", "#E69F00", "#B3402A"
"""Of a variant, of the reference variant, of what went wrong. Okabe's and Ito's blue and orange: the colour-blind tell them apart."""
INK, FAINT, GRID = "#1b1f24", "#6a737d", "#e1e4e8"
INK_OF = {Status.OK: INK, Status.SKIPPED: FAINT}

TITLE, HEADING, FONT, SMALL = 13.0, 11.0, 9.5, 8.5
"""Sizes of letters, in points."""
POINTS = 72
"""In an inch, in which the layout is written."""
MARGIN, TITLES, HEADINGS, ROW, TICKS, BARS, COLUMN = 0.25, 0.78, 0.52, 0.27, 0.38, 5.0, 0.95
"""Around all, of the titles, above a panel, of a bar with its gap, below a panel, of the longest bar, of a number."""
TICK_PAD, ABOVE = 3.5, 6.0
"""Points between the bars and the scale below them, and what stands above them."""
BREADTH = 0.68
"""Of a bar, as a share of its row."""
MOST_TICKS = 6
ROOM = 1.02
"""Of what is highest, so that its line is not the edge."""


def require_matplotlib() -> None:
    """Raises ``MissingPackageError`` where there is nothing to draw with."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise MissingPackageError(
            "a plot needs the package matplotlib, which is missing", cure=install_command("plot")
        ) from error


def write(ladders: Sequence[Ladder], title: str, subtitle: str, destination: Path) -> None:
    """Draws ladders one below the other into a file, which is replaced.

    Args:
        ladders: at least one.
        title: the GPU.
        subtitle: the run.
        destination: an SVG, PNG or PDF file, by its ending.

    Raises:
        UsageError: the name has no such ending, or cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    require_ending(destination, "ladders.svg")
    save(lambda: _drawn(ladders, title, subtitle), destination)


def require_ending(destination: Path, example: str) -> None:
    """Raises ``UsageError`` where a file's name does not say which kind of picture it is to be."""
    if destination.suffix.lower() not in METADATA:
        raise UsageError(
            f"{destination.name!r} does not say what to draw", cure=f"name it like {example} ({', '.join(METADATA)})"
        )


def save(draw: Callable[[], "Figure"], destination: Path | BinaryIO, ending: str = "") -> None:
    """Writes a figure that is drawn in the house's look.

    Args:
        draw: makes it.
        destination: the file, which is replaced, or an open one.
        ending: what kind of picture it is to be; of a file by its name.

    Raises:
        UsageError: the file cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib import style

    kind = ending or Path(str(destination)).suffix.lower()
    with style.context("default"), mpl.rc_context({"svg.hashsalt": "perfsvc", "font.size": FONT, "text.color": INK}):
        try:
            draw().savefig(destination, dpi=200, metadata=METADATA[kind], format=kind[1:])
        except OSError as error:
            raise UsageError(
                f"{destination} cannot be written: {error.strerror or error}",
                cure="name a file in a folder that exists and may be written",
            ) from error


def _drawn(ladders: Sequence[Ladder], title: str, subtitle: str) -> "Figure":
    from matplotlib.figure import Figure

    columns = max(len(_columns(ladder)) for ladder in ladders)
    names = {variant_index.variant for ladder in ladders for variant_index in ladder.variants} | {
        f"T{ladder.unit}" for ladder in ladders
    }
    left = 1.5 * MARGIN + max(_width(name, FONT) for name in names)
    wide = [left + BARS + COLUMN * columns, MARGIN + _width(title, TITLE), MARGIN + _width(subtitle, SMALL)]
    width = max(wide) + MARGIN
    height = TITLES + sum(HEADINGS + ROW * len(ladder.variants) + TICKS for ladder in ladders) + MARGIN / 2
    figure = Figure(figsize=(width, height), facecolor="white")
    for text, below, size, weight, colour in (
        (title, 0.38, TITLE, "bold", INK),
        (subtitle, 0.62, SMALL, "normal", FAINT),
    ):
        figure.text(MARGIN / width, 1 - below / height, text, size=size, weight=weight, color=colour, parse_math=False)
    top = height - TITLES
    for ladder in ladders:
        rows = ROW * len(ladder.variants)
        bottom = top - HEADINGS - rows
        axes = figure.add_axes((left / width, bottom / height, BARS / width, rows / height))
        _draw_bars(axes, ladder)
        _draw_ticks(axes, ladder)
        _draw_lines(axes, ladder)
        _draw_heading(axes, ladder, left - MARGIN)
        _draw_numbers(axes, ladder)
        top = bottom - TICKS
    return figure


def _draw_bars(axes: "Axes", ladder: Ladder) -> None:
    places = range(len(ladder.variants))
    colours = [ORANGE if variant_index.variant == ladder.relative_to else BLUE for variant_index in ladder.variants]
    axes.barh(
        places,
        [variant_index.rate or 0.0 for variant_index in ladder.variants],
        height=BREADTH,
        color=colours,
        zorder=2,
    )
    axes.set_yticks(places, [variant_index.variant for variant_index in ladder.variants], parse_math=False)
    axes.set_ylim(len(ladder.variants) - 0.5, -0.5)
    axes.set_xlim(0, ROOM * ladder.top)
    axes.tick_params(length=0, labelsize=FONT, labelcolor=INK)
    axes.spines[:].set_visible(False)
    axes.spines["left"].set(visible=True, color=FAINT, linewidth=0.8)


def _draw_ticks(axes: "Axes", ladder: Ladder) -> None:
    """The scale below the bars, in round numbers, the unit before them."""
    from matplotlib.ticker import MaxNLocator

    power = min(max(3 * floor(log10(ladder.top) / 3), min(units.LARGE)), max(units.LARGE))
    scaled = MaxNLocator(MOST_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(0, ladder.top / 10.0**power)
    ticks = [tick for tick in scaled if tick * 10.0**power <= ladder.top]
    axes.set_xticks([tick * 10.0**power for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.tick_params(axis="x", labelsize=SMALL, labelcolor=FAINT, pad=TICK_PAD)
    axes.annotate(
        f"{units.LARGE[power]}{ladder.unit}",
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


def _draw_lines(axes: "Axes", ladder: Ladder) -> None:
    """The reference variant and the measured peak, each as a line through all bars, and what they are above them."""
    lines = []
    if ladder.relative_rate:
        lines.append(
            axes.axvline(ladder.relative_rate, color=ORANGE, linewidth=1.4, zorder=3, label=ladder.relative_to)
        )
    if ladder.peak:
        label = f"peak, {units.rate(ladder.peak)}"
        lines.append(axes.axvline(ladder.peak, color=INK, linewidth=1.2, linestyle=(0, (3, 2)), zorder=3, label=label))
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


def _draw_heading(axes: "Axes", ladder: Ladder, indent: float) -> None:
    """The benchmark and the point above its bars, as far to the left as the title."""
    after = _width(ladder.benchmark, HEADING, "bold") * POINTS + HEADING - indent * POINTS
    point = f"{ladder.point.replace(',', ', ')} {ladder.cache}".strip()
    _above(axes, 0, ladder.benchmark, size=HEADING, weight="bold", start=-indent * POINTS)
    _above(axes, 0, point, size=FONT, color=FAINT, start=after)


def _draw_numbers(axes: "Axes", ladder: Ladder) -> None:
    """What the bars say, in columns beside them."""
    for number, (name, cells) in enumerate(_columns(ladder).items(), 1):
        right = 1 + number * COLUMN / BARS
        _above(axes, right, name, size=SMALL, color=FAINT, ha="right")
        for place, (cell, variant_index) in enumerate(zip(cells, ladder.variants, strict=True)):
            axes.text(
                right,
                place,
                cell,
                transform=axes.get_yaxis_transform(),
                size=FONT,
                color=INK_OF.get(variant_index.status, RED),
                ha="right",
                va="center_baseline",
            )


def _above(axes: "Axes", at: float, text: str, *, start: float = 0.0, **look: Any) -> None:
    """A text above the bars, by the share of their breadth that it stands at and the points that it is moved."""
    axes.annotate(
        text, (at, 1), (start, ABOVE), xycoords="axes fraction", textcoords="offset points", parse_math=False, **look
    )


def _columns(ladder: Ladder) -> dict[str, list[str]]:
    """The numbers beside a ladder by what is said above them: its rates, and the shares that any variant has."""
    shares = {
        "of peak": [variant_index.of_peak for variant_index in ladder.variants],
        "of reference": [variant_index.relative_speed for variant_index in ladder.variants],
    }
    return {
        "": [_rate(variant_index, ladder) for variant_index in ladder.variants],
        **{
            name: ["" if share is None else units.share(share) for share in of_rungs]
            for name, of_rungs in shares.items()
            if any(share is not None for share in of_rungs)
        },
    }


def _rate(variant_index: VariantRate, ladder: Ladder) -> str:
    """What a variant reaches, or how it ended."""
    if variant_index.status is not Status.OK:
        return variant_index.status.value
    return known(variant_index.rate, units.rate if ladder.unit == "B/s" else units.flop_rate)


def _width(text: str, size: float, weight: str = "normal") -> float:
    """How wide a text is, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight)).get_extents().xmax) / POINTS
