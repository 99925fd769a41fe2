"""Steps of variants in Triton, CuPy, Numba and PyTorch: how a bench.py writes them, and how they are resolved.

A kernel or function is defined in the bench.py itself, or in a Python file beside it, which perfsvc reads as text until
a worker needs it. So a machine without the package can still list the suite, and skips the variant.
"""

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsvc.model import Arg, Buffer, Call, KernelConfiguration, PackageCall, Role, Value
from perfsvc.suite.authoring import Argument, Extent, Function, PackageStep
from perfsvc.suite.authoring.steps import callers_line
from perfsvc.suite.values import Problem, block_of, evaluate, integer, line_of, nearest

PYTHON = ".py"
"""The suffix of sources that are not compiled: a worker runs their text."""

_REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "triton": ("cuda", "import torch", "import triton"),  # Triton takes the arrays and the stream of PyTorch
    "cupy": ("cuda", "import cupy"),
    "numba": ("cuda", "import numba"),
    "torch": ("import torch",),
}


def triton(
    kernel: Any,
    *,
    grid: Extent | Function,
    args: Sequence[Argument] = (),
    configs: Sequence[Mapping[str, Any]] = (),
    source: str = "",
    **values: Any,
) -> PackageStep:
    """Launch a Triton kernel.

    Args:
        kernel: the name of the ``@triton.jit`` function in ``source``, or the function itself if it is in this file.
        grid: the number of programs: an integer, a tuple, or a function of axes, parameters and ``values``.
        args: the kernel's arguments in order. The name of a buffer passes a tensor, the name of an axis or parameter
            its value.
        configs: values to choose from before the case is timed: ``[{"BLOCK": 1024, "num_warps": 4}, ...]``.
        source: a Python file next to bench.py.
        values: the kernel's other arguments and Triton's options, by name: ``BLOCK=1024, num_warps=8``. The name of an
            axis or parameter passes its value.
    """
    return PackageStep(
        package="triton",
        function=kernel,
        source=source,
        args=args,
        grid=grid,
        configs=configs,
        values=values,
        line=callers_line(),
    )


def numba(
    kernel: Any,
    *,
    grid: Extent | Function,
    block: Extent | Function,
    args: Sequence[Argument] = (),
    shared_bytes: int | Function = 0,
    source: str = "",
) -> PackageStep:
    """Launch a ``@numba.cuda.jit`` kernel, given as for ``triton``, with device arrays of Numba."""
    return PackageStep(
        package="numba",
        function=kernel,
        source=source,
        args=args,
        grid=grid,
        block=block,
        shared_bytes=shared_bytes,
        line=callers_line(),
    )


def cupy(
    function: Any,
    *,
    args: Sequence[Argument] | None = None,
    grid: Extent | Function | None = None,
    block: Extent | Function | None = None,
    shared_bytes: int | Function = 0,
    source: str = "",
) -> PackageStep:
    """Call a function with CuPy arrays, or launch a kernel of CuPy (``RawKernel``, ``jit.rawkernel``).

    Args:
        function: a function of this file or the name of a function in ``source``; with ``grid``, a kernel.
        args: the arguments in order; by default the names of the function's parameters decide what it gets.
        grid: the number of blocks of a kernel.
        block: the number of threads of a block of a kernel.
        shared_bytes: bytes of dynamic shared memory of a block of a kernel.
        source: a Python file next to bench.py.
    """
    return PackageStep(
        package="cupy",
        function=function,
        source=source,
        args=args,
        grid=grid,
        block=block,
        shared_bytes=shared_bytes,
        line=callers_line(),
    )


def torch(
    function: Any,
    *,
    args: Sequence[Argument] | None = None,
    compile: bool | str = False,  # noqa: A002 - it is what PyTorch calls it
    source: str = "",
) -> PackageStep:
    """Call a function with PyTorch tensors.

    Args:
        function: a function of this file, or the name of a function in ``source``. What it returns is the result of
            the outputs that it does not get.
        args: the arguments in order; by default the names of the function's parameters decide what it gets.
        compile: whether ``torch.compile`` compiles the function; text is its mode, such as ``"max-autotune"``.
        source: a Python file next to bench.py.
    """
    return PackageStep(
        package="torch", function=function, source=source, args=args, compile=compile, line=callers_line()
    )


def requirements_of(step: PackageStep) -> tuple[str, ...]:
    """Return what a step requires of the device and of the installed packages, in the words of ``requires``."""
    return _REQUIREMENTS[step.package]


# --- checking --------------------------------------------------------------------------------------------------------


