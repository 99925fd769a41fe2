"""What a page shows of two launches, from their profiles: the code, the stalls, the instructions and the traffic."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from perfsvc.build.disassembly import count_classes
from perfsvc.model import Explanation, HotCode, Instruction, LaunchPicture, Link, Profile, Rates, ValuePair
from perfsvc.profile.excerpts import hot_code
from perfsvc.profile.instructions import carriers
from perfsvc.profile.metrics import STALLS
from perfsvc.profile.reasons.contribution import SECTOR_BYTES
from perfsvc.profile.source_changes import Sources

MIN_STALL = 0.02
"""A stall is shown if both launches differ in it by this share of all cycles, or spend ``MIN_OF_CYCLES`` on it."""
MIN_OF_CYCLES = 0.05
OTHERS = "others"
WAVEFRONT_BYTES = 128
"""The bytes of shared memory that a multiprocessor can move in one pass."""


def picture(
    before: Profile,
    after: Profile,
    explanation: Explanation,
    sources: tuple[Sources, Sources] = ({}, {}),
    peaks: Rates = MappingProxyType({}),
) -> LaunchPicture:
    """Return what a page shows of two launches.

    Args:
        before: the baseline.
        after: the candidate.
        explanation: why the candidate takes longer.
        sources: the source files of both launches.
        peaks: the measured peaks of the device of the candidate, as far as they are known.
    """
    return LaunchPicture(
        before,
        after,
        explanation,
        code_of(before, after, explanation, sources),
        stalls(before, after),
        instruction_mix(before, after),
        traffic(before, after),
        peaks,
    )


def code_of(
    before: Profile, after: Profile, explanation: Explanation, sources: tuple[Sources, Sources]
) -> HotCode | None:
    """Return the code that carries the first independent reason; None if nothing was counted at the instructions.

    The code of a reason that concerns the whole launch is where the warps were seen most often.
    """
    for reason in explanation.reasons:
        found = carriers(reason.kind, [evidence.metric for evidence in reason.evidence])
        if reason.follows is None and found and (code := hot_code(before, after, *found, sources)):
            return code
        if reason.follows is None:
            break  # the code of a lesser reason would answer another question
    return hot_code(before, after, "samples of warps", _samples, sources)


def _samples(instruction: Instruction) -> float:
    return sum(instruction.counts.get(f"stall_{stall}_samples", 0.0) for stall in STALLS)


def stalls(before: Profile, after: Profile) -> tuple[ValuePair, ...]:
    """Return the cycles of a warp between two instructions, by what it waited for, the largest difference first.

    Stalls that hardly count are one value at the end; nothing is returned if no stall was counted.
    """
    names = {stall: f"stall_{stall}_cycles" for stall in STALLS}
    every = [
        ValuePair(stall, before.metrics.get(name), after.metrics.get(name), STALLS[stall])
        for stall, name in names.items()
    ]
    known = [pair for pair in every if pair.before is not None or pair.after is not None]
    cycles = max(sum(pair.before or 0.0 for pair in known), sum(pair.after or 0.0 for pair in known))
    shown = [
        pair for pair in known if abs(pair.difference) >= MIN_STALL * cycles or pair.largest >= MIN_OF_CYCLES * cycles
    ]
    rest = [pair for pair in known if pair not in shown]
    ranked = sorted(shown, key=lambda pair: -abs(pair.difference))
    return (*ranked, *_others(rest))


def _others(rest: Sequence[ValuePair]) -> Sequence[ValuePair]:
    """Return the sum of values as one value; a side is None if none of its values was counted."""
    if len(rest) < 2:  # noqa: PLR2004 - a sum of several
        return rest
    before, after = _sum([pair.before for pair in rest]), _sum([pair.after for pair in rest])
    return [ValuePair(OTHERS, before, after, ", ".join(pair.name for pair in rest if pair.largest))]


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum of the values that were counted; None if none was."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def instruction_mix(before: Profile, after: Profile) -> tuple[ValuePair, ...]:
    """Return the executed instructions of each class of work, one for each warp, the most first."""
    old, new = _classes(before.instructions), _classes(after.instructions)
    pairs = [
        ValuePair(name, old.get(name, 0.0) if old else None, new.get(name, 0.0) if new else None)
        for name in dict.fromkeys((*old, *new))
    ]
    return tuple(sorted(pairs, key=lambda pair: -pair.largest))


def _classes(instructions: Sequence[Instruction]) -> Mapping[str, float]:
    """Return how many executed instructions each class of work has; empty if they were not counted."""
    opcodes: Counter[str] = Counter()
    for instruction in instructions:
        if executed := int(instruction.counts.get("instructions", 0.0)):
            opcodes[instruction.opcode] += executed
    return dict(count_classes(opcodes))


def traffic(before: Profile, after: Profile) -> tuple[Link, ...]:
    """Return the bytes that went between threads, L1 cache, L2 cache and DRAM, and the hit rates of the caches.

    A flow that neither launch has is left out, except the main ones.
    """

    def flow(name: str, metric: str, nbytes: int, meaning: str = "") -> ValuePair:
        old, new = before.metrics.get(metric), after.metrics.get(metric)
        return ValuePair(name, None if old is None else nbytes * old, None if new is None else nbytes * new, meaning)

    def rate(metric: str) -> ValuePair:
        return ValuePair("hit rate", before.metrics.get(metric), after.metrics.get(metric))

    of_local, of_shared = "local memory: spilled registers, arrays", "shared memory, 128 bytes a pass"
    to_l1 = (
        flow("global loads", "global_load_sectors", SECTOR_BYTES),
        flow("global stores", "global_store_sectors", SECTOR_BYTES),
        ValuePair(
            "of these, used by threads",
            _used_bytes(before),
            _used_bytes(after),
            "what the threads asked for; the rest of the sectors is moved for nothing",
        ),
        flow("local loads", "local_load_sectors", SECTOR_BYTES, of_local),
        flow("local stores", "local_store_sectors", SECTOR_BYTES, of_local),
        flow("shared loads", "shared_load_wavefronts", WAVEFRONT_BYTES, of_shared),
        flow("shared stores", "shared_store_wavefronts", WAVEFRONT_BYTES, of_shared),
    )
    to_l2 = (
        flow("all", "l2_sectors", SECTOR_BYTES),
        flow("loads", "l2_read_sectors", SECTOR_BYTES),
        flow("stores", "l2_write_sectors", SECTOR_BYTES),
    )
    to_dram = (flow("read", "dram_read_bytes", 1), flow("written", "dram_write_bytes", 1))
    seen = tuple(pair for pair in to_l1 if pair.largest or pair.name.startswith("global"))
    return (
        Link("multiprocessors", "L1 cache", seen, rate("l1_hit_rate")),
        Link("L1 cache", "L2 cache", to_l2, rate("l2_hit_rate")),
        Link("L2 cache", "DRAM", to_dram),
    )


def _used_bytes(profile: Profile) -> float | None:
    """Return the bytes of global memory that threads asked for; None if they were not counted."""
    total = 0.0
    for access in ("load", "store"):
        sectors = profile.metrics.get(f"global_{access}_sectors")
        used = profile.metrics.get(f"global_{access}_used_bytes_per_sector")
        if sectors is None or (used is None and sectors):
            return None
        total += sectors * (used or 0.0)
    return total
