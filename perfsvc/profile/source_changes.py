"""The sources of a binary, and where those of two binaries differ."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import pairwise, takewhile
from math import log
from pathlib import PurePosixPath
from typing import NamedTuple

from perfsvc.model import Explanation, HotLine, Instruction, Profile, SourceChange
from perfsvc.profile.sentence import SAME, sentence
from perfsvc.text import shortened

Sources = Mapping[str, bytes]
"""The source files of a binary, by name."""

MOST_PAIRS = 1_000_000
"""The most pairs of equal lines that are compared. Texts with more are one difference from its first to its last line,
because comparing takes time that grows with the number of these pairs."""
BRACE = 2
"""Lines with at most so many characters (a brace, or nothing) do not separate two differences."""
COMMENTS = {".py": ("#",)}
"""The beginnings of a line that is only a comment, by the suffix of the file's name."""
COMMENT = ("//",)
"""The same for all other files."""


class Block(NamedTuple):
    """Lines that differ: indexes of the first line, and of the line after the last one, before and after."""

    before: int
    before_end: int
    after: int
    after_end: int


def lines_of(text: bytes) -> list[str]:
    """Return the lines of a source as a compiler counts them, with single spaces."""
    return [" ".join(line.split()) for line in text.decode(errors="replace").split("\n")]


def differing_blocks(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Return the blocks of lines that differ between two texts, in their order."""
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old and not new:
        return []
    numbers = Counter(old)
    if sum(numbers[line] for line in new) > MOST_PAIRS:
        return [Block(start, len(before) - end, start, len(after) - end)]
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Block(start + a, start + b, start + c, start + d) for tag, a, b, c, d in codes if tag != "equal"]


def source_changes(before: Sources, after: Sources) -> list[SourceChange]:
    """Return where the files differ that both sources have, without changes of comments and of empty lines.

    Differences with nothing but braces and empty lines between them are one change.
    """
    found: list[SourceChange] = []
    for file in sorted(before.keys() & after.keys()):
        if before[file] != after[file]:
            old, new = lines_of(before[file]), lines_of(after[file])
            found += _changes(file, old, new)
    return found


def _changes(file: str, old: Sequence[str], new: Sequence[str]) -> Iterable[SourceChange]:
    comments = COMMENTS.get(PurePosixPath(file).suffix, COMMENT)

    def without_comments(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple("" if line.startswith(comments) else line for line in lines)

    for block in _joined(differing_blocks(old, new), new):
        before = without_comments(old[block.before : block.before_end])
        after = without_comments(new[block.after : block.after_end])
        if any(before) or any(after):
            yield SourceChange(file, block.before + 1, block.after + 1, before, after)


def _joined(blocks: Sequence[Block], after: Sequence[str]) -> list[Block]:
    """Return the blocks; neighbours with nothing but braces and empty lines between them are one block."""
    if not blocks:
        return []
    joined = [blocks[0]]
    for previous, block in pairwise(blocks):
        if all(len(line) <= BRACE for line in after[previous.after_end : block.after]):
            first = joined.pop()
            block = Block(first.before, block.before_end, first.after, block.after_end)  # noqa: PLW2901
        joined.append(block)
    return joined


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many lines at the beginning of two texts are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


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
