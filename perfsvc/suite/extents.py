"""Integers, shapes and launch geometry from what the author wrote, at one point."""

import math
import operator
from collections.abc import Mapping
from typing import Any

from perfsvc.model import Dim3, Value
from perfsvc.suite.functions import evaluate, line_of
from perfsvc.suite.problem import Problem

THREADS_PER_BLOCK = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""The same on every GPU that CUDA supports."""


def integer(value: object, what: str, line: int) -> int:
    """A Python integer from an integer of any kind."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type] # asking is the test
        except TypeError:
            pass  # said below, with the cure
    raise Problem(f"{what} is {value!r}", line, "make it an integer (// divides integers, ceil_div rounds up)")


def shape_of(written: object, values: Mapping[str, Value], name: str, line: int) -> tuple[int, ...]:
    """The shape of an output or scratch array: positive integers."""
    what = f"shape of {name!r}"
    shape = _integers(evaluate(written, values, what, line), what, _line(written, line))
    if not shape or min(shape) < 1:
        raise Problem(f"{what} is {shape}{_at(values)}", _line(written, line), "give it at least one element")
    return shape


def grid_of(written: object, values: Mapping[str, Value], what: str, line: int) -> Dim3:
    """The blocks of a launch in three dimensions."""
    return _dim3(written, values, what, line, GRID_LIMITS)


def block_of(written: object, values: Mapping[str, Value], what: str, line: int) -> Dim3:
    """The threads of a block in three dimensions."""
    block = _dim3(written, values, what, line, BLOCK_LIMITS)
    if math.prod(block) > THREADS_PER_BLOCK:
        raise Problem(
            f"{what} has {math.prod(block)} threads{_at(values)}",
            _line(written, line),
            f"no GPU runs more than {THREADS_PER_BLOCK} in a block",
        )
    return block


def _dim3(written: object, values: Mapping[str, Value], what: str, line: int, limits: Dim3) -> Dim3:
    sizes = _integers(evaluate(written, values, what, line), what, _line(written, line))
    if not 1 <= len(sizes) <= len(limits):
        raise Problem(f"{what} has {len(sizes)} dimensions", _line(written, line), "give it one, two or three")
    x, y, z = sizes + (1,) * (len(limits) - len(sizes))
    if any(not 1 <= size <= limit for size, limit in zip((x, y, z), limits, strict=True)):
        raise Problem(
            f"{what} is {x, y, z}{_at(values)}",
            _line(written, line),
            f"keep each dimension between 1 and its limit {limits}",
        )
    return x, y, z


def _integers(value: Any, what: str, line: int) -> tuple[int, ...]:
    sizes = value if isinstance(value, tuple | list) else (value,)
    return tuple(integer(size, what, line) for size in sizes)


def _line(written: object, line: int) -> int:
    return line_of(written, line) if callable(written) else line


def _at(values: Mapping[str, Value]) -> str:
    return f" at {', '.join(f'{name}={value}' for name, value in values.items())}" if values else ""
