"""Evaluate what the author wrote at one point: functions, integers, shapes and launch geometry.

The author's functions are called by the names of their own parameters. Whatever goes wrong becomes a ``Problem`` with
the line of the benchmark file that is at fault.
"""

import difflib
import inspect
import math
import operator
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsvc.errors import SuiteError
from perfsvc.model import Dim3, Value
from perfsvc.suite.authoring import Function

THREADS_PER_BLOCK = 1024
BLOCKS_PER_CLUSTER = 16
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""The same on every GPU that CUDA supports."""
_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


class Problem(Exception):  # noqa: N818 - raised and collected alike; outside this package it is a SuiteError
    """Something wrong at a line of a benchmark file whose path is not known yet.

    Args:
        what: what is wrong, as a sentence without its full stop.
        line: the line, 1-based; 0 if no single line is at fault.
        cure: what to change.
    """

    def __init__(self, what: str, line: int, cure: str) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.cure = cure

    def at(self, path: Path) -> SuiteError:
        """Return the problem as the error that perfsvc reports."""
        return SuiteError(self.what, path=str(path), line=self.line, cure=self.cure)


# --- the author's functions ------------------------------------------------------------------------------------------


def evaluate(value: object, names: Mapping[str, object], what: str, line: int) -> Any:
    """Return a value, or its result if it is a function of some ``names``; error messages call the value ``what``."""
    return invoke(value, names, what, line) if callable(value) else value


def invoke(function: Function, names: Mapping[str, object], what: str, line: int, *first: object) -> Any:
    """Call an author's function with its parameters looked up by name, and return its result.

    Args:
        function: the function.
        names: the value of each name that its parameters may have.
        what: what the function is, for messages.
        line: the line to report if the function has none.
        first: arguments that are passed by position, before the named ones.

    Raises:
        Problem: the function has an unknown parameter or raises; the problem holds the line that raised.
    """
    for problem in unknown_names(function, names, what, line, skip=len(first)):
        raise problem
    arguments = {name: names[name] for name in _requested(function, names)[len(first) :] if name in names}
    try:
        return function(*first, **arguments)
    except (Exception, SystemExit) as error:
        code = getattr(inspect.unwrap(function), "__code__", None)
        raise Problem(
            f"{what} raised {type(error).__name__}: {error}{_where(names)}",
            (last_line_in(code.co_filename, error) if code else 0) or line_of(function, line),
            "correct the function",
        ) from error


def unknown_names(
    function: Function, known: Collection[str], what: str, line: int, *, skip: int = 0
) -> Iterator[Problem]:
    """Yield a problem for each parameter of a function, after the first ``skip``, that is not a known name."""
    try:
        parameters = _parameters(function)[skip:]
    except (TypeError, ValueError):
        yield Problem(f"{what} has parameters whose names cannot be read", line, "wrap it in a lambda")
        return
    for parameter in parameters:
        if parameter.kind in _NAMED and parameter.default is parameter.empty and parameter.name not in known:
            yield Problem(
                f"{what} asks for {parameter.name!r}, which is no known name",
                line_of(function, line),
                nearest(parameter.name, known),
            )


def filled_in(text: str, values: Mapping[str, Value], variant: str, line: int) -> str:
    """Return a text with the value of each axis or parameter in braces; raise ``Problem`` if it cannot be filled."""
    what = f"variant {variant!r}: {text!r}"
    try:
        return text.format_map(values)
    except KeyError as error:
        name = str(error.args[0])
        raise Problem(f"{what} asks for {name!r}, which is no known name", line, nearest(name, values)) from error
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise Problem(f"{what} cannot be filled: {error}", line, "write {n} for an axis, and {{ for a brace") from error


def nearest(name: str, known: Collection[str]) -> str:
    """Return the cure for an unknown name: the most similar known name, or else all known names."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known names: {', '.join(known)}" if known else "there are no names to ask for"


def line_of(function: Function, default: int) -> int:
    """Return the line that a function starts at, or the default if it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code else default


def last_line_in(filename: str, error: BaseException) -> int:
    """Return the deepest line of a file in an error's traceback; 0 if the file is not in the traceback."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == filename]
    return lines[-1] if lines else 0


def _parameters(function: Function) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def _requested(function: Function, names: Collection[str]) -> list[str]:
    """Return the names that a function asks for: its parameters, and all other names if it takes ``**keywords``."""
    parameters = _parameters(function)
    requested = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return requested + [name for name in names if name not in requested]
    return requested


def _where(names: Mapping[str, object]) -> str:
    values = [f"{name}={value}" for name, value in names.items() if isinstance(value, int | float | str)]
    return f" (at {', '.join(values)})" if values else ""


# --- integers, shapes and launch geometry ----------------------------------------------------------------------------


def integer(value: object, what: str, line: int) -> int:
    """Return an integer of any type (NumPy's too) as a Python integer; raises ``Problem`` for anything else."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type] # the call is the test
        except TypeError:
            pass  # reported below, with the cure
    raise Problem(f"{what} is {value!r}", line, "make it an integer (// divides integers, ceil_div rounds up)")


def shape_of(written: object, values: Mapping[str, Value], name: str, line: int) -> tuple[int, ...]:
    """Return the shape of an output or scratch array: positive integers."""
    what = f"shape of {name!r}"
    shape = _integers(evaluate(written, values, what, line), what, _line(written, line))
    if not shape or min(shape) < 1:
        raise Problem(f"{what} is {shape}{_at(values)}", _line(written, line), "give it at least one element")
    return shape


def grid_of(written: object, values: Mapping[str, Value], what: str, line: int) -> Dim3:
    """Return the grid of a launch: its blocks in three dimensions."""
    return _dim3(written, values, what, line, GRID_LIMITS)


def block_of(written: object, values: Mapping[str, Value], what: str, line: int) -> Dim3:
    """Return the size of a block: its threads in three dimensions."""
    block = _dim3(written, values, what, line, BLOCK_LIMITS)
    if math.prod(block) > THREADS_PER_BLOCK:
        raise Problem(
            f"{what} has {math.prod(block)} threads{_at(values)}",
            _line(written, line),
            f"no GPU runs more than {THREADS_PER_BLOCK} in a block",
        )
    return block


def cluster_of(written: object, grid: Dim3, values: Mapping[str, Value], what: str, line: int) -> Dim3 | None:
    """Return the blocks of a cluster in three dimensions; None if the launch has no clusters."""
    if written is None:
        return None
    cluster = _dim3(written, values, what, line, (BLOCKS_PER_CLUSTER,) * 3)
    if math.prod(cluster) > BLOCKS_PER_CLUSTER:
        raise Problem(
            f"{what} has {math.prod(cluster)} blocks{_at(values)}",
            _line(written, line),
            f"no GPU runs more than {BLOCKS_PER_CLUSTER} in a cluster",
        )
    if any(blocks % size for blocks, size in zip(grid, cluster, strict=True)):
        raise Problem(
            f"{what} is {cluster}, and the grid is {grid}{_at(values)}",
            _line(written, line),
            "make each dimension of the grid a multiple of the cluster's",
        )
    return cluster


def _dim3(written: object, values: Mapping[str, Value], what: str, line: int, limits: Dim3) -> Dim3:
    """Return sizes in three dimensions; a missing size is 1. Raise ``Problem`` if a size exceeds its limit."""
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
