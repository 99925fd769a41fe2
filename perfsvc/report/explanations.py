"""The words of explanations: the reasons of a case, and the reasons of a finding's cases in groups."""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfsvc import units
from perfsvc.model import CaseExplanation, Finding, HotLine, MovedSeries, Reason
from perfsvc.text import LONGEST_LABEL, cut, shortened

NO_REASON = "nothing that was counted accounts for it"
NOT_YET = "not yet explained"
LEAST_FACTOR = 1.095
"""The smallest slowdown that rounds to 1.1 times; smaller slowdowns are in per cent."""


@dataclass(frozen=True, slots=True)
class ExplainedCase:
    """A case of a finding.

    Attributes:
        name: the case, with the device if the case has another reason on another device.
        ratio: the candidate's time over the baseline's; None if it is unknown.
        sentence: why the case is slower; empty if it is not explained.
    """

    name: str
    ratio: float | None
    sentence: str


@dataclass(frozen=True, slots=True)
class ExplanationGroup:
    """Cases of a finding that are slower for the same reason at the same line, or that are not explained.

    Attributes:
        reason: the reason, or why the cases are not explained.
        place: the line of the slower side that carries the reason; empty without such a line.
        cases: each case once, the largest slowdown first.
    """

    reason: str
    place: str
    cases: tuple[ExplainedCase, ...]

    @property
    def text(self) -> str:
        """The group on a line: ``6 cases: uncoalesced access, transpose/tile.cuh:31 (1.9 to 2.4 times)``."""
        first, *others = self.cases
        what = units.count(len(self.cases), "case") if others else first.name
        reason = ", ".join(filter(None, [cut(self.reason), self.place]))
        if first.sentence:
            return f"{what}: {reason}{_amounts(self.cases)}"
        names = f" ({units.some([case.name for case in self.cases])})" if others else ""
        return f"{what}{names}: {reason}"


def explanation_groups(finding: Finding) -> list[ExplanationGroup]:
    """Return the cases of a finding in groups of the same reason at the same line, the largest slowdown first.

    The last groups have the cases that are explained on no device.
    """
    explained = {moved.series.case for moved in finding.shown if moved.why}
    groups: dict[tuple[int, str, str], dict[object, MovedSeries]] = {}
    for moved in finding.shown:
        key = _key(moved)
        if key and (moved.why or moved.series.case not in explained):
            groups.setdefault(key, {}).setdefault(moved.series.case, moved)
    occurrences = Counter(case for group in groups.values() for case in group)
    return [
        ExplanationGroup(reason, place, tuple(_case(moved, occurrences) for moved in group.values()))
        for (_, reason, place), group in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def group_lines(finding: Finding) -> list[str]:
    """Return a line for each group of a finding's explained cases; none if the headline says it all."""
    groups = explanation_groups(finding)
    is_in_headline = len(groups) == 1 and len(groups[0].cases) == 1 and finding.explained is not None
    return [] if is_in_headline else [group.text for group in groups]


def short_why(finding: Finding) -> str:
    """Return the reason and the line of the worst series in a few words; empty if it is not explained.

    ``bank conflicts, transpose/tiled.cu:38``
    """
    key = _key(finding.worst) if finding.worst and finding.worst.why else None
    return ", ".join(filter(None, key[1:])) if key else ""


def _key(moved: MovedSeries) -> tuple[int, str, str] | None:
    """Return the rank, the reason and the place of a series' group; None if the series needs no explanation."""
    explanation = moved.explanation
    if explanation is None:
        return (2, NOT_YET, "") if moved.awaits_profile else None
    if not explanation.sentence:
        return 1, f"not explained: {explanation.reason}", ""
    reason = explanation.main_reason
    return 0, reason.kind.value if reason else NO_REASON, _short_place(explanation)


def _short_place(explanation: CaseExplanation) -> str:
    """Return the main line of an explanation, with its file below the folder of the suite: ``transpose/tile.cuh:31``.

    Without a known source line, the result is the opcode of the main instruction.
    """
    line = explanation.main_line
    if line is None:
        return ""
    if line.source is None:
        return shortened(_opcode(line), LONGEST_LABEL)
    file = posixpath.normpath(posixpath.join(explanation.case.benchmark, line.source.file))
    return f"{shortened(file, LONGEST_LABEL)}:{line.source.line}"


def _case(moved: MovedSeries, occurrences: Counter[object]) -> ExplainedCase:
    case = moved.series.case
    device = f" on {moved.series.device}" if occurrences[case] > 1 else ""
    return ExplainedCase(f"{case.id}{device}", moved.ratio, moved.why)


def _amounts(cases: Sequence[ExplainedCase]) -> str:
    """Return how much slower some cases are, in parentheses: `` (1.9 to 2.4 times)``; empty if this is unknown."""
    ratios = [case.ratio for case in cases if case.ratio is not None]
    if not ratios:
        return ""
    in_times = min(ratios) >= LEAST_FACTOR
    ends = [f"{ratio:.1f}" if in_times else units.percent(ratio) for ratio in (min(ratios), max(ratios))]
    return f" ({' to '.join(dict.fromkeys(ends))}{' times' if in_times else ''})"


# --- the reasons of a case -------------------------------------------------------------------------------------------


def reason_lines(reasons: Sequence[Reason]) -> list[str]:
    """Return reasons as lines of text: how the launches differ in it, then where it is.

    ``bank conflicts 96 %: loads 1-way → 32-way``, ``after: 61 % of the excess passes at tile.cu:22  t += a[i];``. A
    reason that follows from another is where the other reason is.
    """
    return [line for reason in reasons for line in _lines(reason)]


def place(line: HotLine) -> str:
    """Return where a line is: ``scale.cu:22  b[i] = 2 * a[i];``, or ``STG.E [R4], R7 and 3 more STG.E``."""
    text = shortened(line.text or line.instruction, LONGEST_LABEL)
    if line.source:
        changed = "  (changed)" if line.changed else ""
        return f"{shortened(line.source.file, LONGEST_LABEL)}:{line.source.line}  {text}{changed}"
    if line.instructions == 1:
        return text
    return f"{text} and {line.instructions - 1} more {shortened(_opcode(line), LONGEST_LABEL)}"


def _opcode(line: HotLine) -> str:
    return next((word for word in line.instruction.split() if not word.startswith("@")), "")


def _lines(reason: Reason) -> Iterator[str]:
    yield f"{reason.kind} {units.share(reason.share)}: {cut(reason.detail)}"
    if reason.follows is None:
        side, lines = ("after", reason.after) if reason.after else ("before", reason.before)
        for line in lines:
            yield f"{side}: {units.share(line.share)} of the {reason.counted} at {place(line)}"
