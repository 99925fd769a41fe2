"""What measuring a suspect again says: is its code to blame, its GPU, or nothing that stays?"""

import math

from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import Comparison
from perfsvc.model import TIME, Cause, Direction, Verdict

SAME = 5e-4
"""A difference below which two sides are called the same, for a tenth of a per cent is all that is written."""

LOOKS = (3, 5, 8, 12)
"""After so many pairs the sides are compared: each look has about half as many pairs again as the one before."""


def settled(found: Comparison, direction: Direction, threshold: float) -> bool:
    """Whether more pairs would be for nothing.

    Either the verdict stands, or the estimate is no suspect's any more: it lies within the threshold, or beyond it on
    the other side. Stopping there blames no code, so that it adds nothing to the false alarms; what it costs is changes
    about as small as the threshold, of which every other one is missed anyway.

    Args:
        found: the comparison at this look.
        direction: where the suspect moved.
        threshold: the smallest relevant change, as a fraction.

    Source:
        Stopping early for futility, non-binding: C. Jennison and B. W. Turnbull (1999), Group Sequential Methods with
        Applications to Clinical Trials, Chapman & Hall, chapter 10.
    """
    return found.verdict is not Verdict.INCONCLUSIVE or _is_gone(found, direction, threshold)


def cause_of(
    found: Comparison,
    drift: Comparison | None,
    *,
    direction: Direction,
    threshold: float,
    usual: float | None = None,
    same_code: bool,
    metric: str = TIME,
) -> tuple[Cause, str]:
    """Why a suspect moved, and how that is known, as a sentence without its full stop.

    - The candidate's binary still differs from the baseline's beside it: its code. Equal code never is.
    - The difference is gone, and the baseline's binary differs from its own stored level like the suspect: the
      environment, which moved both.
    - The difference is gone and the baseline's binary is what it was: noise.
    - Nothing of that can be said: unconfirmed. Nor can it where a difference is left that is less than was asked for
      and more than nothing: it did stay, and whoever asks for less wants to know of it.

    Gone is a difference whose interval reaches 1, or does not leave what usually matters.

    Args:
        found: the candidate against the baseline, measured in turn; the last look.
        drift: the baseline's binary now against its stored level; None where there is none.
        direction: where the suspect moved.
        threshold: the smallest relevant change, as a fraction.
        usual: the one that nobody asked for, likewise, where ``threshold`` is a person's; None where that is the usual.
        same_code: both binaries are the same code.
        metric: what was measured.
    """
    moved, it = _moved(found.ratio, metric), "it" if metric == TIME else f"its {metric}"
    if MOVES.get(found.verdict) is direction and not same_code:
        code = "its code" if metric == TIME else f"its code's {metric}"
        return Cause.KERNEL, f"measured in turn, {code} is {moved} than the baseline's"
    small = _is_gone(found, direction, threshold)
    if same_code or (small and _is_nothing(found, direction, threshold if usual is None else usual)):
        beside = "the same" if abs(found.ratio - 1) < SAME else moved
        gone = "its code is the baseline's" if same_code else f"beside the baseline's code {it} is {beside}"
        if drift is not None and MOVES.get(drift.verdict) is direction:
            which = "which is itself" if metric == TIME else f"and the baseline's {metric} is"
            return Cause.ENVIRONMENT, f"{gone}, {which} now {_moved(drift.ratio, metric)} than its stored level"
        return Cause.NOISE, f"{gone}: the difference did not stay"
    if small:
        return Cause.UNCONFIRMED, f"measured in turn {it} is {moved}, which is less than was asked for"
    return Cause.UNCONFIRMED, f"inconclusive: measured in turn {it} seems {moved}, and noise could be why"


def _is_gone(found: Comparison, direction: Direction, threshold: float) -> bool:
    """Whether what was seen does not lie beyond the threshold where the suspect did."""
    shift = math.log(found.ratio) if found.ratio else -math.inf
    return (shift if direction is Direction.SLOWER else -shift) <= math.log1p(threshold)


def _is_nothing(found: Comparison, direction: Direction, usual: float) -> bool:
    """Whether the interval reaches 1, or does not leave the usual threshold where the suspect moved."""
    if not found.low or not found.high:  # one of the sides is 0
        return True
    ends = (math.log(found.low), math.log(found.high))
    near, far = ends if direction is Direction.SLOWER else (-ends[1], -ends[0])
    return near <= 0 or far <= math.log1p(usual)


def _moved(ratio: float, metric: str) -> str:
    more, less = ("slower", "faster") if metric == TIME else ("higher", "lower")
    return f"{100 * abs(ratio - 1):.1f} % {more if ratio >= 1 else less}"
