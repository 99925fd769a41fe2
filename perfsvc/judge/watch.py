"""What the history of a series says, night by night: it stepped, it drifts, its two states are mixed otherwise."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfsvc.judge.discoveries import discoveries, numbered
from perfsvc.judge.shifts import Floats, Ints
from perfsvc.judge.watcher import LEAST_SCORE, Alert, Watcher

RATE = 7e-5
"""How often a flat series has ``LEAST_SCORE``, a night: simulated, not derived."""

STEEPNESS = 1.0
"""By what factor, as a logarithm, a score higher by one is rarer; simulated."""

FALSE_SHARE = 0.003
"""The share of false alerts that is borne in one night of many series: far below the 5 % that are borne in
all, for most nights have no true alert and may still have a false one."""

LARGEST = 2.0**400
"""What a night may be, in units of the first one's order: sums of its squares are numbers still."""


def watch(values: ArrayLike, segments: ArrayLike | None = None) -> list[Alert]:
    """The alerts of one series, in the order in which they were raised.

    Each night sees the nights before it alone, so that the alerts of a prefix are a prefix of the alerts. The first
    ``LEARNING`` measured nights of a segment raise nothing. Nor does any single night: a change needs two.

    Args:
        values: one value a night, in any unit, shape (nights,); NaN where the series was not measured. Lower is better.
        segments: an id a night, shape (nights,): where it changes, the series starts anew.

    Raises:
        ValueError: an infinite value, or arrays of other shapes.

    Source:
        See ``shifts.scores``; that nights are judged one by one with a known rate of false alerts rather than a chance
        for each: E. S. Page (1954), Continuous inspection schemes, Biometrika 41(1/2).
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"the values of one series have one axis, not {series.ndim}")
    return watch_each(series[None, :], segments)[0]


def watch_each(matrix: ArrayLike, segments: ArrayLike | None = None) -> list[list[Alert]]:
    """What ``watch`` says of each of many series: the same, a hundred times as fast.

    Args:
        matrix: one value a series and night, shape (series, nights); NaN where a series was not measured.
        segments: an id a night, shape (nights,), or a night and series, shape (series, nights).

    Raises:
        ValueError: an infinite value, or arrays of other shapes.
    """
    return _watched(_many(matrix), segments, lambda _, found: found >= LEAST_SCORE)


def watch_many(
    matrix: ArrayLike, groups: Sequence[Hashable] | None = None, segments: ArrayLike | None = None
) -> list[list[Alert]]:
    """The alerts of many series over the same nights, with the share of false ones among a night's alerts held.

    An alert is one that ``watch`` would raise and that is a discovery among all series of the night, at a false share
    of ``FALSE_SHARE``; what is not believed tonight is looked at again tomorrow.

    Args:
        matrix: one value a series and night, shape (series, nights); NaN where a series was not measured.
        groups: what each series belongs to (its commit, its GPU, its benchmark), (series,): see ``discoveries``.
        segments: an id a night, shape (nights,), or a night and series, shape (series, nights).

    Returns:
        The alerts of each series, in the order in which they were raised.

    Raises:
        ValueError: an infinite value, or arrays of other shapes.

    Source:
        See ``watch`` and ``discoveries.discoveries``.
    """
    many = _many(matrix)
    if groups is not None and len(groups) != len(many):
        raise ValueError(f"{len(many)} series have as many groups, not {len(groups)}")

    labels = None if groups is None else numbered(groups)

    def believed(rows: Ints, found: Floats) -> NDArray[np.bool_]:
        high: NDArray[np.bool_] = found >= LEAST_SCORE
        if not high.any():
            return high
        return high & discoveries(_chance(found), None if labels is None else labels[rows], FALSE_SHARE)

    return _watched(many, segments, believed)


def _many(matrix: ArrayLike) -> Floats:
    many = np.asarray(matrix, dtype=np.float64)
    if many.ndim != len(("series", "nights")):
        raise ValueError(f"the values of many series have two axes, series and nights, not {many.ndim}")
    return many


def _chance(found: Floats) -> Floats:
    """How often a flat series reaches a score, a night; 1 below ``LEAST_SCORE``."""
    return np.where(found < LEAST_SCORE, 1.0, RATE * np.exp(STEEPNESS * (LEAST_SCORE - found)))


def _watched(
    matrix: Floats, segments: ArrayLike | None, believed: Callable[[Ints, Floats], NDArray[np.bool_]]
) -> list[list[Alert]]:
    """Hands a watcher night after night, and the segments that begin."""
    if np.isinf(matrix).any():
        raise ValueError("a value is infinite: a night without a measurement is NaN")
    watcher = Watcher(_in_range(matrix), _begins(matrix, segments), believed)
    for night in range(matrix.shape[1]):
        watcher.see(night)
    return watcher.alerts


def _in_range(matrix: Floats) -> Floats:
    """Each series over the power of two of its first measured night, so that no square of it overflows.

    That changes no digit, and knows nothing of later nights. What is then beyond ``LARGEST`` counts as that.
    """
    if not matrix.size:
        return matrix
    first = matrix[np.arange(len(matrix)), (~np.isnan(matrix)).argmax(axis=1)]
    _, exponents = np.frexp(np.nan_to_num(first))
    with np.errstate(over="ignore"):
        scaled: Floats = np.clip(np.ldexp(matrix, -exponents[:, None]), -LARGEST, LARGEST)
    return scaled


def _begins(matrix: Floats, segments: ArrayLike | None) -> NDArray[np.bool_]:
    """On which nights a segment begins, other than the first, shape (series, nights)."""
    begins = np.zeros(matrix.shape, bool)
    if segments is not None:
        ids = np.asarray(segments)
        if ids.shape not in {matrix.shape, matrix.shape[1:]}:
            raise ValueError(f"an id a night makes shape {matrix.shape[1:]}, not {ids.shape}")
        begins[:, 1:] = ids[..., 1:] != ids[..., :-1]
    return begins
