"""Reasons in how a launch fills the device: its size, occupancy, last wave and clocks."""

from perfsvc.model import Profile
from perfsvc.profile.pair import ProfilePair, growth_of
from perfsvc.profile.reasons.contribution import MIN_GROWTH, Contribution, count, percent, rounded, waves_text

HIGH_DRAM = 0.5
"""Above this share of DRAM's peak throughput, the clock of DRAM counts as a reason."""
LIMITS = {
    "occupancy_limit_registers_blocks": "registers",
    "occupancy_limit_shared_blocks": "shared memory",
    "occupancy_limit_warps_blocks": "the size of its blocks",
    "occupancy_limit_blocks_blocks": "the most blocks that fit",
    "occupancy_limit_barriers_blocks": "barriers",
}


def occupancy(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by lost occupancy: fewer warps fit on a multiprocessor, so less latency is hidden."""
    occupancies = pair.both("theoretical_occupancy")
    lost = min(-pair.growth("theoretical_occupancy"), -pair.growth("achieved_occupancy"))
    if occupancies is None or lost < MIN_GROWTH:
        return None
    limits = {name: value for name in LIMITS if (value := pair.slow.metrics.get(name)) is not None}
    limit = min(limits, key=lambda name: limits[name], default="")
    detail = pair.change(occupancies, percent)
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


def small_launch(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by a launch with too few blocks to fill the device."""
    waves, growth = pair.both("waves"), _idle_growth(pair)
    if waves is None or not _is_small(pair) or growth < MIN_GROWTH:
        return None
    blocks, units = pair.both("blocks"), pair.slow.metrics.get("multiprocessors")
    detail = f"{pair.change(waves, waves_text)} waves of blocks"
    if blocks and (change := pair.change(blocks, count)):
        detail = f"{change} blocks" + (f" on {units:.0f} multiprocessors" if units else "")
    evidence = ("blocks", "multiprocessors", "waves", "sm_active_cycles", "sm_elapsed_cycles", "achieved_occupancy")
    return Contribution(pair.share_of_log(growth + min(pair.work_growth or 0.0, 0.0)), detail, evidence)


def tail(pair: ProfilePair) -> Contribution | None:
    """Explain a slowdown by a tail: multiprocessors idle because the last wave of blocks does not fill them."""
    waves = pair.both("waves")
    fast, slow = pair.apply(_active_share)
    unfilled = pair.growth("theoretical_occupancy") - pair.growth("achieved_occupancy")
    growth = _idle_growth(pair)
    if waves is None or fast is None or slow is None or growth < MIN_GROWTH or _is_small(pair):
        return None
    changes = {
        "{} waves of blocks": pair.change(waves, waves_text),
        "multiprocessors at work {} of the time": pair.change((fast, slow), percent),
    }
    if unfilled >= MIN_GROWTH and (occupancies := pair.both("achieved_occupancy")):
        changes["achieved occupancy {}"] = pair.change(occupancies, percent)
    detail = ", ".join(words.format(change) for words, change in changes.items() if change)
    if not detail:
        return None
    evidence = ("waves", "blocks", "sm_active_cycles", "sm_elapsed_cycles", "achieved_occupancy")
    return Contribution(pair.share_of_log(growth + min(pair.work_growth or 0.0, 0.0)), detail, evidence)


def _is_small(pair: ProfilePair) -> bool:
    """Return True if the slow launch has less than one wave of blocks, and fewer waves than the fast launch."""
    waves = pair.both("waves")
    return waves is not None and waves[1] < 1 and pair.growth("waves") < -MIN_GROWTH


def _idle_growth(pair: ProfilePair) -> float:
    """Return the logarithm of how much more multiprocessors are idle, or have fewer warps than fit."""
    fast, slow = pair.apply(_active_share)
    return growth_of(slow, fast) + pair.growth("theoretical_occupancy") - pair.growth("achieved_occupancy")


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
    detail = f"{unit} {pair.change((rates[0] / 1e6, rates[1] / 1e6), rounded)} MHz"
    return Contribution(pair.share_of_log(lost[clock]), detail, ("sm_clock_hz", "dram_clock_hz"))


def _active_share(profile: Profile) -> float | None:
    """Return the share of the time in which a multiprocessor had a block."""
    active, elapsed = profile.metrics.get("sm_active_cycles"), profile.metrics.get("sm_elapsed_cycles")
    return active / elapsed if active is not None and elapsed else None
