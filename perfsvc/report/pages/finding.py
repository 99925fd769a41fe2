"""What the page of a finding shows besides the finding itself, as frozen values that ``service`` collects."""

from dataclasses import dataclass

from perfsvc.model import Commit, Confirmation, StoredBisection

REMOVED, ADDED, SAME, GAP = "−", "+", "", "⋯"
"""The signs of the lines of a diff; a gap stands for equal lines that are not shown."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff: its sign, its number before and after (None if only the other side has it), and its text."""

    sign: str
    before: int | None
    after: int | None
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How a source file changed between two runs.

    Attributes:
        name: the path of the file, from the folder that holds the benchmark.
        runs: the baseline run, and the first run with the change.
        lines: the changed lines with some equal lines around them.
        added: the number of lines that only the later run has.
        removed: the number of lines that only the baseline has.
        hidden: how many changed lines are not among ``lines``, because the diff is long.
    """

    name: str
    runs: tuple[int, int]
    lines: tuple[DiffLine, ...]
    added: int
    removed: int
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits that a root cause names.

    Attributes:
        good: the hash of the last commit before them; empty if the root cause names a single commit.
        bad: the hash of the newest of them.
        commits: the newest of them, the newest first.
        count: how many they are in all.
        why_not: why ``commits`` is empty, without a full stop; empty if git listed the commits.
    """

    good: str
    bad: str
    commits: tuple[Commit, ...] = ()
    count: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class FindingDetails:
    """What was measured, committed and changed around a finding.

    Attributes:
        confirmations: the A/B pairs of its series, the worst series first.
        more_confirmations: how many further confirmations it has.
        ranges: the commits that its root causes name; none if the code is not the cause.
        files: the source files that differ between both sides of its cases.
        more_files: the names of further files that differ.
        sources: True if the sources of both sides are stored for at least one case.
        bisections: the bisections of its cases, the newest first.
        other_models: how the cases do on models that the finding does not name; empty if no other model measured them.
        is_read: False if the finding is old and over, so that its details were not read.
    """

    confirmations: tuple[Confirmation, ...] = ()
    more_confirmations: int = 0
    ranges: tuple[CommitRange, ...] = ()
    files: tuple[FileDiff, ...] = ()
    more_files: tuple[str, ...] = ()
    sources: bool = False
    bisections: tuple[StoredBisection, ...] = ()
    other_models: str = ""
    is_read: bool = True
