"""Reasons in memory: spills, atomics, conflicts, unused bytes, constants, misses and traffic."""

from perfsvc.model import Profile
from perfsvc.profile.pair import COMPUTING, MEMORY, SHARED, ProfilePair, clamp, growth_of
from perfsvc.profile.reasons.contribution import (
    ACCESSES,
    CACHES,
    MIN_GROWTH,
    SECTOR_BYTES,
    WARP,
    Contribution,
    bytes_text,
    count,
    grew,
    loads_and_stores,
    percent,
    rounded,
)

MIN_FALL = 0.01
"""The smallest fall of a hit rate."""
MIN_LOCAL = 0.005
"""Fewer additional accesses to local memory than this share of all instructions are ignored."""
SPILL_INSTRUCTIONS = 2
"""The most instructions that an access to a spilled register costs: the access and its address."""


def spills(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by local memory, which holds spilled registers and arrays with a variable index."""
    fast, slow = pair.apply(lambda profile: loads_and_stores(profile, "local_{}_requests"))
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
    detail = f"{pair.change((fast, slow), count)} accesses to {memory}"
    evidence = (
        "local_load_requests",
        "local_store_requests",
        "spill_requests",
        "registers",
        "instructions",
        "l1_hit_rate",
    )
    return Contribution(clamp(max(by_stalls, by_traffic)), detail, evidence)


def atomics(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by atomic operations that wait for each other, or that there are more of."""
    share = max(pair.share_of_waiting("atomics_time"), pair.share_of_busy(("atomics_throughput",)))
    if not any(pair.slow.metrics.get(name) for name in ("global_atomics", "shared_atomics")):
        return None
    if not any(grew(pair.both(name)) for name in ("atomics_time", "global_atomics", "shared_atomics")):
        return None
    changes = [
        f"{change} atomics in {memory} memory"
        for memory in ("global", "shared")
        if (values := pair.both(f"{memory}_atomics")) and (change := pair.change(values, count))
    ]
    if not changes and (times := pair.both("atomics_time")) and (change := pair.change(times, percent)):
        changes = [f"warps wait for atomics {change} of their time"]
    if not changes:
        return None
    evidence = (
        "atomics_time",
        "global_atomics",
        "shared_atomics",
        "atomics_throughput",
        "shared_atomic_wavefronts",
        "stall_lg_throttle_cycles",
    )
    return Contribution(share, ", ".join(changes), evidence)


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
    detail = f"{pair.change((fast, slow), rounded)} of {SECTOR_BYTES} bytes of a sector used"
    evidence = tuple(
        f"global_{access}_{quantity}"
        for access in ACCESSES
        for quantity in ("used_bytes_per_sector", "sectors", "requests")
    )
    share = min(pair.share_of_log(growth), limit)
    return Contribution(share, detail, (*evidence, "l2_sectors", "dram_read_bytes"))


def constants(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by constants: threads of a warp load different addresses, which are served in turn."""
    loads = pair.both("indexed_constant_loads")
    if loads is None or not loads[1]:
        return None
    share = max(pair.share_of_waiting("constants_time"), pair.share_of_busy(("constants_throughput",)))
    steps, times = pair.apply(_steps_per_constant), pair.both("constants_time")
    if not grew(times) and growth_of(*steps) < MIN_GROWTH:
        return None
    words = "{} steps a load"
    change = pair.change((steps[0], steps[1]), rounded) if steps[0] is not None and steps[1] is not None else ""
    if not change and times:
        change, words = pair.change(times, percent), "warps wait for constants {} of their time"
    if not change:
        return None
    evidence = ("constants_throughput", "constants_time", "indexed_constant_loads")
    return Contribution(share, words.format(change), evidence)


def hit_rate(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by cache misses: a larger part of the requests misses the L1 or the L2 cache."""
    missed = _growth_by_misses(pair)
    level = max(missed, key=lambda cache: missed[cache])
    growth, rates = sum(missed.values()), pair.both(f"{level}_hit_rate")
    if rates is None or growth < MIN_GROWTH:
        return None
    detail = f"{level.upper()} {pair.change(rates, percent)}"
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
    detail = f"{pair.change((fast, slow), bytes_text)} of {memory}"
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


def _steps_per_constant(profile: Profile) -> float | None:
    """Return how many steps the cache of constants takes for a load: one for each different address."""
    names = ("constants_throughput", "sm_elapsed_cycles", "multiprocessors", "indexed_constant_loads")
    busy, cycles, units, loads = (profile.metrics.get(name) for name in names)
    return busy * cycles * units / loads if busy is not None and cycles and units and loads else None


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
    rose = bool(ways) and ways[access][1] > ways[access][0]
    change = pair.change(ways[access], lambda passes, further: f"{min(passes, WARP):.{further}f}-way") if rose else ""
    return f"{access}s {change}" if change else f"{pair.change(conflicts, count)} conflicts"


def _increase(pair: ProfilePair, name: str) -> float:
    """Return how much larger a metric's sum over loads and stores is in the slow profile; 0 if unknown."""
    fast, slow = pair.apply(lambda profile: loads_and_stores(profile, name))
    return 0.0 if fast is None or slow is None else slow - fast


def _requested_bytes(profile: Profile) -> float | None:
    """Return the bytes that threads requested, or the number of warps' requests if the bytes were not counted."""
    counted = [
        (profile.metrics.get(f"global_{access}_sectors"), profile.metrics.get(f"global_{access}_used_bytes_per_sector"))
        for access in ACCESSES
    ]
    if any(sectors is None or used is None for sectors, used in counted):
        return loads_and_stores(profile, "global_{}_requests")
    return sum((sectors or 0.0) * (used or 0.0) for sectors, used in counted)


def _used_bytes_per_sector(profile: Profile) -> float | None:
    """Return how many bytes of a sector threads requested on average, over loads and stores."""
    sectors, requested = loads_and_stores(profile, "global_{}_sectors"), _requested_bytes(profile)
    return requested / sectors if sectors and requested else None


def _growth_by_misses(pair: ProfilePair) -> dict[str, float]:
    """Return the logarithm of the growth of traffic below each cache that is due to misses; 0 if none is."""
    requested = growth_of(*pair.apply(lambda profile: loads_and_stores(profile, "global_{}_sectors")))
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
