"""What can make a launch slower, a function each: two profiles in, a share of the difference and its evidence out.

Each is pure and knows nothing of the others; ``explain`` ranks them. Which number says what, and why a share is what it
is: docs/explanation/why-it-is-slower.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfsvc.model import Profile
from perfsvc.model import ReasonKind as Kind
from perfsvc.profile.metrics import STALLS
from perfsvc.profile.pair import COMPUTING, MEMORY, SHARED, Pair, clamp, growth_of

SECTOR_BYTES = 32
WARP = 32
LEAST_GROWTH = 0.02
"""Of a logarithm: what two launches of one kernel may differ by."""
LEAST_FALL = 0.01
"""Of a hit rate."""
LEAST_TENSOR = 0.01
"""Of the tensor cores' peak, below which a kernel does not live by them."""
LEAST_LOCAL = 0.005
"""Of all instructions: below it, what a kernel does in local memory costs nothing."""
HIGH = 0.5
"""Of DRAM's peak, above which its clock decides."""
MOVES = 2
"""Instructions that a spilled register takes at most: the access and its address."""

CACHES = ("dram_throughput", "l2_throughput")
PIPES = ("issue_throughput", "alu_throughput", "fma_throughput", "fp64_throughput", "xu_throughput")
LIMITS = {
    "occupancy_limit_registers_blocks": "registers",
    "occupancy_limit_shared_blocks": "shared memory",
    "occupancy_limit_warps_blocks": "the size of its blocks",
    "occupancy_limit_blocks_blocks": "the most blocks that fit",
    "occupancy_limit_barriers_blocks": "barriers",
}
PARTS = ("load", "store")


@dataclass(frozen=True, slots=True)
class Found:
    """What a function below found.

    Attributes:
        share: of the difference that it can account for, from 0 to 1.
        detail: how the two differ in it.
        evidence: the metrics that say so.
    """

    share: float
    detail: str
    evidence: tuple[str, ...]


def tensor(pair: Pair) -> Found | None:
    """The tensor cores work no longer, or far less long: other pipes do what they did."""
    found = pair.both("tensor_throughput")
    if found is None or found[0] < LEAST_TENSOR:
        return None
    fast, slow = found
    lost = clamp(1 - slow * pair.durations_s[1] / (fast * pair.durations_s[0]))
    detail = f"tensor pipe busy {pair.arrow(_percent(fast), _percent(slow))}"
    return Found(lost * pair.of_work, detail, ("tensor_throughput", "fma_throughput", "instructions"))


def spills(pair: Pair) -> Found | None:
    """More traffic to local memory, where registers go that do not fit, and arrays whose index is not known."""
    before, after = pair.sizes(lambda profile: _sum(profile, "local_{}_requests"))
    instructions = pair.both("instructions")
    if before is None or after is None or instructions is None:
        return None
    more = after - before
    if more <= LEAST_LOCAL * instructions[1]:
        return None
    of_requests = more / (more + max(0.0, _difference(pair, "global_{}_requests")))
    of_instructions = clamp(MOVES * more / max(instructions[1] - instructions[0], more))
    waiting = (pair.of_group(MEMORY) + pair.of_group(SHARED)) * of_requests
    share = max(
        waiting + pair.of_group(COMPUTING) * of_instructions, of_requests * pair.of_busy((*CACHES, "l1_throughput"))
    )
    by_arrays = pair.slow.metrics.get("spill_requests") == 0
    where = "local memory, for arrays and not for registers" if by_arrays else "local memory"
    detail = f"{pair.arrow(_count(before), _count(after))} accesses to {where}"
    names = (
        "local_load_requests",
        "local_store_requests",
        "spill_requests",
        "registers",
        "instructions",
        "l1_hit_rate",
    )
    return Found(clamp(share), detail, names)


