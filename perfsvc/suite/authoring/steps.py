"""The steps that a variant is written with."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perfsvc.model import Value
from perfsvc.suite.authoring.arguments import Argument, Extent, Function, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStep:
    """One kernel launch."""

    entry: str
    grid: Extent | Function
    block: Extent | Function
    args: Sequence[Argument] = ()
    source: Words = ""
    shared_bytes: int | Function = 0
    constants: Mapping[str, str] = field(default_factory=dict)
    cluster: Extent | Function | None = None
    cooperative: bool = False
    programmatic: bool = False
    gpu: int | None = None
    line: int


@dataclass(frozen=True, slots=True)
class PeerCopyStep:
    """Copy an array to another GPU."""

    source: str
    target: str
    line: int


@dataclass(frozen=True, slots=True)
class AllReduceStep:
    """Combine an array of all GPUs."""

    source: str
    target: str
    operation: Literal["sum", "min", "max"]
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
    source: Words
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryStep:
    """Call a function of a shared object."""

    source: str
    entry: str
    libraries: Words
    line: int


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


StepWritten = (
    LaunchStep
    | MemsetStep
    | PeerCopyStep
    | AllReduceStep
    | FinishStep
    | MetricStep
    | CallStep
    | PackageStep
    | LibraryStep
    | ProgramStep
)


def callers_line() -> int:
    """Return the line in bench.py that calls the function which calls this one."""
    return sys._getframe(2).f_lineno  # noqa: SLF001 - the only way to a caller's line without reading its source


def launch(
    *,
    entry: str,
    grid: Extent | Function,
    block: Extent | Function,
    args: Sequence[Argument] = (),
    source: Words = "",
    shared_bytes: int | Function = 0,
    constants: Mapping[str, str] | None = None,
    cluster: Extent | Function | None = None,
    cooperative: bool = False,
    programmatic: bool = False,
    gpu: int | None = None,
) -> LaunchStep:
    """Launch a kernel.

    Args:
        entry: the ``__global__`` function as C++ names it: ``scale``, or ``tiled::sum<float, {BLOCK}>``, where
            ``{BLOCK}`` is the value of an axis or parameter.
        grid: the number of blocks: an integer, a tuple of up to three integers, or a function of axes and parameters.
        block: the number of threads of a block, written like ``grid``.
        args: the kernel's arguments in order. The name of a buffer passes its address, the name of an axis or
            parameter its value.
        source: the ``.cu`` file next to bench.py, or several that are linked; by default the variant's ``source``.
        shared_bytes: bytes of dynamic shared memory of a block.
        constants: ``__constant__`` symbols and the buffers that are copied into them before the first launch.
        cluster: the number of blocks of a cluster, written like ``grid``.
        cooperative: whether all blocks run at the same time, so that ``grid.sync()`` works.
        programmatic: whether the launch may begin before the launch before it ends (``griddepcontrol``).
        gpu: the only GPU that launches the kernel, in a variant on several GPUs; None for every GPU.
    """
    return LaunchStep(
        entry=entry,
        grid=grid,
        block=block,
        args=args,
        source=source,
        shared_bytes=shared_bytes,
        constants={} if constants is None else constants,
        cluster=cluster,
        cooperative=cooperative,
        programmatic=programmatic,
        gpu=gpu,
        line=callers_line(),
    )


def peer_copy(source: str, target: str) -> PeerCopyStep:
    """Copy the array ``source`` to the array ``target`` of another GPU, by the copy engines over the link.

    If each of the two arrays is on one GPU (``on=``), this is one copy. If every GPU has both arrays, each GPU copies
    its ``source`` to the ``target`` of the next GPU, and the last GPU to that of the first.
    """
    return PeerCopyStep(source, target, callers_line())


def all_reduce(source: str, target: str, operation: Literal["sum", "min", "max"] = "sum") -> AllReduceStep:
    """Combine the arrays ``source`` of all GPUs element by element, into the array ``target`` of each GPU, with NCCL.

    The two arrays have the same type and size on every GPU.
    """
    return AllReduceStep(source, target, operation, callers_line())


def memset(buffer: str, byte: int = 0) -> MemsetStep:
    """Fill a buffer with one byte value, on the device."""
    return MemsetStep(buffer, byte, callers_line())


def finish(operation: Literal["sum", "min", "max"], source: str, target: str) -> FinishStep:
    """Reduce the buffer ``source`` into the one-element buffer ``target``, on the host in float64."""
    return FinishStep(operation, source, target, callers_line())


def metric(name: str, operation: Literal["sum", "min", "max", "mean"], buffer: str) -> MetricStep:
    """Reduce a buffer to the metric ``name`` of the measurement, on the host in float64.

    The buffer is read once, after the last sample, outside all timing. A lower metric is better.
    """
    return MetricStep(name, operation, buffer, callers_line())


def call(function: Function, *, source: Words = "", timed: bool = True) -> CallStep:
    """Call ``function(arrays, stream)``: device arrays by buffer name, and the address of the stream to queue work on.

    Args:
        function: a function of this file.
        source: a ``.cu`` file next to bench.py, or several that are linked; the function gets the compiled binary as a
            third argument.
        timed: whether the call is part of a sample. An untimed call runs only for checks, for example to copy inputs to
            the buffers that a pipeline starts from.
    """
    return CallStep(function, source, timed, callers_line())


def library(source: str, *, entry: str = "run", libraries: Words = ()) -> LibraryStep:
    """Call host code in C++, such as a call of cuBLAS or CUTLASS, which queues its own launches.

    Args:
        source: the ``.cu`` file next to bench.py. It includes ``perfsvc.h``, and becomes a shared object.
        entry: the name of its ``PERFSVC_LIBRARY`` function.
        libraries: the CUDA libraries that the file uses: ``cublas``, ``cudnn`` and others, or ``cutlass``.
    """
    return LibraryStep(source=source, entry=entry, libraries=libraries, line=callers_line())


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
        line=callers_line(),
    )
