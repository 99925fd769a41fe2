"""Call functions and launch kernels of Triton, CuPy, Numba and PyTorch with a case's buffers.

A package is imported only when a case needs it. This module uses the names and calls of Triton 3.6, CuPy 14, numba-cuda
0.2x and PyTorch 2.11. Older versions have the same names and calls.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from perfsvc.dtypes import NARROW
from perfsvc.errors import LaunchError
from perfsvc.model import BufferArg, Call, KernelConfiguration, PackageCall, ScalarArg, Value

Timer = Callable[[Callable[[], None]], float]
"""Returns the median time in seconds of what a callable queues."""

ROUNDS = 3
"""How often all configurations are timed, one after the other: the GPU's clock may rise during the first round."""
NEAR = 0.01
"""Configurations that are slower than the fastest by at most this share count as equal, and the first is chosen.

Otherwise chance would choose another configuration in each process.
"""

_COMPILE_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "enable_fp_fusion")
"""The entries of Triton's metadata that its compiler takes as options."""
_SIGNED: Mapping[str, str] = {"uint16": "<i2", "uint8": "|u1"}
"""The integers as which PyTorch takes the bits of narrow floats: its old versions have no uint16."""


class Arrays(Protocol):
    """The arrays and the stream of one package."""

    def array(self, view: Any, dtype: str) -> Any:
        """Return a buffer's memory as an array of the package, without a copy."""
        ...

    def queued(self) -> AbstractContextManager[object]:
        """Queue what the package does during the block on perfsvc's stream."""
        ...

    def store(self, target: Any, result: Any) -> None:
        """Queue a copy of a result into a buffer's array."""
        ...


class _Interface:
    """Memory with the array interface of its bits, as integers that every version of PyTorch knows."""

    def __init__(self, view: Any, typestr: str) -> None:
        self.__cuda_array_interface__ = {**view.__cuda_array_interface__, "typestr": typestr}


class TorchArrays:
    """Tensors of PyTorch: on the GPU, or on the host if the device has no streams."""

    def __init__(self, stream: int) -> None:
        import torch

        self._torch = torch
        self._stream = torch.cuda.ExternalStream(stream) if stream else None

    def array(self, view: Any, dtype: str) -> Any:
        """Return a tensor of the buffer's dtype."""
        torch, narrow = self._torch, NARROW.get(dtype)
        if self._stream is None:
            tensor = torch.from_numpy(view.view(np.dtype(_SIGNED[narrow])) if narrow else view)
        else:
            tensor = torch.as_tensor(_Interface(view, _SIGNED[narrow]) if narrow else view, device="cuda")
        return tensor.view(getattr(torch, dtype)) if narrow else tensor

    @contextlib.contextmanager
    def queued(self) -> Any:
        """Make perfsvc's stream the current stream of PyTorch, and keep no history for gradients."""
        with self._torch.no_grad():
            if self._stream is None:
                yield
            else:
                with self._torch.cuda.stream(self._stream):
                    yield

    def store(self, target: Any, result: Any) -> None:
        """Copy a tensor, converted to the dtype of the buffer."""
        target.copy_(self._torch.as_tensor(result).reshape(target.shape))


class CupyArrays:
    """Arrays of CuPy. It has bfloat16 from version 14 on; float8 arrays have the dtype uint8."""

    def __init__(self, stream: int) -> None:
        import cupy

        self._cupy = cupy
        self._stream = cupy.cuda.ExternalStream(stream)

    def array(self, view: Any, dtype: str) -> Any:
        """Return an array of the buffer's dtype, or of its bits if CuPy does not have the dtype."""
        array = self._cupy.asarray(view)
        if dtype in NARROW:
            with contextlib.suppress(TypeError, ValueError):
                return array.view(np.dtype(dtype))
        return array

    def queued(self) -> AbstractContextManager[object]:
        """Make perfsvc's stream the current stream of CuPy."""
        stream: AbstractContextManager[object] = self._stream
        return stream

    def store(self, target: Any, result: Any) -> None:
        """Copy an array, converted to the dtype of the buffer."""
        target[...] = self._cupy.asarray(result).reshape(target.shape)


class NumbaArrays:
    """Device arrays of Numba. Narrow floats have the dtype of their bits: uint16 or uint8."""

    def __init__(self, stream: int) -> None:
        from numba import cuda

        self._cuda = cuda
        self.stream = cuda.external_stream(stream)

    def array(self, view: Any, dtype: str) -> Any:  # noqa: ARG002 - as for the other packages
        """Return a device array."""
        return self._cuda.as_cuda_array(view)

    def queued(self) -> AbstractContextManager[object]:
        """Do nothing: each launch names the stream."""
        return contextlib.nullcontext()

    def store(self, target: Any, result: Any) -> None:
        """Do nothing: kernels return nothing."""