def bank_conflicts(pair: Pair) -> Found | None:
    """Threads of a warp that want different words of one bank of shared memory wait for each other."""
    conflicts, (before, after) = pair.both("shared_bank_conflicts"), pair.sizes(_conflicts_s)
    if conflicts is None or before is None or after is None:
        return None
    if growth_of(*(each + 1 for each in conflicts)) < LEAST_GROWTH:
        return None
    wavefronts = _difference(pair, "shared_{}_wavefronts")
    of_wavefronts = clamp((conflicts[1] - conflicts[0]) / wavefronts) if wavefronts > 0 else 0.0
    share = max(pair.of_lost(after - before), pair.of_group(SHARED) * of_wavefronts)
    names = ("shared_bank_conflicts", "shared_load_wavefronts", "shared_store_wavefronts", "stall_mio_throttle_cycles")
    return Found(share, _ways(pair, conflicts), names)


def uncoalesced(pair: Pair) -> Found | None:
    """A warp's access touches more sectors than its bytes fill."""
    fast, slow = pair.sizes(_used)
    grown = growth_of(slow, fast)
    if fast is None or slow is None or grown < LEAST_GROWTH:
        return None
    felt = max(pair.of_group(MEMORY), pair.of_busy((*CACHES, "l1_throughput")))
    detail = f"{pair.arrow(f'{fast:.0f}', f'{slow:.0f}')} of {SECTOR_BYTES} bytes of a sector used"
    names = tuple(
        f"global_{part}_{what}" for part in PARTS for what in ("used_bytes_per_sector", "sectors", "requests")
    )
    return Found(min(pair.of_log(grown), felt), detail, (*names, "l2_sectors", "dram_read_bytes"))


def divergence(pair: Pair) -> Found | None:
    """Threads of a warp take different branches, which are executed one after the other."""
    threads = pair.both("threads_per_instruction")
    grown = min(-pair.growth("threads_per_instruction"), pair.growth("instructions"))
    if threads is None or grown < LEAST_GROWTH:
        return None
    fast, slow = (f"{each:.0f}" for each in threads)
    detail = f"{pair.arrow(fast, slow)} of {WARP} threads take part in an instruction"
    names = ("threads_per_instruction", "divergent_branches", "instructions", "issue_throughput")
    return Found(min(pair.of_log(grown), _computing(pair)), detail, names)


def instructions(pair: Pair) -> Found | None:
    """More instructions for the same number of threads in each, and a pipe or the schedulers feel it."""
    found = pair.both("instructions")
    grown = pair.growth("instructions") + min(pair.growth("threads_per_instruction"), 0.0)
    if found is None or grown < LEAST_GROWTH:
        return None
    detail = f"{pair.arrow(*(_count(each) for each in found))} instructions"
    return Found(min(pair.of_log(grown), _computing(pair)), detail, ("instructions", *PIPES))


def occupancy(pair: Pair) -> Found | None:
    """Fewer warps fit a multiprocessor, so that fewer hide each other's waiting."""
    found = pair.both("theoretical_occupancy")
    lost = min(-pair.growth("theoretical_occupancy"), -pair.growth("achieved_occupancy"))
    if found is None or lost < LEAST_GROWTH:
        return None
    limits = {name: value for name in LIMITS if (value := pair.slow.metrics.get(name)) is not None}
    limit = min(limits, key=lambda name: limits[name], default="")
    by = f", limited by {LIMITS[limit]}" if limit else ""
    detail = pair.arrow(*(_percent(each) for each in found)) + (by if pair.slower else "")
    names = ("theoretical_occupancy", "achieved_occupancy", *filter(None, [limit]), "registers", "shared_static_bytes")
    return Found(pair.of_log(lost + min(pair.work or 0.0, 0.0)), detail, (*names, "shared_dynamic_bytes"))


def tail(pair: Pair) -> Found | None:
    """Multiprocessors idle at the end, or all along, because the grid's last wave does not fill them."""
    idle = pair.sizes(_idle)
    waves = pair.both("waves")
    unfilled = pair.growth("theoretical_occupancy") - pair.growth("achieved_occupancy")
    grown = growth_of(idle[1], idle[0]) + unfilled
    if waves is None or idle[0] is None or idle[1] is None or grown < LEAST_GROWTH:
        return None
    detail = (
        f"{pair.arrow(*(f'{each:.4g}' for each in waves))} waves of blocks, "
        f"multiprocessors at work {pair.arrow(*(_percent(each) for each in idle if each is not None))} of the time"
    )
    names = ("waves", "blocks", "sm_active_cycles", "sm_elapsed_cycles", "achieved_occupancy")
    return Found(pair.of_log(grown + min(pair.work or 0.0, 0.0)), detail, names)


