"""The lines of two sources around those that carry a reason, next to each other, with the differences marked.

Without sources, the excerpts are of the instructions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

from perfsvc.model import CodeLine, Excerpt, HotCode, Instruction, Profile
from perfsvc.profile.source_changes import Sources, differing_blocks

Count = Callable[[Instruction], float]
Row = tuple[int | None, int | None]
"""The indexes of two lines that belong together; None if a side has no such line."""

MOST_HOT = 3
"""How many lines of a side an excerpt is made for."""
MIN_SHARE = 0.05
"""A line with a smaller share is not hot."""
CONTEXT = 2
"""How many lines are shown before and after a hot line."""
CONTEXT_OF_CHANGE = 1
"""How many lines are shown before and after a change without a hot line."""
MOST_CHANGED = 24
"""How many changed lines without a hot line are shown."""
LONGEST_LINE = 240
"""Characters of a line that are shown."""
TAB = 4
IN_ANOTHER_FILE = 1_000_000
"""The distance in lines of a change in a file without a hot line."""


@dataclass(frozen=True, slots=True)
class _CountedSources:
    """A launch: what was counted at its lines, and its sources.

    Attributes:
        shares: the share of each line, by file and line.
        lines: the texts of the lines, by file.
    """

    shares: Mapping[tuple[str, int], float]
    lines: Mapping[str, Sequence[str]]

    def hot(self, file: str) -> set[int]:
        """Return the indexes of the hot lines of a file."""
        return {line - 1 for of_file, line in self.hottest if of_file == file}

    @property
    def hottest(self) -> list[tuple[str, int]]:
        """The lines with the largest shares that the sources have, the largest first."""
        having = [
            (file, line)
            for (file, line), share in self.shares.items()
            if share >= MIN_SHARE and file in self.lines and 1 <= line <= len(self.lines[file])
        ]
        return sorted(having, key=lambda place: -self.shares[place])[:MOST_HOT]

    def line(self, file: str, index: int | None, *, changed: bool) -> CodeLine | None:
        """Return the line with an index; None if the index is None."""
        if index is None:
            return None
        return CodeLine(index + 1, self.lines[file][index], self.shares.get((file, index + 1), 0.0), changed)


def hot_code(
    before: Profile, after: Profile, counted: str, count: Count, sources: tuple[Sources, Sources] = ({}, {})
) -> HotCode | None:
    """Return the code of two launches where something was counted; None if it was counted nowhere.

    Args:
        before: the baseline.
        after: the candidate.
        counted: what is counted, for people.
        count: returns what is counted at an instruction.
        sources: the source files of both launches.
    """
    if not any(count(instruction) for profile in (before, after) for instruction in profile.instructions):
        return None
    sides = [_side(profile, count, files) for profile, files in zip((before, after), sources, strict=True)]
    if not any(side.hottest for side in sides):
        return HotCode(counted, _instructions(before, after, count))
    counts = {"before": (before, sides[0]), "after": (after, sides[1])}
    unknown = [
        name for name, (profile, side) in counts.items() if not side.hottest and any(map(count, profile.instructions))
    ]
    return replace(_in_sources(counted, *sides, same_kernel=before.kernel == after.kernel), unknown=tuple(unknown))


def _side(profile: Profile, count: Count, sources: Sources) -> _CountedSources:
    """Return the shares of a launch's lines, and the texts of the files that have such a line."""
    counts: dict[tuple[str, int], float] = {}
    for instruction in profile.instructions:
        if source := instruction.source:
            place = (source.file, source.line)
            counts[place] = counts.get(place, 0.0) + count(instruction)
    total = sum(map(count, profile.instructions))
    shares = {place: of_line / total for place, of_line in counts.items() if of_line}
    return _CountedSources(shares, {file: _lines(content) for file, content in sources.items()})


def _lines(content: bytes) -> list[str]:
    """Return the lines of a source as a compiler counts them, without tabs and without spaces at their ends."""
    return [line.expandtabs(TAB).rstrip() for line in content.decode(errors="replace").split("\n")]


def _in_sources(counted: str, before: _CountedSources, after: _CountedSources, *, same_kernel: bool) -> HotCode:
    """Return the hot lines of both launches in their sources, and where else the sources differ."""
    hot_files = dict.fromkeys(file for side in (after, before) for file, _ in side.hottest)
    excerpts: list[Excerpt] = []
    apart: list[str] = []
    changes: list[tuple[int, Excerpt]] = []
    for file in (*hot_files, *(file for file in after.lines if file not in hot_files)):
        own, other = before.lines.get(file), after.lines.get(file)
        if own is None or other is None or (own == other and not same_kernel):
            apart += [file] if file in hot_files else []
        elif own != other or file in hot_files:
            in_file = _File(file, before, after, aligned(own, other))
            excerpts += in_file.excerpts
            changes += in_file.changes
    excerpts += (
        _shown((left[0], right[0]), left[1], right[1])
        for left, right in zip_longest(_alone(before, apart), _alone(after, apart), fillvalue=("", ()))
    )
    shown, further = _nearest(changes)
    return HotCode(counted, tuple(excerpts), shown, further)


