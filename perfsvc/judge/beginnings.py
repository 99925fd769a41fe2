"""When a change that was found may have begun: its first night is an estimate, and small steps are found some off."""

import numpy as np

from perfsvc.judge.histories import LEAST_SCALE
from perfsvc.judge.shifts import Floats

SLACK = 8.0
"""By how much worse, as a log-likelihood, another beginning may explain the nights and still be the true one."""


def may_begin(values: Floats, place: int) -> int:
    """The earliest place at which a change may have begun that was found at ``place``, from 1 to ``place``.

    Each place divides the nights into two levels of normal noise; one is believed where that is at most ``SLACK`` less
    likely than the division at ``place``. A drift, which has no second level, may have begun long before.

    Args:
        values: of the level before and of that after, one a night, positive, shape (nights,).
        place: the first night of the level after, counted from 0; at least 1, and below the number of nights.

    Source:
        The likelihood's interval for a change: D. V. Hinkley (1970), Inference about the change-point in a sequence of
        random variables, Biometrika 57(1).
    """
    logs = np.log(values)
    centred = logs - logs.mean()
    places = np.arange(1, place + 1)
    before = centred.cumsum()[:place]
    explained = before**2 / places + before**2 / (logs.size - places)
    left = float(centred @ centred - explained[-1])
    variance = max(left / max(logs.size - 2, 1), LEAST_SCALE**2)
    believed = explained >= explained[-1] - 2 * SLACK * variance
    return int(places[believed.argmax()])
