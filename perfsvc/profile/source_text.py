"""Complete an explanation by the sources: the text of the lines that carry a reason, and where the sources differ."""

from collections.abc import Callable, Collection
from dataclasses import replace
from math import log
from pathlib import PurePosixPath

from perfsvc.model import Explanation, HotLine, Instruction, Profile
from perfsvc.profile.sentence import SAME, sentence
from perfsvc.profile.source_changes import Sources, differing_blocks, lines_of, source_changes
from perfsvc.text import shortened

LONGEST_LINE = 200
"""Characters of a line's text; a longer line lacks its middle."""


def with_stored_names(profile: Profile, names: Collection[str]) -> Profile:
    """Return a profile whose source lines have the names of stored files: a report has names without folders.

    A name that several stored files share stays as it is.

    Args:
        profile: the profile of a launch.
        names: the names of the stored files, such as ``../mine.py``.
    """
    stored: dict[str, set[str]] = {}
    for name in names:
        stored.setdefault(PurePosixPath(name).name, set()).add(name)

    def named(instruction: Instruction) -> Instruction:
        found = stored.get(instruction.source.file, set()) if instruction.source else set()
        if instruction.source is None or len(found) != 1:
            return instruction
        return replace(instruction, source=replace(instruction.source, file=next(iter(found))))

    return replace(profile, instructions=tuple(map(named, profile.instructions)))


def with_source_text(explanation: Explanation, before: Sources, after: Sources) -> Explanation:
    """Return an explanation whose lines have their text, and whose sentence names the line and the change.

    Launches that take equally long keep their sentence.

    Args:
        explanation: names lines of the files.
        before: the source files of the baseline.
        after: the source files of the candidate.
    """
    of_before, of_after = _texts(before, after, old=True), _texts(after, before, old=False)
    reasons = tuple(
        replace(
            reason,
            before=tuple(of_before(line) for line in reason.before),
            after=tuple(of_after(line) for line in reason.after),
        )
        for reason in explanation.reasons
    )
    changes = tuple(source_changes(before, after))
    completed = replace(explanation, reasons=reasons, changes=changes)
    if abs(log(explanation.factor)) < SAME:
        return completed
    return replace(completed, sentence=sentence(explanation.factor, reasons, changes))


def _texts(own: Sources, other: Sources, *, old: bool) -> Callable[[HotLine], HotLine]:
    """Return a function that adds the text to a line of ``own``; the line is changed if ``other`` has another text."""
    compared: dict[str, tuple[list[str], set[int]]] = {}  # only of the files that have such a line

    def with_text(line: HotLine) -> HotLine:
        source = line.source
        if source is None or source.file not in own:
            return line
        if source.file not in compared:
            texts = lines_of(own[source.file]), lines_of(other.get(source.file, b""))
            compared[source.file] = texts[0], _changed(*texts, old=old)
        lines, changed = compared[source.file]
        index = source.line - 1
        if not 0 <= index < len(lines):
            return line
        return replace(line, text=shortened(lines[index], LONGEST_LINE), changed=index in changed)

    return with_text


def _changed(own: list[str], other: list[str], *, old: bool) -> set[int]:
    """Return the indexes of the lines that the other text does not have in the same order.

    ``old`` states whether ``own`` is the baseline's text, so that both sides agree on what differs.
    """
    if old:
        return {index for block in differing_blocks(own, other) for index in range(block.before, block.before_end)}
    return {index for block in differing_blocks(other, own) for index in range(block.after, block.after_end)}
