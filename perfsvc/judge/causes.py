"""Decide why a series moved: from stored facts alone, or from measuring it again in A/B pairs."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from perfsvc import units
from perfsvc.judge.comparison import Comparison, percent_of
from perfsvc.model import BEYOND, TIME, Cause, Direction, Judgement, Series, Verdict

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

SAME = 5e-4
"""Below this difference two sides are called the same, because messages show a tenth of a per cent."""

LOOKS = (3, 5, 8, 12)
"""After so many A/B pairs the sides are compared: each look has about half as many pairs again as the one before."""

SIMILAR = 0.25
"""Changes of two GPUs of one model are similar if they differ by at most this share of the first change (of
logarithms): one binary does not slow down two GPUs by exactly the same share."""

SAME_CODE = "the code is the same on both sides"
NO_CYCLES: Mapping[Series, Comparison] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SameOnBothSides:
    """Whether code, source, toolkit and device are the same for baseline and candidate of a series.

    Attributes:
        code: the instructions and all that a launch passes to them, the values of inputs included; of Python functions
            the source, the packages, and the files and variables that they read.
        source: what the code was compiled from, and how it is launched.
        toolkit: the compiler and its version.
        device: the driver, the power limit, the number of places of the arrays, and the parts that the settings chose.
        launch: which options of launches differ, if nothing else does: ``block 128 → 256``; else empty.
        packages: which Python packages, libraries, files and variables differ, ``triton 3.4.0 → 3.5.0``, and what the
            compiler read besides the source if the binaries differ; empty if none does.
        inputs: which inputs differ, or what they were made from: ``matrix.npz``; empty if none does.
    """

    code: bool
    source: bool
    toolkit: bool
    device: bool
    launch: str = ""
    packages: str = ""
    inputs: str = ""


def settled(
    judgements: Iterable[Judgement], same: Mapping[Series, SameOnBothSides], threshold: Callable[[Series], float]
) -> list[Judgement]:
    """Return all judgements; an inconclusive series of unchanged code becomes unchanged, or one that moved.

    Code, compiler and device are the same on both sides. So noise hides no change of the code, because there is none:
    the series is unchanged. A single replica proves no change of new code, but unchanged code has nothing to prove. So
    if only a second replica is missing to make the change certain, the series moved, by the environment or by noise.

    Args:
        judgements: the judgements of one run.
        same: what both sides of a series share; a series whose two sides cannot be compared is absent.
        threshold: returns the smallest relevant change of a series, as a fraction.
    """

    def settle(judgement: Judgement) -> Judgement:
        """Return an inconclusive judgement of unchanged code with another verdict."""
        if moved := move_of_one_replica(judgement, threshold(judgement.series)):
            return replace(judgement, verdict=moved)
        return replace(judgement, verdict=Verdict.UNCHANGED, reason=_same_code(judgement, threshold(judgement.series)))

    return [
        settle(judgement)
        if judgement.verdict is Verdict.INCONCLUSIVE
        and (sides := same.get(judgement.series)) is not None
        and (sides.code and sides.toolkit and sides.device)
        else judgement
        for judgement in judgements
    ]


def with_causes(
    judgements: Iterable[Judgement],
    same: Mapping[Series, SameOnBothSides],
    cycles: Mapping[Series, Comparison] = NO_CYCLES,
) -> list[Judgement]:
    """Return all judgements; add the cause to each judgement of a series that moved, and the evidence to its reason.

    - If both sides have the same code, the cause is the environment or noise. It is the environment if most series of
      the device moved together, if the driver, the power limit, the number of places of the arrays or a part that the
      settings chose changed, or if the clock changed and the cycles did not.
    - If only the values of the inputs differ, the cause is the inputs.
    - If the code differs although its source is equal, and the compiler, the Python packages, or libraries, files or
      variables that the code uses differ, the cause is the toolchain.
    - In all other cases the cause is unconfirmed until both sides are measured again. If the code differs, a lower
      clock is no excuse: the new code may draw so much power that the device lowers its clock.

    Args:
        judgements: the judgements of one run.
        same: what both sides of a series share; a series whose two sides cannot be compared is absent.
        cycles: for each series that counted cycles, the candidate's cycles compared with the baseline's.
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


def move_of_one_replica(judgement: Judgement, threshold: float) -> Verdict | None:
    """Return the verdict that only a missing second replica prevents; None if there is no such verdict.

    The change is beyond the threshold, and the interval does not contain 1. One replica on each side has no interval.
    """
    if 1 not in {judgement.baseline_replicas, judgement.candidate_replicas} or not judgement.ratio:
        return None
    if judgement.low is not None and judgement.high is not None and judgement.low <= 1 <= judgement.high:
        return None
    if abs(math.log(judgement.ratio)) <= math.log1p(threshold):
        return None
    return Verdict.REGRESSION if judgement.ratio > 1 else Verdict.IMPROVEMENT


