"""The reasons for a slower launch, one function each: how much of the time difference it explains, with evidence.

Each function is pure and independent of the others; ``explain`` ranks their results.
docs/explanation/why-it-is-slower.md describes which metrics show what, and why a share is computed as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfsvc.model import Profile
from perfsvc.model import ReasonKind as Kind
from perfsvc.profile.metrics import STALLS
from perfsvc.profile.pair import COMPUTING, MEMORY, SHARED, ProfilePair, clamp, growth_of

SECTOR_BYTES = 32
WARP = 32
MIN_GROWTH = 0.02
"""The smallest growth, as a logarithm: two launches of one kernel may differ by this much."""
MIN_FALL = 0.01
"""The smallest fall of a hit rate."""
MIN_TENSOR = 0.01
"""The smallest share of the tensor cores' peak at which a kernel depends on them."""
MIN_LOCAL = 0.005
"""Fewer additional accesses to local memory than this share of all instructions are ignored."""
HIGH_DRAM = 0.5
"""Above this share of DRAM's peak throughput, the clock of DRAM counts as a reason."""
SPILL_INSTRUCTIONS = 2
"""The most instructions that an access to a spilled register costs: the access and its address."""

CACHES = ("dram_throughput", "l2_throughput")
PIPES = ("issue_throughput", "alu_throughput", "fma_throughput", "fp64_throughput", "xu_throughput")
LIMITS = {
    "occupancy_limit_registers_blocks": "registers",
    "occupancy_limit_shared_blocks": "shared memory",
    "occupancy_limit_warps_blocks": "the size of its blocks",
    "occupancy_limit_blocks_blocks": "the most blocks that fit",
    "occupancy_limit_barriers_blocks": "barriers",
}
ACCESSES = ("load", "store")


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much of the time difference one reason can explain.

    Attributes:
        share: the share of the time difference that the reason can explain, from 0 to 1.
        detail: how the two profiles differ, as text: ``tensor pipe busy 60 % → 0 %``.
        evidence: the names of the metrics that show the reason.
    """

    share: float
    detail: str
    evidence: tuple[str, ...]


def tensor(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by idle tensor cores: they are used less or not at all, and other pipes do their work."""
    throughput = pair.both("tensor_throughput")
    if throughput is None or throughput[0] < MIN_TENSOR:
        return None
    fast, slow = throughput
    lost = clamp(1 - slow * pair.durations_s[1] / (fast * pair.durations_s[0]))
    detail = f"tensor pipe busy {pair.change((fast, slow), _percent)}"
    return Contribution(lost * pair.share_of_work, detail, ("tensor_throughput", "fma_throughput", "instructions"))


