"""What a page shows of two launches next to each other: their code, stalls, instructions and traffic."""

from dataclasses import dataclass, field

from perfsvc.model.peaks import Rates
from perfsvc.model.profiles import Explanation, Profile


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a source, or an instruction.

    Attributes:
        number: the number of the line, from 1; the offset of the instruction in bytes from the start of its kernel.
        share: the share of what is counted that was counted here, from 0 to 1.
        changed: whether the source of the other launch has another text there.
    """

    number: int
    text: str
    share: float = 0.0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Neighbouring lines of both launches.

    Attributes:
        files: the name of the source on each side; empty if the lines are instructions, or if the side has no lines.
        before: the lines of the baseline. Lines at the same index belong together; None fills the side that has no line
            there. Both sides have the same length.
        after: the same for the candidate.
    """

    files: tuple[str, str]
    before: tuple[CodeLine | None, ...]
    after: tuple[CodeLine | None, ...]

    @property
    def changed(self) -> bool:
        """Whether a line of the excerpt is changed."""
        return any(line is not None and line.changed for line in (*self.before, *self.after))


@dataclass(frozen=True, slots=True)
class HotCode:
    """The code of both launches where something was counted.

    Attributes:
        counted: what the shares are of: ``excess sectors``.
        excerpts: the lines with the largest shares and their neighbours, in the order of the source.
        changes: other places where the sources differ, the nearest to the excerpts first.
        further: how many more changed lines the sources have.
        unknown: the sides, ``before`` and ``after``, whose source lines are not known although something was counted.
    """

    counted: str
    excerpts: tuple[Excerpt, ...]
    changes: tuple[Excerpt, ...] = ()
    further: int = 0
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ValuePair:
    """A number of the baseline and of the candidate; None if it was not counted."""

    name: str
    before: float | None
    after: float | None
    meaning: str = ""

    @property
    def largest(self) -> float:
        """The larger of both; 0 if none was counted."""
        return max(self.before or 0.0, self.after or 0.0)

    @property
    def difference(self) -> float:
        """By how much the candidate has more; what was not counted is 0."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class Link:
    """The way between two levels of the memory.

    Attributes:
        above: the level nearer to the threads.
        below: the other level.
        flows: the bytes that went this way.
        hit_rate: the share of the requests that ``below`` could answer; None for DRAM.
    """

    above: str
    below: str
    flows: tuple[ValuePair, ...]
    hit_rate: ValuePair | None = None


@dataclass(frozen=True, slots=True)
class LaunchPicture:
    """Two launches and why one takes longer than the other.

    Attributes:
        before: the baseline.
        after: the candidate.
        explanation: why the candidate takes longer.
        code: the code that carries the first reason; None if nothing was counted at the instructions.
        stalls: the cycles of a warp between two instructions by what it waited for, the largest difference first.
        instructions: the executed instructions of each class of work, counted once for each warp, the most first.
        traffic: from the threads to DRAM.
        peaks: the measured peaks of the device of the candidate, as far as they are known.
    """

    before: Profile
    after: Profile
    explanation: Explanation
    code: HotCode | None = None
    stalls: tuple[ValuePair, ...] = ()
    instructions: tuple[ValuePair, ...] = ()
    traffic: tuple[Link, ...] = ()
    peaks: Rates = field(default_factory=dict)
