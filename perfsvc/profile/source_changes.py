"""Where the sources of two binaries differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise, takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

from perfsvc.model import SourceChange

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
