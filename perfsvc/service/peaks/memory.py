"""The cases that measure how fast a GPU's memory moves bytes."""

from pathlib import Path

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    CacheState,
    Case,
    DeviceInfo,
    Kind,
    Launch,
    Role,
    Tolerance,
    Unit,
    Work,
)
from perfsvc.service.peaks.kernels import BENCHMARK, OURS
from perfsvc.suite import CaseSpec

SOURCE = Path(__file__).with_name("memory.cu")
COPY, READ = "perfsvc_peak_copy", "perfsvc_peak_read"
VARIANTS = ("copy", "read")
"""The variants of the cases, in the order of the fields of ``Peak``."""
BLOCK = 256
ACCESS_BYTES = 16
UNDER_WAY = 4
"""Accesses of a thread that are under way at once, as in ``memory.cu``."""
TILE_BYTES = BLOCK * ACCESS_BYTES * UNDER_WAY

BEYOND_L2 = 4
"""A footprint of at least this many times the L2 cache must come from memory."""
LEAST_BYTES = 512 << 20
"""Smallest buffer, in bytes: short launches do not reach the memory's full rate."""
SHARE = 8
"""A buffer takes at most 1/8 of the GPU's memory."""
UNKNOWN_BYTES = 1 << 20
"""Buffer size in bytes if a device does not report its memory, as the fake device does not."""

SAMPLING = Sampling(samples=100, seconds=0.5, least=20)
"""Launches this long vary little, so the peak is known early."""


def specs(device: DeviceInfo) -> tuple[CaseSpec, ...]:
    """Return the cases that measure the peak bandwidth of a device's memory; none for the CPU device."""
    if device.kind == "cpu":
        return ()
    nbytes = _buffer_bytes(device)
    return (
        _spec("copy", COPY, nbytes, Array("to", "uint32", (nbytes // 4,)), Work(nbytes, nbytes)),
        _spec("read", READ, nbytes, Array("sink", "uint32", (1,)), Work(nbytes)),
    )


def _buffer_bytes(device: DeviceInfo) -> int:
    """Return the size in bytes of a buffer that is larger than the L2 cache and fits into memory, in whole tiles."""
    wanted = max(BEYOND_L2 * device.l2_bytes, LEAST_BYTES)
    most = device.memory_bytes // SHARE or UNKNOWN_BYTES
    return max(min(wanted, most) // TILE_BYTES, 1) * TILE_BYTES


def _spec(variant: str, entry: str, nbytes: int, target: Array, work: Work) -> CaseSpec:
    """Return a case whose kernel ``entry`` reads ``nbytes`` and writes to ``target``."""
    source = Array("from", "uint32", (nbytes // 4,))
    launch = Launch(0, entry, (nbytes // TILE_BYTES, 1, 1), (BLOCK, 1, 1), (BufferArg(target.name), BufferArg("from")))
    return CaseSpec(
        case=Case(BENCHMARK, variant, version=OURS),
        kind=Kind.KERNEL,
        cache=CacheState.COLD,
        requires=(),
        units=(Unit(SOURCE, (COPY, READ)),),
        buffers=(Buffer(target, Role.SCRATCH), Buffer(source, Role.SCRATCH)),
        steps=(launch,),
        work=work,
        tolerance=Tolerance(max=0.0, mean=0.0),
        bench=SOURCE,
        bench_text="",
        seed=0,
    )
