"""``tensor_map`` arguments: what the hardware asks of them, said to the author before anything runs."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfsvc.model import Array, Launch, Step, TensorMapArg, Value
from perfsvc.suite.authoring import Argument, TensorMap
from perfsvc.suite.extents import integer
from perfsvc.suite.functions import evaluate, nearest
from perfsvc.suite.problem import Problem

NEEDS = "sm_90"
"""The first architecture that has tensor maps."""
ELEMENTS: Mapping[str, str] = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "uint16",
    "tfloat32": "float32",
}
"""What the elements of a tensor map can be, and the dtype of the array that they lie in."""
FIELDS = ("box", "swizzle")
SWIZZLES = (0, 32, 64, 128)
_LONGEST_EDGE = 256
_PIECE = 16
_DIMENSIONS = 2
"""Limits of cuTensorMapEncodeTiled (CUDA driver API): edges of a box, and the bytes that it moves in one piece."""


def problems_of_tensor_maps(args: Sequence[Argument], line: int) -> Iterator[Problem]:
    """What is wrong with a launch's tensor maps whatever the point."""
    for arg in args:
        if isinstance(arg, TensorMap) and arg.element and arg.element not in ELEMENTS:
            yield Problem(
                f"the tensor map of {arg.buffer!r} has the element {arg.element!r}",
                line,
                nearest(arg.element, ELEMENTS),
            )


def functions_of_tensor_maps(args: Sequence[Argument]) -> dict[str, object]:
    """The fields of a launch's tensor maps that may be functions, by what they are called in problems."""
    maps = [arg for arg in args if isinstance(arg, TensorMap)]
    return {f"{field} of the tensor map of {arg.buffer!r},": getattr(arg, field) for arg in maps for field in FIELDS}


def tensor_map_arg(written: TensorMap, array: Array, values: Mapping[str, Value], line: int) -> TensorMapArg:
    """A tensor map of an array at one point; raises ``Problem`` where no GPU can have it whatever the array's size."""
    what = f"the tensor map of {array.name!r}"
    if len(array.shape) != _DIMENSIONS:
        raise Problem(
            f"{what}, which is {array.dtype}{list(array.shape)}", line, "name a matrix: an array of two dimensions"
        )
    element = written.element or array.dtype
    if ELEMENTS.get(element) != array.dtype:
        raise Problem(
            f"{what} has the element {element!r} and the array is {array.dtype}",
            line,
            f"{element} lies in arrays of {ELEMENTS[element]}" if element in ELEMENTS else f"use {', '.join(ELEMENTS)}",
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


def requirements_of_tensor_maps(steps: Sequence[Step]) -> tuple[str, ...]:
    """What steps require of a device if they have tensor maps, in the author's words."""
    return (NEEDS,) if any(_maps_of(steps)) else ()


def unfit_for_tensor_maps(steps: Sequence[Step]) -> str:
    """Why a matrix is not of a size that a tensor map can have; empty where all are."""
    for arg in _maps_of(steps):
        pitch = arg.shape[1] * _size(arg)
        if pitch % _PIECE:
            return f"a tensor map requires rows of a multiple of {_PIECE} bytes: those of {arg.buffer!r} have {pitch}"
    return ""


def _maps_of(steps: Sequence[Step]) -> tuple[TensorMapArg, ...]:
    launches = [step for step in steps if isinstance(step, Launch)]
    return tuple(arg for step in launches for arg in step.args if isinstance(arg, TensorMapArg))


def _size(arg: TensorMapArg) -> int:
    return np.dtype(ELEMENTS[arg.element]).itemsize


def _box(written: TensorMap, values: Mapping[str, Value], what: str, line: int) -> tuple[int, int]:
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
    if arg.swizzle not in SWIZZLES:
        raise Problem(f"swizzle of {what} is {arg.swizzle}", line, f"use one of {', '.join(map(str, SWIZZLES))} bytes")
    width = arg.box[1] * _size(arg)
    if width % _PIECE:
        raise Problem(f"a row of the box of {what} has {width} bytes", line, f"make it a multiple of {_PIECE} bytes")
    if arg.swizzle and width > arg.swizzle:
        raise Problem(
            f"a row of the box of {what} has {width} bytes, and the swizzle {arg.swizzle}",
            line,
            "fetch several narrower boxes, or use a wider swizzle or none",
        )
