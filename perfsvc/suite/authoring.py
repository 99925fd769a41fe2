"""What a bench.py is written with (docs/authoring.md).

These classes only hold what the author wrote and the line it stands on. They judge nothing, so that one reading of a
file finds all of its problems and not only the first (``perfsvc.suite.checking``).
"""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

from perfsvc.model import CacheState, Tolerance, Value, Work

Extent = int | tuple[int, ...]
"""A shape, a grid or a block: one integer or a tuple of them."""

Function = Callable[..., Any]
"""A function of axes (and parameters, where said so), which it asks for by the names of its own parameters."""

Words = str | Sequence[str]
"""One word, or several."""


def _line_of_the_author() -> int:
    # This function, the generated __init__ that calls it, and the author's line that called that.
    return sys._getframe(2).f_lineno  # noqa: SLF001 - the only way to a caller's line without reading its source


def _line() -> Any:
    return field(init=False, repr=False, compare=False, default_factory=_line_of_the_author)


@dataclass(frozen=True, slots=True)
class Output:
    """An array that a variant makes: a result, or scratch memory between two steps.

    ``shape`` is in elements; a function of the axes (for scratch of the parameters too) where it is not constant.
    """

    dtype: str
    shape: Extent | Function


def output(dtype: str, shape: Extent | Function) -> Output:
    """A result: its NumPy dtype name and its shape, constant or as a function of the axes."""
    return Output(dtype, shape)


def scratch(dtype: str, shape: Extent | Function) -> Output:
    """Memory that a variant's steps share: its dtype and shape, constant or of axes and parameters."""
    return Output(dtype, shape)


# --- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument by value, of a NumPy dtype: the name of an axis or parameter, a number, or a function."""

    dtype: str
    value: str | float | Function


def i32(value: str | int | Function) -> Scalar:
    """A 32-bit ``int`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("int32", value)


def i64(value: str | int | Function) -> Scalar:
    """A 64-bit ``long long`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("int64", value)


def f32(value: str | float | Function) -> Scalar:
    """A ``float`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("float32", value)


def f64(value: str | float | Function) -> Scalar:
    """A ``double`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("float64", value)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A kernel argument of the type ``CUtensorMap``, as written."""

    buffer: str
    box: tuple[int, int] | Function
    swizzle: int | Function
    element: str


def tensor_map(
    buffer: str, *, box: tuple[int, int] | Function, swizzle: int | Function = 0, element: str = ""
) -> TensorMap:
    """A ``const __grid_constant__ CUtensorMap`` argument, by which a kernel fetches boxes of a matrix.

    Args:
        buffer: the matrix, by name; its rows lie one behind the other.
        box: the rows and columns that are fetched at once.
        swizzle: bytes within which pieces of 16 bytes change places in shared memory: 0, 32, 64 or 128.
        element: the type of the elements where it is not the array's dtype: ``bfloat16`` in uint16, ``tfloat32`` in
            float32.
    """
    return TensorMap(buffer, box, swizzle, element)


Argument = str | Scalar | TensorMap
"""The name of a buffer, axis or parameter, a scalar of a stated type, or a tensor map."""


