"""The text of the source lines that carry a reason, and whether a line differs between the two sources."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher

from perfsvc.model import Explanation, HotLine

Sources = Mapping[str, bytes]
"""The source files of a binary, by name."""


def with_source_text(explanation: Explanation, before: Sources, after: Sources) -> Explanation:
    """Return an explanation whose lines have their text, and whether they are changed.

    Args:
        explanation: names lines of the files.
        before: the source files of the baseline.
        after: the source files of the candidate.
    """
    of_before, of_after = _texts(before, after), _texts(after, before)
    reasons = [
        replace(
            reason,
            before=tuple(of_before(line) for line in reason.before),
            after=tuple(of_after(line) for line in reason.after),
        )
        for reason in explanation.reasons
    ]
    return replace(explanation, reasons=tuple(reasons))


def _texts(own: Sources, other: Sources) -> Callable[[HotLine], HotLine]:
    """Return a function that adds the text to a line of ``own``; the line is changed if ``other`` has another text."""
    compared: dict[str, tuple[list[str], set[int]]] = {}  # only of the files that have such a line

    def with_text(line: HotLine) -> HotLine:
        source = line.source
        if source is None or source.file not in own:
            return line
        if source.file not in compared:
            texts = _lines(own[source.file]), _lines(other.get(source.file, b""))
            compared[source.file] = texts[0], _changed(*texts)
        lines, changed = compared[source.file]
        index = source.line - 1
        return replace(line, text=lines[index], changed=index in changed) if 0 <= index < len(lines) else line

    return with_text


def _lines(text: bytes) -> list[str]:
    """Return the lines of a source as a compiler counts them, with single spaces."""
    return [" ".join(line.split()) for line in text.decode(errors="replace").split("\n")]


def _changed(own: list[str], other: list[str]) -> set[int]:
    """Return the indexes of the lines that the other text does not have in the same order."""
    if own == other:
        return set()
    matches = SequenceMatcher(None, other, own, autojunk=False).get_matching_blocks()
    same = {match.b + index for match in matches for index in range(match.size)}
    return set(range(len(own))) - same
