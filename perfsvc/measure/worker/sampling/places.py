"""Places: a case is measured with its arrays at several places, and its level is the mean over the places."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

from perfsvc.measure.worker.sampling.stopping import step_of

LEAST = 3
"""The fewest samples of a place, on average, whose medians show differences between places. The median of one or two
samples is no more robust than a mean: a single disturbed sample would move the level."""


class Places:
    """Spreads the samples of a case evenly over the places of its arrays.

    Args:
        count: the number of places.
        move: moves the arrays to a place, numbered from 0, and loads them again.
    """

    def __init__(self, count: int = 1, move: Callable[[int], None] | None = None) -> None:
        self._count = count
        self._move = move
        self._present = 0
        self._next = 0

    def of_batch(self, samples: int) -> tuple[int, ...]:
        """Return the place of each sample of the next batch.

        A batch visits every place once, and takes equal shares of its samples there. A batch of fewer samples than
        places continues at the place where the batch before it ended.
        """
        visited = min(self._count, samples)
        places = tuple((self._next + number * visited // samples) % self._count for number in range(samples))
        self._next = (self._next + visited) % self._count
        return places

    def mover(self, places: Sequence[int]) -> Callable[[int], None] | None:
        """Return a function that moves the arrays to the place of a sample, by the sample's number in its batch.

        Return None if there is only one place.
        """
        move = self._move
        if self._count == 1 or move is None:
            return None

        def go(number: int) -> None:
            if places[number] != self._present:
                move(places[number])
                self._present = places[number]

        return go


def at_level(samples_s: Sequence[float], places: Sequence[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the samples without the differences between places, and the median of the samples at each place.

    The level is the mean of the places' medians. Each sample is multiplied by the level over the median of its place,
    so that the median of the returned samples is the level, and their spread is the spread at one place. If the medians
    differ by no more than a step of the clock, the samples are returned as they are: the difference may be the clock's.
    Fewer than ``LEAST`` samples for each place are returned as they are, too: a place's only sample would become
    exactly the level, so that all noise would disappear.

    Args:
        samples_s: the samples, in seconds; at least one.
        places: the place of each sample.
    """
    of_place: dict[int, list[float]] = defaultdict(list)
    for seconds, place in zip(samples_s, places, strict=True):
        of_place[place].append(seconds)
    medians = {place: statistics.median(of_place[place]) for place in sorted(of_place)}
    apart_s = max(medians.values()) - min(medians.values())
    if len(samples_s) < LEAST * len(medians) or apart_s <= (step_of(sorted(samples_s)) or 0.0):
        return tuple(samples_s), tuple(medians.values())
    level_s = statistics.fmean(medians.values())
    adjusted = tuple(seconds * level_s / medians[place] for seconds, place in zip(samples_s, places, strict=True))
    return adjusted, tuple(medians.values())