class _File:
    """A source that both sides have.

    Args:
        name: the name of the file.
        before: the baseline.
        after: the candidate.
        rows: the pairs of its lines.
    """

    def __init__(self, name: str, before: _CountedSources, after: _CountedSources, rows: Sequence[Row]) -> None:
        self._name, self._rows, self._sides = name, rows, (before, after)
        lines = before.lines[name], after.lines[name]
        self._different = {
            at
            for at, (left, right) in enumerate(rows)
            if left is None or right is None or lines[0][left].split() != lines[1][right].split()
        }
        hot = before.hot(name), after.hot(name)
        self._hot = [at for at, (left, right) in enumerate(rows) if left in hot[0] or right in hot[1]]
        self._near = _around(self._hot, CONTEXT, len(rows))

    @property
    def excerpts(self) -> list[Excerpt]:
        """The hot lines with their neighbours."""
        return [self._excerpt(part) for part in _parts(self._near)]

    @property
    def changes(self) -> list[tuple[int, Excerpt]]:
        """The other lines that differ, each with its distance from the nearest hot line."""
        others = _around(self._different - self._near, CONTEXT_OF_CHANGE, len(self._rows)) - self._near
        return [(self._distance(part), self._excerpt(part)) for part in _parts(others)]

    def _distance(self, part: Sequence[int]) -> int:
        return min((abs(at - end) for at in self._hot for end in (part[0], part[-1])), default=IN_ANOTHER_FILE)

    def _excerpt(self, part: Sequence[int]) -> Excerpt:
        """Return consecutive rows as an excerpt."""
        sides = [
            [side.line(self._name, self._rows[at][number], changed=at in self._different) for at in part]
            for number, side in enumerate(self._sides)
        ]
        return _shown((self._name, self._name), *sides)


def aligned(before: Sequence[str], after: Sequence[str]) -> list[Row]:
    """Return the lines of two texts in pairs, in order; spaces do not make lines different."""
    rows: list[Row] = []
    left = right = 0
    for block in differing_blocks(*([" ".join(line.split()) for line in lines] for lines in (before, after))):
        rows += zip(range(left, block.before), range(right, block.after), strict=True)
        left, right = block.before_end, block.after_end
        rows += zip_longest(range(block.before, left), range(block.after, right))
    return [*rows, *zip(range(left, len(before)), range(right, len(after)), strict=True)]


def _around(indexes: Iterable[int], context: int, length: int) -> set[int]:
    """Return indexes with their neighbours."""
    return {near for at in indexes for near in range(max(at - context, 0), min(at + context + 1, length))}


def _parts(indexes: Iterable[int]) -> list[list[int]]:
    """Return indexes as lists of consecutive ones, in order."""
    ordered = enumerate(sorted(indexes))
    return [[at for _, at in group] for _, group in groupby(ordered, key=lambda pair: pair[1] - pair[0])]


def _alone(side: _CountedSources, files: Sequence[str]) -> list[tuple[str, list[CodeLine | None]]]:
    """Return the hot lines of files on one side, each with its file: the other side has no text to compare."""
    found: list[tuple[str, list[CodeLine | None]]] = []
    for file in files:
        hot = side.hot(file)
        parts = _parts(_around(hot, CONTEXT, len(side.lines[file]))) if hot else []
        found += ((file, [side.line(file, at, changed=False) for at in part]) for part in parts)
    return found


def _nearest(changes: Iterable[tuple[int, Excerpt]]) -> tuple[tuple[Excerpt, ...], int]:
    """Return the changes by their distance, as many as are shown, and how many further lines are changed."""
    shown: list[Excerpt] = []
    room, further = MOST_CHANGED, 0
    for _, excerpt in sorted(changes, key=lambda change: change[0]):
        changed = [line for side in (excerpt.before, excerpt.after) for line in side if line and line.changed]
        if room > 0:
            length = min(len(excerpt.before), room + 2 * CONTEXT_OF_CHANGE)
            part = replace(excerpt, before=excerpt.before[:length], after=excerpt.after[:length])
            shown.append(part)
            room -= length
            changed = [line for side in (excerpt.before, excerpt.after) for line in side[length:] if line]
        further += sum(line.changed for line in changed)
    return tuple(sorted(shown, key=_place)), further


def _place(excerpt: Excerpt) -> tuple[str, int]:
    """Return the file and the first line of an excerpt."""
    return excerpt.files[1], next((line.number for line in (*excerpt.after, *excerpt.before) if line), 0)


def _instructions(before: Profile, after: Profile, count: Count) -> tuple[Excerpt, ...]:
    """Return the instructions with the largest counts on each side, and their neighbours."""
    sides = [_hot_instructions(profile.instructions, count) for profile in (before, after)]
    return tuple(_shown(("", ""), left, right) for left, right in zip_longest(*sides, fillvalue=[]))


def _hot_instructions(instructions: Sequence[Instruction], count: Count) -> list[list[CodeLine | None]]:
    """Return the parts of a kernel with the largest counts."""
    total = sum(map(count, instructions))
    if not total:
        return []
    shares = [count(instruction) / total for instruction in instructions]
    hot = [at for at in sorted(range(len(shares)), key=lambda at: -shares[at])[:MOST_HOT] if shares[at] >= MIN_SHARE]
    hot = hot or [max(range(len(shares)), key=lambda at: shares[at])]
    return [
        [CodeLine(instructions[at].offset, instructions[at].text, shares[at]) for at in part]
        for part in _parts(_around(hot, CONTEXT, len(shares)))
    ]


def _shown(files: tuple[str, str], before: Sequence[CodeLine | None], after: Sequence[CodeLine | None]) -> Excerpt:
    """Return an excerpt without the indentation that all its lines have, of lines that are not too long."""
    lines = [line.text for line in (*before, *after) if line and line.text and not line.text.startswith("#")]
    indent = min((len(text) - len(text.lstrip()) for text in lines), default=0)

    def short(line: CodeLine | None) -> CodeLine | None:
        if line is None:
            return None
        text = line.text if line.text.startswith("#") else line.text[indent:]
        return replace(line, text=text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…")

    pairs = list(zip_longest(map(short, before), map(short, after)))
    return Excerpt(files, tuple(left for left, _ in pairs), tuple(right for _, right in pairs))
