"""How a page writes and draws the picture of two launches: bars, code, bytes, and the roofline.

Bars are SVG without style, because the security policy of the pages forbids styles in attributes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from perfsvc import units
from perfsvc.errors import ReportError
from perfsvc.model import CodeLine, Excerpt, HotCode, LaunchPicture, Reason, ValuePair
from perfsvc.report.explanations import place
from perfsvc.report.pages import roofline as page_roofline
from perfsvc.report.plots import roofline
from perfsvc.report.tables import profiles
from perfsvc.report.wording import DASH, or_dash
from perfsvc.text import visible

LEAST_SHARE = 0.005
"""A line with a smaller share shows none."""
HOT = 0.05
"""From this share on, a line is emphasised."""
GAP = "⋯"


@dataclass(frozen=True, slots=True)
class CodeRow:
    """A row of a code panel.

    Attributes:
        kind: ``file`` (a heading), ``gap``, ``filler`` (only the other side has a line here), or ``line``.
        text: the name of the file, or the line.
        number: the number of the line, or the offset of the instruction in hexadecimal digits.
        share: how much of the counted amount belongs to this line: ``61 %``; empty for a small share.
        hot: whether the share is large.
        sign: ``−`` for a changed line of the baseline, ``+`` for a changed line of the candidate; else empty.
    """

    kind: str
    text: str = ""
    number: str = ""
    share: str = ""
    hot: bool = False
    sign: str = ""


@dataclass(frozen=True, slots=True)
class CodePanel:
    """The code of one side of two launches; without rows if the side has none."""

    side: str
    kernel: str
    rows: tuple[CodeRow, ...]


def panels(picture: LaunchPicture, excerpts: Sequence[Excerpt]) -> tuple[CodePanel, ...]:
    """Return both sides of some excerpts; a side without lines has no rows."""
    return tuple(
        _panel(side, profile.kernel, excerpts, after=side == "after")
        for side, profile in (("before", picture.before), ("after", picture.after))
    )


def _panel(side: str, kernel: str, excerpts: Sequence[Excerpt], *, after: bool) -> CodePanel:
    """Return one side: each file as a heading, and its excerpts with a gap between."""
    rows: list[CodeRow] = []
    last = ("", "")
    for index, excerpt in enumerate(excerpts):
        if excerpt.files != last:
            rows.append(CodeRow("file", excerpt.files[after]))
        elif index:
            rows.append(CodeRow("gap", GAP))
        last = excerpt.files
        is_source = bool(excerpt.files[after])
        for line in excerpt.after if after else excerpt.before:
            rows.append(_row(line, "+" if after else "−", is_source=is_source) if line else CodeRow("filler"))
    return CodePanel(side, kernel, tuple(rows) if any(row.kind == "line" for row in rows) else ())


def _row(line: CodeLine, sign: str, *, is_source: bool) -> CodeRow:
    return CodeRow(
        "line",
        visible(line.text),
        str(line.number) if is_source else f"{line.number:04x}",
        units.share(line.share) if line.share >= LEAST_SHARE else "",
        line.share >= HOT,
        sign if line.changed else "",
    )


def differs(code: HotCode) -> bool:
    """Return whether the sources differ where code is shown."""
    return any(excerpt.changed for excerpt in (*code.excerpts, *code.changes))


def changes_are_elsewhere(code: HotCode) -> bool:
    """Return whether the sources differ, but at none of the hot lines."""
    return bool(code.changes) and not any(excerpt.changed for excerpt in code.excerpts)


# --- numbers and bars ------------------------------------------------------------------------------------------------


def largest(pairs: Sequence[ValuePair]) -> float:
    """Return the largest of all values; 0 without any."""
    return max((pair.largest for pair in pairs), default=0.0)


def flows(picture: LaunchPicture) -> list[ValuePair]:
    """Return the bytes that went between all levels of the memory."""
    return [flow for link in picture.traffic for flow in link.flows]


def bars(before: float | None, after: float | None, most: float) -> Markup:
    """Return two bars, that of the baseline above that of the candidate; ``most`` is the length of a whole bar."""
    widths = [100 * value / most if value and most else 0.0 for value in (before, after)]
    return _BARS.format(*(max(width, 0.5) if width else 0.0 for width in widths))


def share_bar(share: float) -> Markup:
    """Return a bar for a share from 0 to 1."""
    return _SHARE.format(100 * share)


_BARS = Markup(
    '<svg class="bars" viewBox="0 0 100 13" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="before" width="{:.1f}" height="6"/><rect class="after" y="7" width="{:.1f}" height="6"/></svg>'
)
_SHARE = Markup(
    '<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="track" width="100" height="6"/><rect class="after" width="{:.1f}" height="6"/></svg>'
)


def cycles(value: float | None) -> str:
    """Return cycles with a digit after the point; a dash for None."""
    return or_dash(value, lambda number: f"{number:.1f}")


def nbytes(value: float | None) -> str:
    """Return bytes with a prefix: ``1.21 GB``; a dash for None."""
    return or_dash(value, lambda number: units.rate(number).removesuffix("/s"))


def count(value: float | None) -> str:
    """Return a count with a prefix: ``19.7 M``; a dash for None."""
    return or_dash(value, lambda number: units.rate(number).removesuffix("B/s").rstrip())


def hit_share(value: float | None) -> str:
    """Return a hit rate: ``51 %``; a dash for None."""
    return or_dash(value, lambda number: f"{100 * number:.0f} %")


def change(pair: ValuePair) -> str:
    """Return how a value changed, in per cent or as a factor; a dash if a value is unknown."""
    return profiles.change_text(pair.before, pair.after)


def part(value: float | None, pairs: Sequence[ValuePair], side: str) -> str:
    """Return the share that a value has of all values of a side; a dash for None."""
    total = sum(getattr(pair, side) or 0.0 for pair in pairs)
    return DASH if value is None else units.share(value / total) if value and total else "0 %"


# --- reasons, facts and the roofline ---------------------------------------------------------------------------------


def places(reason: Reason) -> list[tuple[str, str, str]]:
    """Return the side, the share and the place of each line that carries a reason."""
    sides = (("before", reason.before), ("after", reason.after))
    return [(side, units.share(line.share), place(line)) for side, lines in sides for line in lines]


def facts(picture: LaunchPicture, *, kernel: bool) -> list[tuple[str, str]]:
    """Return the name and the value of each known fact about the launches; the kernel's name if asked for."""
    before, after = picture.before, picture.after

    def both(one: str, other: str) -> str:
        return one if one == other else " → ".join(text or DASH for text in (one, other))

    times = [profiles.profiled_value("duration_s", profile.metrics.get("duration_s")) for profile in (before, after)]
    devices = [" ".join(filter(None, [profile.device, profile.chip])) for profile in (before, after)]
    every = (
        ("time", " → ".join(times)),
        ("kernel", both(before.kernel, after.kernel) if kernel else ""),
        ("on", both(*devices)),
        ("Nsight Compute", both(before.ncu_version, after.ncu_version)),
    )
    return [(name, text) for name, text in every if text]


@dataclass(frozen=True, slots=True)
class DrawnRoofline:
    """The roofline of a page: the drawing with its legend, or why there is none."""

    drawing: str = ""
    legend: tuple[tuple[str, str, Markup, str, str], ...] = ()
    note: str = ""
    why_not: str = ""


def drawn_roofline(picture: LaunchPicture) -> DrawnRoofline:
    """Return the roofline of both launches."""
    try:
        launches = roofline.roofline(picture.before, picture.after, picture.peaks)
    except ReportError as error:
        return DrawnRoofline(why_not=f"{error.what}; {error.cure}")
    if not launches.points:
        return DrawnRoofline(why_not="no floating-point operation was counted")
    return DrawnRoofline(page_roofline.drawn(launches), tuple(page_roofline.legend(launches.points)), launches.note)
