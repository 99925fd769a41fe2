"""Compare two profiles: the quantities that several reasons use (docs/explanation/why-it-is-slower.md).

The time of a launch is an exact product. In every cycle, each warp that a scheduler holds is issued or waits, so that

    time = work / (occupancy × active × clock),

where work is a number of warp-cycles: the instructions times the cycles that a warp spends on each. A factor's share of
the difference is the change of its logarithm divided by the change of the time's logarithm (B. W. Ang, "LMDI
decomposition approach: a guide for implementation", Energy Policy 86, 2015). Work is also the sum of the cycles that
warps spend on memory, shared memory, computing and barriers, so its growth is divided among these by subtraction.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import exp, log

from perfsvc.model import Profile
from perfsvc.profile.metrics import STALLS

MEMORY = frozenset({"long_scoreboard", "lg_throttle", "drain", "tex_throttle", "membar"})
SHARED = frozenset({"short_scoreboard", "mio_throttle"})
WAITING = frozenset({"barrier", "sleeping"})
COMPUTING = frozenset(STALLS) - MEMORY - SHARED - WAITING
GROUPS = (MEMORY, SHARED, WAITING, COMPUTING)
"""What warps spend their cycles on, by the part of the device that causes it."""
MOST_FURTHER_DIGITS = 2
"""How many more digits than usual are written to show that two values differ."""


@dataclass(frozen=True)
class ProfilePair:
    """Two profiles, the faster first.

    Attributes:
        fast: the profile of the faster launch; both profiles have a duration above zero.
        slow: the profile of the slower launch.
        slower: True if the slow profile is the candidate's, False if the difference is an improvement.
    """

    fast: Profile
    slow: Profile
    slower: bool = True

    def both(self, metric: str) -> tuple[float, float] | None:
        """Return a metric's values in the fast and in the slow profile; None if one of the profiles lacks it."""
        fast, slow = self.fast.metrics.get(metric), self.slow.metrics.get(metric)
        return None if fast is None or slow is None else (fast, slow)

    def apply(self, function: Callable[[Profile], float | None]) -> tuple[float | None, float | None]:
        """Return the function's results for the fast and for the slow profile."""
        return function(self.fast), function(self.slow)

    def arrow(self, fast: str, slow: str) -> str:
        """Return "before → after", given one text about the fast profile and one about the slow profile."""
        return f"{fast} → {slow}" if self.slower else f"{slow} → {fast}"

    def change(self, values: tuple[float, float], write: Callable[[float, int], str]) -> str:
        """Return "before → after" with enough digits to show the difference; empty if even more digits show none.

        Args:
            values: a value of the fast profile and one of the slow profile.
            write: writes a value with as many digits as usual, and a number of further digits.
        """
        for further in range(MOST_FURTHER_DIGITS + 1):
            fast, slow = (write(value, further) for value in values)
            if fast != slow:
                return self.arrow(fast, slow)
        return ""

    # --- time ---------------------------------------------------------------------------------------------------------

    @cached_property
    def durations_s(self) -> tuple[float, float]:
        """The durations of the fast and of the slow profile, in seconds."""
        durations = self.both("duration_s")
        assert durations is not None  # noqa: S101 - every pair has them
        return durations

    def share_of_time(self, seconds: float) -> float:
        """Return which share of the time difference ``seconds`` is, from 0 to 1."""
        fast_s, slow_s = self.durations_s
        return clamp(seconds / (slow_s - fast_s))

    def share_of_log(self, logarithm: float) -> float:
        """Return which share of the time difference a factor explains whose growth has this logarithm."""
        fast_s, slow_s = self.durations_s
        return clamp(logarithm / log(slow_s / fast_s))

    # --- factors ------------------------------------------------------------------------------------------------------

    def growth(self, metric: str) -> float:
        """Return the logarithm of a metric's slow over its fast value; 0 unless both are known and above zero."""
        return growth_of(self.fast.metrics.get(metric), self.slow.metrics.get(metric))

    @cached_property
    def work_growth(self) -> float | None:
        """The logarithm of how much the warp-cycles (active cycles times active warps) grew; None if not counted."""
        if self.both("achieved_occupancy") is None or self.both("sm_active_cycles") is None:
            return None
        return self.growth("achieved_occupancy") + self.growth("sm_active_cycles")

    @cached_property
    def share_of_work(self) -> float:
        """How much of the time difference the additional warp-cycles explain; 1 if warp-cycles were not counted."""
        return 1.0 if self.work_growth is None else self.share_of_log(self.work_growth)

    def share_of_group(self, group: frozenset[str]) -> float:
        """Return how much of the time difference is explained by more warp-cycles on the stalls of a group.

        Without counted stalls any group may explain the difference, so each group gets the share of all warp-cycles.

        Args:
            group: one of ``GROUPS``.
        """
        more = self._more_cycles
        if not more:
            return self.share_of_work
        net = {stalls: max(sum(more.get(stall, 0.0) for stall in stalls), 0.0) for stalls in GROUPS}
        total = sum(net.values())
        return self.share_of_work * net[group] / total if total else 0.0

    def share_of_waiting(self, metric: str) -> float:
        """Return how much of the time difference is explained by more warp-cycles spent on something.

        Args:
            metric: the share of the warps' time that is spent on it.
        """
        shares = self.both(metric)
        if shares is None:
            return 0.0
        (fast_s, slow_s) = self.durations_s
        growth = slow_s / fast_s if self.work_growth is None else exp(self.work_growth)
        if growth <= 1:
            return 0.0
        return self.share_of_work * clamp((shares[1] * growth - shares[0]) / (growth - 1))

    @cached_property
    def stall_shares(self) -> dict[str, float]:
        """The share of the time difference that each stall explains; only stalls on which the slow launch is longer."""
        more = {stall: cycles for stall, cycles in self._more_cycles.items() if cycles > 0}
        return {stall: self.share_of_work * cycles / sum(more.values()) for stall, cycles in more.items()}

    @cached_property
    def _more_cycles(self) -> dict[str, float]:
        """How many more cycles all warps of the slow launch spend on each stall; negative for fewer cycles."""
        instructions = self.both("instructions")
        if instructions is None:
            return {}
        fast, slow = instructions
        cycles = {stall: self.both(f"stall_{stall}_cycles") for stall in STALLS}
        return {stall: values[1] * slow - values[0] * fast for stall, values in cycles.items() if values is not None}

    # --- units that work at their limit -------------------------------------------------------------------------------

    def share_of_busy(self, throughputs: Iterable[str]) -> float:
        """Return how much of the time difference is explained by the unit whose busy time grew most.

        Args:
            throughputs: the names of metrics, one for each unit; the metric is the unit's share of its peak.
        """
        return max((self._share_of_unit(self.both(name)) for name in throughputs), default=0.0)

    def _share_of_unit(self, throughput: tuple[float, float] | None) -> float:
        """Return the share of the time difference that a unit's additional busy time explains.

        Args:
            throughput: the unit's share of its peak in the fast and in the slow profile; None if it was not counted.
        """
        if throughput is None:
            return 0.0
        (fast_s, slow_s), (fast, slow) = self.durations_s, throughput
        return self.share_of_time(slow * slow_s - fast * fast_s)


def clamp(share: float) -> float:
    """Return the share, limited to the range from 0 to 1."""
    return min(max(share, 0.0), 1.0)


def growth_of(fast: float | None, slow: float | None) -> float:
    """Return the logarithm of slow over fast; 0 unless both are known and above zero."""
    return log(slow / fast) if fast is not None and slow is not None and min(fast, slow) > 0 else 0.0
