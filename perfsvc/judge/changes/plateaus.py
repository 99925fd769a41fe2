"""Plateaus: changes of a level that are undone within some runs."""

from dataclasses import dataclass

import numpy as np

from perfsvc.judge.changes.scores import MIN_SCORE, Floats

PLATEAU = 20
"""A change that is undone within this many runs was a plateau."""

RETURN_ERRORS = 2.0
"""A level within this many standard errors of the level before a plateau is the same level."""

MAX_HEIGHT = 1e6
"""The height of a plateau counts as at most this many standard deviations, so that its square is finite."""


@dataclass(slots=True)
class Plateau:
    """A raised change that may prove to be a plateau.

    Attributes:
        before: the level before the change.
        during: the level since the change.
        scale: the standard deviation of the level before, above 0.
        begin: the first position of the change.
        score: how much likelier (log-likelihood) the latest runs are at the level before, 0 or above.
        end: the first of these latest runs, as a position.
    """

    before: float
    during: float
    scale: float
    begin: int
    score: float = 0.0
    end: int = 0

    def add(self, position: int, value: float) -> None:
        """Add how much likelier a run is at the level before than at the plateau to the score.

        A run adds at most half of ``MIN_SCORE``, so that no single run ends a plateau.

        Source:
            E. S. Page (1954), Continuous inspection schemes, Biometrika 41(1/2).
        """
        if not self.score:
            self.end = position
        height = self.during - self.before
        if height:
            share = min(max((value - self.before) / height, 0.0), 1.0)
            evidence = min(abs(height) / self.scale, MAX_HEIGHT) ** 2 * (0.5 - share)
            self.score = max(self.score + min(max(evidence, -MIN_SCORE / 2), MIN_SCORE / 2), 0.0)

    def returns_to(self, values: Floats, smallest: float) -> bool:
        """Return whether runs have the level before the plateau.

        Args:
            values: the latest runs, shape (runs,), at least one.
            smallest: the smallest relevant change, as a fraction: levels that differ by less are the same.
        """
        allowed = max(smallest * abs(self.before), RETURN_ERRORS * self.scale / np.sqrt(values.size))
        return bool(abs(np.median(values) - self.before) <= allowed)
