"""Stopping rules: small objects that are asked after each batch whether sampling may end, and why.

The resolution of the clock needs care. Device times are whole clock steps, so many samples may be equal. The interval
of their median may then have zero width, although the median is known no better than to a step. An interval as narrow
as a step may never become narrower, however many samples are taken.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
_LEAST = 6
"""With fewer samples, no interval of order statistics reaches the confidence."""
_ROUNDING = 1e-6
"""Times that differ by less than this share count as equal: CUDA's events count single-precision milliseconds."""
LARGEST_STEP_S = 1e-6
"""The largest step of a clock that times samples: CUDA's events resolve half a microsecond (CUDA Runtime API,
cudaEventElapsedTime), and the host's clock is finer."""


class StoppingRule(Protocol):
    """Decides whether sampling may end."""

    def reached(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return why sampling may end now, as a sentence without its full stop; empty if it may not.

        Args:
            samples_s: all samples that count so far, in seconds; at least one.
            elapsed_s: seconds that sampling has taken so far, warm-up included.
        """
        ...


@dataclass(frozen=True, slots=True)
class Precision:
    """Satisfied when the median's confidence interval reaches no further to each side than ``share`` of the median.

    Also satisfied when the interval is no wider than one step of the clock, or when all samples are equal: more samples
    would not narrow it. Never satisfied before ``least`` samples, nor before ``least_s`` seconds.
    """

    share: float
    least: int
    least_s: float = 0.0

    def reached(self, samples_s: Sequence[float], elapsed_s: float) -> str:
        """Return how well the median is known if the rule is satisfied, else an empty text."""
        if len(samples_s) < max(self.least, _LEAST) or elapsed_s < self.least_s:
            return ""
        ordered = sorted(samples_s)
        low, median, high = interval(ordered)
        step = step_of(ordered)
        if step is None:
            return f"precision: all {len(samples_s)} samples are equal, as finely as the clock resolves"
        share = max(high - median, median - low, step / 2) / median
        asked = f"(asked: ±{_percent(self.share)})"
        if share <= self.share:
            return f"precision: the median is known within ±{_percent(share)} {asked}"
        if high - low <= step * (1 + _ROUNDING):
            return f"precision: the median is known to a step of the clock, ±{_percent(share)} {asked}"
        return ""


@dataclass(frozen=True, slots=True)
class SampleCap:
    """Satisfied when this many samples were taken."""

    samples: int

    def reached(self, samples_s: Sequence[float], elapsed_s: float) -> str:  # noqa: ARG002 the protocol has it
        """Return the cap if the rule is satisfied, else an empty text."""
        return f"sample cap of {self.samples}" if len(samples_s) >= self.samples else ""


@dataclass(frozen=True, slots=True)
class TimeCap:
    """Satisfied when this much time has passed."""

    seconds: float

    def reached(self, samples_s: Sequence[float], elapsed_s: float) -> str:  # noqa: ARG002 the protocol has it
        """Return the cap if the rule is satisfied, else an empty text."""
        return f"time cap of {self.seconds:g} s" if elapsed_s >= self.seconds else ""


def first_reached(rules: Sequence[StoppingRule], samples_s: Sequence[float], elapsed_s: float) -> str:
    """Return the reason of the first rule that is satisfied; empty if no rule is, or if there are no samples."""
    return next((why for rule in rules if (why := rule.reached(samples_s, elapsed_s))), "") if samples_s else ""


def interval(samples_s: Sequence[float]) -> tuple[float, float, float]:
    """Return the low end of the median's confidence interval, the median, and the high end, for any distribution.

    The ends are the k-th smallest and the k-th largest sample, where ``rank`` returns k. The ends are infinite if there
    are too few samples.

    Source:
        H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed. (Wiley 2003), section 7.1.
    """
    ordered = sorted(samples_s)
    k = rank(len(ordered))
    median = statistics.median(ordered)
    return (ordered[k - 1], median, ordered[-k]) if k else (-math.inf, median, math.inf)


@functools.lru_cache(maxsize=256)
def rank(count: int) -> int:
    """Return the largest k such that P(fewer than k of ``count`` samples lie below the median) is at most 2.5 %.

    The number of samples below the median is binomial with p = 1/2. The search goes from the middle outwards, because
    the answer is only about √count ranks away. The result is zero for fewer than six samples, which have no such k.
    """
    k = (count + 1) // 2
    below = 0.5 if count % 2 else 0.5 - _probability(count, k) / 2  # P(fewer than k)
    while k and below > _TAIL:
        k -= 1
        below -= _probability(count, k)
    return k


def _probability(count: int, k: int) -> float:
    """Return the probability that k of ``count`` samples lie below the median."""
    ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
    return math.exp(ways - count * math.log(2))


def step_of(samples_s: Sequence[float]) -> float | None:
    """Return the step of the clock that gave these samples, in seconds.

    - If all samples are equal, the step is None, because it may have any size.
    - If no two samples are equal, the step is zero: the clock is too fine to show a step.
    - If only some samples are equal, the step is the smallest difference between samples. If this difference is larger
      than any clock's step, the step is zero, because the kernel itself switches between a few times.
    """
    ordered = sorted(samples_s)
    rounding = _ROUNDING * ordered[-1]
    gaps = [after - before for before, after in itertools.pairwise(ordered)]
    if gaps and min(gaps) > rounding:  # the usual case with a fine clock
        return 0.0
    smallest = min((gap for gap in gaps if gap > rounding), default=None)
    return 0.0 if smallest is not None and smallest > LARGEST_STEP_S else smallest


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