_ARRAYS: Mapping[str, Callable[[int], Arrays]] = {
    "triton": TorchArrays,
    "torch": TorchArrays,
    "cupy": CupyArrays,
    "numba": NumbaArrays,
}


class PackageFunction:
    """A ``Call`` step of a package, ready to be bound to the present addresses of its buffers.

    Args:
        step: the step; ``step.package`` is not None.
        function: the function or kernel.
        grid: the function that computes the grid from the values of the kernel's own tuner; None without one.
        point: the values of the axes, for ``grid``.
        stream: the address of the device's stream; 0 if the device has no streams.
        dtypes: the dtype of each buffer.

    Attributes:
        chosen: the configuration that is launched.
        compile_s: seconds that the first call took longer than the second: for compiling, or for loading compiled code
            from a cache.
    """

    def __init__(
        self,
        step: Call,
        function: Any,
        grid: Callable[..., Any] | None,
        *,
        point: Mapping[str, Value],
        stream: int,
        dtypes: Mapping[str, str],
    ) -> None:
        assert step.package is not None  # noqa: S101 - see Args
        self._name = step.function
        self._call: PackageCall = step.package
        self._kernel = function
        self._grid = grid
        self._point = point
        self._dtypes = dtypes
        self._arrays = _ARRAYS[self._call.package](stream)
        self._function = self._compiled(function) if self._call.compile else function
        self.chosen = self._call.configurations[0]
        self.compile_s = 0.0

    def _compiled(self, function: Any) -> Any:
        """Return the function as ``torch.compile`` compiles it, for the shapes that it is called with."""
        import torch

        mode = None if self._call.compile == "default" else self._call.compile
        return torch.compile(function, mode=mode, dynamic=False)

    def bind(self, views: Mapping[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Return two callables for buffers at these addresses: one to time, and one that also stores the results."""
        with self._translated():
            arrays = {name: self._arrays.array(view, self._dtypes[name]) for name, view in views.items()}
            args = [self._argument(arg, arrays) for arg in self._call.args]

        def timed() -> Any:
            with self._translated(), self._arrays.queued():
                return self._run(args, self.chosen)

        def checked() -> None:
            with self._translated(), self._arrays.queued():
                self._store(self._run(args, self.chosen), arrays)

        return timed, checked

    def prepare(self, views: Mapping[str, Any], wait: Callable[[], None], timer: Timer) -> None:
        """Compile the function, and choose the fastest configuration; the contents of the buffers are undefined then.

        Args:
            views: the buffers.
            wait: waits until the device has done all work.
            timer: times what a callable queues.

        Raises:
            LaunchError: no configuration can be launched.
        """
        timed, _ = self.bind(views)
        errors: list[LaunchError] = []
        first_s: dict[KernelConfiguration, float] = {}
        for configuration in self._call.configurations:
            self.chosen = configuration
            try:
                first_s[configuration] = _seconds(timed, wait)
            except LaunchError as error:
                if error.fatal:
                    raise
                errors.append(error)
                wait()  # raises if the error has ended the device's context
        if not first_s:
            raise errors[0]
        self.chosen = next(iter(first_s))
        if len(self._call.configurations) > 1:
            self._choose(list(first_s), timed, timer)
        self.compile_s = max(0.0, first_s[self.chosen] - _seconds(timed, wait))

    def _choose(self, usable: Sequence[KernelConfiguration], timed: Callable[[], None], timer: Timer) -> None:
        """Choose the first of the configurations that are as fast as the fastest."""
        best_s = dict.fromkeys(usable, math.inf)
        for _ in range(ROUNDS):
            for configuration in usable:
                self.chosen = configuration
                best_s[configuration] = min(best_s[configuration], timer(timed))
        limit_s = (1 + NEAR) * min(best_s.values())
        self.chosen = next(configuration for configuration in usable if best_s[configuration] <= limit_s)

    @property
    def is_triton(self) -> bool:
        """Whether the step launches a kernel of Triton."""
        return self._call.package == "triton"

    @property
    def choice(self) -> str:
        """What tuning chose, for people: ``BLOCK=1024, num_warps=8``; empty if there was nothing to choose."""
        configurations = self._call.configurations
        if len(configurations) > 1:
            common = set(configurations[0].values).intersection(*(other.values for other in configurations))
            values = ", ".join(f"{name}={value}" for name, value in self.chosen.values if (name, value) not in common)
            return f"tuning chose {values} among {len(configurations)} configurations for {self._name}"
        best, own = getattr(self._kernel, "best_config", None), getattr(self._kernel, "configs", ())
        return f"Triton's tuner chose {best} for {self._name}" if best is not None and len(own) > 1 else ""

    # --- one call ----------------------------------------------------------------------------------------------------

    def _argument(self, arg: object, arrays: Mapping[str, Any]) -> Any:
        """Return an argument as the package takes it."""
        if isinstance(arg, BufferArg):
            return arrays[arg.buffer]
        if not isinstance(arg, ScalarArg):
            raise LaunchError(f"{self._call.package} takes no tensor map", cure="pass the array itself")
        if self._call.package in {"triton", "torch"} or (arg.dtype in {"int64", "float64"} and not self._is_raw):
            return arg.value
        return np.dtype(arg.dtype).type(arg.value)

    @property
    def _is_raw(self) -> bool:
        """Whether the step launches a kernel of CuPy, which needs NumPy scalars of exactly the right type."""
        return self._call.package == "cupy" and bool(self._call.configurations[0].grid)

    def _run(self, args: Sequence[Any], configuration: KernelConfiguration) -> Any:
        """Launch the kernel in a configuration, or call the function and return what it returns."""
        call, grid = self._call, configuration.grid
        if call.package == "triton":
            return self._function[grid or self._grid_of](*args, **dict(configuration.values))
        if isinstance(self._arrays, NumbaArrays):
            return self._function[grid, call.block, self._arrays.stream, call.shared_bytes](*args)
        if grid:
            return self._function(grid, call.block, tuple(args), shared_mem=call.shared_bytes)
        return self._function(*args)

    def _grid_of(self, chosen: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the grid for the arguments of a launch, which include the values that Triton's tuner chose."""
        from perfsvc.suite.steps.packages import (
            grid_of_kernel,  # reads benchmark files, which few cases need in a worker
        )
        from perfsvc.suite.values import Problem

        what = f"grid of {self._name!r}"
        try:
            return grid_of_kernel(self._grid, {**chosen, **self._point}, what, 0)
        except Problem as problem:
            raise LaunchError(problem.what, cure=problem.cure) from problem

    def _store(self, returned: Any, arrays: Mapping[str, Any]) -> None:
        """Copy what a function returned into the outputs that it did not get."""
        names = self._call.results
        if not names:
            return
        if isinstance(returned, Mapping):
            results = [returned.get(name) for name in names]
        elif isinstance(returned, tuple | list):
            results = list(returned)
        else:
            results = [returned]
        if len(results) != len(names) or any(result is None for result in results):
            raise LaunchError(
                f"{self._name!r} does not get the outputs {', '.join(names)}, and returned {_described(returned)}",
                cure="return one array for each of them, or take them as arguments and write into them",
            )
        for name, result in zip(names, results, strict=True):
            self._arrays.store(arrays[name], result)

    @contextlib.contextmanager
    def _translated(self) -> Any:
        """Turn an error of the function or its package into a ``LaunchError`` that names the step."""
        try:
            yield
        except LaunchError:
            raise
        except Exception as error:
            raise LaunchError(
                f"the {self._call.package} step {self._name!r} raised {type(error).__name__}: {error}",
                cure=f"correct the function or its arguments in {self._call.file or 'the benchmark file'}",
            ) from error


def _seconds(run: Callable[[], object], wait: Callable[[], None]) -> float:
    """Return how long a call takes until the device has done its work."""
    wait()
    started = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - started


def _described(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__}"


def triton_compile_s(kernels: Sequence[Any]) -> float | None:
    """Return how long Triton takes to compile kernels without its cache; None if it cannot be measured.

    A compiled kernel usually comes from Triton's cache on disk, so the first launch does not show the time. Triton 3
    keeps the source of a compiled kernel, and ``compile`` accepts it again.

    Args:
        kernels: the compiled kernels that a case launched.
    """
    triton = sys.modules.get("triton")
    if triton is None or not kernels:
        return None
    started = time.perf_counter()
    try:
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.always_compile = True
            for kernel in kernels:
                metadata = kernel.metadata._asdict()
                options = {name: metadata[name] for name in _COMPILE_OPTIONS if metadata.get(name) is not None}
                triton.compile(kernel.src, target=kernel.metadata.target, options=options)
    except Exception:  # noqa: BLE001 - another version of Triton; the times are right without it
        return None
    return time.perf_counter() - started
