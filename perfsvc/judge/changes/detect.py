"""Detect changes of level in the histories of series, alone or together."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.changes.detector import Alert, Detector
from perfsvc.judge.changes.level import MIN_SCALE
from perfsvc.judge.changes.scores import MIN_SCORE, Bools, Floats, Ints

ALERT_RATE = 7e-5
"""How often a flat series reaches ``MIN_SCORE``, a run: simulated, not derived."""

STEEPNESS = 1.0
"""How much the logarithm of a score's chance falls if the score is higher by 1; simulated."""

FALSE_SHARE = 0.003
"""The tolerated share of false alerts in one run of many series. It is far below the 5 % tolerated over all runs,
because most runs have no true alert and may still have a false one."""

LARGEST = 2.0**400
"""The largest value, in units of the first one's order of magnitude: sums of its squares are still finite."""

START_SLACK = 8.0
"""How much less likely (log-likelihood) another start may make the runs and still be the true one."""


def detect_changes(values: ArrayLike, segments: ArrayLike | None = None, *, smallest: float = 0.0) -> list[Alert]:
    """Return the alerts of one series, in the order in which they were raised.

    Each run is judged from its own value and the values of earlier runs, so later runs never change an alert. The
    first ``LEARNING`` measured runs of a segment raise only sudden changes. A single run raises nothing: a change needs
    two runs.

    Args:
        values: one value a run, in any unit, shape (runs,); NaN if the series was not measured. Lower is better.
        segments: one id per run, shape (runs,). The series starts anew where the id changes.
        smallest: the smallest relevant change, as a fraction of the level; a smaller change raises nothing.

    Raises:
        ValueError: a value is infinite, or an array does not have the shape (runs,).

    Source:
        See ``window_scores``; for judging runs one by one at a known rate of false alerts: E. S. Page (1954),
        Continuous inspection schemes, Biometrika 41(1/2).
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"the values of one series have one axis, not {series.ndim}")
    return detect_changes_in_each(series[None, :], segments, smallest=smallest)[0]


def detect_changes_in_each(
    matrix: ArrayLike, segments: ArrayLike | None = None, *, smallest: ArrayLike = 0.0
) -> list[list[Alert]]:
    """Return the alerts of each of many series, as ``detect_changes`` finds them, but a hundred times as fast.

    Args:
        matrix: one value a series and run, shape (series, runs); NaN if a series was not measured.
        segments: an id a run, shape (runs,), or an id a run and series, shape (series, runs).
        smallest: the smallest relevant change, as a fraction of the level, or such a fraction a series.

    Raises:
        ValueError: a value is infinite, or an array has another shape.
    """
    return _detect(_as_matrix(matrix), segments, smallest, lambda _, scores: scores >= MIN_SCORE)


def detect_changes_together(
    matrix: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    segments: ArrayLike | None = None,
    *,
    smallest: ArrayLike = 0.0,
) -> list[list[Alert]]:
    """Return the alerts of many series over the same runs, with the share of false alerts in each run limited.

    An alert is raised if ``detect_changes`` would raise it, and if the change is a discovery among all series of the
    run. At most ``FALSE_SHARE`` of the discoveries are expected to be false. A change that is not believed in one run
    is looked at again in the next.

    Args:
        matrix: one value a series and run, shape (series, runs); NaN if a series was not measured.
        groups: what each series belongs to (its device, its benchmark), shape (series,). Changes in one group do not
            permit more false alerts in another group.
        segments: an id a run, shape (runs,), or an id a run and series, shape (series, runs).
        smallest: the smallest relevant change, as a fraction of the level, or such a fraction a series.

    Returns:
        The alerts of each series, in the order in which they were raised.

    Raises:
        ValueError: a value is infinite, or an array has another shape.
    """
    many = _as_matrix(matrix)
    if groups is not None and len(groups) != len(many):
        raise ValueError(f"{len(many)} series need {len(many)} groups, not {len(groups)}")
    labels: Ints | None = None
    if groups is not None:
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        labels = np.array([numbers[group] for group in groups], np.intp)

    def believes(rows: Ints, scores: Floats) -> Bools:
        """Return which series changed: their scores are high, and remain so after the control of false discoveries."""
        high: Bools = scores >= MIN_SCORE
        if not high.any():
            return high
        chances = np.where(high, ALERT_RATE * np.exp(STEEPNESS * (MIN_SCORE - scores)), 1.0)
        return high & discoveries(chances, None if labels is None else labels[rows], FALSE_SHARE)

    return _detect(many, segments, smallest, believes)


def discoveries(chances: Floats, groups: Ints | None, rate: float) -> Bools:
    """Return which series have changed, with the expected share of false discoveries limited to ``rate``.

    Without groups, the method is that of Benjamini and Hochberg. With groups, it has two steps. First it selects the
    groups with a change, by the Simes chance of each group. Then it selects series within each selected group, at the
    rate times the share of groups selected. The expected share of false discoveries, averaged over the selected groups,
    stays within the rate. A change in one group does not permit more false discoveries in other groups.

    Args:
        chances: each series' chance of reaching its score without a change, shape (series,).
        groups: the number of each series' group, shape (series,).
        rate: the tolerated share of false discoveries.

    Source:
        Y. Benjamini and Y. Hochberg (1995), Controlling the false discovery rate, J. R. Stat. Soc. B 57(1);
        Y. Benjamini and M. Bogomolov (2014), Selective inference on multiple families of hypotheses, J. R. Stat.
        Soc. B 76(1); R. J. Simes (1986), An improved Bonferroni procedure for multiple tests of significance,
        Biometrika 73(3).
    """
    if groups is None or not chances.size:
        return chances <= _discovery_limit(chances, rate)
    order = np.lexsort((chances, groups))  # group by group, the smallest chance of each first
    begins = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    sizes = np.diff(begins, append=order.size)
    ranks = np.arange(1, order.size + 1) - np.repeat(begins, sizes)
    simes = np.minimum.reduceat(chances[order] * np.repeat(sizes, sizes) / ranks, begins)
    discovered = np.zeros(chances.size, bool)
    chosen = np.flatnonzero(simes <= _discovery_limit(simes, rate))
    for begin, size in zip(begins[chosen], sizes[chosen], strict=True):
        rows = order[begin : begin + size]
        discovered[rows] = chances[rows] <= _discovery_limit(chances[rows], rate * chosen.size / begins.size)
    return discovered


def _discovery_limit(chances: Floats, rate: float) -> float:
    """Return the largest chance that is a discovery by Benjamini and Hochberg's rule; -1 if no chance is."""
    ordered = np.sort(chances)
    small = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / ordered.size)
    return float(ordered[small[-1]]) if small.size else -1.0


