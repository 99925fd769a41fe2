"""The instructions of a launch with what was counted at each, and which of them carry a reason.

Nsight Compute counts some metrics at each instruction. A report names an instruction by its address, and its source
line only if the binary was built with ``-lineinfo``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import PureWindowsPath
from typing import Any

from perfsvc.model import HotLine, Instruction, Profile, SourceLine
from perfsvc.model import ReasonKind as Kind
from perfsvc.profile.metrics import STALLS
from perfsvc.profile.waits import (
    FOR_TENSOR,
    WAITED,
    Belongs,
    is_atomic,
    is_branch,
    is_fp64,
    is_indexed_constant,
    is_special,
    with_waits,
)

_SHAPES: Mapping[str, int] = {
    "884": 8 * 8 * 4,
    "1684": 16 * 8 * 4,
    "1688": 16 * 8 * 8,
    "16816": 16 * 8 * 16,
    "16832": 16 * 8 * 32,
}
"""The multiplications of an instruction whose shape is written without separators."""
_OPCODE = re.compile(r"(?P<kind>[DHQ]G?MMA)\.(?:(?P<shape>\d+)|(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+))(?P<types>(?:\.\w+)*)")
_OTHER_KINDS = ("IMMA", "BMMA", "IGMMA", "BGMMA")
"""Instructions of the tensor cores that multiply integers and bits."""
_WARPS_OF_GROUP = 4
"""The warps that execute an instruction of a warpgroup (``HGMMA``) together; each counts as one execution."""


def tensor_flops(instructions: Sequence[Instruction]) -> dict[str, float]:
    """Return the operations of a launch's tensor cores by the name of the peak: ``bf16``, ``fp64_tensor``.

    A multiplication with its addition counts as two. A precision without operations has zero. The result is empty if
    the executions of the instructions were not counted, or if an instruction of the tensor cores is not known.

    Args:
        instructions: the instructions of the launch, with how often warps executed each.
    """
    executed = [instruction for instruction in instructions if "instructions" in instruction.counts]
    flops = dict.fromkeys(("fp64_tensor", "tf32", "bf16", "fp16", "fp8"), 0.0)
    for instruction in executed:
        kind, _, modifiers = instruction.opcode.partition(".")
        if not kind.endswith("MMA") or kind in _OTHER_KINDS or modifiers == "MMA":  # HFMA2.MMA is an addition
            continue
        match = _OPCODE.fullmatch(instruction.opcode)
        products = _products(match) if match else None
        if match is None or products is None:
            return {}
        warps = _WARPS_OF_GROUP if "G" in match["kind"] else 1
        flops[_precision(match)] += 2 * products * instruction.counts["instructions"] / warps
    return flops if executed else {}


def _products(match: re.Match[str]) -> int | None:
    """Return the multiplications of an instruction; None if its shape is not known."""
    if match["shape"]:
        return _SHAPES.get(match["shape"])
    return int(match["m"]) * int(match["n"]) * int(match["k"])


def _precision(match: re.Match[str]) -> str:
    """Return the name of the peak of an instruction: the type of its operands is the last one, or FP16."""
    types = match["types"].split(".")
    if match["kind"] == "DMMA":
        return "fp64_tensor"
    if match["kind"].startswith("Q"):
        return "fp8"
    return {"TF32": "tf32", "BF16": "bf16"}.get(types[-1], "fp16")


_SAMPLED = {"no_instruction": "no_instructions", "gmma": "warpgroup_arrive"}
"""Stalls whose samples have another name than their cycles."""

COUNTS: Mapping[str, str] = {
    "instructions": "inst_executed",
    "thread_instructions": "thread_inst_executed",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "global_excess_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "shared_excess_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
} | {f"stall_{stall}_samples": f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED.get(stall, stall)}" for stall in STALLS}
"""What is counted at each instruction: perfsvc's names, and Nsight Compute's names."""

_FUNCTIONS = "launch__function_pcs"
_WARP = 32
_LOCAL = ("LDL", "STL")

MOST_LINES = 3
"""How many lines of a side are shown for a reason."""
MIN_SHARE = 0.05
"""A line with a smaller share of what was counted is not shown."""


def read_instructions(action: Any, names: frozenset[str]) -> tuple[Instruction, ...]:
    """Return the instructions of a launch at which something was counted, in the order of their addresses.

    Args:
        action: the launch, as ``ncu_report`` reads it.
        names: the names of its metrics.
    """
    counts: dict[int, dict[str, float]] = {}
    for name, source in COUNTS.items():
        if source in names:
            for address, value in _values(action.metric_by_name(source)):
                counts.setdefault(address, {})[name] = value
    if not counts:
        return ()
    functions = action.metric_by_name(_FUNCTIONS) if _FUNCTIONS in names else None
    starts = [functions.value(index) for index in range(functions.num_instances())] if functions else []
    start = min((start for start in starts if isinstance(start, int)), default=min(counts))
    instructions = [
        Instruction(address - start, _text(action, address), of_address, _source(action, address))
        for address, of_address in sorted(counts.items())
        if address >= start
    ]
    return tuple(with_waits(instructions))


def _values(metric: Any) -> list[tuple[int, float]]:
    """Return the values above zero of a metric by the address of their instruction."""
    ids = metric.correlation_ids() if metric.has_correlation_ids() else None
    if ids is None or ids.num_instances() != metric.num_instances():
        return []
    values = [(ids.value(index), metric.value(index)) for index in range(metric.num_instances())]
    return [
        (address, float(value))
        for address, value in values
        if isinstance(address, int) and isinstance(value, int | float) and isfinite(value) and value > 0
    ]


def _text(action: Any, address: int) -> str:
    return " ".join((action.sass_by_pc(address) or "").split())


def _source(action: Any, address: int) -> SourceLine | None:
    """Return the source line that a report has for an instruction, without the folder of the file."""
    info = action.source_info(address)
    return SourceLine(PureWindowsPath(info.file_name()).name, info.line()) if info and info.file_name() else None


# --- which instructions carry a reason -------------------------------------------------------------------------------

Count = Callable[[Instruction], float]


def _of(name: str) -> Count:
    return lambda instruction: instruction.counts.get(name, 0.0)


def _inactive_threads(instruction: Instruction) -> float:
    counts = instruction.counts
    return max(_WARP * counts.get("instructions", 0.0) - counts.get("thread_instructions", 0.0), 0.0)


def _local(instruction: Instruction) -> float:
    is_local = instruction.opcode.partition(".")[0] in _LOCAL
    return instruction.counts.get("instructions", 0.0) if is_local else 0.0


def _where(name: str, belongs: Belongs) -> Count:
    return lambda instruction: instruction.counts.get(name, 0.0) if belongs(instruction) else 0.0


_WAITING = "samples of warps that wait for it"
CARRIERS: Mapping[Kind, tuple[str, Count]] = {
    Kind.TENSOR: ("instructions", _of("instructions")),
    Kind.SPILLS: ("accesses to local memory", _local),
    Kind.ATOMICS: (_WAITING, _where(WAITED, is_atomic)),
    Kind.BANK_CONFLICTS: ("excess passes", _of("shared_excess_wavefronts")),
    Kind.UNCOALESCED: ("excess sectors", _of("global_excess_sectors")),
    Kind.CONSTANTS: (_WAITING, _where(WAITED, is_indexed_constant)),
    Kind.FP64: (_WAITING, _where(WAITED, is_fp64)),
    Kind.SPECIAL: (_WAITING, _where(WAITED, is_special)),
    Kind.DIVERGENCE: ("inactive threads", _inactive_threads),
    Kind.BARRIERS: ("samples of warps that wait there", _of("stall_barrier_samples")),
    Kind.TENSOR_WAIT: (_WAITING, _of(FOR_TENSOR)),
    Kind.UNROLLING: ("branches", _where("instructions", is_branch)),
    Kind.INSTRUCTION_CACHE: ("samples of warps that wait for instructions", _of("stall_no_instruction_samples")),
    Kind.HIT_RATE: ("sectors of global memory", _of("global_sectors")),
    Kind.TRAFFIC: ("sectors of global memory", _of("global_sectors")),
    Kind.INSTRUCTIONS: ("instructions", _of("instructions")),
}
"""What shows where a reason is: its name, and the function that returns it for an instruction.