def spills(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by local memory, which holds spilled registers and arrays with a variable index."""
    fast, slow = pair.apply(lambda profile: _loads_and_stores(profile, "local_{}_requests"))
    instruction_counts = pair.both("instructions")
    if fast is None or slow is None or instruction_counts is None:
        return None
    more = slow - fast
    if more <= MIN_LOCAL * instruction_counts[1]:
        return None
    of_requests = more / (more + max(0.0, _increase(pair, "global_{}_requests")))
    more_instructions = instruction_counts[1] - instruction_counts[0]
    of_instructions = clamp(SPILL_INSTRUCTIONS * more / max(more_instructions, more))
    waiting = (pair.share_of_group(MEMORY) + pair.share_of_group(SHARED)) * of_requests
    by_stalls = waiting + pair.share_of_group(COMPUTING) * of_instructions
    by_traffic = of_requests * pair.share_of_busy((*CACHES, "l1_throughput"))
    arrays = pair.slow.metrics.get("spill_requests") == 0
    memory = "local memory, for arrays and not for registers" if arrays else "local memory"
    detail = f"{pair.change((fast, slow), _count)} accesses to {memory}"
    evidence = (
        "local_load_requests",
        "local_store_requests",
        "spill_requests",
        "registers",
        "instructions",
        "l1_hit_rate",
    )
    return Contribution(clamp(max(by_stalls, by_traffic)), detail, evidence)


def bank_conflicts(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by bank conflicts: threads of a warp access different words of one bank of shared memory."""
    conflicts, (fast_s, slow_s) = pair.both("shared_bank_conflicts"), pair.apply(_conflicts_s)
    if conflicts is None or fast_s is None or slow_s is None:
        return None
    if growth_of(conflicts[0] + 1, conflicts[1] + 1) < MIN_GROWTH:
        return None
    wavefronts = _increase(pair, "shared_{}_wavefronts")
    of_wavefronts = clamp((conflicts[1] - conflicts[0]) / wavefronts) if wavefronts > 0 else 0.0
    share = max(pair.share_of_time(slow_s - fast_s), pair.share_of_group(SHARED) * of_wavefronts)
    evidence = (
        "shared_bank_conflicts",
        "shared_load_wavefronts",
        "shared_store_wavefronts",
        "stall_mio_throttle_cycles",
    )
    return Contribution(share, _conflict_ways(pair, conflicts), evidence)


def uncoalesced(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by uncoalesced access: a warp touches more sectors than the bytes it uses would fill."""
    fast, slow = pair.apply(_used_bytes_per_sector)
    growth = growth_of(slow, fast)
    if fast is None or slow is None or growth < MIN_GROWTH:
        return None
    limit = max(pair.share_of_group(MEMORY), pair.share_of_busy((*CACHES, "l1_throughput")))
    detail = f"{pair.change((fast, slow), _rounded)} of {SECTOR_BYTES} bytes of a sector used"
    evidence = tuple(
        f"global_{access}_{quantity}"
        for access in ACCESSES
        for quantity in ("used_bytes_per_sector", "sectors", "requests")
    )
    share = min(pair.share_of_log(growth), limit)
    return Contribution(share, detail, (*evidence, "l2_sectors", "dram_read_bytes"))


def divergence(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by divergence: threads of a warp take different branches, which run one after the other."""
    threads = pair.both("threads_per_instruction")
    growth = min(-pair.growth("threads_per_instruction"), pair.growth("instructions"))
    if threads is None or growth < MIN_GROWTH:
        return None
    detail = f"{pair.change(threads, _rounded)} of {WARP} threads take part in an instruction"
    evidence = ("threads_per_instruction", "divergent_branches", "instructions", "issue_throughput")
    return Contribution(min(pair.share_of_log(growth), _share_of_computing(pair)), detail, evidence)


def instructions(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by more instructions that keep pipes or schedulers busy, except those due to divergence."""
    counts = pair.both("instructions")
    growth = pair.growth("instructions") + min(pair.growth("threads_per_instruction"), 0.0)
    if counts is None or growth < MIN_GROWTH:
        return None
    detail = f"{pair.change(counts, _count)} instructions"
    share = min(pair.share_of_log(growth), _share_of_computing(pair))
    return Contribution(share, detail, ("instructions", *PIPES))


def occupancy(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by lost occupancy: fewer warps fit on a multiprocessor, so less latency is hidden."""
    occupancies = pair.both("theoretical_occupancy")
    lost = min(-pair.growth("theoretical_occupancy"), -pair.growth("achieved_occupancy"))
    if occupancies is None or lost < MIN_GROWTH:
        return None
    limits = {name: value for name in LIMITS if (value := pair.slow.metrics.get(name)) is not None}
    limit = min(limits, key=lambda name: limits[name], default="")
    detail = pair.change(occupancies, _percent)
    if limit and pair.slower:
        detail += f", limited by {LIMITS[limit]}"
    evidence = (
        "theoretical_occupancy",
        "achieved_occupancy",
        *([limit] if limit else []),
        "registers",
        "shared_static_bytes",
        "shared_dynamic_bytes",
    )
    return Contribution(pair.share_of_log(lost + min(pair.work_growth or 0.0, 0.0)), detail, evidence)


def tail(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by a tail: multiprocessors idle because the last wave of blocks does not fill them."""
    waves = pair.both("waves")
    fast, slow = pair.apply(_active_share)
    unfilled = pair.growth("theoretical_occupancy") - pair.growth("achieved_occupancy")
    growth = growth_of(slow, fast) + unfilled
    if waves is None or fast is None or slow is None or growth < MIN_GROWTH:
        return None
    changes = {
        "{} waves of blocks": pair.change(waves, _waves),
        "multiprocessors at work {} of the time": pair.change((fast, slow), _percent),
    }
    if unfilled >= MIN_GROWTH and (occupancies := pair.both("achieved_occupancy")):
        changes["achieved occupancy {}"] = pair.change(occupancies, _percent)
    detail = ", ".join(words.format(change) for words, change in changes.items() if change)
    if not detail:
        return None
    evidence = ("waves", "blocks", "sm_active_cycles", "sm_elapsed_cycles", "achieved_occupancy")
    return Contribution(pair.share_of_log(growth + min(pair.work_growth or 0.0, 0.0)), detail, evidence)


def hit_rate(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by cache misses: a larger part of the requests misses the L1 or the L2 cache."""
    missed = _growth_by_misses(pair)
    level = max(missed, key=lambda cache: missed[cache])
    growth, rates = sum(missed.values()), pair.both(f"{level}_hit_rate")
    if rates is None or growth < MIN_GROWTH:
        return None
    detail = f"{level.upper()} {pair.change(rates, _percent)}"
    limit = max(pair.share_of_group(MEMORY), pair.share_of_busy(CACHES))
    evidence = ("l2_hit_rate", "l1_hit_rate", "dram_read_bytes", "dram_write_bytes", "l2_sectors")
    return Contribution(min(pair.share_of_log(growth), limit), detail, evidence)


def traffic(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by more bytes moved, beyond what cache misses and unused bytes of sectors explain."""
    moved = {"DRAM": pair.apply(_dram_bytes), "the L2 cache": pair.apply(_l2_bytes)}
    memory = max(moved, key=lambda name: growth_of(*moved[name]))
    fast, slow = moved[memory]
    fast_used, slow_used = pair.apply(_used_bytes_per_sector)
    by_other_reasons = sum(_growth_by_misses(pair).values()) + max(growth_of(slow_used, fast_used), 0.0)
    growth = growth_of(fast, slow) - by_other_reasons
    if fast is None or slow is None or growth < MIN_GROWTH:
        return None
    detail = f"{pair.change((fast, slow), _bytes)} of {memory}"
    limit = max(pair.share_of_group(MEMORY), pair.share_of_busy(CACHES))
    evidence = (
        "dram_read_bytes",
        "dram_write_bytes",
        "dram_throughput",
        "l2_sectors",
        "global_load_requests",
        "global_store_requests",
    )
    return Contribution(min(pair.share_of_log(growth), limit), detail, evidence)


def clocks(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by a lower clock of the multiprocessors, or of memory if DRAM is busy enough."""
    lost = {"sm_clock_hz": -pair.growth("sm_clock_hz")}
    if (pair.slow.metrics.get("dram_throughput") or 0.0) > HIGH_DRAM:
        lost["dram_clock_hz"] = -pair.growth("dram_clock_hz")
    clock = max(lost, key=lambda name: lost[name])
    rates = pair.both(clock)
    if rates is None or lost[clock] < MIN_GROWTH:
        return None
    unit = "multiprocessors" if clock == "sm_clock_hz" else "memory"
    detail = f"{unit} {pair.change((rates[0] / 1e6, rates[1] / 1e6), _rounded)} MHz"
    return Contribution(pair.share_of_log(lost[clock]), detail, ("sm_clock_hz", "dram_clock_hz"))


def stalls(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by the stall on which warps spend the most additional cycles."""
    shares = {stall: share for stall, share in pair.stall_shares.items() if stall != "selected"}
    ranked = sorted(shares, key=lambda stall: -shares[stall])
    cycles = pair.both(f"stall_{ranked[0]}_cycles") if ranked else None
    change = pair.change(cycles, lambda value, further: f"{value:.{1 + further}f}") if cycles else ""
    if not change:  # the stall is as long as before, and more instructions wait
        return None
    detail = f"{STALLS[ranked[0]]}, {change} cycles an instruction"
    return Contribution(shares[ranked[0]], detail, tuple(f"stall_{stall}_cycles" for stall in ranked[:3]))


REASONS: Mapping[Kind, Callable[[ProfilePair], Contribution | None]] = {
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
"""The function of each reason. If two reasons explain equal shares, the earlier one more likely caused the later."""


def _share_of_computing(pair: ProfilePair) -> float:
    return max(pair.share_of_group(COMPUTING), pair.share_of_busy(PIPES))


def _conflicts_s(profile: Profile) -> float | None:
    """Return the seconds that additional passes due to bank conflicts take; a pass takes one multiprocessor cycle."""
    names = ("shared_bank_conflicts", "multiprocessors", "sm_clock_hz")
    conflicts, units, clock = (profile.metrics.get(name) for name in names)
    return conflicts / (units * clock) if conflicts is not None and units and clock else None


def _conflict_ways(pair: ProfilePair, conflicts: tuple[float, float]) -> str:
    """Return the passes of a shared-memory access as text, such as ``loads 1-way → 32-way``.

    The text is about the access (load or store) whose passes grew more. A request needs at most one pass for each
    thread of a warp, so the number is capped at 32. Passes beyond 32 were counted for other units.
    """
    ways: dict[str, tuple[float, float]] = {}
    for access in ACCESSES:
        requests, wavefronts = pair.both(f"shared_{access}_requests"), pair.both(f"shared_{access}_wavefronts")
        if requests and wavefronts and min(requests) > 0:
            ways[access] = (wavefronts[0] / requests[0], wavefronts[1] / requests[1])
    access = max(ways, key=lambda name: ways[name][1] - ways[name][0], default="")
    change = pair.change(ways[access], lambda passes, further: f"{min(passes, WARP):.{further}f}-way") if ways else ""
    return f"{access}s {change}" if change else f"{pair.change(conflicts, _count)} conflicts"


def _loads_and_stores(profile: Profile, name: str) -> float | None:
    """Return a metric's sum over loads and stores (``{}`` in its name); None if one of them was not counted."""
    load, store = (profile.metrics.get(name.format(access)) for access in ACCESSES)
    return None if load is None or store is None else load + store


def _increase(pair: ProfilePair, name: str) -> float:
    """Return how much larger a metric's sum over loads and stores is in the slow profile; 0 if unknown."""
    fast, slow = pair.apply(lambda profile: _loads_and_stores(profile, name))
    return 0.0 if fast is None or slow is None else slow - fast


def _requested_bytes(profile: Profile) -> float | None:
    """Return the bytes that threads requested, or the number of warps' requests if the bytes were not counted."""
    counted = [
        (profile.metrics.get(f"global_{access}_sectors"), profile.metrics.get(f"global_{access}_used_bytes_per_sector"))
        for access in ACCESSES
    ]
    if any(sectors is None or used is None for sectors, used in counted):
        return _loads_and_stores(profile, "global_{}_requests")
    return sum((sectors or 0.0) * (used or 0.0) for sectors, used in counted)


def _used_bytes_per_sector(profile: Profile) -> float | None:
    """Return how many bytes of a sector threads requested on average, over loads and stores."""
    sectors, requested = _loads_and_stores(profile, "global_{}_sectors"), _requested_bytes(profile)
    return requested / sectors if sectors and requested else None


def _growth_by_misses(pair: ProfilePair) -> dict[str, float]:
    """Return the logarithm of the growth of traffic below each cache that is due to misses; 0 if none is."""
    requested = growth_of(*pair.apply(lambda profile: _loads_and_stores(profile, "global_{}_sectors")))
    l2, dram = growth_of(*pair.apply(_l2_bytes)), growth_of(*pair.apply(_dram_bytes))
    growth = {"l2": dram - l2, "l1": l2 - requested}
    return {level: max(more, 0.0) if _hit_rate_fell(pair, level) else 0.0 for level, more in growth.items()}


def _hit_rate_fell(pair: ProfilePair, level: str) -> bool:
    rates = pair.both(f"{level}_hit_rate")
    return rates is not None and rates[0] - rates[1] >= MIN_FALL


def _l2_bytes(profile: Profile) -> float | None:
    """Return the bytes that were requested from the L2 cache, whether they hit or missed."""
    sectors = profile.metrics.get("l2_sectors")
    return None if sectors is None else SECTOR_BYTES * sectors


def _dram_bytes(profile: Profile) -> float | None:
    read, written = profile.metrics.get("dram_read_bytes"), profile.metrics.get("dram_write_bytes")
    return None if read is None or written is None else read + written


def _active_share(profile: Profile) -> float | None:
    """Return the share of the time in which a multiprocessor had a block."""
    active, elapsed = profile.metrics.get("sm_active_cycles"), profile.metrics.get("sm_elapsed_cycles")
    return active / elapsed if active is not None and elapsed else None


def _rounded(value: float, further: int = 0) -> str:
    return f"{value:.{further}f}"


def _waves(number: float, further: int = 0) -> str:
    return f"{number:.{4 + further}g}"


def _percent(share: float, further: int = 0) -> str:
    return f"{100 * share:.{further}f} %"


def _count(number: float, further: int = 0) -> str:
    """Return a number with an SI prefix and three digits, or some further digits: ``6.82 M``."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if abs(number) >= 10**power:
            return f"{number / 10**power:.{3 + further}g} {prefix}"
    return f"{number:.0f}"


def _bytes(number: float, further: int = 0) -> str:
    return f"{_count(number, further)}B" if number >= 1000 else f"{number:.0f} B"  # noqa: PLR2004 - the first prefix