def earliest_start(values: Floats, start: int) -> int:
    """Return the earliest run at which a detected change may have begun, from 1 to ``start``.

    A detected start is an estimate; for a small step it may be some runs off. Each run divides the history into two
    levels of normal noise. An earlier division is possible if it is at most ``START_SLACK`` less likely than the
    division at ``start``. A drift has no second level, so it may have begun long before the result.

    Args:
        values: the values of the level before the change and of the level after it, one a run, positive, shape (runs,).
        start: the first run of the level after, counted from 0; at least 1, and below the number of runs.

    Source:
        The likelihood interval of a change: D. V. Hinkley (1970), Inference about the change-point in a sequence of
        random variables, Biometrika 57(1).
    """
    logs = np.log(values)
    centered = logs - logs.mean()
    starts = np.arange(1, start + 1)
    before = centered.cumsum()[:start]
    explained = before**2 / starts + before**2 / (logs.size - starts)
    residual = float(centered @ centered - explained[-1])
    variance = max(residual / max(logs.size - 2, 1), MIN_SCALE**2)
    possible = explained >= explained[-1] - 2 * START_SLACK * variance
    return int(starts[possible.argmax()])


def _detect(
    matrix: Floats, segments: ArrayLike | None, smallest: ArrayLike, believes: Callable[[Ints, Floats], Bools]
) -> list[list[Alert]]:
    """Pass all runs to a new detector, one after the other, and return the alerts of each series."""
    if np.isinf(matrix).any():
        raise ValueError("a value is infinite: a run without a measurement is NaN")
    series, runs = matrix.shape
    begins = np.zeros(matrix.shape, bool)
    if segments is not None:
        ids = np.asarray(segments)
        if ids.shape not in {matrix.shape, matrix.shape[1:]}:
            raise ValueError(f"one segment id a run has the shape {matrix.shape[1:]}, not {ids.shape}")
        begins[:, 1:] = ids[..., 1:] != ids[..., :-1]
    scaled = _in_range(matrix)
    detector = Detector(series, runs, np.broadcast_to(np.asarray(smallest, np.float64), series), believes)
    for run in range(runs):
        detector.add(run, scaled[:, run], begins[:, run])
    return detector.alerts


def _as_matrix(matrix: ArrayLike) -> Floats:
    """Return the values as an array of shape (series, runs); raise ``ValueError`` unless they have two axes."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != len(("series", "runs")):
        raise ValueError(f"the values of many series have two axes, series and runs, not {values.ndim}")
    return values


def _in_range(matrix: Floats) -> Floats:
    """Return each series divided by the power of two of its first measured value, so that no square overflows.

    The division changes no digit, and uses no later run. Larger values are clipped at ``LARGEST``.
    """
    if not matrix.size:
        return matrix
    first = matrix[np.arange(len(matrix)), (~np.isnan(matrix)).argmax(axis=1)]
    _, exponents = np.frexp(np.nan_to_num(first))
    with np.errstate(over="ignore"):
        scaled: Floats = np.clip(np.ldexp(matrix, -exponents[:, None]), -LARGEST, LARGEST)
    return scaled
