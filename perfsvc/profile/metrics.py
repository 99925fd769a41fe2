"""The metrics that a profile holds: our names, and where Nsight Compute has each.

A name of ours ends with its unit. Shares and rates are fractions of one, never per cent. What a chip calls differently
stands as an alternative: GB202 has ``dram__bytes_op_read`` where others have ``dram__bytes_read``. The first that a
report has counts; where it has none, the metric is None.

Source: Nsight Compute's Profiling Guide, "Metrics Structure" and "Metrics Reference"
(https://docs.nvidia.com/nsight-compute/ProfilingGuide/).
"""

from dataclasses import dataclass

SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "LaunchStats",
    "Occupancy",
    "SchedulerStats",
    "WarpStateStats",
    "SourceCounters",
)
"""The sections of Nsight Compute that together count every metric here, and whose rules speak of what we tell apart."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a profile.

    Attributes:
        name: ours.
        sources: Nsight Compute's names, the first that a report has counts.
        meaning: in a few words, as a table's row.
    """

    name: str
    sources: tuple[str, ...]
    meaning: str


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
    _metric("multiprocessors", "how many the device has", "launch__sm_count", "device__attribute_multiprocessor_count"),
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
        "sectors of 32 bytes that the multiprocessors asked the L2 cache for",
        "lts__t_sectors_srcunit_tex.sum",
        "lts__t_sectors.sum",
    ),
    _metric("l2_hit_rate", "share of them that it had", "lts__t_sector_hit_rate.pct"),
    _metric("l1_hit_rate", "share of its sectors that the L1 cache had", "l1tex__t_sector_hit_rate.pct"),
    _metric(
        "global_load_requests",
        "loads from global memory, a warp's as one",
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    ),
    _metric(
        "global_store_requests",
        "stores to global memory, a warp's as one",
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    ),
    _metric("global_load_sectors", "sectors that they took", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    _metric("global_store_sectors", "sectors that they took", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    _metric(
        "global_load_used_bytes_per_sector",
        "bytes of a loaded sector that a thread asked for, of 32",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    ),
    _metric(
        "global_store_used_bytes_per_sector",
        "bytes of a stored sector that a thread wrote, of 32",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    ),
    _metric(
        "local_load_requests",
        "loads from local memory, a warp's as one",
        "smsp__sass_inst_executed_op_local_ld.sum",
        "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    ),
    _metric(
        "local_store_requests",
        "stores to local memory, a warp's as one",
        "smsp__sass_inst_executed_op_local_st.sum",
        "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    ),
    _metric("spill_requests", "of both, those of spilled registers", "derived__local_spilling_requests"),
)

_SHARED = (
    _metric("shared_load_requests", "loads from shared memory", "smsp__sass_inst_executed_op_shared_ld.sum"),
    _metric("shared_store_requests", "stores to shared memory", "smsp__sass_inst_executed_op_shared_st.sum"),
    _metric(
        "shared_load_wavefronts",
        "passes that they took, one each without conflicts",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ),
    _metric(
        "shared_store_wavefronts",
        "passes that they took, one each without conflicts",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ),
    _metric(
        "shared_bank_conflicts",
        "passes more than without conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    ),
)

_LAUNCH = (
    _metric("blocks", "of the grid", "launch__grid_size"),
    _metric("threads_per_block", "of a block", "launch__block_size"),
    _metric("waves", "how often the grid fills the device", "launch__waves_per_multiprocessor"),
    _metric("registers", "of a thread", "launch__registers_per_thread"),
    _metric("shared_static_bytes", "of a block, from its source", "launch__shared_mem_per_block_static"),
    _metric("shared_dynamic_bytes", "of a block, from its launch", "launch__shared_mem_per_block_dynamic"),
    _metric(
        "theoretical_occupancy",
        "warps that fit a multiprocessor, as a share of the most",
        "sm__maximum_warps_per_active_cycle_pct",
    ),
    _metric(
        "achieved_occupancy",
        "warps that it had, as a share of the most",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    _metric("occupancy_limit_registers_blocks", "that its registers hold", "launch__occupancy_limit_registers"),
    _metric("occupancy_limit_shared_blocks", "that its shared memory holds", "launch__occupancy_limit_shared_mem"),
    _metric("occupancy_limit_warps_blocks", "that its warps allow", "launch__occupancy_limit_warps"),
    _metric("occupancy_limit_blocks_blocks", "that it may hold at all", "launch__occupancy_limit_blocks"),
    _metric("occupancy_limit_barriers_blocks", "that its barriers allow", "launch__occupancy_limit_barriers"),
)

_INSTRUCTIONS = (
    _metric("instructions", "executed, a warp's as one", "smsp__inst_executed.sum", "inst_executed"),
    _metric(
        "threads_per_instruction",
        "threads that took part in one, of 32",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
    _metric(
        "divergent_branches",
        "branches at which a warp's threads parted",
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
"""What a warp spends its cycles on, by Nsight Compute's names, and what each means."""

_STALLS = tuple(
    _metric(
        f"stall_{reason}_cycles",
        f"of a warp between two instructions: {meaning}",
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",
    )
    for reason, meaning in STALLS.items()
)

METRICS = (*_TIME, *_THROUGHPUT, *_MEMORY, *_SHARED, *_LAUNCH, *_INSTRUCTIONS, *_STALLS)
"""What is read of a report as it stands; ``roofline.METRICS`` are made of several of its numbers."""
