"""What variants and tensor maps require of a device, a point or this Python installation."""

import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from perfsvc.installation import nccl_command, nccl_library
from perfsvc.model import Array, DeviceInfo, Launch, Step, TensorMapArg, Value
from perfsvc.suite.authoring import Argument, TensorMap
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.values import Problem, evaluate, integer, nearest

_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)(a?)")
_PACKAGE = re.compile(r"import +([^\W\d]\w*(\.[^\W\d]\w*)*)")
_DIVISIBLE = re.compile(r"(\w+) *% *(\w+) *== *0")

_HOPPER = "sm_90"
"""The first architecture that has tensor maps."""
ELEMENTS: Mapping[str, str] = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "uint16",
    "tfloat32": "float32",
}
"""The element types of tensor maps, each with the dtype of the array that holds them."""
SWIZZLES = (0, 32, 64, 128)
# Limits of cuTensorMapEncodeTiled (CUDA driver API): the edges of a box, and the bytes that it moves in one piece.
_LONGEST_EDGE = 256
_PIECE = 16
_DIMENSIONS = 2


# --- requires= -------------------------------------------------------------------------------------------------------


def problems_of_requirement(requirement: str, names: Collection[str], line: int) -> Iterator[Problem]:
    """Yield the problems of one requirement, given the names of axes and parameters."""
    if requirement in {"cuda", "nccl"} or _ARCHITECTURE.fullmatch(requirement) or _PACKAGE.fullmatch(requirement):
        return
    divisible = _DIVISIBLE.fullmatch(requirement)
    if divisible is None:
        yield Problem(
            f"requires {requirement!r}, which is not understood",
            line,
            "write cuda, nccl, sm_90 (at least), sm_90a (exactly), n % 4 == 0 or import cupy",
        )
        return
    for term in divisible.groups():
        if not term.isdigit() and term not in names:
            yield Problem(f"requires {requirement!r}, but {term!r} is not known", line, nearest(term, names))
    if divisible[2].isdigit() and int(divisible[2]) == 0:
        yield Problem(f"requires {requirement!r}: nothing is divisible by 0", line, "name another divisor")


def wrong_gpus(spec: CaseSpec, device: DeviceInfo, alike: int = 1) -> str:
    """Return why a device has too few or too many GPUs for a case; empty if their number is right.

    Args:
        spec: the case.
        device: the device.
        alike: how many devices of this model the run has, the device itself included.
    """
    if spec.gpus > device.gpus:
        return f"needs {spec.gpus} GPUs of one model; this run has {alike}"
    return f"needs {spec.gpus} of the {device.gpus} GPUs of this device" if spec.gpus < device.gpus else ""


def unmet(spec: CaseSpec, device: DeviceInfo) -> str:
    """Return why a case cannot run on a device (``requires sm_90: this device is sm_80``); empty if it can.

    The number of GPUs is left to ``wrong_gpus``.
    """
    values = {name: value for unit in spec.units for name, value in unit.defines} | dict(spec.case.point)
    tensor_maps = _tensor_maps_of(spec.steps)
    for requirement in (*spec.requires, *_implied(spec.steps, device)):
        if reason := _unmet(requirement, values, device):
            return f"requires {requirement}: {reason}"
    for arg in tensor_maps:
        pitch = arg.shape[1] * _element_bytes(arg)
        if pitch % _PIECE:
            return f"a tensor map requires rows of a multiple of {_PIECE} bytes: a row of {arg.buffer!r} has {pitch}"
    return ""


def _implied(steps: Sequence[Step], device: DeviceInfo) -> Iterator[str]:
    """Yield what the launches of a case require of a device, although its author did not write it.

    The CPU device runs one launch after the other, so programmatic launches have the same results there.
    """
    launches = [step for step in steps if isinstance(step, Launch)]
    if any(launch.cooperative for launch in launches):
        yield "cuda"
    if (
        _tensor_maps_of(steps)
        or any(launch.cluster for launch in launches)
        or (device.kind == "cuda" and any(launch.programmatic for launch in launches))
    ):
        yield _HOPPER


