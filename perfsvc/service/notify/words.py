"""The text of a message: plain text for mails, chats and phones.

The title begins with the worst news, because a phone shows only its beginning. The body has a paragraph for each
finding, with its worst cases and how to look further.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfsvc import units
from perfsvc.model import FAILURES, Cause, Direction, Finding, Judgement, MovedSeries, Verdict
from perfsvc.report.explanations import group_lines, short_why
from perfsvc.report.finding_words import finding_title, missing_cures, since_first_step, why
from perfsvc.report.pages.site import finding_page
from perfsvc.report.tables.history import GAP, sparkline
from perfsvc.report.wording import (
    CHANGED,
    NEW_NOUNS,
    counts,
    direction_word,
    moved_sentence,
    series_name,
    some,
)
from perfsvc.service.expect.gpus import NO_GPU
from perfsvc.service.notify.background import Background
from perfsvc.service.notify.news import ExtendedFinding, News
from perfsvc.service.notify.weekly import Digest, Reminder
from perfsvc.store import NightRow, StageRow
from perfsvc.text import inert

LONGEST_TITLE = 150
"""Characters."""

LONGEST_LINE = 300
"""Characters; the beginning of a compiler's message is enough."""

LONGEST_WHY = 700
"""Characters of the line that explains a finding: it ends with the change of the source."""

IN_FULL = 8
"""How many findings of a kind have a paragraph, and how many failures have a line."""

LONGEST_SUBJECT = 80
"""Characters of a commit's subject, and of its author."""

WORST = 5
"""How many cases of a finding are named."""

WHY = "why: "
"""The beginning of the line that explains a finding."""

ORDER = (
    *(Cause.WRONG, Cause.FAILED, Cause.HUNG, Cause.MISSING, Cause.SLOW_GPU),
    *(Cause.KERNEL, Cause.LAUNCH, Cause.INPUTS, Cause.TOOLCHAIN, Cause.ENVIRONMENT),
)


def title(news: News) -> str:
    """Return the title of a message: the worst item of the news in words, then how many more items each kind has."""
    findings = sorted((*news.raised, *news.reopened), key=_urgency, reverse=True)
    groups = [
        ([_moved(finding) for finding in findings], "new finding", "new findings"),
        ([f"stage {stage.name} failed" for stage in _own_failures(news)], "failed stage", "failed stages"),
        (
            [_moved_again(stepped) for stepped in news.stepped],
            "finding that moved again",
            "findings that moved again",
        ),
        (
            [_joined(extended) for extended in news.extended],
            "finding with more cases",
            "findings with more cases",
        ),
        (
            [returned.text for returned in news.returned],
            "return of something missing",
            "returns of something missing",
        ),
        (
            [_resolved(finding) for finding in news.resolved],
            "resolved finding",
            "resolved findings",
        ),
        (
            [f"{_moved(reminder.finding)}, unanswered for {_days(reminder)}" for reminder in news.reminders],
            "unanswered finding",
            "unanswered findings",
        ),
    ]
    (texts, singular, plural), *others = [group for group in groups if group[0]]
    parts = [texts[0]]
    if len(texts) > 1:
        parts.append(units.count(len(texts) - 1, f"more {singular}", f"more {plural}"))
    parts += [units.count(len(texts), singular, plural) for texts, singular, plural in others]
    return _one_line(", ".join(parts), LONGEST_TITLE)


def body(
    news: News,
    page: str,
    background: Callable[[Finding], Background] = lambda _: Background(),
    *,
    begin: str = "",
) -> str:
    """Return the body of a message: the night, findings, failures, resolved findings, reminders, a link.

    Args:
        news: what is new.
        page: the address of the site, for links; empty without one.
        background: returns further facts about a finding; called for the findings that have a paragraph.
        begin: the first line of a message that is not about a night.
    """
    site, night = page.rstrip("/"), news.night
    resolved = [
        _one_line(f"finding {finding.id}, {finding_title(finding)}: {finding.reason}") for finding in news.resolved
    ]
    parts = [
        "\n".join(_head(news, night)) if night else begin,
        *_paragraphs(news.raised, "new", site, background),
        *_paragraphs(news.reopened, "shows again", site, background),
        *(_step_paragraph(stepped, site, background) for stepped in news.stepped[:IN_FULL]),
        *(
            _paragraph(extended.finding, "more cases", [f"- {extended.text}"], site)
            for extended in news.extended[:IN_FULL]
        ),
        *(
            _paragraph(returned.finding, "a part is back", [returned.text, returned.finding.evidence], site)
            for returned in news.returned[:IN_FULL]
        ),
        *_list("Failed stages of the night", [_stage(stage) for stage in _own_failures(news)], ""),
        *_list("Resolved", resolved, "perfsvc findings --all"),
        *_list(
            "Still open, and no person has done anything with it",
            [_reminder(reminder) for reminder in news.reminders],
            _answers(news.reminders),
        ),
    ]
    return "\n\n".join([*parts, *_all_of_it(site)])


