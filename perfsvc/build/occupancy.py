"""Theoretical occupancy: how many warps of a kernel a multiprocessor can hold at once.

The limits of each architecture come from NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities" (release 13.0).
The rules of allocation (registers by warp and quarter of a multiprocessor, shared memory in pieces of 128 bytes,
barriers) are those of NVIDIA's occupancy calculator, ``cuda_occupancy.h`` of the CUDA toolkit; a test compares with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from perfsvc.model import Limiter, Occupancy, StaticFacts

WARP = 32
REGISTERS = 64 * 1024
"""The registers of a multiprocessor on every architecture here; a single block may have all of them."""
REGISTER_UNIT = 256
"""Registers are allocated by warp in multiples of this: 8 for each thread."""
PARTITIONS = 4
"""A multiprocessor has four quarters; all registers of a warp are in the same quarter."""
KIB = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The limits of one multiprocessor of an architecture.

    Attributes:
        warps: the most warps that it holds.
        blocks: the most blocks that it holds.
        shared_bytes: the shared memory of all its blocks, including the bytes reserved for each.
        barriers: the barriers of all its blocks; None if they limit nothing.
        reserved_bytes: the shared memory that the system reserves in addition for each block.
        shared_unit: a block's shared memory is rounded up to a multiple of this many bytes.
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
"""By architecture. The limits of other architectures are unknown."""


def occupancy(architecture: str, facts: StaticFacts, threads: int, dynamic_shared_bytes: int) -> Occupancy | None:
    """Return the theoretical occupancy of a launch, with the most shared memory that the architecture can set aside.

    Args:
        architecture: the architecture's name, such as ``sm_90``.
        facts: the static facts of the kernel.
        threads: the threads of a block, 1 to 1024.
        dynamic_shared_bytes: the dynamic shared memory of a block.

    Returns:
        The occupancy with its limiter, or None if the architecture's limits are unknown. If several limits are equal,
        the limiter is the first of: warps, blocks, registers, shared memory, barriers. Warps and blocks come first,
        because changes of the kernel's code do not move these limits.
    """
    multiprocessor = MULTIPROCESSORS.get(architecture)
    if multiprocessor is None:
        return None
    warps = -(-threads // WARP)
    blocks = {
        Limiter.WARPS: multiprocessor.warps // warps,
        Limiter.BLOCKS: multiprocessor.blocks,
        Limiter.REGISTERS: _by_registers(facts.registers, warps),
        Limiter.SHARED_MEMORY: _by_shared_memory(multiprocessor, facts.shared_bytes + dynamic_shared_bytes),
        Limiter.BARRIERS: _by_barriers(multiprocessor, facts.barriers),
    }
    limiter = min(blocks, key=blocks.__getitem__)
    return Occupancy(blocks[limiter] * warps, multiprocessor.warps, limiter)


def _by_registers(registers: int, warps: int) -> int:
    """Return how many blocks fit into a multiprocessor's registers, which are in four equal parts; 0 if none fits."""
    registers_of_warp = _round_up(registers * WARP, REGISTER_UNIT)
    if registers_of_warp == 0:
        return REGISTERS  # registers limit nothing
    if registers_of_warp * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // registers_of_warp * PARTITIONS // warps


def _by_shared_memory(multiprocessor: Multiprocessor, wanted_bytes: int) -> int:
    bytes_of_block = _round_up(wanted_bytes + multiprocessor.reserved_bytes, multiprocessor.shared_unit)
    return multiprocessor.shared_bytes // bytes_of_block if bytes_of_block else multiprocessor.blocks


def _by_barriers(multiprocessor: Multiprocessor, barriers: int) -> int:
    if multiprocessor.barriers and barriers:
        return multiprocessor.barriers // barriers
    return multiprocessor.blocks


def _round_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
