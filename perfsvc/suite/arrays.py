"""The inputs of a point and the results that the reference says they have.

Arrays are handed on as the author's functions made them, contiguous or not: whoever lays them out copies them anyway.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import Array
from perfsvc.suite.authoring import Benchmark, Function, Output
from perfsvc.suite.benchfile import BenchFile
from perfsvc.suite.expansion import reference_of
from perfsvc.suite.extents import shape_of
from perfsvc.suite.functions import invoke, line_of
from perfsvc.suite.points import Point
from perfsvc.suite.problem import Problem

Arrays = dict[str, NDArray[Any]]

NUMBERS = "biufc"
"""The kinds of NumPy dtypes that a buffer can have."""


def seed_of(benchmark: str, version: int, point: Point) -> int:
    """The seed of a point's inputs: the same on every night and machine, and for all variants."""
    text = "\n".join([benchmark, str(version), *(f"{axis}={value}" for axis, value in sorted(point))])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1  # databases count to 2**63 - 1


def replay_arrays(file: BenchFile, point: Point, seed: int, variant: str = "") -> tuple[Arrays, Arrays]:
    """The inputs and expected results of any benchmark file at any point, as from a record of an earlier night.

    Args:
        file: the benchmark.
        point: where on the axes.
        seed: of the inputs.
        variant: by its full name, where it may have a reference of its own.

    Raises:
        SuiteError: its functions failed or made something else than they declare.
    """
    try:
        inputs = make_inputs(file.benchmark, point, seed)
        return inputs, make_expected(file.benchmark, point, inputs, reference_of(file.benchmark, variant))
    except Problem as problem:
        raise problem.at(file.path) from problem


def replay_inputs(file: BenchFile, point: Point, seed: int) -> Arrays:
    """The inputs of ``replay_arrays`` alone, for who does not look at results; raises ``SuiteError`` likewise."""
    try:
        return make_inputs(file.benchmark, point, seed)
    except Problem as problem:
        raise problem.at(file.path) from problem


def shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Arrays without their elements."""
    return {name: Array(name, array.dtype.name, array.shape) for name, array in arrays.items()}


def make_inputs(benchmark: Benchmark, point: Point, seed: int) -> Arrays:
    """The inputs at a point; raises ``Problem`` where they are no arrays by name."""
    if benchmark.inputs is None:
        return {}
    line = line_of(benchmark.inputs, benchmark.line)
    rng = np.random.Generator(np.random.PCG64(seed))
    made = invoke(benchmark.inputs, dict(point), "inputs", benchmark.line, rng)
    if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
        raise Problem(f"inputs returned {_said(made)}", line, 'return a dict of arrays: {"a": ...}')
    for name, array in made.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in NUMBERS:
            raise Problem(f"input {name!r} is {_said(array)}", line, "make it a NumPy array of numbers")
        if array.size == 0 or array.ndim == 0:
            raise Problem(f"input {name!r} has the shape {array.shape}", line, "give it at least one element")
        if name in benchmark.outputs:
            _require_same(name, array, benchmark, point)
    return dict(made)


def _require_same(name: str, array: NDArray[Any], benchmark: Benchmark, point: Point) -> None:
    declared = benchmark.outputs[name]
    shape = shape_of(declared.shape, dict(point), name, benchmark.line)
    if (array.dtype, array.shape) != (np.dtype(declared.dtype), shape):
        raise Problem(
            f"{name!r} is {array.dtype}{list(array.shape)} as an input and {declared.dtype}{list(shape)} as an output",
            benchmark.line,
            "what is changed in place has one dtype and shape",
        )


def make_expected(
    benchmark: Benchmark, point: Point, inputs: Mapping[str, NDArray[Any]], reference: Function | None
) -> Arrays:
    """The results at a point by a reference; raises ``Problem`` where they are not what the outputs declare."""
    if reference is None:
        return {}
    line = line_of(reference, benchmark.line)
    names = {**dict(point), **{name: _in_float64(array) for name, array in inputs.items()}}
    made = invoke(reference, names, "reference", benchmark.line)
    if not isinstance(made, Mapping) and len(benchmark.outputs) == 1:
        made = dict.fromkeys(benchmark.outputs, made)
    if not isinstance(made, Mapping) or set(made) != set(benchmark.outputs):
        got = ", ".join(map(str, made)) if isinstance(made, Mapping) else _said(made)
        raise Problem(
            f"reference returned {got}, the outputs are {', '.join(benchmark.outputs)}",
            line,
            'return a dict with one array for each output: {"c": ...}',
        )
    return {
        name: _expected(name, made[name], declared, shape_of(declared.shape, dict(point), name, benchmark.line), line)
        for name, declared in benchmark.outputs.items()
    }


def _expected(name: str, made: object, declared: Output, shape: tuple[int, ...], line: int) -> NDArray[Any]:
    array = np.asarray(made)
    if array.dtype.kind not in NUMBERS:
        raise Problem(f"reference of {name!r} is {_said(made)}", line, "return an array of numbers")
    if array.ndim == 0 and np.prod(shape) == 1:
        array = array.reshape(shape)
    if array.shape != shape:
        raise Problem(
            f"reference of {name!r} has the shape {array.shape}, the output is declared as {shape}",
            line,
            "make the two agree",
        )
    if array.dtype.kind in "fc":
        _require_precision(name, array, line)
    elif np.dtype(declared.dtype).kind in "fc":
        array = array.astype(np.float64)
    return array


def _require_precision(name: str, array: NDArray[Any], line: int) -> None:
    if array.dtype.name not in {"float64", "complex128"}:
        raise Problem(
            f"reference of {name!r} is {array.dtype.name}: no more precise than what it is to judge",
            line,
            "compute it in float64; floating inputs are handed over in float64 already",
        )


def _in_float64(array: NDArray[Any]) -> NDArray[Any]:
    precise = {"f": np.float64, "c": np.complex128}.get(array.dtype.kind)
    # A copy in any case: a reference that works in place must not change what the variants are given.
    return array.astype(precise) if precise else array.copy()


def _said(value: object) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__} {value!r:.60}"
