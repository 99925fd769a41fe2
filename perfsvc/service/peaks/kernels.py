"""The cases that measure how fast a GPU computes in each precision, and how fast it reads from its L2 cache."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    ScalarArg,
    Tolerance,
    Unit,
    Work,
)
from perfsvc.suite import CaseSpec

BENCHMARK = "peak"
OURS = 0
"""The version of the cases. A suite's versions begin with 1, so no benchmark can be mistaken for these cases."""
VERSION = 1
"""The version of the kernels: peaks that were measured by other kernels are measured again."""

SAMPLING = Sampling(seconds=0.5, least_s=0.4, recovery_s=2.0)
"""A GPU needs about 0.1 s until its clock has adapted to a load that reaches the power limit. The peak is the rate
that the GPU sustains, so sampling lasts several times as long. A GPU that is too hot is not waited for: a later run
measures its peaks."""
FULL_RATE = frozenset({"sm_80", "sm_90"})
"""The architectures on which our kernels reach the full rate of the tensor cores. The tensor cores of others have
instructions that our kernels do not use, or multiply faster if they add in a narrower type."""

L2_SHARE = 3
"""The buffer takes at most a third of the L2 cache: the cache of an H100 has two halves, and both keep a copy of what
all multiprocessors read."""
L2_ROUNDS = 6144
"""Rounds of a launch, which then takes some 6 ms on an H100."""
L2_TILE_BYTES = 1024 * 16
"""What a block reads at once: 16 bytes by each of 1024 threads, as in ``l2.cu``."""
L2_TILES_PER_ROUND = 2


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A kernel that only computes, with one block on each multiprocessor.

    Attributes:
        source: the file with the kernel ``perfsvc_peak_`` and the name of the peak.
        threads: the threads of a block.
        flops: the operations of a block in a round.
        rounds: the rounds of a launch, which then takes some 4 ms on an H100.
    """

    source: str
    threads: int
    flops: int
    rounds: int
    dtype: str = "float32"


_CHAINED = 2 * 1024 * 1024
"""Operations of a block of ``scalar.cu`` in a round: 1024 threads with 1024 fused multiply-adds each."""
_FP64_TENSOR = 2 * 16 * 8 * (16 * 8 * 16)
"""16 warps with 8 products of 16 x 8 over 16 each."""


def _mma(k: int) -> Arithmetic:
    """Return the kernel of ``mma.cu``: 16 warps, each with 64 products of 16 x 8 over k in a round."""
    return Arithmetic("mma.cu", 512, 2 * 16 * 64 * (16 * 8 * k), 3072)


def _wgmma(k: int) -> Arithmetic:
    """Return the kernel of ``wgmma.cu``: 2 warpgroups, each with 16 products of 64 x 256 over k in a round."""
    return Arithmetic("wgmma.cu", 256, 2 * 2 * 16 * (64 * 256 * k), 1920)


_SCALAR: Mapping[str, Arithmetic] = {
    "fp32": Arithmetic("scalar.cu", 1024, _CHAINED, 960),
    "fp64": Arithmetic("scalar.cu", 1024, _CHAINED, 480, "float64"),
}
_MMA: Mapping[str, Arithmetic] = {
    "fp64_tensor": Arithmetic("mma.cu", 512, _FP64_TENSOR, 3840, "float64"),
    "tf32": _mma(8),
    "bf16": _mma(16),
    "fp16": _mma(16),
}
_WGMMA: Mapping[str, Arithmetic] = {"tf32": _wgmma(8), "bf16": _wgmma(16), "fp16": _wgmma(16), "fp8": _wgmma(32)}
_HOPPER = "sm_90"
_NO_TENSOR_CORES = {"sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_75"}
"""Architectures without the instructions of ``mma.cu``."""
_NO_FP8 = {"sm_80", "sm_86", "sm_87", "sm_88", "sm_100", "sm_103", "sm_110"}
"""Architectures whose tensor cores multiply no FP8, or not by the instruction of ``mma.cu``."""


def specs(device: DeviceInfo) -> tuple[CaseSpec, ...]:
    """Return the cases that measure the peaks of a GPU's arithmetic and L2 cache.

    There are none for the CPU device, and for a device that does not report the size of its L2 cache, as the fake
    device does not.
    """
    if device.kind == "cpu" or not device.l2_bytes:
        return ()
    kernels = arithmetic(device.target)
    return (*(_compute(name, kernel, kernels, device) for name, kernel in kernels.items()), _l2(device))


def arithmetic(target: str) -> dict[str, Arithmetic]:
    """Return the kernels that measure an architecture's peaks, by the name of the peak.

    Hopper's tensor cores reach their full rate only with their own instructions. Later tensor cores have newer
    instructions again. Our kernels use the older ones there, so the peak may be lower than what the GPU can compute.
    """
    if target in _NO_TENSOR_CORES:
        return dict(_SCALAR)
    if target == _HOPPER:
        return {**_SCALAR, **_MMA, **_WGMMA}
    fp8 = {} if target in _NO_FP8 else {"fp8": _mma(32)}
    return {**_SCALAR, **_MMA, **fp8}


def _compute(name: str, kernel: Arithmetic, kernels: Mapping[str, Arithmetic], device: DeviceInfo) -> CaseSpec:
    """Return the case of a kernel that computes; all kernels of a file are compiled together."""
    entries = tuple(_entry(other) for other, its in kernels.items() if its.source == kernel.source)
    options = ("-gencode=arch=compute_90a,code=sm_90a",) if kernel.source == "wgmma.cu" else ()
    blocks = max(device.multiprocessors, 1)
    args = (BufferArg("sink"), ScalarArg("rounds", "int32", kernel.rounds))
    return _spec(
        name,
        Unit(_source(kernel.source), entries, options=options),
        (Buffer(Array("sink", kernel.dtype, (1,)), Role.SCRATCH),),
        Launch(0, _entry(name), (blocks, 1, 1), (kernel.threads, 1, 1), args),
        Work(flops=blocks * kernel.rounds * kernel.flops),
    )


def _l2(device: DeviceInfo) -> CaseSpec:
    """Return the case that reads a buffer that stays in the L2 cache."""
    most = max(device.l2_bytes // L2_SHARE // L2_TILE_BYTES, 1)
    tiles = 1 << (most.bit_length() - 1)  # a power of two
    blocks = 2 * max(device.multiprocessors, 1)
    args = (
        BufferArg("sink"),
        BufferArg("from"),
        ScalarArg("tiles", "int32", tiles),
        ScalarArg("rounds", "int32", L2_ROUNDS),
    )
    source = Array("from", "uint32", (tiles * L2_TILE_BYTES // 4,))
    return _spec(
        "l2",
        Unit(_source("l2.cu"), (_entry("l2"),)),
        (Buffer(Array("sink", "uint32", (1,)), Role.SCRATCH), Buffer(source, Role.SCRATCH)),
        Launch(0, _entry("l2"), (blocks, 1, 1), (1024, 1, 1), args),
        Work(blocks * L2_ROUNDS * L2_TILES_PER_ROUND * L2_TILE_BYTES),
    )


def _entry(name: str) -> str:
    return f"perfsvc_peak_{name}"


def _source(name: str) -> Path:
    return Path(__file__).with_name(name)


def _spec(name: str, unit: Unit, buffers: tuple[Buffer, ...], launch: Launch, work: Work) -> CaseSpec:
    """Return the case of one launch that needs no input."""
    return CaseSpec(
        case=Case(BENCHMARK, name, version=OURS),
        kind=Kind.KERNEL,
        cache=CacheState.WARM,
        requires=(),
        units=(unit,),
        buffers=buffers,
        steps=(launch,),
        work=work,
        tolerance=Tolerance(max=0.0, mean=0.0),
        bench=unit.source,
        bench_text="",
        seed=0,
    )
