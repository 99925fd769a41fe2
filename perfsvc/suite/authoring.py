"""The classes and functions that a bench.py is written with (docs/reference/benchmark-files.md).

They only hold what the author wrote and on which line. They check nothing: ``perfsvc.suite.checking`` reports all
problems of a file at once.
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
"""A function of axes (and ``-D`` parameters, where stated). The names of its parameters decide what it is given."""

Words = str | Sequence[str]
"""One word, or several."""


def _line_in_bench() -> int:
    # Frame 0 is this function, frame 1 the generated __init__ that calls it, frame 2 the line in bench.py.
    return sys._getframe(2).f_lineno  # noqa: SLF001 - the only way to a caller's line without reading its source


def _line() -> Any:
    return field(init=False, repr=False, compare=False, default_factory=_line_in_bench)


@dataclass(frozen=True, slots=True)
class Output:
    """An array that a variant writes: a result, or scratch memory between two steps.

    ``shape`` is in elements: constant or a function of the axes (for scratch memory also of the parameters).
    """

    dtype: str
    shape: Extent | Function


def output(dtype: str, shape: Extent | Function) -> Output:
    """Declare a result by its NumPy dtype name and its shape; the shape is constant or a function of the axes."""
    return Output(dtype, shape)


def scratch(dtype: str, shape: Extent | Function) -> Output:
    """Declare memory that a variant's steps share; the shape is constant or a function of axes and parameters."""
    return Output(dtype, shape)


# --- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument passed by value: the name of an axis or parameter, a number, or a function of them."""

    dtype: str
    value: str | float | Function


def i32(value: str | int | Function) -> Scalar:
    """Pass a 32-bit ``int`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("int32", value)


def i64(value: str | int | Function) -> Scalar:
    """Pass a 64-bit ``long long`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("int64", value)


def f32(value: str | float | Function) -> Scalar:
    """Pass a ``float`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("float32", value)


def f64(value: str | float | Function) -> Scalar:
    """Pass a ``double`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("float64", value)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A kernel argument of the type ``CUtensorMap``."""

    buffer: str
    box: tuple[int, int] | Function
    swizzle: int | Function
    element: str


def tensor_map(
    buffer: str, *, box: tuple[int, int] | Function, swizzle: int | Function = 0, element: str = ""
) -> TensorMap:
    """Pass a ``const __grid_constant__ CUtensorMap`` argument, with which a kernel fetches boxes of a matrix.

    Args:
        buffer: the name of the matrix; it is stored row by row without gaps.
        box: the rows and columns that are fetched at once.
        swizzle: the span in bytes within which 16-byte pieces change places in shared memory: 32, 64 or 128; 0 for
            none.
        element: the type of the elements if it differs from the array's dtype: ``bfloat16`` stored as uint16,
            ``tfloat32`` stored as float32.
    """
    return TensorMap(buffer, box, swizzle, element)


Argument = str | Scalar | TensorMap
"""The name of a buffer, axis or parameter, a scalar of an explicit type, or a tensor map."""


