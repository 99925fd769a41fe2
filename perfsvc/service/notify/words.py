"""The text of a message: plain text for mails, chats and phones.

The title begins with the worst news, because a phone shows only its beginning. The body has a paragraph for each
finding, with its worst cases and how to look further.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsvc import units
from perfsvc.model import Cause, Direction, Finding, Judgement, MovedSeries
from perfsvc.report.pages.site import finding_page
from perfsvc.report.wording import direction_word, finding_title, moved_sentence, series_name
from perfsvc.service.notify.news import News
from perfsvc.store import StageRow

LONGEST_TITLE = 150
"""Characters."""

LONGEST_LINE = 300
"""Characters; the beginning of a compiler's message is enough."""

IN_FULL = 8
"""How many findings of a kind have a paragraph, and how many failures have a line."""

WORST = 5
"""How many cases of a finding are named."""

ORDER = (Cause.KERNEL, Cause.LAUNCH, Cause.TOOLCHAIN, Cause.ENVIRONMENT)


def title(news: News) -> str:
    """Return the title of a message: the worst news in words, then how many further news there are of each kind."""
    findings = sorted((*news.raised, *news.reopened), key=_urgency, reverse=True)
    groups = [
        ([f"{failure.series.case.id} failed" for failure in _distinct(news.broken)], "failed case", "failed cases"),
        ([_moved(finding) for finding in findings], "new finding", "new findings"),
        ([f"stage {stage.name} failed" for stage in news.stages], "failed stage", "failed stages"),
        (
            [_moved(extended.finding) for extended in news.extended],
            "finding with more cases",
            "findings with more cases",
        ),
        (
            [f"{finding_title(finding)} is back" for finding in news.resolved],
            "resolved finding",
            "resolved findings",
        ),
    ]
    (texts, singular, plural), *others = [group for group in groups if group[0]]
    parts = [texts[0]]
    if len(texts) > 1:
        parts.append(units.count(len(texts) - 1, f"more {singular}", f"more {plural}"))
    parts += [units.count(len(texts), singular, plural) for texts, singular, plural in others]
    return _one_line(", ".join(parts), LONGEST_TITLE)


def body(news: News, page: str) -> str:
    """Return the body of a message: the night, findings, failures, resolved findings, a link.

    Args:
        news: what is new.
        page: the address of the site, for links; empty without one.
    """
    site = page.rstrip("/")
    night = news.night
    run = "no run" if night.run is None else f"run {night.run}"
    commit = f" at {night.commit[:9]}{' with uncommitted changes' if night.dirty else ''}" if night.commit else ""
    failures = [_one_line(f"{failure.series.case.id}: {failure.reason}") for failure in _distinct(news.broken)]
    resolved = [
        _one_line(f"finding {finding.id}, {finding_title(finding)}: {finding.reason}") for finding in news.resolved
    ]
    parts = [
        f"Night {night.id} on {night.host}: {run} of {Path(night.suite).name}{commit}",
        *_paragraphs(news.raised, "new", site),
        *_paragraphs(news.reopened, "shows again", site),
        *(
            _paragraph(extended.finding, "more cases", [f"- {extended.text}"], site)
            for extended in news.extended[:IN_FULL]
        ),
        *_list("Failed cases", failures, f"perfsvc report {night.run}"),
        *_list("Failed stages of the night", [_stage(stage) for stage in news.stages], ""),
        *_list("Resolved", resolved, "perfsvc findings --all"),
    ]
    if site:
        parts.append(f"All of it: {site}/")
    return "\n\n".join(parts)


# --- parts of the body -----------------------------------------------------------------------------------------------


def _paragraphs(findings: Sequence[Finding], event: str, site: str) -> Iterator[str]:
    """Yield a paragraph for each finding: those of the code first, the worst first."""
    for finding in sorted(findings, key=_order)[:IN_FULL]:
        cases = sorted(finding.standing, key=_badness, reverse=True)
        lines = [
            *(f"- {moved_sentence(finding, moved)}" for moved in cases[:WORST]),
            *([f"- and {len(cases) - WORST} more"] if len(cases) > WORST else []),
            f"on {_devices(finding)}",
            *([finding.evidence] if finding.evidence else []),
            *([f"{finding.owner} looks after it"] if finding.owner else []),
        ]
        yield _paragraph(finding, event, lines, site)
    if len(findings) > IN_FULL:
        yield f"And {units.count(len(findings) - IN_FULL, 'more finding')}: perfsvc findings"


def _paragraph(finding: Finding, event: str, lines: Sequence[str], site: str) -> str:
    """Return a paragraph: the finding and its cause, some lines, and how to look further."""
    cause = f"{finding.cause}, {finding.root_cause}" if finding.root_cause else finding.cause.value
    texts = [_one_line(line) for line in (f"Finding {finding.id} ({event}): {cause}", *lines)]
    link = [f"{site}/{finding_page(finding.id)}"] if site else []
    return "\n".join([*texts, f"perfsvc findings show {finding.id}", *link])


def _devices(finding: Finding) -> str:
    """Return the GPUs of a finding: ``NVIDIA H200``, ``3 GPUs: NVIDIA H100, NVIDIA H200``."""
    models = ", ".join(sorted(set(finding.devices.values())))
    return models if len(finding.devices) == 1 else f"{len(finding.devices)} GPUs: {models}"


def _list(heading: str, items: Sequence[str], further: str) -> Iterator[str]:
    """Yield a heading with a line for each item; nothing without items."""
    if items:
        more = [f"- and {len(items) - IN_FULL} more"] if len(items) > IN_FULL else []
        yield "\n".join([heading, *(f"- {item}" for item in items[:IN_FULL]), *more, *filter(None, [further])])


def _stage(stage: StageRow) -> str:
    cure = f"\n  cure: {_one_line(stage.cure)}" if stage.cure else ""
    return f"{_one_line(f'{stage.name}: {stage.message}')}{cure}"


def _distinct(broken: Sequence[Judgement]) -> list[Judgement]:
    """Return one failure for each case and reason: one case may fail on several devices and in both cache states."""
    first: dict[tuple[str, str], Judgement] = {}
    for judgement in broken:
        first.setdefault((judgement.series.case.id, judgement.reason), judgement)
    return list(first.values())


# --- what moved ------------------------------------------------------------------------------------------------------


def _moved(finding: Finding) -> str:
    """Return how far the worst case of a finding moved: ``transpose/tiled[n=4096] slower by 5.3 %, and 2 more``."""
    worst, others = finding.worst, len(finding.standing or finding.moved) - 1
    more = f", and {others} more" if others else ""
    if worst is None:
        return finding_title(finding)
    name = series_name(worst.series)
    if worst.ratio is None:
        return f"{name} moved{more}"
    direction, size = direction_word(worst.series.metric, worst.ratio), units.change(abs(worst.ratio - 1))
    return f"{name} {direction} by {size}{more}"


def _badness(moved: MovedSeries) -> float:
    """Return a sort key: the ratio of a slower series; for a faster series, the fraction by which it fell."""
    ratio = moved.ratio or 1.0
    return ratio if ratio >= 1 or moved.direction is Direction.SLOWER else 1 - ratio


def _size(finding: Finding) -> float:
    return max(map(_badness, finding.moved), default=0.0)


def _urgency(finding: Finding) -> tuple[bool, float]:
    return finding.direction is Direction.SLOWER, _size(finding)


def _order(finding: Finding) -> tuple[int, float]:
    return ORDER.index(finding.cause) if finding.cause in ORDER else len(ORDER), -_size(finding)


def _one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text without line breaks, cut to a number of characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