def hit_rate(pair: Pair) -> Found | None:
    """More of what threads ask for misses the caches."""
    missed = _missed(pair)
    level = max(missed, key=lambda each: missed[each])
    grown, rates = sum(missed.values()), pair.both(f"{level}_hit_rate")
    if rates is None or grown < LEAST_GROWTH:
        return None
    detail = f"{level.upper()} {pair.arrow(*(_percent(each) for each in rates))}"
    felt = max(pair.of_group(MEMORY), pair.of_busy(CACHES))
    names = ("l2_hit_rate", "l1_hit_rate", "dram_read_bytes", "dram_write_bytes", "l2_sectors")
    return Found(min(pair.of_log(grown), felt), detail, names)


def traffic(pair: Pair) -> Found | None:
    """More bytes move for another reason than that caches miss or that a sector's bytes are not used."""
    moved = {"DRAM": pair.sizes(_dram), "the L2 cache": pair.sizes(_l2)}
    place = max(moved, key=lambda each: growth_of(*moved[each]))
    less, more = moved[place]
    elsewhere = sum(_missed(pair).values()) + max(growth_of(*reversed(pair.sizes(_used))), 0.0)
    grown = growth_of(less, more) - elsewhere
    if less is None or more is None or grown < LEAST_GROWTH:
        return None
    detail = f"{pair.arrow(_bytes(less), _bytes(more))} of {place}"
    felt = max(pair.of_group(MEMORY), pair.of_busy(CACHES))
    names = ("dram_read_bytes", "dram_write_bytes", "dram_throughput", "l2_sectors", "global_load_requests")
    return Found(min(pair.of_log(grown), felt), detail, (*names, "global_store_requests"))


def clocks(pair: Pair) -> Found | None:
    """The GPU ran slower."""
    slower = {"sm_clock_hz": -pair.growth("sm_clock_hz")}
    if (pair.slow.metrics.get("dram_throughput") or 0.0) > HIGH:
        slower["dram_clock_hz"] = -pair.growth("dram_clock_hz")
    which = max(slower, key=lambda name: slower[name])
    found = pair.both(which)
    if found is None or slower[which] < LEAST_GROWTH:
        return None
    unit = "multiprocessors" if which == "sm_clock_hz" else "memory"
    detail = f"{unit} {pair.arrow(*(f'{each / 1e6:.0f}' for each in found))} MHz"
    return Found(pair.of_log(slower[which]), detail, ("sm_clock_hz", "dram_clock_hz"))


def stalls(pair: Pair) -> Found | None:
    """Warps wait longer for one thing."""
    grown = {reason: share for reason, share in pair.of_stalls.items() if reason != "selected"}
    reason = max(grown, key=lambda each: grown[each], default="")
    found = pair.both(f"stall_{reason}_cycles")
    if found is None:
        return None
    detail = f"{STALLS[reason]}, {pair.arrow(*(f'{each:.1f}' for each in found))} cycles an instruction"
    return Found(
        grown[reason], detail, tuple(f"stall_{each}_cycles" for each in sorted(grown, key=lambda e: -grown[e])[:3])
    )


REASONS: Mapping[Kind, Callable[[Pair], Found | None]] = {
    Kind.TENSOR: tensor,
    Kind.SPILLS: spills,
    Kind.BANK_CONFLICTS: bank_conflicts,
    Kind.UNCOALESCED: uncoalesced,
    Kind.DIVERGENCE: divergence,
    Kind.OCCUPANCY: occupancy,
    Kind.TAIL: tail,
    Kind.HIT_RATE: hit_rate,
    Kind.TRAFFIC: traffic,
    Kind.INSTRUCTIONS: instructions,
    Kind.CLOCKS: clocks,
    Kind.STALLS: stalls,
}
"""All there are; of two that can account for the same, the one above is the likelier to have brought the other."""


def _computing(pair: Pair) -> float:
    return max(pair.of_group(COMPUTING), pair.of_busy(PIPES))


