"""The metrics of a profile: perfsvc's names, Nsight Compute's names for each, and metrics made of several.

A name of perfsvc ends with its unit. Shares and rates are fractions of one, never per cent. Chips that name a metric
differently are listed as alternatives: GB202 has ``dram__bytes_op_read``, others ``dram__bytes_read``. The first
alternative that a report has counts; without any, the metric is None.

Source: Nsight Compute's Profiling Guide, "Metrics Structure" and "Metrics Reference"
(https://docs.nvidia.com/nsight-compute/ProfilingGuide/).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "LaunchStats",
    "Occupancy",
    "WarpStateStats",
    "SourceCounters",
)
"""The sections of Nsight Compute that together count every metric here, and hold the rules that agree with reasons."""

RawMetric = Callable[[str], float | None]
"""Returns a metric of a report by Nsight Compute's name, in its base unit; None if the report lacks it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that is read from a report as it is.

    Attributes:
        name: perfsvc's name.
        sources: Nsight Compute's names; the first that a report has counts.
        meaning: what the metric means, in a few words for a table.
    """

    name: str
    sources: tuple[str, ...]
    meaning: str

    def value(self, raw: RawMetric) -> float | None:
        """Return the metric's value in a report; None if the report has none of its sources."""
        return _first(raw, self.sources)


def _metric(name: str, meaning: str, *sources: str) -> Metric:
    return Metric(name, sources, meaning)


_ELAPSED = "avg.pct_of_peak_sustained_elapsed"

_TIME = (
    _metric("duration_s", "time of the launch", "gpu__time_duration.sum", "gpu__time_duration.avg"),
    _metric(
        "sm_clock_hz",
        "clock of the multiprocessors",
        "gpc__cycles_elapsed.avg.per_second",
        "smsp__cycles_elapsed.avg.per_second",
        "sm__cycles_elapsed.avg.per_second",
    ),
    _metric("dram_clock_hz", "clock of the memory", "dram__cycles_elapsed.avg.per_second"),
    _metric(
        "sm_active_cycles",
        "cycles in which a multiprocessor had a block, on average",
        "sm__cycles_active.avg",
        "smsp__cycles_active.avg",
    ),
    _metric(
        "sm_elapsed_cycles",
        "cycles from the launch's first to its last",
        "gpc__cycles_elapsed.max",
        "sm__cycles_elapsed.max",
    ),
    _metric("multiprocessors", "of the device", "launch__sm_count", "device__attribute_multiprocessor_count"),
)

_THROUGHPUT = (
    _metric("compute_throughput", "of the multiprocessors, as a share of the peak", f"sm__throughput.{_ELAPSED}"),
    _metric(
        "memory_throughput", "of caches and DRAM, as a share of the peak", f"gpu__compute_memory_throughput.{_ELAPSED}"
    ),
    _metric(
        "dram_throughput",
        "of DRAM, as a share of the peak",
        f"gpu__dram_throughput.{_ELAPSED}",
        f"dram__throughput.{_ELAPSED}",
    ),
    _metric("l2_throughput", "of the L2 cache, as a share of the peak", f"lts__throughput.{_ELAPSED}"),
    _metric("l1_throughput", "of the L1 cache, as a share of the peak", f"l1tex__throughput.{_ELAPSED}"),
)

