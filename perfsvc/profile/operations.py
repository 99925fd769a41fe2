"""Floating-point operations of a launch, and what the device could do: numbers made of several of a report's.

Source: Nsight Compute's Profiling Guide, "Roofline Charts": a fused multiply-add counts as two operations; the work is
operations a cycle times the clock, the ceilings are the peaks a cycle times the clock that the launch ran at.
"""

import re
from collections.abc import Callable, Iterable, Mapping

Raw = Callable[[str], float | None]
"""A number of the report by Nsight Compute's name, in its base unit."""

PRECISIONS = {"fp32": "f", "fp64": "d"}
_CLOCK = (
    "smsp__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
    "gpc__cycles_elapsed.avg.per_second",
)
_TENSOR = re.compile(r"(sm__ops_path_tensor_op_\w+_src_(?:bf16|fp16|tf32|fp64|fp8)\w*)\.sum")
_BITS_PER_BYTE, _EDGES = 8, 2  # memory moves data on both edges of its clock

OPERATIONS: Mapping[str, str] = {
    "fp32_flops": "operations in single precision",
    "fp64_flops": "operations in double precision",
    "tensor_flops": "floating-point operations of the tensor cores",
    "fp32_peak_flops_per_s": "of the device at the launch's clock",
    "fp64_peak_flops_per_s": "of the device at the launch's clock",
    "tensor_peak_flops_per_s": "of the device at the launch's clock, in the precision that was used",
    "dram_peak_bytes_per_s": "of the device's memory",
}
"""The metrics that are made here, and what each means."""


def operations(raw: Raw, names: Iterable[str]) -> dict[str, float | None]:
    """The metrics of ``OPERATIONS``, None where the report lacks a number that one is made of.

    Args:
        raw: the report's numbers.
        names: of all that it has.
    """
    duration, clock = raw("gpu__time_duration.sum"), _first(raw, _CLOCK)
    done = {f"{name}_flops": _product(_per_cycle(raw, letter), clock, duration) for name, letter in PRECISIONS.items()}
    peaks = {f"{name}_peak_flops_per_s": _product(_peak(raw, letter), clock) for name, letter in PRECISIONS.items()}
    tensor, tensor_peak = _tensor(raw, names)
    return {
        **done,
        "tensor_flops": tensor,
        **peaks,
        "tensor_peak_flops_per_s": tensor_peak,
        "dram_peak_bytes_per_s": _dram_peak(raw),
    }


def _per_cycle(raw: Raw, letter: str) -> float | None:
    """Operations a cycle of all multiprocessors; a predicated-off thread does none."""
    parts = {
        kind: raw(f"smsp__sass_thread_inst_executed_op_{letter}{kind}_pred_on.sum.per_cycle_elapsed")
        for kind in ("add", "mul", "fma")
    }
    known = [part * (2 if kind == "fma" else 1) for kind, part in parts.items() if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _peak(raw: Raw, letter: str) -> float | None:
    """The most operations a cycle."""
    doubled = raw(f"derived__sm__sass_thread_inst_executed_op_{letter}fma_pred_on_x2")
    if doubled is not None:
        return doubled
    return _product(2.0, raw(f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained"))


def _tensor(raw: Raw, names: Iterable[str]) -> tuple[float | None, float | None]:
    """The operations of the tensor cores in all precisions, and the highest peak of those that were used."""
    counted = {found[1]: raw(found[0]) for name in names if (found := _TENSOR.fullmatch(name))}
    known = {name: value for name, value in counted.items() if value is not None}
    peaks = [raw(f"{name}.sum.peak_sustained_elapsed.per_second") for name, value in known.items() if value]
    return (sum(known.values()) if known else None), max((peak for peak in peaks if peak), default=None)


def _dram_peak(raw: Raw) -> float | None:
    measured = _product(raw("dram__bytes.sum.peak_sustained"), raw("dram__cycles_elapsed.avg.per_second"))
    if measured is not None:
        return measured
    kilohertz, bits = raw("device__attribute_memory_clock_rate"), raw("device__attribute_fb_bus_width")
    return _product(kilohertz, bits, 1000.0 * _EDGES / _BITS_PER_BYTE)


def _first(raw: Raw, names: Iterable[str]) -> float | None:
    return next((value for name in names if (value := raw(name)) is not None), None)


def _product(*factors: float | None) -> float | None:
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product
