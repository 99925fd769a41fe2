"""A review for GitHub: workflow commands, the annotations of a check run, and the Markdown of a comment.

All texts are foreign: they may come from the pull request of a stranger.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from perfsvc import units
from perfsvc.report.review import LOCAL, Remark, Review, Severity
from perfsvc.text import cell, code, cut, printed, shortened, unlinked, visible

ANNOTATION_LEVELS = {"error": "failure", "warning": "warning", "notice": "notice"}
"""GitHub's words for the severities of the annotations of a check run."""
LONGEST_TITLE = 250
"""Characters; GitHub takes 255."""
LONGEST_ANNOTATION = 8_000
"""Characters; GitHub takes 64 KiB, which a text of the longest UTF-8 characters does not exceed."""
MOST_ANNOTATIONS = 300
"""GitHub shows them on one page; the comment has the number of all others."""
LONGEST_COMMENT = 60_000
"""Characters; GitHub takes 65,536."""
LONGEST_CELL = 600
"""Characters of a text in the table of a comment."""
MOST_NOTES = 20


def _groups(remarks: Iterable[Remark]) -> list[list[Remark]]:
    """Return the remarks that share an annotation: those of one severity and kind at one line of a file."""
    sharing: dict[tuple[Severity, str, str, int, int], list[Remark]] = {}
    for index, remark in enumerate(remarks):
        alone = 0 if remark.path else index + 1
        sharing.setdefault((remark.level, remark.rule, remark.path, remark.line, alone), []).append(remark)
    return list(sharing.values())


def _title(group: Sequence[Remark]) -> str:
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return shortened(group[0].title, LONGEST_TITLE - len(more)) + more


def _text(group: Sequence[Remark]) -> str:
    if len(group) == 1:
        return group[0].text
    return "\n".join(f"{remark.title}: {remark.text}" for remark in group)


# --- workflow commands ------------------------------------------------------------------------------------------------


def workflow_commands(review: Review) -> str:
    """Return a review as GitHub's workflow commands, with the counts as the last; only for the log of a step."""
    commands = [
        _command(group[0].level, _text(group), file=group[0].path, line=group[0].line, title=_title(group))
        for group in _groups(review.remarks)
    ]
    commands.append(_command("notice", review.counts, title=f"perfsvc {review.command}"))
    return "".join(f"{command}\n" for command in commands)


def _command(level: Severity, message: str, **properties: str | int) -> str:
    written = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value)
    return f"::{level} {written}::{_data(message)}"


def _data(text: str) -> str:
    return printed(cut(text)).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# --- the check run ----------------------------------------------------------------------------------------------------


def check_run_annotations(review: Review) -> list[dict[str, object]]:
    """Return the annotations of a check run, as GitHub's API takes them: errors first, at most ``MOST_ANNOTATIONS``."""
    order = list(ANNOTATION_LEVELS)
    found = sorted(_groups(review.remarks), key=lambda group: order.index(group[0].level))
    return [
        {
            "path": location.path,
            "start_line": location.line,
            "end_line": location.line,
            "annotation_level": ANNOTATION_LEVELS[group[0].level],
            "title": one_line(_title(group), LONGEST_TITLE),
            "message": visible(cut(_text(group), LONGEST_ANNOTATION)) or group[0].level,
        }
        for group in found
        if (location := group[0].location)
    ][:MOST_ANNOTATIONS]


def one_line(text: str, most: int) -> str:
    """Return a text on one line without characters that change others, cut if it is long."""
    return shortened(" ".join(visible(text).split()), most)


# --- the comment ------------------------------------------------------------------------------------------------------


def marker(name: str) -> str:
    """Return the hidden first line of a comment by which a later push finds the comment again.

    Args:
        name: the name of the check run; a pull request has a comment for each.
    """
    return f"<!-- perfsvc {hashlib.sha256(name.encode(errors='backslashreplace')).hexdigest()[:32]} -->"


def summary(review: Review, name: str, commit: str) -> str:
    """Return a review as Markdown for a comment, a step's summary or a check run.

    Args:
        review: the review.
        name: the name of the check run.
        commit: the commit that was judged.
    """
    parts = [
        f"### {unlinked(one_line(name, LONGEST_TITLE))}: {unlinked(one_line(review.counts, LONGEST_CELL))}",
        f"{unlinked(one_line(review.about, LONGEST_CELL))}, at {code(commit[:10])}",
    ]
    notes = [f"- {unlinked(shortened(note, LONGEST_CELL))}" for note in review.notes[:MOST_NOTES]]
    if more := review.notes[MOST_NOTES:]:
        notes.append(f"- and {units.count(len(more), 'more note')}")
    end = "\n".join(notes)[: LONGEST_COMMENT // 2]
    table = "\n".join(_table(review.remarks, room=LONGEST_COMMENT - len("".join(parts)) - len(end)))
    return "\n\n".join(filter(None, [*parts, table, end])) + "\n"


def _table(remarks: Iterable[Remark], room: int) -> Iterator[str]:
    """Yield the lines of a table with a row for each remark, as many as fit, and the number of the others."""
    rows = [_row(remark) for remark in remarks if remark.rule != LOCAL]
    shown = 0
    for row in rows:
        if len(row) > (room := room - len(row) - 1):
            break
        if not shown:
            yield "| result | what changed | where |\n|---|---|---|"
        yield row
        shown += 1
    if shown < len(rows):
        yield f"\n… and {units.count(len(rows) - shown, 'more result')}"


def _row(remark: Remark) -> str:
    where = ""
    if location := remark.location:
        where = code(shortened(f"{location.path}:{location.line}", LONGEST_CELL))
    title = code(one_line(remark.title, LONGEST_CELL))
    return f"| {' | '.join(map(cell, [title, unlinked(shortened(remark.text, LONGEST_CELL)), where]))} |"
