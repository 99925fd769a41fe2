"""Make the arrays of cases: inputs, expected results, and fresh inputs for the check after timing.

Arrays keep the memory layout that the author's functions gave them; the copy to a device makes them contiguous.
"""

import contextlib
import hashlib
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.dtypes import is_float, is_number
from perfsvc.files import Folder
from perfsvc.model import Array, Buffer, Part, Role, codec, digest
from perfsvc.suite.authoring import Benchmark, Function, Output
from perfsvc.suite.benchfile import BenchFile, load_again
from perfsvc.suite.case import CaseSpec, arrays_key
from perfsvc.suite.points import Point, reference_of, smoke_point
from perfsvc.suite.values import Problem, invoke, line_of, shape_of

Arrays = dict[str, NDArray[Any]]
Shapes = Mapping[str, Array]

SMALL_RESULT_BYTES = 1 << 20
"""The fresh reference of a smaller result is computed, because the result may be equal for other inputs by chance."""
SMALL_CASE_BYTES = 16 << 20
"""If inputs and results are smaller than this together, the fresh reference costs next to nothing."""
ELEMENTS_COMPARED_AT_ONCE = 1 << 16
"""Arrays are compared in pieces of this size, because different arrays usually differ in the first few elements."""


# --- one point -------------------------------------------------------------------------------------------------------


def seed_of(benchmark: str, version: int, point: Point) -> int:
    """Return the seed of a point's inputs, which is the same in every run, on every machine and for all variants."""
    text = "\n".join([benchmark, str(version), *(f"{axis}={value}" for axis, value in sorted(point))])
    return _as_seed(text)


def fresh_seed(seed: int) -> int:
    """Return the seed of the fresh inputs of a case with this seed."""
    return _as_seed(f"fresh\n{seed}")


def _as_seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1  # databases store at most 2**63 - 1


def shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Return the names, dtypes and shapes of arrays."""
    return {name: Array(name, array.dtype.name, array.shape) for name, array in arrays.items()}


def make_inputs(benchmark: Benchmark, point: Point, seed: int) -> Arrays:
    """Return the inputs at a point; raises ``Problem`` if the author's function fails or returns no arrays by name."""
    if benchmark.inputs is None:
        return {}
    line = line_of(benchmark.inputs, benchmark.line)
    rng = np.random.Generator(np.random.PCG64(seed))
    made = invoke(benchmark.inputs, dict(point), "inputs", benchmark.line, rng)
    if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
        raise Problem(f"inputs returned {_described(made)}", line, 'return a dict of arrays: {"a": ...}')
    for name, array in made.items():
        if not isinstance(array, np.ndarray) or not is_number(array.dtype):
            raise Problem(f"input {name!r} is {_described(array)}", line, "make it a NumPy array of numbers")
        if array.size == 0 or array.ndim == 0:
            raise Problem(f"input {name!r} has the shape {array.shape}", line, "give it at least one element")
        if name in benchmark.outputs:
            _require_same_as_output(name, array, benchmark, point)
    return dict(made)


def _require_same_as_output(name: str, array: NDArray[Any], benchmark: Benchmark, point: Point) -> None:
    """Raise ``Problem`` if an input that is also an output has another dtype or shape than the declared output."""
    declared = benchmark.outputs[name]
    shape = shape_of(declared.shape, dict(point), name, benchmark.line)
    if (array.dtype, array.shape) != (np.dtype(declared.dtype), shape):
        raise Problem(
            f"{name!r} is {array.dtype}{list(array.shape)} as an input and {declared.dtype}{list(shape)} as an output",
            benchmark.line,
            "give both the same dtype and shape: the output is the input, changed in place",
        )


