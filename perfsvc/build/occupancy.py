"""How many warps of a kernel a multiprocessor can hold at once: theoretical occupancy.

The limits of each architecture are those of NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities" (release 13.0);
how resources are handed out (registers by warp and quarter of a multiprocessor, shared memory by 128 bytes, barriers)
is as NVIDIA's occupancy calculator has it, ``cuda_occupancy.h`` of the CUDA toolkit. Tests hold this to that header.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from perfsvc.model import Limiter, Occupancy, StaticFacts

WARP = 32
REGISTERS = 64 * 1024
"""Of a multiprocessor, and the most of a block, on every architecture here."""
REGISTER_UNIT = 256
"""Registers are handed out by warp in such pieces: 8 a thread."""
PARTITIONS = 4
"""Quarters of a multiprocessor; a warp's registers lie in one of them."""
KIB = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor of an architecture holds.

    Attributes:
        warps: at most.
        blocks: at most.
        shared_bytes: shared memory of all its blocks, with what is reserved for each.
        barriers: of all its blocks; None where they are no limit.
        reserved_bytes: shared memory that each block gives up to the system.
        shared_unit: bytes; a block's shared memory is a multiple of it.
    """

    warps: int
    blocks: int
    shared_bytes: int
    barriers: int | None = None
    reserved_bytes: int = KIB
    shared_unit: int = 128


MULTIPROCESSORS: Mapping[str, Multiprocessor] = {
    "sm_75": Multiprocessor(32, 16, 64 * KIB, reserved_bytes=0, shared_unit=256),
    "sm_80": Multiprocessor(64, 32, 164 * KIB),
    "sm_86": Multiprocessor(48, 16, 100 * KIB),
    "sm_87": Multiprocessor(48, 16, 164 * KIB),
    "sm_89": Multiprocessor(48, 24, 100 * KIB),
    "sm_90": Multiprocessor(64, 32, 228 * KIB, barriers=64),
    "sm_100": Multiprocessor(64, 32, 228 * KIB, barriers=64),
    "sm_103": Multiprocessor(64, 32, 228 * KIB, barriers=32),  # since CUDA 13.5; before, 64
    "sm_110": Multiprocessor(48, 24, 228 * KIB, barriers=24),
    "sm_120": Multiprocessor(48, 24, 100 * KIB, barriers=24),
    "sm_121": Multiprocessor(48, 24, 100 * KIB, barriers=24),
}
"""By architecture; of others nobody here knows the limits."""


def occupancy(architecture: str, facts: StaticFacts, threads: int, dynamic_shared_bytes: int) -> Occupancy | None:
    """The theoretical occupancy of a launch, with the most shared memory that the architecture can set aside.

    Args:
        architecture: ``sm_90``.
        facts: of the kernel.
        threads: of a block, 1 to 1024.
        dynamic_shared_bytes: of a block.

    Returns:
        None for an architecture whose limits are not known. Of several limiters the one that no change of the kernel
        would move: warps before blocks before registers before shared memory before barriers.
    """
    held = MULTIPROCESSORS.get(architecture)
    if held is None:
        return None
    warps = -(-threads // WARP)
    limits = {
        Limiter.WARPS: held.warps // warps,
        Limiter.BLOCKS: held.blocks,
        Limiter.REGISTERS: _by_registers(facts.registers, warps),
        Limiter.SHARED_MEMORY: _by_shared_memory(held, facts.shared_bytes + dynamic_shared_bytes),
        Limiter.BARRIERS: _by_barriers(held, facts.barriers),
    }
    limiter = min(limits, key=limits.__getitem__)
    return Occupancy(limits[limiter] * warps, held.warps, limiter)


def _by_registers(registers: int, warps: int) -> int:
    """Blocks that the registers suffice for; none where they would not suffice for one in all four quarters at once."""
    of_warp = _up(registers * WARP, REGISTER_UNIT)
    if of_warp == 0:
        return REGISTERS
    if of_warp * _up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps


def _by_shared_memory(held: Multiprocessor, wanted_bytes: int) -> int:
    of_block = _up(wanted_bytes + held.reserved_bytes, held.shared_unit)
    return held.shared_bytes // of_block if of_block else held.blocks


def _by_barriers(held: Multiprocessor, barriers: int) -> int:
    return held.barriers // barriers if held.barriers and barriers else held.blocks


def _up(amount: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-amount // unit) * unit
