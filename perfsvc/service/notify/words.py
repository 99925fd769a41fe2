"""A message in words: plain text that reads well in a mail, in a chat and on a phone.

The title says the worst first, since a phone shows no more than its beginning. The body has a paragraph for each cause,
with its worst cases and how to look further.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsvc import units
from perfsvc.model import TIME, Cause, Direction, Finding, Judgement, MovedSeries
from perfsvc.report.pages.site import finding_page
from perfsvc.report.wording import finding_title, series_name
from perfsvc.service.notify.news import News
from perfsvc.store import StageRow

LONGEST_TITLE = 150
LONGEST_LINE = 300
"""Characters; of a compiler's message the beginning tells enough."""

IN_FULL = 8
"""How many findings of a kind have a paragraph, and how many failures a line."""

WORST = 5
"""How many cases of a finding are named."""

ORDER = (Cause.KERNEL, Cause.TOOLCHAIN, Cause.ENVIRONMENT)


def title(news: News) -> str:
    """One line: the worst in words, and how much else there is."""
    findings = sorted((*news.raised, *news.reopened), key=_urgency, reverse=True)
    groups = [
        ([f"{one.series.case.id} failed" for one in _each_once(news.broken)], "failed case", "failed cases"),
        ([_moved_words(one) for one in findings], "new finding", "new findings"),
        ([f"stage {stage.name} failed" for stage in news.stages], "failed stage", "failed stages"),
        ([_moved_words(one.finding) for one in news.joined], "finding with more cases", "findings with more cases"),
        ([f"{finding_title(one)} is back" for one in news.resolved], "resolved finding", "resolved findings"),
    ]
    first, *others = [group for group in groups if group[0]]
    parts = [first[0][0], *_left(first), *(units.count(len(each), noun, nouns) for each, noun, nouns in others)]
    return _line(", ".join(parts), LONGEST_TITLE)


def _left(group: tuple[Sequence[str], str, str]) -> Iterator[str]:
    """How many there are beside the first."""
    each, noun, nouns = group
    if len(each) > 1:
        yield units.count(len(each) - 1, f"more {noun}", f"more {nouns}")


def body(news: News, page: str) -> str:
    """The message itself.

    Args:
        news: what to tell.
        page: where the site is served, for links; empty where nowhere.
    """
    site = page.rstrip("/")
    raised, reopened = sorted(news.raised, key=_place), sorted(news.reopened, key=_place)
    parts = [
        _where(news),
        *_paragraphs(raised, "new", site),
        *_paragraphs(reopened, "shows again", site),
        *(_more(one.finding, one.said, site) for one in news.joined[:IN_FULL]),
        *_list("Failed cases", [_failure(one) for one in _each_once(news.broken)], f"perfsvc report {news.night.run}"),
        *_list("Failed stages of the night", [_stage(one) for one in news.stages], ""),
        *_list("Resolved", [_resolved(one) for one in news.resolved], "perfsvc findings --all"),
    ]
    if site:
        parts.append(f"All of it: {site}/")
    return "\n\n".join(parts)


def _where(news: News) -> str:
    night = news.night
    of_run = "no run" if night.run is None else f"run {night.run}"
    commit = f" at {night.commit[:9]}{' with uncommitted changes' if night.dirty else ''}" if night.commit else ""
    return f"Night {night.id} on {night.host}: {of_run} of {Path(night.suite).name}{commit}"


def _paragraphs(findings: Sequence[Finding], what: str, site: str) -> Iterator[str]:
    yield from (_paragraph(one, what, site) for one in findings[:IN_FULL])
    if len(findings) > IN_FULL:
        yield f"And {units.count(len(findings) - IN_FULL, 'more finding')}: perfsvc findings"


def _paragraph(finding: Finding, what: str, site: str) -> str:
    """A finding: its cause, its worst cases, why, and how to look further."""
    cases = sorted(finding.standing, key=_badness, reverse=True)
    lines = [
        f"Finding {finding.id} ({what}): {_cause(finding)}",
        *(f"- {_change(one)} {series_name(one.series)}" for one in cases[:WORST]),
        *([f"- and {len(cases) - WORST} more"] if len(cases) > WORST else []),
        f"on {_boards(finding)}",
        *([finding.evidence] if finding.evidence else []),
        *([f"Why: {finding.why}"] if finding.why else []),
        *([f"{finding.owner} looks after it"] if finding.owner else []),
    ]
    return "\n".join([*(_line(line) for line in lines), *_further(finding, site)])