def make_expected(
    benchmark: Benchmark, point: Point, inputs: Mapping[str, NDArray[Any]], reference: Function | None
) -> Arrays:
    """Return the results of a reference at a point; raises ``Problem`` if they do not fit the declared outputs."""
    if reference is None:
        return {}
    line = line_of(reference, benchmark.line)
    names = {**dict(point), **{name: _in_float64(array) for name, array in inputs.items()}}
    made = invoke(reference, names, "reference", benchmark.line)
    if not isinstance(made, Mapping) and len(benchmark.outputs) == 1:
        made = dict.fromkeys(benchmark.outputs, made)
    if not isinstance(made, Mapping) or set(made) != set(benchmark.outputs):
        returned = ", ".join(map(str, made)) if isinstance(made, Mapping) else _described(made)
        raise Problem(
            f"reference returned {returned}, the outputs are {', '.join(benchmark.outputs)}",
            line,
            'return a dict with one array for each output: {"c": ...}',
        )
    return {
        name: _expected(name, made[name], declared, shape_of(declared.shape, dict(point), name, benchmark.line), line)
        for name, declared in benchmark.outputs.items()
    }


def _expected(name: str, made: object, declared: Output, shape: tuple[int, ...], line: int) -> NDArray[Any]:
    """Return the reference of one output as an array of the declared shape; raise ``Problem`` if it does not fit.

    Args:
        name: the name of the output.
        made: what the author's reference returned for this output.
        declared: the declaration of the output.
        shape: the declared shape at the point.
        line: the line of the reference, for the problem.
    """
    array = np.asarray(made)
    if not is_number(array.dtype):
        raise Problem(f"reference of {name!r} is {_described(made)}", line, "return an array of numbers")
    if array.ndim == 0 and np.prod(shape) == 1:
        array = array.reshape(shape)
    if array.shape != shape:
        raise Problem(
            f"reference of {name!r} has the shape {array.shape}, the output is declared as {shape}",
            line,
            "make the two shapes equal",
        )
    if _is_inexact(array.dtype) and array.dtype.name not in {"float64", "complex128"}:
        raise Problem(
            f"reference of {name!r} is {array.dtype.name}: no more precise than the results it is compared with",
            line,
            "compute it in float64; floating inputs arrive in float64 already",
        )
    if not _is_inexact(array.dtype) and _is_inexact(np.dtype(declared.dtype)):
        array = array.astype(np.float64)
    return array


def _is_inexact(dtype: np.dtype[Any]) -> bool:
    return is_float(dtype) or dtype.kind == "c"


def _in_float64(array: NDArray[Any]) -> NDArray[Any]:
    precise = np.complex128 if array.dtype.kind == "c" else np.float64 if is_float(array.dtype) else None
    # Always a copy: a reference that works in place must not change the inputs of the variants.
    return array.astype(precise) if precise else array.copy()


def _described(value: object) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__} {value!r:.60}"


# --- the shapes of inputs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoredShapes:
    """The shapes of one point's inputs, as stored in a file."""

    arrays: tuple[Array, ...]


class KnownShapes:
    """A folder with the shapes of inputs that earlier runs made, so that resolving a suite need not make the inputs.

    Shapes are stored by the key of the inputs (``CaseSpec.inputs``) and the versions of Python and NumPy. Any number of
    processes may use the folder at once. A file that cannot be read or written counts as missing.

    Args:
        folder: created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> Shapes | None:
        """Return the shapes of the inputs with this key; None if they are unknown."""
        try:
            stored = codec.decode(_StoredShapes, self._path(key).read_bytes())
        except (OSError, ValueError):
            return None
        return {array.name: array for array in stored.arrays}

    def put(self, key: str, shapes: Shapes) -> None:
        """Store the shapes of the inputs with this key; do nothing if they cannot be written."""
        with contextlib.suppress(OSError), Folder.open(self._folder, make=True) as folder:
            folder.write(self._path(key).name, codec.encode(_StoredShapes(tuple(shapes.values()))))

    def forget(self, key: str) -> None:
        """Delete the shapes of the inputs with this key."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / digest(f"{key}\n{platform.python_version()}\n{np.__version__}".encode())


