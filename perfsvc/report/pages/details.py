"""What the pages of series show besides the histories, as frozen values that ``service`` reads from the store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import FullEnvironment, Series
from perfsvc.report.rows import EnvironmentDifferences

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
        quantities: returns those of the case of a time; None for another series, or if no run knows any. Like
            ``compared``, it is called when the page of the series is rendered.
        compared: returns the verdicts on the newest run of a series with samples against some runs before it. It is
            called when the page of the series is rendered, because a verdict takes half a millisecond.
        differences: in what the full environments of two runs differ, for each change of a series' environment.
        environments: the full environments of the newest runs of all series, by run.
    """

    quantities: Callable[[Series], RunQuantities | None] = lambda _: None
    compared: Callable[[Series], Sequence[ComparedNights]] = lambda _: ()
    differences: Mapping[tuple[int, int], EnvironmentDifferences] = field(default_factory=dict)
    environments: Mapping[int, FullEnvironment] = field(default_factory=dict)