def _boards(finding: Finding) -> str:
    """``NVIDIA H200``, ``3 GPUs: NVIDIA H100, NVIDIA H200``."""
    models = ", ".join(sorted(set(finding.devices.values())))
    return models if len(finding.devices) == 1 else f"{len(finding.devices)} GPUs: {models}"


def _more(finding: Finding, said: str, site: str) -> str:
    lines = [f"Finding {finding.id} (more cases): {_cause(finding)}", f"- {said}"]
    return "\n".join([*(_line(line) for line in lines), *_further(finding, site)])


def _cause(finding: Finding) -> str:
    return f"{finding.cause}, {finding.root_cause}" if finding.root_cause else finding.cause.value


def _further(finding: Finding, site: str) -> Iterator[str]:
    yield f"perfsvc findings show {finding.id}"
    if site:
        yield f"{site}/{finding_page(finding.id)}"


def _list(heading: str, items: Sequence[str], further: str) -> Iterator[str]:
    """A heading with a line for each; nothing where there are none."""
    if items:
        more = [f"- and {len(items) - IN_FULL} more"] if len(items) > IN_FULL else []
        yield "\n".join([heading, *(f"- {item}" for item in items[:IN_FULL]), *more, *filter(None, [further])])


def _stage(stage: StageRow) -> str:
    cure = f"\n  cure: {_line(stage.cure)}" if stage.cure else ""
    return f"{_line(f'{stage.name}: {stage.message}')}{cure}"


def _resolved(finding: Finding) -> str:
    return _line(f"finding {finding.id}, {finding_title(finding)}: {finding.reason}")


def _failure(judgement: Judgement) -> str:
    return _line(f"{judgement.series.case.id}: {judgement.reason}")


def _each_once(broken: Sequence[Judgement]) -> list[Judgement]:
    """One for each case and reason: what fails on both GPUs and in both cache states is told once."""
    first: dict[tuple[str, str], Judgement] = {}
    for one in broken:
        first.setdefault((one.series.case.id, one.reason), one)
    return list(first.values())


def _moved_words(finding: Finding) -> str:
    """``transpose/tiled[n=4096] slower by 5.3 %``, ``38 cases up to 5.3 % slower``."""
    cases = sorted(finding.standing or finding.moved, key=_badness, reverse=True)
    worst, several = cases[0], len(cases) > 1
    name = finding_title(finding) if several else series_name(worst.series)
    if worst.ratio is None:
        return f"{name} moved"
    how = finding.direction.value if worst.series.metric == TIME else _higher(worst.ratio)
    return f"{name} {how} by {'up to ' if several else ''}{units.change(abs(worst.ratio - 1))}"


def _higher(ratio: float) -> str:
    return "higher" if ratio > 1 else "lower"


def _change(moved: MovedSeries) -> str:
    """``+5.3 % (+4.9 % to +5.6 %)``."""
    if moved.ratio is None:
        return "moved:"
    if moved.low is None or moved.high is None:
        return units.percent(moved.ratio)
    return f"{units.percent(moved.ratio)} ({units.percent(moved.low)} to {units.percent(moved.high)})"


def _badness(moved: MovedSeries) -> float:
    """How much worse a series became; of those that became better, the largest change first."""
    ratio = moved.ratio or 1.0
    return ratio if ratio >= 1 or moved.direction is Direction.SLOWER else 1 - ratio


def _size(finding: Finding) -> float:
    return max(map(_badness, finding.moved), default=0.0)


def _urgency(finding: Finding) -> tuple[bool, float]:
    return finding.direction is Direction.SLOWER, _size(finding)


def _place(finding: Finding) -> tuple[int, float]:
    """By cause, the worst first."""
    return ORDER.index(finding.cause) if finding.cause in ORDER else len(ORDER), -_size(finding)


def _line(text: str, longest: int = LONGEST_LINE) -> str:
    """A text as one line of no more than so many characters."""
    whole = " ".join(text.split())
    return whole if len(whole) <= longest else f"{whole[: longest - 1].rstrip()}…"
