"""Compare the measured peaks of a GPU with cuBLAS, with theory and with another read of the L2 cache.

    python tests/benchmarks/peaks.py [--device cuda:0] [--turns 3] [--only bf16 fp32] [--json FILE]

Measures each peak as ``perfsvc run`` does, and in turns with it the best that cuBLAS makes of a product of 8192 x 8192
matrices of random numbers (PyTorch), both by perfsvc's sampler on the same stream. Prints the rates, their ratio, the
clock and the power during both, and the share of what the multiprocessors can do at that clock. Needs PyTorch.
"""

import contextlib
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from workbench import Claim, alone_on, code_of, finish, parsed, table

from perfsvc import build
from perfsvc.build import Cache
from perfsvc.device import memory
from perfsvc.device.find import find, open_device
from perfsvc.device.protocol import Device
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.measure.worker.sampling.sampler import Samples, take_samples
from perfsvc.model import BufferArg, CacheState, DeviceInfo, Launch, ScalarArg, Unit, digest
from perfsvc.service.peaks import kernels
from perfsvc.suite import CaseSpec

N = 8192
CLOSE = 2.0
"""Per cent by which a peak may differ from its reference."""
FLOPS_A_CYCLE = {
    "9.0": {"fp32": 256, "fp64": 128, "fp64_tensor": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192},
    "8.0": {"fp32": 128, "fp64": 64, "fp64_tensor": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048},
}
"""Operations of a multiprocessor in a cycle, by compute capability (NVIDIA's white papers)."""
L2_READS = Unit(Path(__file__).with_name("l2_reads.cu"), ("l2_reads",))
L2_THREADS, L2_BLOCKS_AT_ONCE, L2_UNDER_WAY, L2_ROUNDS = 256, 8, 4, 2048


@dataclass(frozen=True)
class Rate:
    """Units of work a second, with the clock and the power during the samples; the medians of all turns."""

    rate: float
    clock_hz: float
    power_w: float
    slowdowns: tuple[str, ...]
    seconds: float
    samples: int

    def __str__(self) -> str:
        slowed = f" ({', '.join(self.slowdowns)})" if self.slowdowns else ""
        return (
            f"{self.rate / 1e12:8.2f} T/s  {self.clock_hz / 1e6:5.0f} MHz  {self.power_w:4.0f} W  "
            f"{self.samples} samples of {self.seconds * 1e3:.3f} ms{slowed}"
        )


def main() -> int:
    """Measure every peak and its reference."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one GPU"),
        ("--turns", 3, "how often each is measured"),
        ("--only", {"nargs": "*", "default": []}, "only these peaks"),
    )
    (info,) = find([options.device])
    if info.kind != "cuda":
        sys.exit("--device: only a GPU has measured peaks")
    print(f"{info.model}, driver {info.driver}, power limit {info.power_limit_w:g} W", flush=True)
    specs = [spec for spec in kernels.specs(info) if not options.only or spec.case.variant in options.only]
    ours = memory.unit("cuda")
    assert ours is not None
    units = {unit for spec in specs for unit in spec.units}
    built = build.compile_all({*units, ours, L2_READS}, build.toolchain_for(info.target), Cache())
    problems: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    with alone_on(info), contextlib.closing(open_device(info.spec, code_of(built[ours]))) as device:
        for spec in specs:
            name = spec.case.variant
            with reported(name, problems):
                found[name] = compare(device, spec, built, options.turns, problems)
    return report(info, found, problems, options.json)


@contextlib.contextmanager
def reported(what: str, problems: list[str]) -> Iterator[None]:
    """Print an error and go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a failed kernel must not stop the others
        traceback.print_exc()
        problems.append(f"{what}: {type(error).__name__}: {error}")
        print(problems[-1], flush=True)


# --- measuring -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def prepared(device: Device, spec: CaseSpec, built: Any) -> Iterator[Callable[[], None]]:
    """Yield a function that queues one launch of a peak's kernel."""
    modules = [code_of(built[unit]) for unit in spec.units]
    record = spec.record([digest(module) for module in modules], digest(b""))
    with device.measuring(record, 0), CaseMemory(device, record.buffers) as memory:
        program = Program(device, record, modules, memory, {})
        memory.reset(lambda name, address: None)
        program.run()
        yield program.queue


def measured(device: Device, sample: Callable[[], None], work: float) -> Rate:
    """Return the rate of a sample that does some work, as the sampler of perfsvc measures it."""
    taken = take_samples(device, sample, kernels.SAMPLING, clock="device", cache=CacheState.WARM, operations=None)
    return rate_of(taken, work)


def rate_of(taken: Samples, work: float) -> Rate:
    """Return the rate of samples that do some work each."""
    conditions = [batch.conditions for batch in taken.batches]
    return Rate(
        work / taken.median_s,
        median(reading.sm_clock_hz for reading in conditions),
        median(reading.power_w for reading in conditions),
        tuple(sorted({str(slowdown) for reading in conditions for slowdown in reading.slowdowns})),
        taken.median_s,
        len(taken.seconds),
    )


def median(values: Any) -> float:
    """Return the median of the known values; NaN if all are unknown."""
    return statistics.median([value for value in values if value is not None] or [float("nan")])


