"""Two profiles and what follows from them without naming a reason (docs/explanation/why-it-is-slower.md).

The time of a launch is an exact product. Every cycle, each warp that a scheduler holds is issued or waits, so that

    time = work / (occupancy × active × clock),

where work is warp-cycles: instructions, times the cycles that a warp spends on one. What the logarithm of a factor
changes by, over what the logarithm of the time does, is that factor's share of the difference (B. W. Ang, "LMDI
decomposition approach: a guide for implementation", Energy Policy 86, 2015). Work is also a sum, over what warps spend
their cycles on, so that its growth is divided among memory, shared memory, computing and barriers by subtraction.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import log

from perfsvc.model import Profile
from perfsvc.profile.metrics import STALLS

MEMORY = frozenset({"long_scoreboard", "lg_throttle", "drain", "tex_throttle", "membar"})
SHARED = frozenset({"short_scoreboard", "mio_throttle"})
WAITING = frozenset({"barrier", "sleeping"})
COMPUTING = frozenset(STALLS) - MEMORY - SHARED - WAITING
GROUPS = (MEMORY, SHARED, WAITING, COMPUTING)
"""What warps spend their cycles on, by whose fault it is."""


def clamp(share: float) -> float:
    """A share of a whole: from 0 to 1."""
    return min(max(share, 0.0), 1.0)


@dataclass(frozen=True)
class Pair:
    """Two profiles, the faster one first.

    Attributes:
        fast: the one that took less time; both have a duration above zero.
        slow: the one that took more.
        slower: whether the slow one came after; otherwise the difference is an improvement.
    """

    fast: Profile
    slow: Profile
    slower: bool = True

    def both(self, metric: str) -> tuple[float, float] | None:
        """A metric of the fast and of the slow one; None where one of them lacks it."""
        fast, slow = self.fast.metrics.get(metric), self.slow.metrics.get(metric)
        return None if fast is None or slow is None else (fast, slow)

    def sizes(self, of: Callable[[Profile], float | None]) -> tuple[float | None, float | None]:
        """Something made of metrics, of the fast and of the slow one."""
        return of(self.fast), of(self.slow)

    def arrow(self, fast: str, slow: str) -> str:
        """How the two differ, before → after."""
        return f"{fast} → {slow}" if self.slower else f"{slow} → {fast}"

    # --- time ---------------------------------------------------------------------------------------------------------

    @cached_property
    def durations_s(self) -> tuple[float, float]:
        """How long each took."""
        found = self.both("duration_s")
        assert found is not None  # noqa: S101 - of every pair
        return found

    @cached_property
    def lost_s(self) -> float:
        """How much longer the slow one took."""
        fast, slow = self.durations_s
        return slow - fast

    def of_lost(self, seconds: float) -> float:
        """Seconds as a share of the difference."""
        return clamp(seconds / self.lost_s)

    def of_log(self, logarithm: float) -> float:
        """What a factor of the time changes by as a share of the difference."""
        fast, slow = self.durations_s
        return clamp(logarithm / log(slow / fast))

    # --- factors ------------------------------------------------------------------------------------------------------

    def growth(self, metric: str) -> float:
        """The logarithm of slow over fast; 0 where it is unknown or not above zero on both sides."""
        return _growth(self.both(metric))

    @cached_property
    def work(self) -> float | None:
        """The growth of warp-cycles; None where they were not counted."""
        if self.both("achieved_occupancy") is None or self.both("sm_active_cycles") is None:
            return None
        return self.growth("achieved_occupancy") + self.growth("sm_active_cycles")

    @cached_property
    def of_work(self) -> float:
        """The share of the difference that more warp-cycles account for; all of it where they were not counted."""
        return 1.0 if self.work is None else self.of_log(self.work)

    def of_group(self, group: frozenset[str]) -> float:
        """The share of the difference in which warps spend more cycles on a group of things.

        Where no stalls were counted it might be any of them.
        """
        grown = self._grown
        if not grown:
            return self.of_work
        nets = {each: max(sum(grown.get(reason, 0.0) for reason in each), 0.0) for each in GROUPS}
        total = sum(nets.values())
        return self.of_work * nets[group] / total if total else 0.0

    @cached_property
    def of_stalls(self) -> dict[str, float]:
        """The share of the difference in which warps spend more cycles on each thing, where it is more."""
        more = {reason: cycles for reason, cycles in self._grown.items() if cycles > 0}
        return {reason: self.of_work * cycles / sum(more.values()) for reason, cycles in more.items()}

    @cached_property
    def _grown(self) -> dict[str, float]:
        """By how many cycles of all warps each thing grew."""
        instructions = self.both("instructions")
        found = {reason: self.both(f"stall_{reason}_cycles") for reason in STALLS}
        if instructions is None:
            return {}
        fast, slow = instructions
        return {reason: each[1] * slow - each[0] * fast for reason, each in found.items() if each is not None}

    # --- units that work at their limit -------------------------------------------------------------------------------

    def of_busy(self, throughputs: Iterable[str]) -> float:
        """The share of the difference in which the one of some units that grew most was busy longer.

        Args:
            throughputs: metrics, the share of its peak that each unit reached.
        """
        return max((self._busier(self.both(name)) for name in throughputs), default=0.0)

    def _busier(self, throughput: tuple[float, float] | None) -> float:
        if throughput is None:
            return 0.0
        (fast_s, slow_s), (fast, slow) = self.durations_s, throughput
        return self.of_lost(slow * slow_s - fast * fast_s)


def growth_of(fast: float | None, slow: float | None) -> float:
    """The logarithm of slow over fast; 0 where it is unknown or not above zero on both sides."""
    return _growth(None if fast is None or slow is None else (fast, slow))


def _growth(found: tuple[float, float] | None) -> float:
    return log(found[1] / found[0]) if found and min(found) > 0 else 0.0
