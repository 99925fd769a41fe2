"""The numbers of the charts of a series' page: rounded, so that a page is small."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

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