The reasons that concern the whole launch (occupancy, tail, a small launch, clocks) are at no instruction.
"""


def carriers(kind: Kind, evidence: Sequence[str]) -> tuple[str, Count] | None:
    """Return what shows where a reason is; None if the reason concerns the whole launch.

    Args:
        kind: the reason.
        evidence: the metrics behind it; for longer stalls, the first is that of the stall.
    """
    if kind is Kind.STALLS and evidence:
        stall = evidence[0].removeprefix("stall_").removesuffix("_cycles")
        return f"samples of this stall ({stall})", _of(f"stall_{stall}_samples")
    return CARRIERS.get(kind)


def hot_lines(profile: Profile, count: Count) -> tuple[HotLine, ...]:
    """Return the lines with the largest share of what a function counts at the instructions of a profile.

    Instructions without a known source line are grouped by their opcode.
    """
    groups: dict[SourceLine | str, list[Instruction]] = {}
    for instruction in profile.instructions:
        if count(instruction):
            groups.setdefault(instruction.source or instruction.opcode, []).append(instruction)
    counted = {key: sum(map(count, group)) for key, group in groups.items()}
    total = sum(counted.values())
    largest = sorted(counted, key=lambda key: -counted[key])[:MOST_LINES]
    return tuple(
        HotLine(
            counted[key] / total,
            max(groups[key], key=count).text,
            len(groups[key]),
            key if isinstance(key, SourceLine) else None,
        )
        for key in largest
        if counted[key] / total >= MIN_SHARE
    )
