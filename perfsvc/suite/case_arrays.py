"""What a case is measured with: its inputs and reference, and others for the check after timing."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import Array, Role
from perfsvc.suite.arrays import Arrays, make_expected, make_inputs, seed_of, shapes
from perfsvc.suite.benchfile import BenchFile, load_again
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.expansion import reference_of
from perfsvc.suite.inputs import Inputs
from perfsvc.suite.points import smoke_point
from perfsvc.suite.problem import Problem

SMALL_RESULT_BYTES = 1 << 20
"""A result below this size may stay the same by chance or by its nature, so its fresh reference is computed."""
SMALL_CASE_BYTES = 16 << 20
"""Inputs and results together below this size: the fresh reference costs nothing worth saving."""
COMPARED_AT_ONCE = 1 << 16
"""Elements, of two arrays that are compared: those that differ mostly do so in the first few."""


def make_arrays(spec: CaseSpec, inputs: Inputs | None = None) -> tuple[Arrays, Arrays]:
    """The inputs and expected results of a case, by name; all variants with the same reference share them.

    Args:
        spec: the case.
        inputs: may hold its inputs already, and then gives them away.

    Raises:
        SuiteError: the benchmark's functions failed or made something else than they declare.
    """
    file = load_again(spec.bench, spec.bench_text)
    with _reporting(file):
        kept = inputs.take(spec) if inputs else None
        made = make_inputs(file.benchmark, spec.case.point, spec.seed) if kept is None else kept
        if problem := _differs_from_resolved(spec, made, file):
            if inputs:
                inputs.mistook(spec)
            raise problem
        return made, _expected(file, spec, made)


def make_fresh(spec: CaseSpec, first: Callable[[], Mapping[str, NDArray[Any]]]) -> tuple[Arrays, Arrays]:
    """Other inputs for the check after timing, and the results expected of them, by name; shared alike.

    They are made from another seed, derived from the case's. The reference is computed where the result or the whole
    case is small, and where some output has the same reference for both seeds at the smoke point. Elsewhere no results
    are handed out: there it is enough that every output changes, which spares the host the largest references.

    There is nothing fresh, neither inputs nor results, where nothing is checked (no outputs), and where the inputs of
    the other seed cannot show anything: they are the same, or do not fit the buffers.

    Args:
        spec: the case.
        first: gives its inputs from its own seed, and may wait until somebody has made them.

    Raises:
        SuiteError: the benchmark's functions failed or made something else than they declare.
    """
    file = load_again(spec.bench, spec.bench_text)
    if not file.benchmark.outputs:
        return {}, {}
    with _reporting(file):
        inputs = make_inputs(file.benchmark, spec.case.point, fresh_seed(spec.seed))
        known = first()
        if shapes(inputs) != shapes(known) or all(_same(inputs[name], known[name]) for name in known):
            return {}, {}
        if not _is_small(spec, inputs) and _every_output_changes(file, spec):
            return inputs, {}
        return inputs, _expected(file, spec, inputs)


def fresh_seed(seed: int) -> int:
    """The seed of the fresh inputs of a case that has this one."""
    return int.from_bytes(hashlib.sha256(f"fresh\n{seed}".encode()).digest()[:8], "big") >> 1


def _expected(file: BenchFile, spec: CaseSpec, inputs: Arrays) -> Arrays:
    return make_expected(file.benchmark, spec.case.point, inputs, reference_of(file.benchmark, spec.case.variant))


@contextlib.contextmanager
def _reporting(file: BenchFile) -> Iterator[None]:
    """Reports what goes wrong in the block as a fault of the file, which costs its cases alone."""
    try:
        yield
    except Problem as problem:
        raise problem.at(file.path) from problem
    except MemoryError as error:
        raise Problem(
            "its arrays do not fit into this machine's memory", file.benchmark.line, "give it smaller points"
        ).at(file.path) from error


def _differs_from_resolved(spec: CaseSpec, inputs: Arrays, file: BenchFile) -> Problem | None:
    made = shapes(inputs)
    for buffer in spec.buffers:
        if buffer.role in {Role.INPUT, Role.INOUT} and made.get(buffer.array.name) != buffer.array:
            return Problem(
                f"inputs made {buffer.array.name!r} of another shape or dtype than before",
                file.benchmark.line,
                "let inputs depend on rng and the axes alone; if a package that they use has changed, run again",
            )
    return None


def _is_small(spec: CaseSpec, inputs: Arrays) -> bool:
    outputs = [buffer.array for buffer in spec.buffers if buffer.role in {Role.OUTPUT, Role.INOUT}]
    result = sum(map(_bytes, outputs))
    return result < SMALL_RESULT_BYTES or result + sum(array.nbytes for array in inputs.values()) < SMALL_CASE_BYTES


def _bytes(array: Array) -> int:
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _every_output_changes(file: BenchFile, spec: CaseSpec) -> bool:
    """Whether other inputs give other results, as far as the reference at the smoke point shows it."""
    benchmark, point = file.benchmark, smoke_point(file.benchmark)
    seed, reference = seed_of(file.name, benchmark.version, point), reference_of(benchmark, spec.case.variant)
    first, other = (
        make_expected(benchmark, point, make_inputs(benchmark, point, each), reference)
        for each in (seed, fresh_seed(seed))
    )
    return not any(
        np.array_equal(first[name].astype(output.dtype), other[name].astype(output.dtype), equal_nan=True)
        for name, output in benchmark.outputs.items()
    )


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of one shape hold the same; what is not a number is the same as its like."""
    rows = max(1, COMPARED_AT_ONCE * len(one) // one.size)
    return all(
        np.array_equal(one[row : row + rows], other[row : row + rows], equal_nan=True)
        for row in range(0, len(one), rows)
    )
