"""What the warps of a launch spend their time on, from samples and the instructions at which they were taken.

A sample says at which instruction a warp was, and why that instruction was not issued. A warp that waits for data is at
the instruction that needs the data. The time belongs to the instruction that fetches the data, so its samples are
moved there: to the last instruction before that writes a register which the waiting instruction reads.

Source: Nsight Compute's Profiling Guide, "Statistical Sampler" and "Warp Scheduler States".
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from perfsvc.build.disassembly import INSTRUCTION_BYTES, class_of
from perfsvc.model import Instruction

WAITED, FOR_TENSOR = "waited_samples", "tensor_waited_samples"
"""Samples of warps that waited for an instruction, or to issue it; those of tensor instructions among them."""

_ON_DATA = ("stall_long_scoreboard_samples", "stall_short_scoreboard_samples")
_ON_STORES = "stall_drain_samples"
_AT_BARRIER = "stall_barrier_samples"
_SAMPLES = re.compile(r"stall_\w+_samples")

_REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+)(\.64)?\b")
_TO_MEMORY = ("ST", "STG", "RED", "REDG")
_PREDICATE = re.compile(r"!?U?P(T|\d)")
_NOTHING = ("RZ", "URZ")
_TESTS = {"ISETP", "UISETP", "FSETP", "DSETP", "HSETP2", "PSETP", "PLOP3", "UPLOP3", "R2P"}
_STEPS = {"BAR", "MEMBAR", "BRA", "BRX", "BSSY", "BSYNC", "CALL", "RET", "EXIT", "NANOSLEEP", "WARPSYNC"}
_WITHOUT_RESULT = {*_TO_MEMORY, "STS", "STSM", "STL", "REDAS", *_TESTS, *_STEPS}
_FIXED = ("float32", "float16", "integer", "control", "barrier")
"""Classes whose results come after a fixed time."""
_WIDTHS = {".64": 2, ".96": 3, ".128": 4, ".256": 8}
_TENSOR, _TENSOR_REGISTERS = "tensor", 4
_FARTHEST = 512
"""How many instructions before the waiting one are searched."""


def with_waits(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Return instructions with ``WAITED``, and with samples of waiting for a barrier at the barrier.

    A warp that waits at a barrier is seen some instructions after it, so the samples belong to the last barrier before.

    Args:
        instructions: the instructions of a kernel with their samples by stall, in the order of their addresses.
    """
    counts = [dict(instruction.counts) for instruction in instructions]
    opcodes = [instruction.opcode for instruction in instructions]
    writes = [
        _registers_written(instruction, opcode) for instruction, opcode in zip(instructions, opcodes, strict=True)
    ]
    _move_to_barriers(counts, opcodes)
    waited: list[dict[str, float]] = [{} for _ in instructions]
    last_store: int | None = None
    for index, of_instruction in enumerate(counts):
        if _bare(opcodes[index]) in _TO_MEMORY:
            last_store = index
        for name, samples in of_instruction.items():
            if not _SAMPLES.fullmatch(name):
                continue
            cause = index
            if name in _ON_DATA:
                cause = _producer(index, _registers_read(instructions[index], opcodes[index]), writes, opcodes)
            elif name == _ON_STORES and last_store is not None:
                cause = last_store
            waited[cause][WAITED] = waited[cause].get(WAITED, 0.0) + samples
            if name in _ON_DATA and class_of(opcodes[index]) == _TENSOR:
                waited[cause][FOR_TENSOR] = waited[cause].get(FOR_TENSOR, 0.0) + samples
    return [
        replace(instruction, counts=of_instruction | of_waits)
        for instruction, of_instruction, of_waits in zip(instructions, counts, waited, strict=True)
    ]


def _move_to_barriers(counts: Sequence[dict[str, float]], opcodes: Sequence[str]) -> None:
    """Move the samples of waiting for a barrier to the last barrier before."""
    barrier: int | None = None
    for index, opcode in enumerate(opcodes):
        if opcode.startswith("BAR."):
            barrier = index
        elif barrier is not None and (samples := counts[index].pop(_AT_BARRIER, 0.0)):
            counts[barrier][_AT_BARRIER] = counts[barrier].get(_AT_BARRIER, 0.0) + samples