def name_in(function: Any, names: Mapping[str, Any]) -> str:
    """Return the name that a bench.py gives to a kernel or function; empty if it has none at the top level.

    Triton's tuner and other wrappers have no name of their own, so this function looks for the object itself.
    """
    if isinstance(function, str):
        return function if function in names else ""
    return next((name for name, value in names.items() if value is function), "")


def problems_of_package_step(
    step: PackageStep, variant: str, folder: Path, names: Mapping[str, Any], known: Collection[str] | None
) -> Iterator[Problem]:
    """Yield the problems of a step that do not depend on the point.

    Args:
        step: the step.
        variant: the name of its variant, for messages.
        folder: the folder of the bench.py.
        names: what the bench.py defines.
        known: the names of buffers, axes and parameters; None if the inputs could not be made.
    """
    what = f"variant {variant!r}: {step.package}"
    if step.source:
        yield from _problems_of_source(step, what, folder)
    elif not name_in(step.function, names):
        called = step.function if isinstance(step.function, str) else getattr(step.function, "__name__", "a function")
        yield Problem(
            f"{what} gets {called!r}, which this file does not define at the top level",
            step.line,
            'define it there; or write its name and its file: triton("kernel", source="kernels.py", ...)',
        )
    elif step.args is None and known is not None:
        yield from _problems_of_parameters(step, what, known)
    if step.is_kernel and step.package != "triton" and step.block is None:
        yield Problem(f"{what} has a grid and no block", step.line, "give the threads of a block: block=256")
    if not step.is_kernel and step.block is not None:
        yield Problem(f"{what} has a block and no grid", step.line, "give a grid, or remove block")


