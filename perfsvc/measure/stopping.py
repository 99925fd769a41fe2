"""When enough samples have been taken: rules that look on, and say why when they have seen enough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959964
"""The two-sided 95 % point of the normal distribution."""
_NS_PER_S = 1e9
_ROUNDING = 2.0**-22


class Rule(Protocol):
    """Decides whether sampling may end."""

    def reached(self, samples_s: NDArray[np.float64], elapsed_s: float) -> str:
        """Why it may end now, as a sentence without its full stop; empty where it may not.

        Args:
            samples_s: all samples that count so far.
            elapsed_s: seconds since sampling began.
        """
        ...


@dataclass(frozen=True, slots=True)
class Precision:
    """Enough where the 95 % confidence interval of the median is no wider than ``share`` of it to either side.

    Also where it is no wider than a step of the clock: further samples would say the same.
    """

    share: float
    least: int

    def reached(self, samples_s: NDArray[np.float64], elapsed_s: float) -> str:  # noqa: ARG002 a rule's own business
        """Names the width that was reached."""
        if len(samples_s) < self.least:
            return ""
        median, step = float(np.median(samples_s)), step_of(samples_s)
        width = half_width(samples_s)
        share = max(width, step / 2) / median
        if share <= self.share:
            return f"precision: the median is known within ±{_percent(share)} (asked: ±{_percent(self.share)})"
        if width <= step / 2:
            return f"resolution: the clock's steps of {step * _NS_PER_S:.3g} ns tell no more (±{_percent(share)})"
        return ""


@dataclass(frozen=True, slots=True)
class SampleCap:
    """Enough where so many samples were taken."""

    samples: int

    def reached(self, samples_s: NDArray[np.float64], elapsed_s: float) -> str:  # noqa: ARG002 see Precision
        """Names the cap."""
        return f"sample cap of {self.samples}" if len(samples_s) >= self.samples else ""


@dataclass(frozen=True, slots=True)
class TimeCap:
    """Enough where so much time has passed."""

    seconds: float

    def reached(self, samples_s: NDArray[np.float64], elapsed_s: float) -> str:  # noqa: ARG002 see Precision
        """Names the cap."""
        return f"time cap of {self.seconds:g} s" if elapsed_s >= self.seconds else ""


def first_reached(rules: Sequence[Rule], samples_s: Sequence[float], elapsed_s: float) -> str:
    """What the first rule that has seen enough says; empty where none has."""
    samples = np.asarray(samples_s, np.float64)
    return next((why for rule in rules if (why := rule.reached(samples, elapsed_s))), "")


def half_width(samples_s: NDArray[np.float64]) -> float:
    """The 95 % confidence interval of the median, in seconds to its wider side.

    By order statistics, without any assumption on the distribution: the number of samples below the median is
    binomial. Ranks by its normal approximation: Conover (1999), Practical Nonparametric Statistics, 3.2.

    Args:
        samples_s: at least one sample, in seconds.

    Returns:
        Infinity where there are too few samples for an interval.
    """
    count = len(samples_s)
    reach = Z_95 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - reach) - 1, math.ceil(count / 2 + reach)
    if low < 0 or high >= count:
        return math.inf
    ordered = np.sort(samples_s)
    median = float(np.median(ordered))
    return max(float(ordered[high]) - median, median - float(ordered[low]))


def step_of(samples_s: NDArray[np.float64]) -> float:
    """The step of the clock that gave these samples, in seconds; 0 where no two are equal, so that none shows.

    The smallest difference beyond rounding: events count single-precision milliseconds.
    """
    steps = np.diff(np.sort(samples_s))
    beyond = steps > _ROUNDING * float(np.max(samples_s))
    return float(steps[beyond].min()) if beyond.any() and not beyond.all() else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