def compare(device: Device, spec: CaseSpec, built: Any, turns: int, problems: list[str]) -> dict[str, Any]:
    """Measure a peak and its reference in turns; return both, or only the peak if the reference fails."""
    name, info = spec.case.variant, device.info
    ours: list[Rate] = []
    theirs: list[Rate] = []
    with contextlib.ExitStack() as stack:
        sample = stack.enter_context(prepared(device, spec, built))
        reference, work = None, 0.0
        with reported(f"reference of {name}", problems):
            if name == "l2":
                reference, work = stack.enter_context(l2_reads(device, built))
            elif name != "fp64":
                reference, work = stack.enter_context(cublas(device, name))
        for _ in range(turns):
            ours.append(measured(device, sample, spec.work.flops or spec.work.bytes))
            print(f"{name:12} ours       {ours[-1]}  {share_of_theory(info, name, ours[-1])}", flush=True)
            if reference:
                with reported(f"reference of {name}", problems):
                    theirs.append(measured(device, reference, work))
                    print(f"{name:12} reference  {theirs[-1]}  {share_of_theory(info, name, theirs[-1])}", flush=True)
    return {"ours": ours, "reference": theirs}


def share_of_theory(info: DeviceInfo, name: str, rate: Rate) -> str:
    """Return a rate as a share of the operations of all multiprocessors at the clock that was measured."""
    share = theory(info, name, rate)
    return "" if share is None else f"{share:.2%} of theory"


def theory(info: DeviceInfo, name: str, rate: Rate) -> float | None:
    """Return the share as a number; None if the theory is unknown."""
    flops = FLOPS_A_CYCLE.get(info.compute_capability, {}).get(name)
    return rate.rate / (flops * info.multiprocessors * rate.clock_hz) if flops else None


@contextlib.contextmanager
def l2_reads(device: Device, built: Any) -> Iterator[tuple[Callable[[], None], float]]:
    """Yield a launch of ``l2_reads.cu`` on a quarter of the L2 cache, and the bytes that it reads."""
    tile, blocks = L2_THREADS * 16, L2_BLOCKS_AT_ONCE * device.info.multiprocessors
    tiles = device.info.l2_bytes // 4 // tile
    address, sink = device.allocate(tiles * tile), device.allocate(8)
    device.fill(address, tiles * tile, 0)
    module = device.load(code_of(built[L2_READS]))
    scalars = ScalarArg("tiles", "int32", tiles), ScalarArg("rounds", "int32", L2_ROUNDS)
    launch = Launch(0, "l2_reads", (blocks, 1, 1), (L2_THREADS, 1, 1), (BufferArg("sink"), BufferArg("from"), *scalars))
    values = (np.uint64(sink), np.uint64(address), np.int32(tiles), np.int32(L2_ROUNDS))
    yield lambda: device.launch(module, launch, values), float(blocks * L2_ROUNDS * L2_UNDER_WAY * tile)
    device.free(sink)
    device.free(address)


@contextlib.contextmanager
def cublas(device: Any, name: str) -> Iterator[tuple[Callable[[], None], float]]:
    """Yield a product of random matrices by cuBLAS on the device's stream, and its operations."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    dtype = {
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp64_tensor": torch.float64,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp8": torch.float32,
    }[name]
    a, b = (torch.randn(N, N, device="cuda", dtype=dtype) for _ in range(2))
    stream = torch.cuda.ExternalStream(device.stream)
    if name == "fp8":
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")

        def multiply() -> None:
            torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    else:
        out = torch.empty(N, N, device="cuda", dtype=dtype)

        def multiply() -> None:
            torch.matmul(a, b.t(), out=out)

    def sample() -> None:
        with torch.cuda.stream(stream):
            multiply()

    torch.cuda.synchronize()
    for _ in range(3):
        sample()
    device.synchronize()
    yield sample, 2.0 * N**3
    device.synchronize()
    torch.cuda.empty_cache()


# --- results ---------------------------------------------------------------------------------------------------------


def report(info: DeviceInfo, found: dict[str, dict[str, Any]], problems: list[str], path: Path | None) -> int:
    """Print the table and the claims; return the exit status."""
    rows, claims, results = [], [], []
    for name, sides in found.items():
        ours, reference = middle(sides["ours"]), middle(sides["reference"])
        share = ours and theory(info, name, ours)
        ratio = ours.rate / reference.rate if ours and reference else None
        cells = ["" if value is None else f"{100 * value:.1f} %" for value in (ratio, share)]
        rows.append([name, *shown(ours), *shown(reference), *cells])
        differences = [abs(value - 1) for value in (ratio, share) if value is not None]
        claims.append(
            Claim(
                f"{name}: difference from the reference or from theory at the measured clock, the smaller one",
                100 * min(differences) if differences else None,
                CLOSE,
                " %",
            )
        )
        rates = {side: [asdict(rate) for rate in rates] for side, rates in sides.items()}
        results.append({"peak": name, "ratio": ratio, "share_of_theory": share, **rates})
    columns = ("peak", "ours T/s", "MHz", "W", "reference T/s", "MHz", "W", "ratio", "of theory")
    print("\n" + table(columns, rows) + "\n")
    return finish(
        claims,
        path,
        device=info.model,
        driver=info.driver,
        power_limit_w=info.power_limit_w,
        peaks=results,
        problems=problems,
    )


def middle(rates: Sequence[Rate]) -> Rate | None:
    """Return the turn with the median rate; None if there are none."""
    return sorted(rates, key=lambda turn: turn.rate)[len(rates) // 2] if rates else None


def shown(rate: Rate | None) -> list[str]:
    """Return the cells of a rate: terabytes or teraflops a second, clock and power."""
    if rate is None:
        return ["", "", ""]
    return [f"{rate.rate / 1e12:.2f}", f"{rate.clock_hz / 1e6:.0f}", f"{rate.power_w:.0f}"]


if __name__ == "__main__":
    sys.exit(main())
