"""The findings as an Atom feed (RFC 4287)."""

from collections.abc import Iterable
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perfsvc.model import Finding, FindingEvent
from perfsvc.report import finding_words
from perfsvc.report.pages.site import FindingView, finding_page
from perfsvc.server.answers import kept
from perfsvc.server.kept import Content
from perfsvc.server.serving import serving
from perfsvc.text import cut, xml_text

ATOM = "http://www.w3.org/2005/Atom"
MOST_ENTRIES = 100
"""How many of the newest findings the feed has."""

LONGEST_TITLE = 200


def routes() -> list[Route]:
    """Return the routes of feeds."""
    return [Route("/feeds/findings.atom", findings)]


async def findings(request: Request) -> Response:
    """Answer with the feed of findings."""
    shared = serving(request)
    base = shared.site or str(request.base_url)
    return await kept(
        request, f"feed {base}", lambda: Content(feed(shared.pages.site().findings, base), "application/atom+xml")
    )


def feed(findings: Iterable[FindingView], base: str) -> bytes:
    """Return the feed of some findings, the newest change first.

    Args:
        findings: the findings, each with its events.
        base: the address of the site, with a slash at its end.
    """
    newest = sorted(findings, key=lambda view: (_updated(view), view.finding.id), reverse=True)[:MOST_ENTRIES]
    root = ET.Element("feed", xmlns=ATOM)
    _add(root, "title", "perfsvc: findings")
    _add(root, "id", f"{base}feeds/findings.atom")
    _add(root, "updated", _moment(_updated(newest[0]) if newest else datetime.fromtimestamp(0, UTC)))
    ET.SubElement(_add(root, "author"), "name").text = "perfsvc"
    ET.SubElement(root, "link", rel="self", href=f"{base}feeds/findings.atom")
    ET.SubElement(root, "link", rel="alternate", type="text/html", href=f"{base}findings.html")
    for view in newest:
        _entry(root, view, base)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _entry(root: ET.Element, view: FindingView, base: str) -> None:
    """Add the entry of a finding; its id is its address, which never changes."""
    finding, address = view.finding, f"{base}{finding_page(view.finding.id)}"
    entry = _add(root, "entry")
    _add(entry, "title", cut(f"{finding_words.finding_title(finding)} ({finding.state.value})", most=LONGEST_TITLE))
    _add(entry, "id", address)
    _add(entry, "published", _moment(view.events[0].at if view.events else finding.at))
    _add(entry, "updated", _moment(_updated(view)))
    ET.SubElement(entry, "link", rel="alternate", type="text/html", href=address)
    ET.SubElement(entry, "category", term=finding.state.value)
    _add(entry, "content", "\n".join(_lines(finding, view.events))).set("type", "text")


def _lines(finding: Finding, events: Iterable[FindingEvent]) -> list[str]:
    facts = [finding.root_cause, finding.evidence, finding.why]
    happened = [f"{_moment(event.at)} {event.kind.value} {event.by} {event.text}".strip() for event in events]
    return [cut(line) for line in (*facts, *happened) if line]


def _updated(view: FindingView) -> datetime:
    return max((event.at for event in view.events), default=view.finding.at)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _add(parent: ET.Element, name: str, text: str = "") -> ET.Element:
    element = ET.SubElement(parent, name)
    element.text = xml_text(text)
    return element