class Inputs:
    """The shapes of the inputs of points.

    Args:
        threads: how many points' inputs are made at once.
        known: the shapes of earlier runs; inputs of known shapes are not made.
    """

    def __init__(self, threads: int = 1, known: KnownShapes | None = None) -> None:
        self._threads = threads
        self._known = known

    def shapes(self, points: Iterable[tuple[BenchFile, Point]]) -> dict[tuple[BenchFile, Point], Shapes]:
        """Return the shapes of the inputs at each point of a benchmark file; inputs of known shapes are not made."""
        known = {file_and_point: self._known_shapes(*file_and_point) for file_and_point in dict.fromkeys(points)}
        unknown = [file_and_point for file_and_point, shapes in known.items() if shapes is None]
        with ThreadPoolExecutor(self._threads, thread_name_prefix="perfsvc-inputs") as threads:
            made = dict(zip(unknown, threads.map(lambda pair: self._make_shapes(*pair), unknown), strict=True))
        return {pair: made[pair] if shapes is None else shapes for pair, shapes in known.items()}

    def _known_shapes(self, file: BenchFile, point: Point) -> Shapes | None:
        """Return the shapes of the inputs at a point from earlier runs; None if they are unknown."""
        return self._known.get(_inputs_key(file, point)) if self._known else None

    def _make_shapes(self, file: BenchFile, point: Point) -> Shapes:
        """Make the inputs at a point, store and return their shapes; if this fails, return the smoke point's shapes."""
        try:
            made = shapes(make_inputs(file.benchmark, point, seed_of(file.name, file.benchmark.version, point)))
        except Problem:
            # make_arrays meets the same problem before a case of this point is measured, and fails only that case.
            smoke = smoke_point(file.benchmark)
            return shapes(make_inputs(file.benchmark, smoke, seed_of(file.name, file.benchmark.version, smoke)))
        if self._known:
            self._known.put(_inputs_key(file, point), made)
        return made


def _inputs_key(file: BenchFile, point: Point) -> str:
    return arrays_key(file.text, seed_of(file.name, file.benchmark.version, point))