def digest_title(digest: Digest) -> str:
    """Return the title of a digest: ``a quiet week: 7 nights, 55 of 57 series unchanged``."""
    unchanged = sum(judgement.verdict is Verdict.UNCHANGED for judgement in digest.judgements)
    series = units.count(len(digest.judgements), "series", "series")
    return f"a quiet week: {units.count(len(digest.nights), 'night')}, {unchanged} of {series} unchanged"


def digest_body(night: NightRow, digest: Digest, page: str) -> str:
    """Return the body of a digest: the nights, the verdicts of the newest runs, and the open findings."""
    failed = some([f"night {other.id}" for other in reversed(digest.failed)])
    hosts = len({other.host for other in digest.nights})
    runs = f"{'run' if len(digest.runs) == 1 else 'runs'} {', '.join(map(str, digest.runs))}"
    lines = [
        f"Since {digest.since:%Y-%m-%d} there was no news for you.",
        f"{units.count(len(digest.nights), 'night')} on {units.count(hosts, 'host')}, "
        + (f"of which stages failed in {failed}" if failed else "all without a failed stage"),
        f"{units.count(len(digest.judgements), 'series', 'series')} in the newest {runs}: {counts(digest.judgements)}"
        if digest.runs
        else "no run",
        f"{units.count(digest.open, 'open finding')}" + (": perfsvc findings" if digest.open else ""),
    ]
    return "\n\n".join([_night(night), "\n".join(lines), *_all_of_it(page.rstrip("/"))])


# --- parts of the body -----------------------------------------------------------------------------------------------


def _night(night: NightRow) -> str:
    run = "no run" if night.run is None else f"run {night.run}"
    commit = f" at {night.commit[:9]}{' with uncommitted changes' if night.dirty else ''}" if night.commit else ""
    return _one_line(f"Night {night.id} on {night.host}: {run} of {Path(night.suite).name}{commit}")


def _uncommitted(night: NightRow) -> Iterator[str]:
    """Yield why a night with uncommitted changes does not count."""
    if night.dirty:
        yield (
            "This night does not count, because its changes are not committed: it raises and resolves no finding "
            "and moves no baseline."
        )


def _counted(news: News) -> Iterator[str]:
    """Yield the counts of what is new in the night's run, and in another line how much is known already."""
    known = [judgement for judgement in news.judgements if _is_known(judgement, news)]
    if news.judgements:
        yield counts((judgement for judgement in news.judgements if not _is_known(judgement, news)), NEW_NOUNS)
    if known:
        numbers = sorted({news.known[judgement.series] for judgement in known})
        findings = f"{'finding' if len(numbers) == 1 else 'findings'} {some(list(map(str, numbers)))}"
        series = units.count(len(known), "series is", "series are")
        yield f"{series} known to have moved, from earlier nights: {findings} (perfsvc findings)"


def _is_known(judgement: Judgement, news: News) -> bool:
    return judgement.series in news.known and judgement.verdict in CHANGED


def _head(news: News, night: NightRow) -> Iterator[str]:
    """Yield the first lines of a message: the night, the counts of its verdicts, and a line if no GPU is left."""
    yield _night(night)
    yield from _uncommitted(night)
    yield from _counted(news)
    if len(_own_failures(news)) < len(news.stages):
        yield "nothing was measured, because no GPU is left"


def _own_failures(news: News) -> list[StageRow]:
    """Return the failed stages, without stages that failed only because of GPUs that the message reports as missing."""
    is_reported = any(finding.cause is Cause.MISSING for finding in (*news.raised, *news.reopened))
    return [stage for stage in news.stages if not (is_reported and stage.message.startswith(NO_GPU))]


