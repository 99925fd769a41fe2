"""A level without a history of its own, held against those of other GPUs."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from perfsvc.judge.comparison import LONE, Comparison, said
from perfsvc.judge.estimates import Floats, replica_medians
from perfsvc.judge.ratio import ALONE
from perfsvc.model import Verdict

LEAST = 2
"""GPUs below which nobody knows what they differ by."""


def compare_with_boards(
    boards: Sequence[Sequence[ArrayLike]], candidate: Sequence[ArrayLike], *, threshold: float, alpha: float
) -> Comparison:
    """Compares a level with those of other GPUs of its model, each of which counts once.

    A GPU differs from its model's others by more than replicas of one GPU do, so the interval is Student's with the
    variance between the GPUs. One wild replica decides nothing here either: half of the interval is never below
    ``ALONE`` times the error in which the candidate's replicas speak for themselves, and one replica alone is never
    called changed.

    Args:
        boards: for each GPU its replicas, for each of those its times in seconds, shape (n,); two GPUs at least.
        candidate: for each replica its times.
        threshold: the smallest relative change that matters.
        alpha: the probability of an interval that misses the true ratio.

    Raises:
        ValueError: fewer than two GPUs, one without replicas, or times that are not finite and above 0.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1): the interval of one further value of a sample.
    """
    if len(boards) < LEAST:
        raise ValueError(f"what GPUs differ by is seen from two of them on, not from {len(boards)}")
    levels = [_logs(board) for board in boards]
    unit = levels[0][0]
    before = np.array([(replicas - unit).mean() for replicas in levels])
    after = _logs(candidate) - unit
    spread, count = float(before.std(ddof=1)), before.size
    half = float(stdtrit(count - 1, 1 - alpha / 2)) * spread * math.sqrt(1 + 1 / count)
    alone = math.hypot(spread / math.sqrt(count), _error(after))
    found = said(float(after.mean() - before.mean()), max(half, ALONE * alone), threshold)
    if after.size == 1 and found.verdict is not Verdict.UNCHANGED:
        return Comparison(found.ratio, found.low, found.high, Verdict.INCONCLUSIVE, LONE)
    return found


def _logs(replicas: Sequence[ArrayLike]) -> Floats:
    """The logarithms of the medians of some replicas."""
    logs: Floats = np.log(replica_medians(replicas))
    return logs


def _error(values: Floats) -> float:
    """The standard error of the mean of some values; 0 of one, which shows none."""
    return float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else 0.0