def _bare(opcode: str) -> str:
    """Return an opcode without its modifiers: ``STG`` for ``STG.E``."""
    return opcode.partition(".")[0]


def _producer(index: int, reads: set[str], writes: Sequence[set[str]], opcodes: Sequence[str]) -> int:
    """Return the instruction whose result an instruction waits for; the instruction itself if it is not found.

    A loop may need a result of its pass before, so the search goes on from the last instruction.
    """
    missing = set(reads)
    before = range(index - 1, max(index - _FARTHEST, -1), -1)
    behind = range(len(opcodes) - 1, max(index, len(opcodes) - _FARTHEST), -1)
    for candidate in chain(before, behind):
        if not missing:
            break
        written = writes[candidate] & missing
        if written and not _is_fixed(opcodes[candidate]):
            return candidate
        missing -= written
    return index


def _operands(instruction: Instruction, opcode: str) -> list[str]:
    """Return the operands of an instruction: ``R7`` and ``desc[UR4][R2.64]`` for ``LDG.E R7, desc[UR4][R2.64]``."""
    operands = instruction.text.partition(opcode)[2] if opcode else ""
    return [operand.strip() for operand in operands.split(",")] if operands.strip() else []


def _result(operands: Sequence[str], opcode: str) -> int | None:
    """Return which operand is an instruction's result: the first that is no predicate; None if it has no result."""
    if _bare(opcode) in _WITHOUT_RESULT:
        return None
    first = next((at for at, text in enumerate(operands) if not _PREDICATE.fullmatch(text)), None)
    is_register = first is not None and (operands[first] in _NOTHING or _REGISTER.fullmatch(operands[first]))
    return first if is_register else None


def _registers_written(instruction: Instruction, opcode: str) -> set[str]:
    """Return the registers that an instruction writes."""
    operands = _operands(instruction, opcode)
    result = _result(operands, opcode)
    match = _REGISTER.fullmatch(operands[result]) if result is not None else None
    return _named(match, _width(opcode, written=True)) if match else set()


def _registers_read(instruction: Instruction, opcode: str) -> set[str]:
    """Return the registers that an instruction reads: those of all operands but its result."""
    operands = _operands(instruction, opcode)
    result = _result(operands, opcode)
    text = ", ".join(operand for at, operand in enumerate(operands) if at != result)
    width = _width(opcode, written=False)
    return {register for match in _REGISTER.finditer(text) for register in _named(match, width)}


@lru_cache(4096)
def _is_fixed(opcode: str) -> bool:
    """Return True if the result of an instruction comes after a fixed time, so that no scoreboard waits for it."""
    return class_of(opcode) in _FIXED


@lru_cache(4096)
def _width(opcode: str, *, written: bool) -> int:
    """Return how many registers a register operand of an instruction names the first of."""
    kind = class_of(opcode)
    if kind == _TENSOR or opcode.startswith("LDSM"):
        return _TENSOR_REGISTERS
    if kind == "float64" or (written and opcode.startswith(("F2F.F64", "IMAD.WIDE"))):
        return 2
    return next((width for suffix, width in _WIDTHS.items() if suffix in opcode), 1)


def _named(match: re.Match[str], width: int) -> set[str]:
    """Return the names of the registers that an operand stands for: ``R4`` and ``R5`` for ``R4.64``."""
    kind, first = match[1], int(match[2])
    return {f"{kind}{number}" for number in range(first, first + max(width, 2 if match[3] else 1))}


# --- metrics of the instructions -------------------------------------------------------------------------------------

Belongs = Callable[[Instruction], bool]


def is_global_atomic(instruction: Instruction) -> bool:
    """Return True for an atomic operation on global memory."""
    return _bare(instruction.opcode) in {"ATOM", "ATOMG", "RED", "REDG"}


def is_shared_atomic(instruction: Instruction) -> bool:
    """Return True for an atomic operation on shared memory."""
    return _bare(instruction.opcode) in {"ATOMS", "REDAS"}


def is_atomic(instruction: Instruction) -> bool:
    """Return True for an atomic operation on global or shared memory."""
    return is_global_atomic(instruction) or is_shared_atomic(instruction)