def exact_architecture(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return nvcc's options that compile only for the required exact architectures (``sm_90a``)."""
    matches = (_ARCHITECTURE.fullmatch(requirement) for requirement in requirements)
    return tuple(
        f"-gencode=arch=compute_{match[1]}{match[2]}a,code={match[0]}" for match in matches if match and match[3]
    )


def _unmet(requirement: str, values: Mapping[str, Value], device: DeviceInfo) -> str:
    """Return why one requirement is not met; empty if it is met. ``values`` are those of axes and parameters."""
    if requirement == "cuda":
        return "this is the CPU device" if device.kind == "cpu" else ""
    if requirement == "nccl":
        return "" if device.kind != "cuda" or nccl_library() else f"NCCL is not installed ({nccl_command()})"
    if architecture := _ARCHITECTURE.fullmatch(requirement):
        return _other_architecture(architecture, device)
    if package := _PACKAGE.fullmatch(requirement):
        return "" if _is_installed(package[1]) else f"the package {package[1]} is not installed"
    return _indivisible(requirement, values)


def _other_architecture(required: re.Match[str], device: DeviceInfo) -> str:
    """Return why a device is not of the required architecture; empty if it is. ``required`` matches ``sm_90a``."""
    if not device.compute_capability:
        return "this is the CPU device" if device.kind == "cpu" else "this device has no compute capability"
    major, minor = (int(part) for part in device.compute_capability.split("."))
    least = (int(required[1]), int(required[2]))
    met = (major, minor) == least if required[3] else (major, minor) >= least
    return "" if met else f"this device is sm_{major}{minor}"


def _is_installed(package: str) -> bool:
    """Return whether a package or submodule is installed, without importing it; its parent packages are imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except Exception:  # noqa: BLE001 - a parent package is missing, or its import failed in any way
        return False


def _indivisible(requirement: str, values: Mapping[str, Value]) -> str:
    """Return the values that break a requirement such as ``n % 4 == 0``; empty if it is met."""
    divisible = _DIVISIBLE.fullmatch(requirement)
    if divisible is None:
        raise ValueError(f"{requirement!r} was never checked")
    dividend, divisor = (int(term) if term.isdigit() else values[term] for term in divisible.groups())
    if isinstance(dividend, int) and isinstance(divisor, int) and divisor and dividend % divisor == 0:
        return ""
    return ", ".join(f"{term} is {values[term]}" for term in divisible.groups() if term in values)


# --- tensor maps -----------------------------------------------------------------------------------------------------


def problems_of_tensor_maps(args: Sequence[Argument], line: int) -> Iterator[Problem]:
    """Yield the problems of a launch's tensor maps that do not depend on the point."""
    for arg in args:
        if isinstance(arg, TensorMap) and arg.element and arg.element not in ELEMENTS:
            yield Problem(
                f"the tensor map of {arg.buffer!r} has the element {arg.element!r}",
                line,
                nearest(arg.element, ELEMENTS),
            )


def tensor_map_arg(written: TensorMap, array: Array, values: Mapping[str, Value], line: int) -> TensorMapArg:
    """Return the tensor map of an array at one point; raises ``Problem`` if no GPU accepts it at any array size."""
    what = f"the tensor map of {array.name!r}"
    if len(array.shape) != _DIMENSIONS:
        raise Problem(
            f"{what}, which is {array.dtype}{list(array.shape)}", line, "name a matrix: an array of two dimensions"
        )
    element = written.element or array.dtype
    if element not in ELEMENTS or array.dtype not in {element, ELEMENTS[element]}:
        raise Problem(
            f"{what} has the element {element!r} and the array is {array.dtype}",
            line,
            f"store it in an array of {ELEMENTS[element]}" if element in ELEMENTS else f"use {', '.join(ELEMENTS)}",
        )
    arg = TensorMapArg(
        buffer=array.name,
        element=element,
        shape=(array.shape[0], array.shape[1]),
        box=_box(written, values, what, line),
        swizzle=integer(evaluate(written.swizzle, values, f"swizzle of {what}", line), f"swizzle of {what}", line),
    )
    _require_possible(arg, what, line)
    return arg


def _tensor_maps_of(steps: Sequence[Step]) -> tuple[TensorMapArg, ...]:
    launches = [step for step in steps if isinstance(step, Launch)]
    return tuple(arg for step in launches for arg in step.args if isinstance(arg, TensorMapArg))


def _element_bytes(arg: TensorMapArg) -> int:
    return np.dtype(ELEMENTS[arg.element]).itemsize


def _box(written: TensorMap, values: Mapping[str, Value], what: str, line: int) -> tuple[int, int]:
    """Return the rows and columns of a tensor map's box; raise ``Problem`` if no GPU accepts them."""
    box = evaluate(written.box, values, f"box of {what}", line)
    if not isinstance(box, tuple | list) or len(box) != _DIMENSIONS:
        raise Problem(f"box of {what} is {box!r}", line, "give it two edges: box=(rows, columns)")
    rows, columns = (integer(edge, f"box of {what}", line) for edge in box)
    if not (1 <= rows <= _LONGEST_EDGE and 1 <= columns <= _LONGEST_EDGE):
        raise Problem(
            f"box of {what} is {rows, columns}", line, f"keep both edges between 1 and {_LONGEST_EDGE} elements"
        )
    return rows, columns


def _require_possible(arg: TensorMapArg, what: str, line: int) -> None:
    """Raise ``Problem`` if no GPU accepts the swizzle, or the swizzle together with the width of the box."""
    if arg.swizzle not in SWIZZLES:
        raise Problem(f"swizzle of {what} is {arg.swizzle}", line, f"use one of {', '.join(map(str, SWIZZLES))} bytes")
    width = arg.box[1] * _element_bytes(arg)
    if width % _PIECE:
        raise Problem(f"a row of the box of {what} has {width} bytes", line, f"make it a multiple of {_PIECE} bytes")
    if arg.swizzle and width > arg.swizzle:
        raise Problem(
            f"a row of the box of {what} has {width} bytes, and the swizzle {arg.swizzle}",
            line,
            "fetch several narrower boxes, or use a wider swizzle or none",
        )