def _total_bytes(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


# --- the arrays of a case --------------------------------------------------------------------------------------------


def make_arrays(spec: CaseSpec, known: KnownShapes | None = None) -> tuple[Arrays, Arrays]:
    """Return the inputs and the expected results of a case, by name.

    Variants with the same reference share the arrays.

    Args:
        spec: the case.
        known: the shapes of earlier runs; if the inputs have other shapes now, the stored shapes are deleted.

    Raises:
        SuiteError: the benchmark's functions failed, or made arrays that differ from their declarations.
    """
    file = load_again(spec.bench, spec.bench_text)
    with _reporting(file):
        made = make_inputs(file.benchmark, spec.case.point, spec.seed)
        made_shapes = shapes(made)
        for buffer in spec.buffers:
            if buffer.role in {Role.INPUT, Role.INOUT} and _held(buffer, made_shapes) != buffer.array:
                if known:
                    known.forget(spec.inputs)
                raise Problem(
                    f"inputs made {buffer.array.name!r} of another shape or dtype than before",
                    file.benchmark.line,
                    "let inputs depend on rng and the axes alone; if a package that inputs uses has changed, run again",
                )
        return made, _expected_results(file, spec, made)


def _held(buffer: Buffer, made: Shapes) -> Array | None:
    """Return what a buffer holds of the arrays that ``inputs`` made; None if its array is missing."""
    part = buffer.part or Part(buffer.array.name)
    array = made.get(part.array)
    if array is None:
        return None
    shape = (part.stop - part.start, *array.shape[1:]) if part.stop else array.shape
    return Array(buffer.array.name, array.dtype, shape)


def make_fresh(spec: CaseSpec, first: Callable[[], Mapping[str, NDArray[Any]]]) -> tuple[Arrays, Arrays]:
    """Return fresh inputs for the check after timing, and their expected results, by name.

    The fresh inputs come from a second seed, which is derived from the case's seed. The reference of the fresh inputs
    is computed if the result or the whole case is small. It is also computed if, at the smoke point (the benchmark's
    small point), both seeds give some output the same reference. In all other cases the expected results are empty: the
    host need not compute a large reference, and the check only requires every output to change.

    Both results are empty if the benchmark has no outputs to check, if the fresh inputs equal the first inputs, or if
    the fresh inputs have other names, dtypes or shapes.

    Args:
        spec: the case.
        first: returns the case's first inputs, made from the case's own seed; the call may wait until they are made.

    Raises:
        SuiteError: the benchmark's functions failed, or made arrays that differ from their declarations.
    """
    file = load_again(spec.bench, spec.bench_text)
    if not file.benchmark.outputs:
        return {}, {}
    with _reporting(file):
        inputs = make_inputs(file.benchmark, spec.case.point, fresh_seed(spec.seed))
        first_inputs = first()
        if shapes(inputs) != shapes(first_inputs) or all(_equal(inputs[name], first_inputs[name]) for name in inputs):
            return {}, {}
        if not _is_small(spec, inputs) and _every_output_changes(file, spec):
            return inputs, {}
        return inputs, _expected_results(file, spec, inputs)


def replay_arrays(file: BenchFile, point: Point, seed: int, variant: str = "") -> tuple[Arrays, Arrays]:
    """Return the inputs and expected results that a benchmark file makes at a point that an earlier run recorded.

    Args:
        file: the benchmark.
        point: the values of the axes.
        seed: the seed of the inputs.
        variant: the full name of the variant whose reference is used; by default the benchmark's reference is used.

    Raises:
        SuiteError: the file's functions failed, or made arrays that differ from their declarations.
    """
    with _reporting(file):
        inputs = make_inputs(file.benchmark, point, seed)
        return inputs, make_expected(file.benchmark, point, inputs, reference_of(file.benchmark, variant))


def replay_inputs(file: BenchFile, point: Point, seed: int) -> Arrays:
    """Return only the inputs of ``replay_arrays``; raises ``SuiteError`` in the same way."""
    with _reporting(file):
        return make_inputs(file.benchmark, point, seed)


def _expected_results(file: BenchFile, spec: CaseSpec, inputs: Arrays) -> Arrays:
    return make_expected(file.benchmark, spec.case.point, inputs, reference_of(file.benchmark, spec.case.variant))


@contextlib.contextmanager
def _reporting(file: BenchFile) -> Iterator[None]:
    """Turn a problem in the block, or a lack of memory, into a ``SuiteError`` of the file."""
    try:
        yield
    except Problem as problem:
        raise problem.at(file.path) from problem
    except MemoryError as error:
        raise Problem(
            "its arrays do not fit into this machine's memory", file.benchmark.line, "give it smaller points"
        ).at(file.path) from error


def _is_small(spec: CaseSpec, inputs: Arrays) -> bool:
    """Return whether a reference is cheap: a case's result is small, or its inputs and result together are small."""
    outputs = [buffer.array for buffer in spec.buffers if buffer.role in {Role.OUTPUT, Role.INOUT}]
    result_bytes = sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in outputs)
    return result_bytes < SMALL_RESULT_BYTES or result_bytes + _total_bytes(inputs) < SMALL_CASE_BYTES


def _every_output_changes(file: BenchFile, spec: CaseSpec) -> bool:
    """Return whether, at the small smoke point, every output of the reference differs for inputs from another seed."""
    benchmark, point = file.benchmark, smoke_point(file.benchmark)
    seed, reference = seed_of(file.name, benchmark.version, point), reference_of(benchmark, spec.case.variant)
    first, fresh = (
        make_expected(benchmark, point, make_inputs(benchmark, point, input_seed), reference)
        for input_seed in (seed, fresh_seed(seed))
    )
    return not any(
        np.array_equal(first[name].astype(output.dtype), fresh[name].astype(output.dtype), equal_nan=True)
        for name, output in benchmark.outputs.items()
    )


def _equal(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether two arrays of equal shape are equal; NaN counts as equal to NaN."""
    rows = max(1, ELEMENTS_COMPARED_AT_ONCE * len(first) // first.size)
    return all(
        np.array_equal(first[row : row + rows], second[row : row + rows], equal_nan=True)
        for row in range(0, len(first), rows)
    )