def is_fp64(instruction: Instruction) -> bool:
    """Return True for arithmetic in double precision, and for conversions from and to it."""
    opcode = instruction.opcode
    kind = class_of(opcode)
    return (
        kind == "float64"
        or (kind == "conversion" and ".F64" in opcode)
        or (opcode.startswith("MUFU") and "64H" in opcode)
    )


def is_special(instruction: Instruction) -> bool:
    """Return True for a special function in single precision, such as a sine, an exponential or a root."""
    return class_of(instruction.opcode) == "special" and not is_fp64(instruction)


def is_indexed_constant(instruction: Instruction) -> bool:
    """Return True for a load from constant memory whose threads may have different addresses."""
    opcode = instruction.opcode
    return _bare(opcode) == "LDC" and re.search(r"\[R\d", instruction.text) is not None


def is_barrier(instruction: Instruction) -> bool:
    """Return True for a barrier of a block."""
    return instruction.opcode.startswith("BAR.")


def is_branch(instruction: Instruction) -> bool:
    """Return True for a branch."""
    return _bare(instruction.opcode) in {"BRA", "BRX", "JMP"}


def is_payload(instruction: Instruction) -> bool:
    """Return True for an instruction that accesses memory or computes with floating-point numbers."""
    return class_of(instruction.opcode) in _PAYLOAD and _ZERO not in instruction.text


_ZERO = "-RZ, RZ"  # of HFMA2.MMA, which compilers use to set a register


_PAYLOAD = ("global", "shared", "local", "tensor", "texture", "float64", "float32", "float16", "special")

EXECUTED: Mapping[str, tuple[str, Belongs]] = {
    "global_atomics": ("atomic operations on global memory", is_global_atomic),
    "shared_atomics": ("atomic operations on shared memory", is_shared_atomic),
    "fp64_instructions": ("instructions in double precision, with conversions", is_fp64),
    "special_instructions": ("special functions, such as sines and roots", is_special),
    "indexed_constant_loads": ("loads from constant memory at a computed address", is_indexed_constant),
    "barriers": ("barriers of blocks", is_barrier),
    "branches": ("branches", is_branch),
    "payload_instructions": ("instructions that access memory or compute with floating-point numbers", is_payload),
}
"""Metrics that count executed instructions, one per warp: their meaning, and which instructions count."""

TIMES: Mapping[str, tuple[str, str, Belongs]] = {
    "atomics_time": ("waiting for atomic operations", WAITED, is_atomic),
    "fp64_time": ("computing in double precision", WAITED, is_fp64),
    "special_time": ("waiting for special functions", WAITED, is_special),
    "constants_time": ("waiting for constants at a computed address", WAITED, is_indexed_constant),
    "tensor_operands_time": (
        "waiting for shared memory with an instruction of the tensor cores",
        FOR_TENSOR,
        lambda instruction: class_of(instruction.opcode) == "shared",
    ),
}
"""Metrics that are shares of the time of all warps: their meaning, what counts, and for which instructions."""

CODE = "code_bytes"

MEANINGS: Mapping[str, str] = {
    **{name: meaning for name, (meaning, _) in EXECUTED.items()},
    **{name: f"of the warps' time, {meaning}" for name, (meaning, *_) in TIMES.items()},
    CODE: "instructions that were executed at least once",
}
"""The metrics that are computed from a report's instructions, and their meanings."""


def instruction_metrics(instructions: Sequence[Instruction]) -> dict[str, float | None]:
    """Return the metrics of ``MEANINGS``; None if nothing was counted or sampled at the instructions."""
    executed = [instruction for instruction in instructions if instruction.counts.get("instructions")]
    samples = sum(instruction.counts.get(WAITED, 0.0) for instruction in instructions)
    metrics: dict[str, float | None] = dict.fromkeys(MEANINGS)
    if executed:
        metrics |= {name: _sum("instructions", belongs, executed) for name, (_, belongs) in EXECUTED.items()}
        metrics[CODE] = float(INSTRUCTION_BYTES * len(executed))
    if samples:
        metrics |= {name: _sum(count, belongs, instructions) / samples for name, (_, count, belongs) in TIMES.items()}
    return metrics


def _sum(count: str, belongs: Belongs, instructions: Iterable[Instruction]) -> float:
    return sum((each.counts.get(count, 0.0) for each in instructions if belongs(each)), 0.0)