_MEMORY = (
    _metric("dram_read_bytes", "read from DRAM", "dram__bytes_read.sum", "dram__bytes_op_read.sum"),
    _metric("dram_write_bytes", "written to DRAM", "dram__bytes_write.sum", "dram__bytes_op_write.sum"),
    _metric(
        "l2_sectors",
        "sectors of 32 bytes that multiprocessors requested from the L2 cache",
        "lts__t_sectors_srcunit_tex.sum",
        "lts__t_sectors.sum",
    ),
    _metric("l2_read_sectors", "of these sectors, the ones of loads", "lts__t_sectors_srcunit_tex_op_read.sum"),
    _metric("l2_write_sectors", "of these sectors, the ones of stores", "lts__t_sectors_srcunit_tex_op_write.sum"),
    _metric("l2_hit_rate", "share of the L2 cache's sectors that hit", "lts__t_sector_hit_rate.pct"),
    _metric("l1_hit_rate", "share of the L1 cache's sectors that hit", "l1tex__t_sector_hit_rate.pct"),
    _metric(
        "global_load_requests",
        "loads from global memory, one per warp",
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    ),
    _metric(
        "global_store_requests",
        "stores to global memory, one per warp",
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    ),
    _metric(
        "global_load_sectors", "sectors of loads from global memory", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    ),
    _metric(
        "global_store_sectors", "sectors of stores to global memory", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
    ),
    _metric(
        "global_load_used_bytes_per_sector",
        "bytes of a loaded sector that threads requested, of 32",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    ),
    _metric(
        "global_store_used_bytes_per_sector",
        "bytes of a stored sector that threads wrote, of 32",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    ),
    _metric(
        "local_load_requests",
        "loads from local memory, one per warp",
        "smsp__sass_inst_executed_op_local_ld.sum",
        "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    ),
    _metric(
        "local_store_requests",
        "stores to local memory, one per warp",
        "smsp__sass_inst_executed_op_local_st.sum",
        "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    ),
    _metric(
        "local_load_sectors", "sectors of loads from local memory", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
    ),
    _metric(
        "local_store_sectors", "sectors of stores to local memory", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
    ),
    _metric("spill_requests", "loads and stores of spilled registers", "derived__local_spilling_requests"),
)

_SHARED = (
    _metric("shared_load_requests", "loads from shared memory", "smsp__sass_inst_executed_op_shared_ld.sum"),
    _metric("shared_store_requests", "stores to shared memory", "smsp__sass_inst_executed_op_shared_st.sum"),
    _metric(
        "shared_load_wavefronts",
        "passes of loads from shared memory, one each without conflicts",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ),
    _metric(
        "shared_store_wavefronts",
        "passes of stores to shared memory, one each without conflicts",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ),
    _metric(
        "shared_bank_conflicts",
        "additional passes due to conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    ),
)

_LAUNCH = (
    _metric("blocks", "blocks of the grid", "launch__grid_size"),
    _metric("threads_per_block", "threads of a block", "launch__block_size"),
    _metric("waves", "how often the grid fills the device", "launch__waves_per_multiprocessor"),
    _metric("registers", "registers of a thread", "launch__registers_per_thread"),
    _metric(
        "shared_static_bytes", "shared memory of a block, declared in its source", "launch__shared_mem_per_block_static"
    ),
    _metric(
        "shared_dynamic_bytes",
        "shared memory of a block, requested by its launch",
        "launch__shared_mem_per_block_dynamic",
    ),
    _metric(
        "theoretical_occupancy",
        "warps that fit a multiprocessor, as a share of its maximum",
        "sm__maximum_warps_per_active_cycle_pct",
    ),
    _metric(
        "achieved_occupancy",
        "active warps of a multiprocessor, as a share of its maximum",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    _metric("occupancy_limit_registers_blocks", "blocks that fit its registers", "launch__occupancy_limit_registers"),
    _metric("occupancy_limit_shared_blocks", "blocks that fit its shared memory", "launch__occupancy_limit_shared_mem"),
    _metric("occupancy_limit_warps_blocks", "blocks that fit its warps", "launch__occupancy_limit_warps"),
    _metric("occupancy_limit_blocks_blocks", "blocks that it can hold at all", "launch__occupancy_limit_blocks"),
    _metric("occupancy_limit_barriers_blocks", "blocks that fit its barriers", "launch__occupancy_limit_barriers"),
)

_INSTRUCTIONS = (
    _metric("instructions", "executed instructions, one per warp", "smsp__inst_executed.sum", "inst_executed"),
    _metric(
        "threads_per_instruction",
        "threads that took part in an instruction, of 32",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
    _metric(
        "divergent_branches",
        "branches at which the threads of a warp diverged",
        "smsp__sass_branch_targets_threads_divergent.sum",
        "smsp__branch_targets_threads_divergent",
    ),
    _metric(
        "issue_throughput",
        "issued instructions, as a share of the peak",
        f"sm__inst_issued.{_ELAPSED}",
        f"sm__inst_executed.{_ELAPSED}",
    ),
    *(
        _metric(f"{pipe}_throughput", f"of the pipe {pipe.upper()}, as a share of the peak", *sources)
        for pipe, sources in {
            "alu": (f"sm__pipe_alu_cycles_active.{_ELAPSED}", f"sm__inst_executed_pipe_alu.{_ELAPSED}"),
            "fma": (f"sm__pipe_fma_cycles_active.{_ELAPSED}", f"sm__inst_executed_pipe_fma.{_ELAPSED}"),
            "fp64": (f"sm__pipe_fp64_cycles_active.{_ELAPSED}", f"sm__inst_executed_pipe_fp64.{_ELAPSED}"),
            "xu": (f"sm__inst_executed_pipe_xu.{_ELAPSED}",),
            "lsu": (f"sm__inst_executed_pipe_lsu.{_ELAPSED}",),
            "tensor": (
                f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
                f"sm__pipe_tensor_op_hmma_cycles_active.{_ELAPSED}",
                f"sm__inst_executed_pipe_tensor.{_ELAPSED}",
            ),
        }.items()
    ),
)

STALLS = {
    "long_scoreboard": "waiting for data from global or local memory",
    "lg_throttle": "the queue to global and local memory is full",
    "drain": "waiting for stores before the end",
    "tex_throttle": "the queue to the texture unit is full",
    "short_scoreboard": "waiting for data from shared memory",
    "mio_throttle": "the queue to shared memory is full",
    "barrier": "waiting for other warps at a barrier",
    "membar": "waiting at a memory fence",
    "sleeping": "asleep on purpose",
    "gmma": "waiting for the tensor cores",
    "math_pipe_throttle": "the pipe is busy",
    "wait": "waiting a fixed time for a result",
    "dispatch_stall": "the dispatcher is busy",
    "imc_miss": "waiting for a constant",
    "no_instruction": "waiting for instructions",
    "branch_resolving": "waiting for a branch's target",
    "not_selected": "ready, another warp went first",
    "selected": "issued",
}
"""What a warp spends its cycles on: Nsight Compute's names and their meanings."""

_STALLS = tuple(
    _metric(
        f"stall_{reason}_cycles",
        f"of a warp between two instructions: {meaning}",
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",
    )
    for reason, meaning in STALLS.items()
)

_ATOMICS = (
    _metric(
        "atomics_throughput",
        "of the atomic unit in the L2 cache that is busiest, as a share of the peak",
        "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed",
    ),
    _metric(
        "shared_atomic_wavefronts",
        "passes of atomic operations on shared memory",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    ),
    _metric(
        "constants_throughput",
        "of the cache of constants at computed addresses, as a share of the peak",
        f"idc__request_cycles_active.{_ELAPSED}",
    ),
)

METRICS = (*_TIME, *_THROUGHPUT, *_MEMORY, *_SHARED, *_LAUNCH, *_INSTRUCTIONS, *_ATOMICS, *_STALLS)
"""The metrics that are read from a report as they are."""

_PRECISIONS = {"fp32": "f", "fp64": "d"}
_TENSOR_PRECISIONS = ("fp64", "tf32", "bf16", "fp16", "fp8")
_TENSOR_NAMES = {of: "fp64_tensor" if of == "fp64" else of for of in _TENSOR_PRECISIONS}
"""The name of the tensor cores' peak in each precision; the other units compute in ``fp64`` too."""

OPERATIONS: Mapping[str, str] = {
    "fp32_flops": "operations in single precision",
    "fp64_flops": "operations in double precision",
    **{f"{name}_flops": f"operations of the tensor cores in {of.upper()}" for of, name in _TENSOR_NAMES.items()},
    **{
        f"{name}_peak_flops_per_s": "of the device at the launch's clock"
        for name in (*_PRECISIONS, *_TENSOR_NAMES.values())
    },
    "dram_peak_bytes_per_s": "of the device's memory",
}
"""The metrics that are computed from several of a report's, and their meanings."""

_CLOCK = (
    "smsp__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
    "gpc__cycles_elapsed.avg.per_second",
)
_TENSOR = re.compile(rf"(sm__ops_path_tensor_op_\w+_src_({'|'.join(_TENSOR_PRECISIONS)})\w*)\.sum")
_BITS_PER_BYTE, _EDGES = 8, 2  # memory transfers data on both edges of its clock


def operations(raw: RawMetric, names: Iterable[str]) -> dict[str, float | None]:
    """Return the metrics of ``OPERATIONS``; a metric is None if the report lacks what it is computed from.

    A fused multiply-add counts as two operations. The number of operations is operations per
    cycle times clock times duration; a peak is the most operations per cycle times the clock of the launch.

    Args:
        raw: the report's metrics.
        names: the names of all its metrics.

    Source:
        Nsight Compute's Profiling Guide, "Roofline Charts".
    """
    duration, clock = raw("gpu__time_duration.sum"), _first(raw, _CLOCK)
    done = {f"{name}_flops": _product(_per_cycle(raw, code), clock, duration) for name, code in _PRECISIONS.items()}
    peaks = {f"{name}_peak_flops_per_s": _product(_peak(raw, code), clock) for name, code in _PRECISIONS.items()}
    return {**done, **peaks, **_tensor(raw, names), "dram_peak_bytes_per_s": _dram_peak(raw)}


def _per_cycle(raw: RawMetric, code: str) -> float | None:
    """Return the operations per cycle of all multiprocessors together; threads that are predicated off do none."""
    parts = {
        kind: raw(f"smsp__sass_thread_inst_executed_op_{code}{kind}_pred_on.sum.per_cycle_elapsed")
        for kind in ("add", "mul", "fma")
    }
    counted = [part * (2 if kind == "fma" else 1) for kind, part in parts.items() if part is not None]
    return sum(counted) if len(counted) == len(parts) else None


def _peak(raw: RawMetric, code: str) -> float | None:
    """Return the most operations per cycle of all multiprocessors together; a fused multiply-add counts as two.

    Args:
        raw: returns a metric of the report.
        code: the precision as Nsight Compute abbreviates it: ``f`` for single, ``d`` for double, ``h`` for half.
    """
    doubled = raw(f"derived__sm__sass_thread_inst_executed_op_{code}fma_pred_on_x2")
    if doubled is not None:
        return doubled
    return _product(2.0, raw(f"sm__sass_thread_inst_executed_op_{code}fma_pred_on.sum.peak_sustained"))


def _tensor(raw: RawMetric, names: Iterable[str]) -> dict[str, float | None]:
    """Return the operations of the tensor cores in each precision, and the peak of each precision that was used.

    A precision has several counters, for example one for each type of the sums.
    """
    counters: dict[str, dict[str, float]] = {name: {} for name in _TENSOR_NAMES.values()}
    for match in filter(None, map(_TENSOR.fullmatch, names)):
        value = raw(match[0])
        if value is not None:
            counters[_TENSOR_NAMES[match[2]]][match[1]] = value
    metrics: dict[str, float | None] = {}
    for name, counted in counters.items():
        peaks = [raw(f"{counter}.sum.peak_sustained_elapsed.per_second") for counter, value in counted.items() if value]
        metrics[f"{name}_flops"] = sum(counted.values()) if counted else None
        metrics[f"{name}_peak_flops_per_s"] = max((peak for peak in peaks if peak), default=None)
    return metrics


def _dram_peak(raw: RawMetric) -> float | None:
    """Return the peak of DRAM in bytes a second, as counted, or else from its clock and width; None if unknown."""
    measured = _product(raw("dram__bytes.sum.peak_sustained"), raw("dram__cycles_elapsed.avg.per_second"))
    if measured is not None:
        return measured
    kilohertz, bits = raw("device__attribute_memory_clock_rate"), raw("device__attribute_fb_bus_width")
    return _product(kilohertz, bits, 1000.0 * _EDGES / _BITS_PER_BYTE)


def _first(raw: RawMetric, names: Iterable[str]) -> float | None:
    return next((value for name in names if (value := raw(name)) is not None), None)


def _product(*factors: float | None) -> float | None:
    """Return the product of the factors; None if one of them is None."""
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product
