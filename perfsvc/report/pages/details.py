"""What the pages of series show besides the histories, as frozen values that ``service`` reads from the store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import FullEnvironment, Series
from perfsvc.report.rows import EnvironmentDifferences

MOST_SAMPLES = 200
"""How many samples of a replica are drawn."""

_EXACT = 22
"""The largest power of ten that is a floating point number: a quotient by it is the number that the digits name."""
_POWERS = np.array([float(10**power) for power in range(_EXACT + 1)])


def thinned(times: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return at most ``MOST_SAMPLES`` of the times, evenly spaced."""
    step = -(-len(times) // MOST_SAMPLES)
    return times[:: step or 1]


def rounded(numbers: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Return the numbers multiplied by the factor, each rounded to six digits; NaN for a number that is not finite."""
    scaled = numbers * factor
    known = np.isfinite(scaled)
    power = np.zeros(scaled.shape, np.int64)
    nonzero = known & (scaled != 0)
    power[nonzero] = 5 - np.floor(np.log10(np.abs(scaled[nonzero])))
    up, down = _POWERS.take(power, mode="clip"), _POWERS.take(-power, mode="clip")
    digits = np.where(known, np.round(scaled * up / down) / up * down, np.nan)
    for at in zip(*np.nonzero(known & (abs(power) > _EXACT)), strict=True):
        digits[at] = float(f"{scaled[at]:.6g}")
    return digits


def drawn_samples(
    samples: Mapping[int, Sequence[NDArray[np.float32]]], factor: float
) -> dict[int, list[NDArray[np.float64]]]:
    """Return at most ``MOST_SAMPLES`` times of each replica, multiplied by the factor.

    The times of a replica are rounded to the six leading digits of its longest time.
    """
    thin = [thinned(times) for replicas in samples.values() for times in replicas]
    sizes = np.array([times.size for times in thin], np.int64)
    filled = np.flatnonzero(sizes)
    scaled = np.concatenate(thin).astype(np.float64) * factor if filled.size else np.empty(0)
    begins = np.cumsum(sizes) - sizes
    decimals = np.zeros(sizes.size, np.int64)
    if filled.size:
        longest = np.maximum.reduceat(scaled, begins[filled])
        decimals[filled] = np.where(longest > 0, 5 - np.floor(np.log10(np.where(longest > 0, longest, 1.0))), 0)
    power = np.repeat(decimals, sizes)
    up, down = _POWERS.take(power, mode="clip"), _POWERS.take(-power, mode="clip")
    digits = np.round(scaled * up / down) / up * down
    columns = iter([digits[begin:end] for begin, end in pairwise([*begins.tolist(), digits.size])])
    return {at: [next(columns) for _ in replicas] for at, replicas in samples.items()}


Samples = Mapping[int, tuple[NDArray[np.float32], ...]]
"""The samples of a series, by run: an array of seconds for each replica."""


@dataclass(frozen=True, slots=True, eq=False)
class RunQuantities:
    """What the runs of a series measured of its case besides the time and the named metrics, oldest first.

    Each array has the shape (runs,), with the runs of the series; NaN is unknown.

    Attributes:
        error: the largest error of a result.
        bandwidth: in bytes a second.
        peak: the name of the measured peak that the case comes nearest to; empty if unknown.
        peak_share: the rate of the case over this peak.
        registers: of a thread of the kernel that needs most.
        spilled_bytes: of all kernels.
    """

    error: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    peak: Sequence[str]
    peak_share: NDArray[np.float64]
    registers: NDArray[np.float64]
    spilled_bytes: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ComparedNights:
    """The verdict on the times of two runs of a series, by their numbers."""

    base: int
    new: int
    ratio: float
    low: float | None
    high: float | None
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class SeriesDetails:
    """What the pages of series show besides the histories.

    Attributes:
        quantities: returns those of the case of a time; None for another series, or if no run knows any. It is called
            when the page of the series is rendered.
        compared: the verdicts on the newest run of each series with samples against some runs before it.
        differences: in what the full environments of two runs differ, for each change of a series' environment.
        environments: the full environments of the newest runs of all series, by run.
    """

    quantities: Callable[[Series], RunQuantities | None] = lambda _: None
    compared: Mapping[Series, Sequence[ComparedNights]] = field(default_factory=dict)
    differences: Mapping[tuple[int, int], EnvironmentDifferences] = field(default_factory=dict)
    environments: Mapping[int, FullEnvironment] = field(default_factory=dict)