def _problems_of_source(step: PackageStep, what: str, folder: Path) -> Iterator[Problem]:
    """Yield the problems of the Python file that defines the step's function."""
    if not isinstance(step.function, str):
        yield Problem(
            f"{what} has a source and gets {step.function!r:.60}",
            step.line,
            f'write the name of the function in {step.source}: "kernel"',
        )
        return
    if not step.source.endswith(PYTHON):
        yield Problem(f"{what} has the source {step.source!r}", step.line, "name a Python file, such as kernels.py")
        return
    if step.args is None:
        yield Problem(
            f"{what} calls {step.function!r} of {step.source} and has no args",
            step.line,
            'list what it gets, because bench.py does not run that file: args=("x", "y")',
        )
    try:
        defined = names_defined((folder / step.source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return  # reported as a missing source, or when it is built
    except SyntaxError as error:
        yield Problem(f"{what}: {step.source}:{error.lineno}: {error.msg}", step.line, "correct that line")
        return
    if step.function not in defined:
        yield Problem(
            f"{what}: {step.source} does not define {step.function!r} at the top level",
            step.line,
            nearest(step.function, defined),
        )


def names_defined(text: str) -> tuple[str, ...]:
    """Return the names that a Python text defines at the top level, in order; raises ``SyntaxError``.

    Names that a statement at the top level defines inside it, such as in ``if`` or ``try``, count too.
    """
    names: dict[str, None] = {}

    def collect(body: Sequence[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    names[statement.name] = None
                case ast.Assign(targets=targets):
                    bind(targets)
                case ast.AnnAssign(target=target):
                    bind([target])
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    names.update(dict.fromkeys((alias.asname or alias.name).partition(".")[0] for alias in aliases))
                case ast.If() | ast.Try() | ast.With():
                    collect([child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)])
                    for handler in getattr(statement, "handlers", ()):
                        collect(handler.body)

    def bind(targets: Sequence[ast.expr]) -> None:
        nodes = (node for target in targets for node in ast.walk(target))
        names.update(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name)))

    collect(ast.parse(text).body)
    return tuple(names)


def _problems_of_parameters(step: PackageStep, what: str, known: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each parameter of a function that is not the name of a buffer, axis or parameter."""
    if not callable(step.function):
        yield Problem(f"{what} gets {step.function!r:.60}", step.line, "give it a function, or args=(...)")
        return
    try:
        parameters = _parameters(step.function)
    except (TypeError, ValueError):
        yield Problem(f"{what}: the function's parameters have no names", step.line, 'list args=("x", "y")')
        return
    for name in parameters:
        if name not in known:
            yield Problem(
                f"{what}: the function asks for {name!r}, which is no known name",
                line_of(step.function, step.line),
                nearest(name, known),
            )


def _parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters that have no default."""
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    parameters = inspect.signature(function).parameters.values()
    return [item.name for item in parameters if item.default is item.empty and item.kind in positional]


def arguments_of(step: PackageStep) -> Sequence[Argument]:
    """Return a step's arguments in order: those written, or the names of the function's parameters."""
    if step.args is not None:
        return step.args
    try:
        return _parameters(step.function)
    except (TypeError, ValueError):
        return ()  # reported as a problem of the step


# --- resolving -------------------------------------------------------------------------------------------------------


def resolved(
    step: PackageStep,
    *,
    variant: str,
    names: Mapping[str, Any],
    values: Mapping[str, Value],
    args: tuple[Arg, ...],
    buffers: Mapping[str, Buffer],
    module: int | None,
) -> Call:
    """Return a step with all its functions evaluated at a point.

    Args:
        step: the step.
        variant: the name of its variant, for messages.
        names: what the bench.py defines.
        values: the values of axes and parameters.
        args: the resolved arguments.
        buffers: the buffers of the case.
        module: the index of the step's source; None if the function is in the bench.py.

    Raises:
        Problem: one of the author's functions failed, or returned something that cannot be launched.
    """
    passed = {name for arg in arguments_of(step) if isinstance(name := getattr(arg, "buffer", arg), str)}
    outputs = [name for name, buffer in buffers.items() if buffer.role in {Role.OUTPUT, Role.INOUT}]
    what = f"shared_bytes of variant {variant!r}"
    function = step.function if isinstance(step.function, str) else name_in(step.function, names)
    grid = _grid_function(step, values, names, variant) if step.package == "triton" else ""
    call = PackageCall(
        package=step.package,
        args=args,
        results=() if step.is_kernel else tuple(name for name in outputs if name not in passed),
        configurations=tuple(_configurations(step, values, variant, known_grid=not grid)),
        grid=grid,
        block=() if step.block is None else block_of(step.block, values, f"block of variant {variant!r}", step.line),
        shared_bytes=integer(evaluate(step.shared_bytes, values, what, step.line), what, step.line),
        compile=step.compile if isinstance(step.compile, str) else "default" if step.compile else "",
        file=step.source,
    )
    return Call(function, module, package=call)


def _grid_function(step: PackageStep, values: Mapping[str, Value], names: Mapping[str, Any], variant: str) -> str:
    """Return the name of a grid function that asks for values of the kernel's own tuner; empty for any other grid."""
    if not callable(step.grid):
        return ""
    chosen = {*values, *step.values, *(name for config in step.configs for name in config)}
    unknown = [name for name in _parameters(step.grid) if name not in chosen]
    if not unknown:
        return ""
    name = name_in(step.grid, names)
    if not name:
        raise Problem(
            f"grid of variant {variant!r} asks for {unknown[0]!r}, which is no known name",
            line_of(step.grid, step.line),
            f"give {unknown[0]} a value: triton(..., {unknown[0]}=128); if the kernel's own tuner chooses it, define "
            "the grid at the top level with def",
        )
    return name


def _configurations(
    step: PackageStep, values: Mapping[str, Value], variant: str, *, known_grid: bool
) -> Iterator[KernelConfiguration]:
    """Yield each configuration with its grid. A step without ``configs`` has one configuration."""
    for config in step.configs or ({},):
        own = {
            name: _value(value, values, f"{name} of variant {variant!r}", step.line)
            for name, value in {**step.values, **config}.items()
        }
        grid: tuple[int, ...] = ()
        if step.grid is not None and known_grid:
            grid = grid_of_kernel(step.grid, {**values, **own}, f"grid of variant {variant!r}", step.line)
        yield KernelConfiguration(grid, tuple(own.items()))


def _value(written: Any, values: Mapping[str, Value], what: str, line: int) -> bool | int | float | str | None:
    """Return a value of a kernel's parameter: the value of an axis or parameter, a plain value, or a function's."""
    value = values.get(written, written) if isinstance(written, str) else evaluate(written, values, what, line)
    value = value.item() if hasattr(value, "item") else value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise Problem(f"{what} is {value!r:.60}", line, "make it a number, True, False, None or text")
    return value


def grid_of_kernel(written: object, names: Mapping[str, Any], what: str, line: int) -> tuple[int, ...]:
    """Return a grid of one to three positive numbers; raises ``Problem`` for anything else."""
    made = evaluate(written, names, what, line)
    sizes = tuple(integer(size, what, line) for size in (made if isinstance(made, tuple | list) else (made,)))
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:  # noqa: PLR2004 - dimensions
        raise Problem(f"{what} is {sizes}", line, "give it one to three numbers of 1 or more")
    return sizes