def _conflicts_s(profile: Profile) -> float | None:
    """How long the passes take that conflicts cost: each multiprocessor makes one a cycle."""
    names = ("shared_bank_conflicts", "multiprocessors", "sm_clock_hz")
    conflicts, units, clock = (profile.metrics.get(name) for name in names)
    return conflicts / (units * clock) if conflicts is not None and units and clock else None


def _ways(pair: Pair, conflicts: tuple[float, float]) -> str:
    """How many passes an access takes, of loads or of stores, whichever grew more.

    A warp's threads need no more than one each; what is counted beyond that is other units' turns.
    """
    found: dict[str, tuple[float, float]] = {}
    for part in PARTS:
        requests, wavefronts = pair.both(f"shared_{part}_requests"), pair.both(f"shared_{part}_wavefronts")
        if requests and wavefronts and min(requests) > 0:
            found[part] = (wavefronts[0] / requests[0], wavefronts[1] / requests[1])
    if not found:
        return f"{pair.arrow(*(_count(each) for each in conflicts))} of them"
    part = max(found, key=lambda each: found[each][1] - found[each][0])
    return f"{part}s {pair.arrow(*(f'{min(ways, WARP):.0f}-way' for ways in found[part]))}"


def _sum(profile: Profile, name: str) -> float | None:
    """Loads and stores together; None where one of them was not counted."""
    load, store = (profile.metrics.get(name.format(part)) for part in PARTS)
    return None if load is None or store is None else load + store


def _difference(pair: Pair, name: str) -> float:
    before, after = pair.sizes(lambda profile: _sum(profile, name))
    return 0.0 if before is None or after is None else after - before


def _asked(profile: Profile) -> float | None:
    """Bytes that threads asked for; requests of whole warps where no more was counted."""
    counted = [
        (profile.metrics.get(f"global_{part}_sectors"), profile.metrics.get(f"global_{part}_used_bytes_per_sector"))
        for part in PARTS
    ]
    if any(sectors is None or used is None for sectors, used in counted):
        return _sum(profile, "global_{}_requests")
    return sum((sectors or 0.0) * (used or 0.0) for sectors, used in counted)


def _used(profile: Profile) -> float | None:
    """Bytes of a sector that threads asked for, over loads and stores."""
    sectors, asked = _sum(profile, "global_{}_sectors"), _asked(profile)
    return asked / sectors if sectors and asked else None


def _missed(pair: Pair) -> dict[str, float]:
    """By how much traffic grew below each cache because it missed more: a logarithm, 0 where it did not."""
    asked = growth_of(*pair.sizes(lambda profile: _sum(profile, "global_{}_sectors")))
    of_l2, of_dram = (growth_of(*pair.sizes(size)) for size in (_l2, _dram))
    grown = {"l2": of_dram - of_l2, "l1": of_l2 - asked}
    return {level: max(more, 0.0) if _fell(pair, level) else 0.0 for level, more in grown.items()}


def _fell(pair: Pair, level: str) -> bool:
    rates = pair.both(f"{level}_hit_rate")
    return rates is not None and rates[0] - rates[1] >= LEAST_FALL


def _l2(profile: Profile) -> float | None:
    """Bytes of the L2 cache, whether it had them or not."""
    sectors = profile.metrics.get("l2_sectors")
    return None if sectors is None else SECTOR_BYTES * sectors


def _dram(profile: Profile) -> float | None:
    read, written = (profile.metrics.get(f"dram_{way}_bytes") for way in ("read", "write"))
    return None if read is None or written is None else read + written


def _idle(profile: Profile) -> float | None:
    """The share of the time in which a multiprocessor had a block."""
    active, elapsed = (profile.metrics.get(f"sm_{which}_cycles") for which in ("active", "elapsed"))
    return active / elapsed if active is not None and elapsed else None


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _count(number: float) -> str:
    """A number with three digits and an SI prefix: ``6.82 M``."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if abs(number) >= 10**power:
            return f"{number / 10**power:.3g} {prefix}"
    return f"{number:.0f}"


def _bytes(number: float) -> str:
    return f"{_count(number)}B" if number >= 1000 else f"{number:.0f} B"  # noqa: PLR2004 - the first prefix
