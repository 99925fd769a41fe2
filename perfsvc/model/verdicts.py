"""What is judged: series, their levels, and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.measurements import TIME, Status

if TYPE_CHECKING:  # most commands need no arrays, and importing NumPy takes long
    import numpy as np
    from numpy.typing import NDArray


class Verdict(StrEnum):
    """The result of comparing one series with its baseline."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    BROKEN = "broken"  # the candidate has no correct result
    NEW = "new"  # the baseline does not have the series
    MISSING = "missing"  # the candidate does not have the series


class Cause(StrEnum):
    """Why a series moved."""

    KERNEL = "kernel"  # its code, confirmed by measuring both binaries again in A/B pairs
    LAUNCH = "launch"  # the same source, launched with other options: block size, num_warps; confirmed likewise
    TOOLCHAIN = "toolchain"  # the same source with another compiler, Python package, library, data file or variable
    INPUTS = "inputs"  # the same code with other inputs: another problem
    ENVIRONMENT = "environment"  # the GPU, its driver or its host
    NOISE = "noise"  # the difference did not last
    UNEXPLAINED = "unexplained"  # it lasts, with the same code in the same environment, as far as perfsvc knows
    WRONG = "wrong result"  # the result is not correct any more
    FAILED = "failed"  # it does not compile, crashed or was refused
    HUNG = "hung"  # it exceeded its time limit
    MISSING = "missing"  # a GPU, a host or a benchmark that earlier nights had is gone
    SLOW_GPU = "slow gpu"  # a GPU is slower than the other GPUs of its model with the same binaries
    UNCONFIRMED = "unconfirmed"  # the two sides were not, or could not be, measured again

    @property
    def blameless(self) -> bool:
        """True if the code cannot be at fault: the change is shown with its cause and raises no alarm."""
        return self in {Cause.ENVIRONMENT, Cause.NOISE}


FAILURES = frozenset({Cause.WRONG, Cause.FAILED, Cause.HUNG})
"""The causes of findings about cases without a correct result."""

OF_THE_MACHINE = frozenset({Cause.ENVIRONMENT, Cause.UNEXPLAINED})
"""The causes of findings about cases that became slower with unchanged code."""


@dataclass(frozen=True, slots=True)
class Series:
    """The history of a case on one device, for one metric and one cache state.

    ``case`` has the variant's present name; ``device`` is a UUID.
    """

    case: Case
    device: str
    device_model: str
    metric: str = TIME
    cache: CacheState = CacheState.COLD


BEYOND = "beyond the threshold"
"""How the reason of a series begins whose change is larger than the threshold."""

FIRST_RUNS = 5
"""How many first runs of a baseline always belong to it. A slow drift has moved them least."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """A series in one run: what a comparison needs to know of its replicas, or why there are none.

    Two levels are equal only if they are the same object, because ``medians`` may be an array.

    Attributes:
        medians: for each replica the median of its times in seconds, or its value of another metric.
        spread: the standard deviation between the samples of one replica, of their logarithms and as the median
            absolute deviation shows it; 0 if no replica shows a spread.
        step: the step of the clock in seconds: the smallest difference between two samples of one replica that is not
            rounding; infinite if no replica shows a difference.
        further: only for a baseline of several runs: for each run but ``run``, the median of each replica; the oldest
            run first.
    """

    run: int
    status: Status
    reason: str = ""
    medians: "Sequence[float] | NDArray[np.float64]" = ()
    spread: float = 0.0
    step: float = inf
    further: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one series.

    Attributes:
        reason: why the verdict is as it is, if that is not obvious.
        ratio: the candidate's level over the baseline's; ``low`` and ``high`` are its confidence interval.
        baseline_run: the baseline's first run.
        baseline_runs: number of runs behind the baseline's level.
        baseline_s: the baseline's level, in seconds or in the metric's own unit.
        candidate_s: the candidate's level, likewise.
        smallest: the smallest change that the data could have shown, as a fraction; None if unknown.
        baseline_replicas: number of replicas behind the baseline's level.
        candidate_replicas: number of replicas behind the candidate's level.
        between_nights: the noise between the baseline's runs, as a relative standard deviation; None for a single run.
        cause: why the series moved; None if it did not.
    """

    series: Series
    verdict: Verdict
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    baseline_run: int | None = None
    candidate_run: int | None = None
    baseline_s: float | None = None
    candidate_s: float | None = None
    smallest: float | None = None
    baseline_replicas: int | None = None
    candidate_replicas: int | None = None
    baseline_runs: int = 1
    between_nights: float | None = None
    cause: Cause | None = None

    @property
    def is_same_code(self) -> bool:
        """True if the level changed by more than the threshold, and the series is unchanged because its code is."""
        return self.verdict is Verdict.UNCHANGED and self.reason.startswith(BEYOND)

    @property
    def against(self) -> str:
        """The baseline in words: ``run 12``, ``6 runs since run 12``; empty without a baseline."""
        if self.baseline_run is None:
            return ""
        run = f"run {self.baseline_run}"
        return run if self.baseline_runs == 1 else f"{self.baseline_runs} runs since {run}"
