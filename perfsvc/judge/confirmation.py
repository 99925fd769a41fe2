"""Decide from A/B pairs: whether to measure more, why a suspect moved, and which side a bisected run is on."""

import math

from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import Comparison
from perfsvc.model import TIME, Cause, Direction, Verdict

SAME = 5e-4
"""Below this difference two sides are called the same, because messages show a tenth of a per cent."""

LOOKS = (3, 5, 8, 12)
"""After so many A/B pairs the sides are compared: each look has about half as many pairs again as the one before."""


def is_decided(comparison: Comparison, direction: Direction, threshold: float) -> bool:
    """Return True if more A/B pairs would not help.

    Either the verdict is conclusive, or the ratio no longer supports the suspicion: it lies within the threshold, or
    beyond it in the opposite direction. Stopping then adds no false alarms, because no code is blamed. It misses some
    changes about as small as the threshold, half of which are missed anyway.

    Args:
        comparison: at this look.
        direction: where the suspect moved.
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

    - The candidate's binary still differs from the baseline's, measured in A/B pairs: kernel. Equal code never is.
    - The difference is gone, and the baseline's binary differs from its own stored level like the suspect: environment,
      which moved both.
    - The difference is gone, and the baseline's binary is at its stored level: noise.
    - Anything else: unconfirmed. So is a difference that is significant but below the threshold of this command: it
      did stay, and a user with a lower threshold wants to know.

    A difference is gone if its interval reaches 1, or stays within the usual threshold.

    Args:
        comparison: the candidate against the baseline in A/B pairs, at the last look.
        drift: the baseline's binary now against its stored level; None if there is none.
        direction: where the suspect moved.
        threshold: the smallest relevant change, as a fraction.
        usual: the threshold without the user's own; None if ``threshold`` is the usual one.
        same_code: both binaries are the same code.
        metric: what was measured.
    """
    moved, subject = _describe(comparison.ratio, metric), "it" if metric == TIME else f"its {metric}"
    if MOVES.get(comparison.verdict) is direction and not same_code:
        code = "its code" if metric == TIME else f"its code's {metric}"
        return Cause.KERNEL, f"measured in turn, {code} is {moved} than the baseline's"
    gone = _is_gone(comparison, direction, threshold)
    if same_code or (gone and _is_negligible(comparison, direction, threshold if usual is None else usual)):
        now = "the same" if abs(comparison.ratio - 1) < SAME else moved
        evidence = "its code is the baseline's" if same_code else f"beside the baseline's code {subject} is {now}"
        if drift is not None and MOVES.get(drift.verdict) is direction:
            which = "which is itself" if metric == TIME else f"and the baseline's {metric} is"
            return Cause.ENVIRONMENT, f"{evidence}, {which} now {_describe(drift.ratio, metric)} than its stored level"
        return Cause.NOISE, f"{evidence}: the difference did not stay"
    if gone:
        return Cause.UNCONFIRMED, f"measured in turn {subject} is {moved}, which is below the threshold"
    return Cause.UNCONFIRMED, f"inconclusive: measured in turn {subject} seems {moved}, and noise could be why"


def midpoint(ratio: float) -> float:
    """Return the ratio to the good level that separates good from bad in a bisection: halfway between the logarithms.

    Args:
        ratio: of the bad level to the good one; above 1 it is slower.
    """
    return math.sqrt(ratio)


def is_beyond(low: float | None, high: float | None, limit: float) -> bool | None:
    """Return whether a level lies beyond a limit, by the interval of its ratio to the good level.

    None if the interval contains the limit, or there is no interval. So a level is put on the wrong side at most as
    often as an interval misses the true ratio: with probability ``alpha`` over all looks together.

    Args:
        low: the low end of the interval.
        high: the high end.
        limit: above 1 if slower is bad, below 1 if faster is searched for.
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
