"""How the sources of a finding's cases changed, from the database: what both sides were compiled from."""

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from perfsvc.model import Finding, MovedSeries, PythonCode
from perfsvc.profile.source_changes import Block, differing_blocks
from perfsvc.report.pages.finding import ADDED, GAP, REMOVED, SAME, DiffLine, FileDiff
from perfsvc.store import CaseBinary, CaseKey, Store
from perfsvc.suite.benchfile import FILE_NAME
from perfsvc.text import shortened

MOST_CASES = 16
"""How many cases of a finding have their sources compared, the worst first."""
MOST_FILES = 8
"""How many files are shown; the names of the others are listed."""
MOST_LINES = 200
"""How many lines of a file are shown."""
LONGEST_LINE = 240
"""Characters of a line that are shown."""
CONTEXT = 3
"""How many equal lines are shown before and after a change."""
LARGEST = 1 << 20
"""The bytes of a file that is still compared."""

Sources = Mapping[str, bytes]


class SourceDiffs:
    """Compares the stored sources of the cases of findings.

    Args:
        store: holds the sources.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_binary = lru_cache(maxsize=64)(self._read)

    def files(self, finding: Finding) -> tuple[list[FileDiff], list[str], bool]:
        """Return the files that differ, the names of further ones, and whether any sources are stored.

        Cases of one benchmark share files; each change of a file is returned once.
        """
        moved = [step for step in dict.fromkeys((*finding.standing, *finding.moved)) if step.baseline_run is not None]
        wanted = {step: _sides(step, finding) for step in moved[:MOST_CASES]}
        used = self._store.binaries.of_cases({key for both in wanted.values() for key in both}) if wanted else {}
        diffs: list[FileDiff] = []
        more: list[str] = []
        seen: set[tuple[str, bytes, bytes]] = set()
        has_sources = False
        for step, (before, after) in wanted.items():
            if before not in used or after not in used:
                continue
            old, new = (self._sources(step, used[side]) for side in (before, after))
            has_sources |= bool(old) and bool(new)
            for name in sorted(old.keys() | new.keys()) if old and new else ():
                texts = old.get(name, b""), new.get(name, b"")
                if texts[0] == texts[1] or (name, *texts) in seen:
                    continue
                seen.add((name, *texts))
                if len(diffs) < MOST_FILES and max(map(len, texts)) <= LARGEST:
                    diffs.append(file_diff(name, (before[0], after[0]), *texts))
                else:
                    more.append(name)
        return diffs, list(dict.fromkeys(more)), has_sources

    def _sources(self, step: MovedSeries, side: CaseBinary) -> Sources:
        """Return every stored file of one side of a case, named from the folder that holds the benchmark."""
        files = self._of_binary(side.binary, side.python) if side.binary is not None else {}
        folder = step.series.case.benchmark
        return {posixpath.normpath(f"{folder}/{name}"): content for name, content in files.items()}

    def _read(self, binary: int, python: PythonCode | None) -> Sources:
        """Return the compiled sources, the benchmark file and the imported Python modules of a binary."""
        bench = [(FILE_NAME, content) for content in self._store.binaries.files(binary, "bench").values()]
        digests = dict(python.modules) if python else {}
        modules = self._store.binaries.modules(set(digests.values())) if digests else {}
        imported = {f"{name}.py": modules[sha256] for name, sha256 in digests.items() if sha256 in modules}
        return {**dict(bench), **imported, **self._store.binaries.files(binary, "source")}


def _sides(step: MovedSeries, finding: Finding) -> tuple[tuple[int, CaseKey], tuple[int, CaseKey]]:
    """Return the run and the case of both sides of a step."""
    key = (step.series.device, step.series.case, step.series.cache)
    return (step.baseline_run or 0, key), (step.first_run or finding.first_run or step.last_run, key)


def file_diff(name: str, runs: tuple[int, int], before: bytes, after: bytes) -> FileDiff:
    """Return the difference of two texts; a text that a run does not have is empty."""
    old, new = (_lines(text) for text in (before, after))
    blocks = differing_blocks(old, new)
    removed = sum(block.before_end - block.before for block in blocks)
    added = sum(block.after_end - block.after for block in blocks)
    lines = list(_diff_lines(old, new, blocks))
    shown = lines[:MOST_LINES]
    hidden = sum(line.sign in {ADDED, REMOVED} for line in lines[MOST_LINES:])
    return FileDiff(name, runs, tuple(shown), added, removed, hidden)


def _lines(text: bytes) -> list[str]:
    lines = text.decode(errors="replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _diff_lines(old: Sequence[str], new: Sequence[str], blocks: Collection[Block]) -> Iterator[DiffLine]:
    """Yield the lines of all blocks, each block with some equal lines around it."""
    last = 0  # the first line of the new text that was not yielded
    for number, block in enumerate(blocks):
        first = max(block.after - CONTEXT, last)
        shift = block.before - block.after
        if first > last:
            following = min(last + CONTEXT, first) if number else last
            yield from (_same(new, index, shift) for index in range(last, following))
            if first > following:
                yield DiffLine(GAP, None, None, "")
            else:
                first = following
        yield from (_same(new, index, shift) for index in range(first, block.after))
        for index in range(block.before, block.before_end):
            yield DiffLine(REMOVED, index + 1, None, _cut(old[index]))
        for index in range(block.after, block.after_end):
            yield DiffLine(ADDED, None, index + 1, _cut(new[index]))
        last = block.after_end
    if blocks:
        shift = len(old) - len(new)
        yield from (_same(new, index, shift) for index in range(last, min(last + CONTEXT, len(new))))
        if last + CONTEXT < len(new):
            yield DiffLine(GAP, None, None, "")


def _same(new: Sequence[str], index: int, shift: int) -> DiffLine:
    return DiffLine(SAME, index + shift + 1, index + 1, _cut(new[index]))


def _cut(line: str) -> str:
    return shortened(line, LONGEST_LINE)