def _same_code(judgement: Judgement, threshold: float) -> str:
    """Return why an inconclusive series is unchanged.

    ``the same code as in 6 earlier runs; the times allow -1.2 % to +2.0 %``; if the change is larger than the
    threshold, ``beyond the threshold of 1 %, but with the same code as in run 6, and too noisy to tell; the times …``
    """
    earlier = judgement.baseline_runs
    runs = f"run {judgement.baseline_run}" if earlier == 1 else f"{earlier} earlier runs"
    code = f"the same code as in {runs}"
    if judgement.ratio and abs(math.log(judgement.ratio)) > math.log1p(threshold):
        code = f"{BEYOND} of {percent_of(threshold)}, but with {code}, and too noisy to tell"
    if judgement.low is None or judgement.high is None or not math.isfinite(judgement.high):
        return code
    return f"{code}; the times allow {units.percent(judgement.low)} to {units.percent(judgement.high)}"


def clock_evidence(judgement: Judgement, cycles: Comparison | None) -> str:
    """Return a sentence without its full stop if the clock explains why a time moved, else an empty text.

    The clock explains a time if the cycles did not move. This means: the interval of the cycles' ratio contains 1 or
    lies within the threshold, and the cycles changed by at most ``MAX_CYCLES_SHARE`` of the change of time. For a
    kernel that waits for memory the clock is no evidence, because such a kernel takes more or fewer cycles at another
    clock.
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
    """Return the times that moved together although their code is no reason, by device UUID and direction.

    Only these times count: those of series with the same code on both sides, those that moved and whose cause is the
    environment already, because A/B pairs showed that the old code moved too, and those that did not move although
    their code is new. A device is returned with a direction if it has at least ``MIN_SERIES`` such times, and more than
    half of these times moved in this direction. A change of one kernel moves its own cases; only the device or its host
    moves all the others.
    """
    by_device: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        sides = same.get(judgement.series)
        is_old = judgement.cause is Cause.ENVIRONMENT or (sides and sides.code)
        counts = is_old or judgement.verdict is Verdict.UNCHANGED
        if counts and judgement.verdict in COMPARED and judgement.series.metric == TIME:
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
            return Cause.ENVIRONMENT, f"{SAME_CODE}, and most cases on this GPU changed in the same direction"
        if not sides.device:
            parts = "the driver, the power limit, the places of arrays or another part of the environment"
            return Cause.ENVIRONMENT, f"{SAME_CODE}, and {parts} changed"
        return (Cause.ENVIRONMENT, f"{SAME_CODE}, and {clock}") if clock else (Cause.NOISE, SAME_CODE)
    if sides and sides.source and sides.inputs and sides.toolkit and not sides.packages:
        return Cause.INPUTS, f"inputs changed: {sides.inputs}"
    if sides and sides.source and (sides.packages or not sides.toolkit):
        packages = f"its source is the same, and what it runs with is not: {sides.packages}"
        return Cause.TOOLCHAIN, packages if sides.packages else "another compiler made other code from the same source"
    return Cause.UNCONFIRMED, clock


# --- A/B pairs -------------------------------------------------------------------------------------------------------


def is_decided(comparison: Comparison, direction: Direction, threshold: float) -> bool:
    """Return True if more A/B pairs would not help.

    Either the verdict is conclusive, or the ratio no longer supports the suspicion: it lies within the threshold, or
    beyond it in the opposite direction. Stopping in the second case adds no false alarms, because no code is blamed. It
    misses some real changes of about the size of the threshold, but half of these would be missed anyway.

    Args:
        comparison: the comparison at this look.
        direction: the direction in which the suspect moved.
        threshold: the smallest relevant change, as a fraction.

    Source:
        Stopping early for futility, non-binding: C. Jennison and B. W. Turnbull (1999), Group Sequential Methods with
        Applications to Clinical Trials, Chapman & Hall, chapter 10.
    """
    return comparison.verdict is not Verdict.INCONCLUSIVE or _is_gone(comparison, direction, threshold)


def cause_of(
    comparison: Comparison,
    drift: Comparison | None,
    *,
    direction: Direction,
    threshold: float,
    usual: float | None = None,
    same_code: bool,
    metric: str = TIME,
) -> tuple[Cause, str]:
    """Return why a suspect moved, and the evidence as a sentence without its full stop.

    - In A/B pairs the two binaries still differ, and their code differs: kernel.
    - The difference is gone, and the baseline's binary has moved from its stored level in the suspect's direction:
      environment, because both binaries moved.
    - The difference is gone, and the baseline's binary is at its stored level: noise.
    - Anything else: unconfirmed. This includes a significant difference below the threshold of this command, because it
      matters to a user with a lower threshold.

    A difference is gone if its interval reaches 1, or stays within the usual threshold.

    Args:
        comparison: the comparison of candidate and baseline in A/B pairs, at the last look.
        drift: the baseline's binary as measured now, compared with its stored level; None if no level is stored.
        direction: the direction in which the suspect moved.
        threshold: the smallest relevant change, as a fraction.
        usual: the threshold that holds unless the user sets another; None if ``threshold`` is the usual threshold.
        same_code: both binaries are the same code.
        metric: what was measured.
    """
    moved, subject = _describe(comparison.ratio, metric), "it" if metric == TIME else f"its {metric}"
    if MOVES.get(comparison.verdict) is direction and not same_code:
        code = "its code" if metric == TIME else f"its code's {metric}"
        return Cause.KERNEL, f"measured in A/B pairs, {code} is {moved} than the baseline's"
    gone = _is_gone(comparison, direction, threshold)
    if same_code or (gone and _is_negligible(comparison, direction, threshold if usual is None else usual)):
        now = "the same" if abs(comparison.ratio - 1) < SAME else moved
        evidence = "its code is the baseline's" if same_code else f"beside the baseline's code {subject} is {now}"
        if drift is not None and MOVES.get(drift.verdict) is direction:
            which = "but the baseline's code is" if metric == TIME else f"but the baseline's {metric} is"
            return Cause.ENVIRONMENT, f"{evidence}, {which} now {_describe(drift.ratio, metric)} than its stored level"
        return Cause.NOISE, f"{evidence}: the difference did not stay"
    if gone:
        return Cause.UNCONFIRMED, f"measured in A/B pairs, {subject} is {moved}, which is below the threshold"
    return Cause.UNCONFIRMED, f"inconclusive: measured in A/B pairs, {subject} seems {moved}, and noise could be why"


def agrees(answer: Comparison, pairs: int, ratio: float, *, threshold: float) -> bool:
    """Return True if one A/B pair on a second device shows the change that several pairs showed on the first device.

    Both changes must have the same direction and a similar size. Sizes are similar if their difference is within the
    noise, within the threshold, or a small share of the change (``SIMILAR``). The noise is known from the first device:
    half the width of the interval of ``pairs`` pairs is h, so that of one pair is h √pairs, and that of the difference
    is h √(pairs + 1).

    Args:
        answer: the comparison on the first device.
        pairs: the number of A/B pairs behind ``answer``.
        ratio: the candidate over the baseline in the pair on the second device.
        threshold: the smallest relevant change, as a fraction.
    """
    if not answer.low or not answer.high or not 0 < ratio < math.inf:
        return False
    first, second = math.log(answer.ratio), math.log(ratio)
    half = (math.log(answer.high) - math.log(answer.low)) / 2
    allowed = max(half * math.sqrt(pairs + 1), math.log1p(threshold), SIMILAR * abs(first))
    return first * second > 0 and abs(second - first) <= allowed


def midpoint(ratio: float) -> float:
    """Return the boundary between good and bad levels in a bisection: halfway on a logarithmic scale.

    The boundary is a ratio to the good level.

    Args:
        ratio: the ratio of the bad level to the good one; above 1, the bad level is slower.
    """
    return math.sqrt(ratio)


def is_beyond(low: float | None, high: float | None, limit: float) -> bool | None:
    """Return True if the whole interval of a ratio lies beyond a limit, False if it lies before the limit.

    Return None if the interval contains the limit, or if there is no interval. So the answer is wrong only if the
    interval misses the true ratio. The ratio is a level divided by the good level of a bisection.

    Args:
        low: the low end of the interval.
        high: the high end of the interval.
        limit: the limit of the ratio, above 1 to search for a slower level, below 1 to search for a faster level.
    """
    if low is None or high is None or low <= limit <= high:
        return None
    return (low > limit) is (limit > 1)


def _is_gone(comparison: Comparison, direction: Direction, threshold: float) -> bool:
    """Return True if the ratio does not lie beyond the threshold in the suspect's direction."""
    log_ratio = math.log(comparison.ratio) if comparison.ratio else -math.inf
    return (log_ratio if direction is Direction.SLOWER else -log_ratio) <= math.log1p(threshold)


def _is_negligible(comparison: Comparison, direction: Direction, usual: float) -> bool:
    """Return True if the interval reaches 1, or stays within the usual threshold in the suspect's direction."""
    if not comparison.low or not comparison.high:  # one of the sides is 0
        return True
    ends = (math.log(comparison.low), math.log(comparison.high))
    near, far = ends if direction is Direction.SLOWER else (-ends[1], -ends[0])
    return near <= 0 or far <= math.log1p(usual)


def _describe(ratio: float, metric: str) -> str:
    more, less = ("slower", "faster") if metric == TIME else ("higher", "lower")
    return f"{100 * abs(ratio - 1):.1f} % {more if ratio >= 1 else less}"