def ceil_div(count: int, size: int) -> int:
    """How many groups of ``size`` hold ``count`` items: ``count / size`` rounded up."""
    return -(-count // size)


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStep:
    """One kernel launch, as written."""

    entry: str
    grid: Extent | Function
    block: Extent | Function
    args: Sequence[Argument] = ()
    source: str = ""
    shared_bytes: int | Function = 0
    constants: Mapping[str, str] = field(default_factory=dict)
    line: int


@dataclass(frozen=True, slots=True)
class MemsetStep:
    """Fill a buffer with one byte value, as written."""

    buffer: str
    byte: int
    line: int


@dataclass(frozen=True, slots=True)
class FinishStep:
    """Reduce a buffer on the host, as written."""

    operation: Literal["sum", "min", "max"]
    source: str
    target: str
    line: int


@dataclass(frozen=True, slots=True)
class MetricStep:
    """Reduce a buffer to a metric, as written."""

    name: str
    operation: Literal["sum", "min", "max", "mean"]
    buffer: str
    line: int


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call a Python function, as written."""

    function: Function
    source: str
    timed: bool
    line: int


StepWritten = LaunchStep | MemsetStep | FinishStep | MetricStep | CallStep


def _callers_line() -> int:
    return sys._getframe(2).f_lineno  # noqa: SLF001 - see _line_of_the_author


def launch(
    *,
    entry: str,
    grid: Extent | Function,
    block: Extent | Function,
    args: Sequence[Argument] = (),
    source: str = "",
    shared_bytes: int | Function = 0,
    constants: Mapping[str, str] | None = None,
) -> LaunchStep:
    """A kernel launch.

    Args:
        entry: the ``extern "C" __global__`` function.
        grid: blocks, as an integer, a tuple of up to three, or a function of axes and parameters.
        block: threads of a block, likewise.
        args: the kernel's arguments in order; a buffer's name passes its address, an axis's or parameter's its value.
        source: the ``.cu`` file beside bench.py; the variant's where it is not given.
        shared_bytes: dynamic shared memory of a block.
        constants: ``__constant__`` symbols and the buffers that fill them before the first launch.
    """
    return LaunchStep(
        entry=entry,
        grid=grid,
        block=block,
        args=args,
        source=source,
        shared_bytes=shared_bytes,
        constants={} if constants is None else constants,
        line=_callers_line(),
    )


def memset(buffer: str, byte: int = 0) -> MemsetStep:
    """Fill a buffer with one byte value, on the device."""
    return MemsetStep(buffer, byte, _callers_line())


def finish(operation: Literal["sum", "min", "max"], source: str, target: str) -> FinishStep:
    """Reduce the buffer ``source`` into the one-element buffer ``target``, on the host and in float64."""
    return FinishStep(operation, source, target, _callers_line())


def metric(name: str, operation: Literal["sum", "min", "max", "mean"], buffer: str) -> MetricStep:
    """Reduce a buffer to the metric ``name`` of the measurement, on the host and in float64.

    It is read once, when the last sample has been taken, and is no part of any time. Lower is better.
    """
    return MetricStep(name, operation, buffer, _callers_line())


def call(function: Function, *, source: str = "", timed: bool = True) -> CallStep:
    """Call ``function(arrays, stream)``: device arrays by buffer name, and the stream's address to queue work on.

    Args:
        function: a function of this file.
        source: a ``.cu`` file beside bench.py, whose compiled binary the function is given after the stream.
        timed: whether it is part of a sample. One that is not is run for the checks alone, such as what brings inputs
            to where a pipeline begins.
    """
    return CallStep(function, source, timed, _callers_line())


# --- variant and benchmark -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One implementation of a benchmark.

    It is one launch (``source``, ``entry``, ``grid``, ``block``, ``args``, ``shared_bytes``, ``constants``), or
    ``steps``, or a Python function to ``run``.

    Args:
        name: what the case ids call it; the values of tuples in ``params`` are added: ``tiled-TILE32-PAD1``.
        kind: ``kernel`` (one stream, timed launch by launch), ``pipeline`` (timed end to end by the host) or ``host``
            (its functions return metrics).
        steps: the steps, where one launch is not all.
        run: short for ``steps=[call(run, source=source)]``.
        params: ``-D`` parameters: a value, a tuple of values (one variant each), or a function of the axes.
        options: further compile options of nvcc, written as on a command line: ``"-O3 -DX=1"``.
        scratch: arrays by name that the steps share.
        requires: what it needs: ``cuda``, ``sm_90`` (or newer), ``sm_90a`` (exactly that), ``n % 4 == 0``,
            ``import cupy``.
        only: a function of axes and parameters that says whether a point is worth running at.
        cache: the L2 cache before each sample, ``cold``, ``warm``, or ``both``, which times each case twice.
        reference: what this variant computes in place of the benchmark's reference: for an reference variant that does something
            else, such as a plain copy.
        formerly: earlier names, whose history this variant goes on with.
    """

    name: str
    _: KW_ONLY
    kind: Literal["kernel", "pipeline", "host"] = "kernel"
    source: str = ""
    entry: str = ""
    grid: Extent | Function | None = None
    block: Extent | Function | None = None
    args: Sequence[Argument] = ()
    shared_bytes: int | Function = 0
    constants: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[StepWritten] = ()
    run: Function | None = None
    params: Mapping[str, Value | tuple[Value, ...] | Function] = field(default_factory=dict)
    options: Words = ()
    scratch: Mapping[str, Output] = field(default_factory=dict)
    requires: Words = ()
    only: Function | None = None
    cache: Literal["cold", "warm", "both"] = "cold"
    reference: Function | None = None
    formerly: Words = ()
    line: int = _line()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Benchmark:
    """One problem and the variants that solve it; a bench.py assigns one to ``benchmark``.

    Args:
        axes: the values of each axis; the full points are their product.
        points: the full points one by one, in place of ``axes``.
        smoke: the small point for the CPU device, quick runs and the rehearsal when the file is read.
        inputs: ``(rng, axes by name)`` to arrays by name; ``rng`` is a seeded ``numpy.random.Generator``. Called with
            several seeds, and for several points at once: it depends on nothing else and changes nothing.
        outputs: the results by name; one that ``inputs`` makes too is changed in place.
        reference: ``(inputs and axes by name)`` to the results by name, or to the one result. Floating inputs are
            handed over in float64, so that plain NumPy is a float64 reference.
        tolerance: the largest error of a right result, or a function of the axes.
        work: what one run of a variant has to do, or a function of the axes.
        variants: the implementations.
        name: what the case ids call it; the folder's name where it is not given.
        version: raise it when the problem changes so much that its history should end.
        relative_to: the variant, by its full name, that the others are held against at the same point.
    """

    axes: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    points: Sequence[Mapping[str, Value]] = ()
    smoke: Mapping[str, Value] = field(default_factory=dict)
    inputs: Function | None = None
    outputs: Mapping[str, Output] = field(default_factory=dict)
    reference: Function | None = None
    tolerance: Tolerance | Function | None = None
    work: Work | Function = field(default_factory=Work)
    variants: Sequence[Variant] = ()
    name: str = ""
    version: int = 1
    relative_to: str = ""
    line: int = _line()


BOTH: Final = "both"
"""The cache state of a variant whose cases are measured in every cache state."""


def cache_states_of(variant: Variant) -> tuple[CacheState, ...]:
    """The cache states that a variant's cases are measured in."""
    return tuple(CacheState) if variant.cache == BOTH else (CacheState(variant.cache),)


def words(value: Words) -> tuple[str, ...]:
    """One word or several, as several."""
    return (value,) if isinstance(value, str) else tuple(value)


def option_words(options: Words) -> tuple[str, ...]:
    """Compile options word by word, each text split as a shell does; raises ``ValueError`` for an unclosed quote."""
    return tuple(word for text in words(options) for word in shlex.split(text))
