"""Why a series moved, as far as that can be told without measuring again."""

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
"""Where a verdict says that a series moved; the others say nothing of the kind."""

COMPARED = frozenset({*MOVES, Verdict.UNCHANGED, Verdict.INCONCLUSIVE})
"""The verdicts that compare two levels."""

LEAST_TOGETHER = 5
"""Series of a GPU below which nobody can say what most of them do. If each moves one way by chance on one night of
200 (half of alpha), three of five do so on one of a million."""

MOST_LEFT = 0.5
"""Of a change of time, on a logarithmic scale: what of it the cycles may show where the clock is said to be why."""

SAME_CODE = "the code is the same on both sides"
NO_CYCLES: Mapping[Series, Comparison] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sides:
    """What baseline and candidate of a series have in common beside their times.

    Attributes:
        code: the instructions and all that a launch hands over.
        source: what that was compiled from.
        toolkit: the compiler and its version.
        board: the driver and the power limit.
    """

    code: bool
    source: bool
    toolkit: bool
    board: bool


def with_causes(
    judgements: Iterable[Judgement], sides: Mapping[Series, Sides], cycles: Mapping[Series, Comparison] = NO_CYCLES
) -> list[Judgement]:
    """The judgements, each that moved with its cause, and with what tells it in its reason.

    - The same code on both sides is never at fault. Where most series of the GPU moved with it, or the driver or the
      power limit changed, or the clock did and the cycles did not, the environment is; otherwise it is noise.
    - Other code of an equal source by another compiler is the toolchain's.
    - Everything else is unconfirmed until both sides are measured again. The clock alone acquits no other code: it may
      be what draws so much power that the GPU lowers its clock.

    Args:
        judgements: of one run.
        sides: what is known of them; a series whose two sides cannot be compared is absent.
        cycles: the cycles that times took, candidate against baseline, of as many series as counted them.
    """
    every = list(judgements)
    at_once = {judgement.series for moved in together(every, sides).values() for judgement in moved}
    return [
        _with_cause(
            judgement,
            sides.get(judgement.series),
            at_once=judgement.series in at_once,
            clock=by_the_clock(judgement, cycles.get(judgement.series)),
        )
        for judgement in every
    ]


def by_the_clock(judgement: Judgement, cycles: Comparison | None) -> str:
    """What the clock did where that is why a time moved, as a sentence without its full stop; else empty.

    It is where the cycles did not move: their interval contains 1 or lies within the threshold, and they leave no more
    than ``MOST_LEFT`` of the change of time, so that the clock has to have made the rest of it. Whatever waits for
    memory takes other cycles when the clock is another, and is not spoken for.
    """
    if cycles is None or cycles.verdict in MOVES or judgement.verdict not in MOVES or not judgement.ratio:
        return ""
    contains_1 = cycles.low is not None and cycles.high is not None and cycles.low <= 1 <= cycles.high
    moved, left = abs(math.log(judgement.ratio)), abs(math.log(cycles.ratio))
    if not (contains_1 or cycles.verdict is Verdict.UNCHANGED) or left > MOST_LEFT * moved:
        return ""
    clock = cycles.ratio / judgement.ratio
    return f"it took as many cycles as before, of a clock {100 * abs(clock - 1):.1f} % {_slower(clock)}"


def _slower(clock: float) -> str:
    return "slower" if clock < 1 else "faster"


def together(
    judgements: Iterable[Judgement], sides: Mapping[Series, Sides]
) -> dict[tuple[str, Direction], Sequence[Judgement]]:
    """What moved at once with unchanged code, by GPU (UUID) and direction, where that is most of what a GPU ran.

    Of the times whose code is the same on both sides more than half have to move one way, of ``LEAST_TOGETHER`` at
    least: a change of one kernel moves its own cases, and only the GPU or its host moves all the others.
    """
    same: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        told = sides.get(judgement.series)
        if told and told.code and judgement.verdict in COMPARED and judgement.series.metric == TIME:
            same[judgement.series.device].append(judgement)
    found: dict[tuple[str, Direction], Sequence[Judgement]] = {}
    for device, compared in same.items():
        for verdict, direction in MOVES.items():
            moved = [judgement for judgement in compared if judgement.verdict is verdict]
            if len(compared) >= LEAST_TOGETHER and 2 * len(moved) > len(compared):
                found[device, direction] = moved
    return found


def _with_cause(judgement: Judgement, sides: Sides | None, *, at_once: bool, clock: str) -> Judgement:
    if judgement.verdict not in MOVES:
        return judgement
    cause, why = _cause(sides, at_once=at_once, clock=clock)
    return replace(judgement, cause=cause, reason="; ".join(filter(None, [judgement.reason, why])))


def _cause(sides: Sides | None, *, at_once: bool, clock: str) -> tuple[Cause, str]:
    """The cause of what moved, and what tells it."""
    if sides and sides.code:
        surroundings = _surroundings(sides, at_once=at_once, clock=clock)
        return (Cause.ENVIRONMENT, f"{SAME_CODE}, and {surroundings}") if surroundings else (Cause.NOISE, SAME_CODE)
    if sides and sides.source and not sides.toolkit:
        return Cause.TOOLCHAIN, "another compiler made other code of the same source"
    return Cause.UNCONFIRMED, clock


def _surroundings(sides: Sides, *, at_once: bool, clock: str) -> str:
    """What of the GPU or its host moved the same code; empty where nothing tells it."""
    if at_once:
        return "most cases of the GPU moved with it"
    return "the driver or the power limit is another" if not sides.board else clock
