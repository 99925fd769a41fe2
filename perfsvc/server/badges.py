"""Badges: small pictures in SVG with a word about the findings or about a series, for READMEs and wikis."""

from collections.abc import Callable

from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perfsvc.model import FindingState, Verdict
from perfsvc.report import wording
from perfsvc.report.pages.site import SeriesView
from perfsvc.server.answers import kept
from perfsvc.server.api import page_of_key
from perfsvc.server.kept import Content
from perfsvc.server.serving import serving
from perfsvc.text import shortened, visible, xml_text

GREEN, RED, GREY, AMBER = "#2a7d3f", "#b3261e", "#5f6368", "#8a5a00"
"""White text has a contrast of at least 4.5 on each colour."""

SVG = "image/svg+xml"

LONGEST = 40
"""Characters of the longest text on a badge."""
LONGEST_TITLE = 400

STANDING = frozenset({FindingState.OPEN, FindingState.ACKNOWLEDGED})
COLOURS = {Verdict.REGRESSION: RED, Verdict.BROKEN: RED, Verdict.MISSING: AMBER, Verdict.INCONCLUSIVE: AMBER}


def routes() -> list[Route]:
    """Return the routes of badges."""
    return [Route("/badges/findings.svg", findings), Route("/badges/series/{key}.svg", series)]


async def findings(request: Request) -> Response:
    """Answer with the badge of all open findings."""
    pages = serving(request).pages

    def make() -> Content:
        number = sum(view.finding.state in STANDING for view in pages.site().findings)
        text = f"{number} open" if number else "none open"
        return Content(badge("findings", text, RED if number else GREEN).encode(), SVG)

    return await _shown(request, "badge", make)


async def series(request: Request) -> Response:
    """Answer with the badge of a series: its newest level, and tonight's verdict if the series moved."""
    key, pages = request.path_params["key"], serving(request).pages

    def make() -> Content:
        found = pages.series(page_of_key(key))
        if found is None:
            raise HTTPException(404)
        _, view = found
        return Content(badge(view.series.case.id, *_newest(view)).encode(), SVG)

    return await _shown(request, f"badge {key}", make)


async def _shown(request: Request, key: str, make: Callable[[], Content]) -> Response:
    """Answer with a badge, which pages of other sites may show."""
    response = await kept(request, key, make)
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    return response


def _newest(view: SeriesView) -> tuple[str, str]:
    """Return the text and the colour of a series' newest run."""
    last, tonight = view.points[-1] if view.points else None, view.tonight
    if last is None or last.level is None:
        return (last.status.value if last else "no data"), RED if last else GREY
    level = wording.level(last.level, view.series.metric)
    if tonight is None or tonight.verdict in {Verdict.UNCHANGED, Verdict.NEW}:
        return level, GREEN if tonight else GREY
    outcome = wording.outcome(tonight)
    colour = COLOURS.get(tonight.verdict, GREEN) if outcome is tonight.verdict else GREY
    return f"{level}, {outcome.value}", colour


def badge(label: str, text: str, colour: str) -> str:
    """Return a badge: a label on grey, and a text on a colour. Long texts are cut; the title has the whole label."""
    left, right = (visible(xml_text(shortened(part, LONGEST))) for part in (label, text))
    left_px, right_px = _width(left), _width(right)
    title = escape(visible(xml_text(shortened(f"{label}: {text}", LONGEST_TITLE))))
    total = left_px + right_px
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{total}" height="20" rx="3" fill="#555"/>'
        f'<path d="M{left_px} 0h{right_px - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right_px - 3}z" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{_text(left, 0, left_px)}{_text(right, left_px, right_px)}</g></svg>"
    )


def _text(text: str, x_px: int, width_px: int) -> str:
    """Return a text in the middle of its part; ``textLength`` makes it fit whatever font the reader has."""
    return f'<text x="{x_px + 6}" y="14" textLength="{width_px - 12}">{escape(text)}</text>'


def _width(text: str) -> int:
    """Return the width of a part with its margins, in pixels."""
    narrow, wide = set("fijlrt.,:;!|'()[] "), set("mwMW@%")
    return 12 + round(sum(4.0 if letter in narrow else 10.0 if letter in wide else 7.0 for letter in text))