def ceil_div(count: int, size: int) -> int:
    """Return how many groups of ``size`` hold ``count`` items: ``count / size`` rounded up."""
    return -(-count // size)


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStep:
    """One kernel launch."""

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
    """Fill a buffer with one byte value."""

    buffer: str
    byte: int
    line: int


@dataclass(frozen=True, slots=True)
class FinishStep:
    """Reduce a buffer on the host."""

    operation: Literal["sum", "min", "max"]
    source: str
    target: str
    line: int


@dataclass(frozen=True, slots=True)
class MetricStep:
    """Reduce a buffer to a metric."""

    name: str
    operation: Literal["sum", "min", "max", "mean"]
    buffer: str
    line: int


Package = Literal["triton", "cupy", "numba", "torch"]
"""The packages whose kernels and functions can be steps."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call a Python function."""

    function: Function
    source: str
    timed: bool
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageStep:
    """Call a function, or launch a kernel, with the arrays of a Python package.

    ``args`` is None if the names of the function's parameters decide what it gets.
    """

    package: Package
    function: Any
    source: str = ""
    args: Sequence[Argument] | None = None
    grid: Extent | Function | None = None
    block: Extent | Function | None = None
    shared_bytes: int | Function = 0
    configs: Sequence[Mapping[str, Any]] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    compile: bool | str = False
    line: int

    @property
    def is_kernel(self) -> bool:
        """Whether the step launches a kernel with a grid, and does not call a function."""
        return self.package in {"triton", "numba"} or self.grid is not None


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression whose named groups are the times and axes in a program's output."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStep:
    """Run an executable instead of a kernel."""

    command: Words
    parse: str | Regex
    result: str
    pick: Mapping[str, Value]
    metrics: Words
    files: Words
    build: str
    env: Mapping[str, str]
    exit_code: int
    limit_s: float | None
    line: int


StepWritten = LaunchStep | MemsetStep | FinishStep | MetricStep | CallStep | PackageStep | ProgramStep


def _callers_line() -> int:
    return sys._getframe(2).f_lineno  # noqa: SLF001 - see _line_in_bench


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
    """Launch a kernel.

    Args:
        entry: the ``extern "C" __global__`` function.
        grid: the number of blocks: an integer, a tuple of up to three integers, or a function of axes and parameters.
        block: the number of threads of a block, written like ``grid``.
        args: the kernel's arguments in order. The name of a buffer passes its address, the name of an axis or
            parameter its value.
        source: the ``.cu`` file next to bench.py; by default the variant's ``source``.
        shared_bytes: bytes of dynamic shared memory of a block.
        constants: ``__constant__`` symbols and the buffers that are copied into them before the first launch.
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
    """Reduce the buffer ``source`` into the one-element buffer ``target``, on the host in float64."""
    return FinishStep(operation, source, target, _callers_line())


def metric(name: str, operation: Literal["sum", "min", "max", "mean"], buffer: str) -> MetricStep:
    """Reduce a buffer to the metric ``name`` of the measurement, on the host in float64.

    The buffer is read once, after the last sample, outside all timing. A lower metric is better.
    """
    return MetricStep(name, operation, buffer, _callers_line())


def call(function: Function, *, source: str = "", timed: bool = True) -> CallStep:
    """Call ``function(arrays, stream)``: device arrays by buffer name, and the address of the stream to queue work on.

    Args:
        function: a function of this file.
        source: a ``.cu`` file next to bench.py; the function gets its compiled binary as a third argument.
        timed: whether the call is part of a sample. An untimed call runs only for checks, for example to copy inputs to
            the buffers that a pipeline starts from.
    """
    return CallStep(function, source, timed, _callers_line())


def regex(pattern: str) -> Regex:
    """Read a program's times with a regular expression: each match is a sample.

    Args:
        pattern: its group ``time_s``, ``time_ms``, ``time_us`` or ``time_ns`` holds the time. Every other named group
            is an axis, or a metric that ``program(metrics=...)`` names. ``^`` and ``$`` match at each line.
    """
    return Regex(pattern)


def program(
    command: Words,
    *,
    parse: str | Regex,
    result: str = "",
    pick: Mapping[str, Value] | None = None,
    metrics: Words = (),
    files: Words = (),
    build: str = "",
    env: Mapping[str, str] | None = None,
    exit_code: int = 0,
    limit_s: float | None = None,
) -> ProgramStep:
    """Run an executable that measures itself, once in each replica, and read its times.

    ``{n}`` in ``command``, ``result``, ``pick``, ``files`` and ``env`` is the value of the axis or parameter ``n``.

    Args:
        command: the program and its arguments, written as on a command line, or as a list of words. A program in a
            folder (``./bench``, ``../build/bench``) is stored with the run; a name alone (``python3``) is a program of
            the machine.
        parse: the format of its times, such as ``nvbench``, or ``regex(...)``.
        result: the file with the times; by default the file that the command names and the program writes, or else its
            standard output.
        pick: the values that the result must have, by axis, or by ``benchmark`` or ``variant``.
        metrics: names of other numbers of the result that perfsvc stores and judges; lower is better.
        files: other files that the program needs, relative to bench.py; they are stored with the run.
        build: a shell command that makes the executable and ``files``; it runs in the folder of bench.py.
        env: environment variables to set.
        exit_code: the exit status of success.
        limit_s: seconds after which the program is killed; by default the time limit of a case.
    """
    return ProgramStep(
        command=command,
        parse=parse,
        result=result,
        pick={} if pick is None else pick,
        metrics=metrics,
        files=files,
        build=build,
        env={} if env is None else env,
        exit_code=exit_code,
        limit_s=limit_s,
        line=_callers_line(),
    )


# --- variant and benchmark -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One implementation of a benchmark.

    A variant is one launch (``source``, ``entry``, ``grid``, ``block``, ``args``, ``shared_bytes``, ``constants``), or
    several ``steps``, or a Python function or a program to ``run``.

    Args:
        name: the variant's name in case ids; the values of tuples in ``params`` are appended: ``tiled-TILE32-PAD1``.
        kind: ``kernel`` (one stream, timed launch by launch), ``pipeline`` (timed end to end by the host) or ``host``
            (its functions return metrics).
        steps: the steps, if the variant is more than one launch.
        run: a function, short for ``steps=[call(run, source=source)]``; or the only step: ``triton(...)``,
            ``cupy(...)``, ``numba(...)``, ``torch(...)``, or a ``program(...)``, which measures itself.
        params: ``-D`` parameters: a value, a tuple of values (one variant each), or a function of the axes.
        options: further nvcc options, written as on a command line: ``"-O3 -DX=1"``.
        scratch: arrays that the steps share, by name.
        requires: what the variant needs: ``cuda``, ``sm_90`` (or newer), ``sm_90a`` (no other architecture),
            ``n % 4 == 0``, ``import cupy``.
        only: a function of axes and parameters that returns whether the variant runs at a point.
        cache: the L2 cache before each sample: ``cold``, ``warm``, or ``both``, which times each case twice.
        reference: a function for this variant's expected results, if the variant computes something else than the
            benchmark, such as a plain copy.
        formerly: earlier names; the variant continues their history.
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
    run: Function | PackageStep | ProgramStep | None = None
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
    """One problem and the variants that solve it; a bench.py assigns its benchmark to the name ``benchmark``.

    Args:
        axes: the values of each axis; the full points are their product.
        points: the full points one by one, instead of ``axes``.
        smoke: the small point, for the CPU device, for quick runs and for the checks when the file is read.
        inputs: a function of ``rng`` and the axes that returns arrays by name; ``rng`` is a seeded
            ``numpy.random.Generator``. perfsvc calls the function with several seeds, and in several threads at once,
            so the function must depend only on its arguments and change nothing.
        outputs: the results by name; an output that ``inputs`` makes too is changed in place.
        reference: a function of inputs and axes that returns the results by name, or the only result. Floating inputs
            arrive in float64, so that plain NumPy is a float64 reference.
        tolerance: the largest error of a correct result, or a function of the axes.
        work: the work of one run of a variant, or a function of the axes.
        variants: the implementations.
        name: the benchmark's name in case ids; by default the folder's name.
        version: raise this number when the problem changes so much that the history of its cases should end.
        relative_to: the full name of the variant that the other variants are compared with at the same point.
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
"""The ``cache`` of a variant whose cases are measured in every cache state."""


def cache_states_of(variant: Variant) -> tuple[CacheState, ...]:
    """Return the cache states that a variant's cases are measured in."""
    return tuple(CacheState) if variant.cache == BOTH else (CacheState(variant.cache),)


def words(value: Words) -> tuple[str, ...]:
    """Return a field's words as a tuple, whether the author wrote one word or a sequence."""
    return (value,) if isinstance(value, str) else tuple(value)


def option_words(options: Words) -> tuple[str, ...]:
    """Return compile options split into words as a shell does; raises ``ValueError`` for an unclosed quote."""
    return tuple(word for text in words(options) for word in shlex.split(text))
