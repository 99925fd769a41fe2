"""Decide why a series moved, as far as stored facts tell it without measuring again."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from perfsvc.judge.comparison import Comparison
from perfsvc.model import TIME, Cause, Direction, Judgement, Series, Verdict

MOVES: Mapping[Verdict, Direction] = {
    Verdict.REGRESSION: Direction.SLOWER,
    Verdict.IMPROVEMENT: Direction.FASTER,
}
"""The verdicts that mean that a series moved, and the direction of each."""

COMPARED = frozenset({*MOVES, Verdict.UNCHANGED, Verdict.INCONCLUSIVE})
"""The verdicts that compare two levels."""

MIN_SERIES = 5
"""With fewer series on a device, their moving together shows nothing. If each moves one way by chance in one night of
200 (half of alpha), three of five do so in one of a million."""

MAX_CYCLES_SHARE = 0.5
"""The clock can explain a change of time if at most this share of it (of logarithms) shows in the cycles."""

SAME_CODE = "the code is the same on both sides"
NO_CYCLES: Mapping[Series, Comparison] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SameOnBothSides:
    """Whether code, source, toolkit and device are the same for baseline and candidate of a series.

    Attributes:
        code: the instructions and all that a launch passes to them.
        source: what the code was compiled from.
        toolkit: the compiler and its version.
        device: the driver and the power limit.
    """

    code: bool
    source: bool
    toolkit: bool
    device: bool


def with_causes(
    judgements: Iterable[Judgement],
    same: Mapping[Series, SameOnBothSides],
    cycles: Mapping[Series, Comparison] = NO_CYCLES,
) -> list[Judgement]:
    """Return all judgements; to each that moved, add its cause, and the evidence to its reason.

    - The same code on both sides is never to blame. The environment is, if most series of the device moved with it, or
      the driver or the power limit changed, or the clock did and the cycles did not. Otherwise it is noise.
    - Different code from equal source by another compiler: toolchain.
    - Everything else is unconfirmed until both sides are measured again. The clock alone does not clear different code,
      because that code may draw so much power that the device lowers its clock.

    Args:
        judgements: of one run.
        same: what both sides of a series share; a series whose two sides cannot be compared is absent.
        cycles: the cycles of the times, candidate against baseline, for the series that counted them.
    """
    judged = list(judgements)
    together = {judgement.series for moved in moved_together(judged, same).values() for judgement in moved}
    result = []
    for judgement in judged:
        if judgement.verdict in MOVES:
            series = judgement.series
            clock = clock_evidence(judgement, cycles.get(series))
            cause, evidence = _cause(same.get(series), together=series in together, clock=clock)
            reason = "; ".join(filter(None, [judgement.reason, evidence]))
            judgement = replace(judgement, cause=cause, reason=reason)  # noqa: PLW2901
        result.append(judgement)
    return result


def clock_evidence(judgement: Judgement, cycles: Comparison | None) -> str:
    """Return a sentence without its full stop if the clock explains why a time moved, else an empty text.

    It does if the cycles did not move: their interval contains 1 or lies within the threshold, and they show at most
    ``MAX_CYCLES_SHARE`` of the change of time, so that the clock must have made the rest. A kernel that waits for
    memory takes other cycles at another clock; it gets no such evidence.
    """
    if cycles is None or cycles.verdict in MOVES or judgement.verdict not in MOVES or not judgement.ratio:
        return ""
    contains_1 = cycles.low is not None and cycles.high is not None and cycles.low <= 1 <= cycles.high
    by_time, by_cycles = abs(math.log(judgement.ratio)), abs(math.log(cycles.ratio))
    if not (contains_1 or cycles.verdict is Verdict.UNCHANGED) or by_cycles > MAX_CYCLES_SHARE * by_time:
        return ""
    clock = cycles.ratio / judgement.ratio
    change = f"{100 * abs(clock - 1):.1f} % {'slower' if clock < 1 else 'faster'}"
    return f"it took as many cycles as before, at a clock {change}"


def moved_together(
    judgements: Iterable[Judgement], same: Mapping[Series, SameOnBothSides]
) -> dict[tuple[str, Direction], Sequence[Judgement]]:
    """Return the times that moved together with unchanged code, by device UUID and direction.

    A group is returned if, among the times of a device whose code is the same on both sides (at least ``MIN_SERIES``),
    more than half moved in that direction.
    A change of one kernel moves its own cases; only the device or its host moves all the others.
    """
    by_device: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        sides = same.get(judgement.series)
        if sides and sides.code and judgement.verdict in COMPARED and judgement.series.metric == TIME:
            by_device[judgement.series.device].append(judgement)
    groups: dict[tuple[str, Direction], Sequence[Judgement]] = {}
    for device, compared in by_device.items():
        for verdict, direction in MOVES.items():
            moved = [judgement for judgement in compared if judgement.verdict is verdict]
            if len(compared) >= MIN_SERIES and 2 * len(moved) > len(compared):
                groups[device, direction] = moved
    return groups


def _cause(sides: SameOnBothSides | None, *, together: bool, clock: str) -> tuple[Cause, str]:
    """Return the cause of a series that moved, and the evidence as a sentence without its full stop."""
    if sides and sides.code:
        if together:
            return Cause.ENVIRONMENT, f"{SAME_CODE}, and most cases of the GPU moved with it"
        if not sides.device:
            return Cause.ENVIRONMENT, f"{SAME_CODE}, and the driver or the power limit changed"
        if clock:
            return Cause.ENVIRONMENT, f"{SAME_CODE}, and {clock}"
        return Cause.NOISE, SAME_CODE
    if sides and sides.source and not sides.toolkit:
        return Cause.TOOLCHAIN, "another compiler made other code of the same source"
    return Cause.UNCONFIRMED, clock
