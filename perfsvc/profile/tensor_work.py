"""The operations of the tensor cores in a launch, from its instructions: an instruction names its shape and its types.

The sections that perfsvc asks Nsight Compute for do not count these operations, which would need further passes.
"""

import re
from collections.abc import Mapping, Sequence

from perfsvc.model import Instruction

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
