"""Whether a GPU is slower than the other GPUs of its model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfsvc.judge.levels import Floats

SIBLING_THRESHOLD = 0.03
"""GPUs of one model differ by one or two per cent without a fault: their chips, coolers and places in a rack differ."""

SIBLING_NIGHTS = 5
"""How many of a GPU's newest nights are compared."""

AGREEING_NIGHTS = 3
"""In how many of these nights, the newest included, a GPU must be slower: a warm night alone says nothing."""


@dataclass(frozen=True, slots=True)
class RatioToSiblings:
    """A GPU against the other GPUs of its model.

    Attributes:
        ratio: the median over the cases; above 1 the GPU is slower.
        low: the lower quartile over the cases.
        high: the upper quartile.
        cases: the number of cases that the GPU and any sibling measured.
        siblings: the number of siblings that measured any of these cases.
    """

    ratio: float
    low: float
    high: float
    cases: int
    siblings: int


def ratio_to_siblings(own: Floats, siblings: Floats) -> RatioToSiblings | None:
    """Return the ratio of a GPU's times to the median times of its siblings; None if they share no case.

    Args:
        own: the time of each case in seconds, shape (cases,); NaN if the GPU did not measure it.
        siblings: the times of the other GPUs with the same binaries, shape (siblings, cases); NaN likewise.
    """
    if not siblings.size:
        return None
    measured = siblings > 0
    shared = (own > 0) & measured.any(axis=0)
    if not shared.any():
        return None
    ratios = own[shared] / np.nanmedian(np.where(measured, siblings, np.nan)[:, shared], axis=0)
    low, middle, high = (float(value) for value in np.quantile(ratios, [0.25, 0.5, 0.75]))
    return RatioToSiblings(middle, low, high, int(shared.sum()), int(measured[:, shared].any(axis=1).sum()))


def is_slower_than_siblings(ratios: Sequence[float]) -> bool:
    """Return True if a GPU is slower than its siblings in its newest night, and in ``AGREEING_NIGHTS`` nights in all.

    Args:
        ratios: of the newest nights, the newest first; only ``SIBLING_NIGHTS`` of them count.
    """
    slower = [ratio > 1 + SIBLING_THRESHOLD for ratio in ratios[:SIBLING_NIGHTS]]
    return sum(slower) >= AGREEING_NIGHTS and slower[0]