def _all_of_it(site: str) -> Iterator[str]:
    if site:
        yield f"All of it: {site}/"


def _paragraphs(
    findings: Sequence[Finding], event: str, site: str, background: Callable[[Finding], Background]
) -> Iterator[str]:
    """Yield a paragraph for each finding: first the findings whose cause is the code, and the worst of these first."""
    for finding in sorted(findings, key=_order)[:IN_FULL]:
        cases = sorted(finding.standing, key=_badness, reverse=True)
        lines = [
            *(f"- {moved_sentence(finding, moved, explained=False)}" for moved in cases[:WORST]),
            *([f"- and {len(cases) - WORST} more"] if len(cases) > WORST else []),
            *_why(finding),
            *([f"on {_devices(finding)}"] if finding.devices else []),
            *([finding.evidence] if finding.evidence else []),
            *_background(finding, background(finding)),
            *([f"{finding.owner} looks after it"] if finding.owner else []),
        ]
        yield _paragraph(finding, event, lines, site)
    if len(findings) > IN_FULL:
        yield f"And {units.count(len(findings) - IN_FULL, 'more finding')}: perfsvc findings"


def _step_paragraph(stepped: ExtendedFinding, site: str, background: Callable[[Finding], Background]) -> str:
    """Return a paragraph about the series of a finding that moved again: how far, and by which commits."""
    steps = sorted(stepped.steps, key=_badness, reverse=True)
    root_causes = list(dict.fromkeys(moved.root_cause for moved in steps if moved.root_cause))
    of_steps = replace(stepped.finding, root_cause=", ".join(root_causes), moved=tuple(steps))
    lines = [
        *(f"- {moved_sentence(of_steps, moved, explained=False)}, step {moved.step}" for moved in steps[:WORST]),
        *([f"- and {len(steps) - WORST} more"] if len(steps) > WORST else []),
        *(
            f"- all steps of {series_name(moved.series)}: {total}"
            for moved in steps[:WORST]
            if (total := since_first_step(stepped.finding, moved))
        ),
        *_why(of_steps),
        *([f"- more cases: {stepped.text}"] if stepped.text else []),
        *([f"on {_devices(of_steps)}"] if of_steps.devices else []),
        *([stepped.evidence] if stepped.evidence else []),
        *_background(of_steps, background(of_steps)),
        *([f"{of_steps.owner} looks after it"] if of_steps.owner else []),
    ]
    return _paragraph(of_steps, "moved again", lines, site)


def _why(finding: Finding) -> Iterator[str]:
    """Yield why the worst explained case of a finding is slower, then a line for each group of its cases."""
    if finding.why:
        yield f"{WHY}{why(finding)}"
    groups = group_lines(finding)
    yield from (f"- {line}" for line in groups[:WORST])
    if len(groups) > WORST:
        yield f"- and {units.count(len(groups) - WORST, 'more reason')}"


def _paragraph(finding: Finding, event: str, lines: Sequence[str], site: str) -> str:
    """Return a paragraph: a finding's event and cause, ``lines``, and the command and the page that show more."""
    cause = f"{finding.cause}, {finding.root_cause}" if finding.root_cause else finding.cause.value
    texts = [
        _one_line(line, LONGEST_WHY if line.startswith(WHY) else LONGEST_LINE)
        for line in (f"Finding {finding.id} ({event}): {cause}", *lines)
    ]
    link = [f"{site}/{finding_page(finding.id)}"] if site else []
    return "\n".join([*texts, f"perfsvc findings show {finding.id}", *missing_cures(finding), *link])


def _background(finding: Finding, behind: Background) -> Iterator[str]:
    """Yield how other models do, the recent levels of the worst series, and a line for each commit.

    Foreign text is made harmless.
    """
    if behind.other_models:
        yield behind.other_models
    if behind.series and len(behind.levels) > 1:
        history = sparkline(behind.levels).replace(GAP, "·")
        yield f"{series_name(behind.series)} in the last {len(behind.levels)} nights: {history}"
    if behind.commits:
        yield "Commits:"
        for commit in behind.commits:
            subject = _one_line(inert(commit.subject), LONGEST_SUBJECT)
            author = _one_line(inert(commit.author.partition(" <")[0]), LONGEST_SUBJECT)
            yield f"- {commit.hash[:9]} {subject} ({author})"
    if (more := behind.commit_count - len(behind.commits)) > 0:
        ranges = [part for part in finding.root_cause.split(", ") if ".." in part]
        yield f"- and {more} more: {'; '.join(f'git log {part}' for part in reversed(ranges))}"


def _reminder(reminder: Reminder) -> str:
    finding = reminder.finding
    return _one_line(f"finding {finding.id}, for {_days(reminder)}: {_moved(finding)}")


def _days(reminder: Reminder) -> str:
    return units.count(reminder.days, "day")


def _answers(reminders: Sequence[Reminder]) -> str:
    """Return the commands by which a person stops the reminders."""
    number = reminders[0].finding.id if reminders else 0
    return f"perfsvc findings show {number}; perfsvc findings ack {number}" if reminders else ""


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


# --- what moved ------------------------------------------------------------------------------------------------------


def _moved(finding: Finding) -> str:
    """Return how far the worst case of a finding moved: ``transpose/tiled[n=4096] slower by 5.3 %, and 2 more``."""
    worst, others = finding.worst, len(finding.standing or finding.moved) - 1
    more = f", and {others} more" if others else ""
    if finding.cause is Cause.SLOW_GPU:
        return f"{finding_title(finding)} is slower than others of its model"
    if worst is None:
        return f"{finding_title(finding)} {'are' if _is_plural(finding) else 'is'} missing"
    name = series_name(worst.series)
    if finding.cause in FAILURES:
        return f"{name} {'has a wrong result' if finding.cause is Cause.WRONG else finding.cause}{more}"
    if worst.ratio is None:
        return f"{name} moved{more}"
    direction, size = direction_word(worst.series.metric, worst.ratio), units.change(abs(worst.ratio - 1))
    reason = short_why(finding)
    return f"{name} {direction} by {size}{f' ({reason})' if reason else ''}{more}"


def _moved_again(stepped: ExtendedFinding) -> str:
    """Return how far the worst case of a finding moved again: ``transpose/tiled[n=4096] slower again by 5.3 %``."""
    worst = max(stepped.steps, key=_badness, default=None)
    if worst is None or worst.ratio is None:
        return f"{finding_title(stepped.finding)} moved again"
    direction, size = direction_word(worst.series.metric, worst.ratio), units.change(abs(worst.ratio - 1))
    more = f", and {len(stepped.steps) - 1} more" if len(stepped.steps) > 1 else ""
    return f"{series_name(worst.series)} {direction} again by {size}{more}"


def _joined(extended: ExtendedFinding) -> str:
    """Return how far the worst new case of a finding moved, and the number of the finding."""
    moved = _moved(replace(extended.finding, moved=extended.joined or extended.finding.moved))
    return f"{moved}, in finding {extended.finding.id} too"


def _resolved(finding: Finding) -> str:
    """Return that a finding is resolved: ``dot/tree at the old level again``, ``2 GPUs on host a are back``."""
    if finding.moved:
        again = "correct" if finding.cause in FAILURES else "at the old level"
        return f"{finding_title(finding)} {again} again"
    if finding.cause is Cause.SLOW_GPU:
        return f"{finding_title(finding)} is as fast as others of its model again"
    return f"{finding_title(finding)} {'are' if _is_plural(finding) else 'is'} back"


def _is_plural(finding: Finding) -> bool:
    """Return whether several GPUs are missing: ``2 GPUs on host a``."""
    return " GPUs on host " in finding.root_cause


def _badness(moved: MovedSeries) -> float:
    """Return a sort key: for a slower series, its ratio; for a faster series, the fraction by which its value fell."""
    ratio = moved.ratio or 1.0
    return ratio if ratio >= 1 or moved.direction is Direction.SLOWER else 1 - ratio


def _size(finding: Finding) -> float:
    return max(map(_badness, finding.moved), default=0.0)


def _urgency(finding: Finding) -> tuple[bool, bool, bool, float]:
    direction = finding.direction
    return direction is Direction.BROKEN, direction is None, direction is Direction.SLOWER, _size(finding)


def _order(finding: Finding) -> tuple[int, float]:
    return ORDER.index(finding.cause) if finding.cause in ORDER else len(ORDER), -_size(finding)


def _one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text without line breaks, cut to a number of characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
