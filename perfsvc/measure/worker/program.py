"""A replay record bound to a device: its steps as Python callables."""

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.libraries import LibraryFunction
from perfsvc.device.protocol import Device, Graph, GraphStep, Module
from perfsvc.dtypes import is_float
from perfsvc.errors import LaunchError
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.packages import PackageFunction, Timer
from perfsvc.model import (
    AllReduce,
    Arg,
    Barrier,
    BufferArg,
    Call,
    GraphTiming,
    HostFinish,
    HostMetric,
    Launch,
    LibraryCall,
    Memset,
    PeerCopy,
    ReplayRecord,
    RunProgram,
    Step,
    StructArg,
    TensorMapArg,
)

RunnableStep = tuple[Step, Callable[[], object]]
"""A step of a case, and a function that queues its work."""


class CaseGraph:
    """The graph of one case. A move of the buffers makes the graph useless: its nodes have the old addresses.

    Args:
        device: captures the steps.
        timing: what a sample is; empty for a case without a graph, which captures nothing.

    Attributes:
        captured: whether there is a graph of the steps at their present addresses.
    """

    def __init__(self, device: Device, timing: GraphTiming) -> None:
        self._device = device
        self._timing = timing
        self._graph: Graph | None = None

    @property
    def captured(self) -> bool:
        """Whether there is a graph of the steps at the present addresses."""
        return self._graph is not None

    def capture(self, steps: Sequence[RunnableStep], evict_bytes: int) -> None:
        """Capture the steps, and replay them once, because the first replay of a graph is slower; wait for its end.

        Args:
            steps: the steps; each has run before.
            evict_bytes: bytes written before each sample; with ``cold steps``, before each step.

        Raises:
            LaunchError: a step cannot be captured, or the replay failed.
        """
        self.drop()
        if not self._timing:
            return
        apart = self._timing == "cold steps"
        with _without_collections():
            self._graph = self._device.capture(_named(steps), apart=apart, evict_bytes=evict_bytes if apart else 0)
        self._graph.launch()
        self._device.synchronize()

    @contextlib.contextmanager
    def other(self, steps: Sequence[RunnableStep], *, apart: bool = False) -> Iterator[Graph]:
        """Capture the steps in another graph than that of the samples, and free it after the block.

        Args:
            steps: the steps; each has run before.
            apart: let each replay time each step by itself.
        """
        with _without_collections():
            graph = self._device.capture(_named(steps), apart=apart)
        with contextlib.closing(graph):
            yield graph

    @property
    def seconds(self) -> Callable[[], float] | None:
        """A function that returns the time of the last sample; None if the device times the samples."""
        return self._own_seconds if self._timing == "cold steps" else None

    def _own_seconds(self) -> float:
        return self._present.seconds()

    def launch(self) -> None:
        """Queue a replay."""
        self._present.launch()

    @property
    def _present(self) -> Graph:
        assert self._graph is not None  # noqa: S101 - callers look at ``captured``
        return self._graph

    def drop(self) -> None:
        """Free the graph, if there is one."""
        if self._graph:
            self._graph.close()
            self._graph = None


def _named(steps: Sequence[RunnableStep]) -> list[GraphStep]:
    """Return the steps with what messages call them: ``step 2, the launch of 'scale',``."""
    return [(f"step {number}, {_described(step)},", run) for number, (step, run) in enumerate(steps, 1)]


def _described(step: Step) -> str:
    match step:
        case Launch():
            return f"the launch of {step.entry!r}"
        case Memset():
            return f"the memset of {step.buffer!r}"
        case Call():
            return f"the call of {step.function!r}"
        case _:
            return step.step


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Prevent garbage collections: they could free memory of the device, which a capture forbids."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


Function = Callable[..., Any]
"""A Python step. It takes the device arrays by buffer name, the address of a stream to queue its work on, and a binary
if it asks for one. A function of a package takes the arrays of the package instead."""

Functions = Mapping[tuple[int | None, str], Function]
"""The Python functions by module and name. The module is the one whose text defines the function, and None stands for
the benchmark file."""

_Bound = Memset | Launch | PeerCopy | AllReduce | Barrier | HostFinish | Call
"""The steps that a worker with a device runs."""
_REDUCE: dict[str, Callable[[NDArray[Any]], Any]] = {"sum": np.sum, "min": np.min, "max": np.max, "mean": np.mean}


def load_functions(steps: Sequence[Call], bench: str, modules: Sequence[bytes]) -> Functions:
    """Return the Python functions that steps call; raises ``SuiteError`` if a text fails or lacks a function.

    Args:
        steps: the steps.
        bench: the text of the benchmark file.
        modules: the binaries of the case; some of them are texts that define functions.
    """
    from perfsvc import suite  # reads benchmark files, which few cases need in a worker

    names = [name for step in steps for name in step.bench_functions]
    functions: dict[tuple[int | None, str], Function] = {}
    if names:
        functions |= {(None, name): function for name, function in suite.functions(bench, names).items()}
    for module in dict.fromkeys(step.source for step in steps if step.source is not None):
        own = [step for step in steps if step.source == module]
        file = next(step.package.file for step in own if step.package)
        found = suite.functions(modules[module].decode(), [step.function for step in own], file)
        functions |= {(module, name): function for name, function in found.items()}
    return functions


class Program:
    """The steps of one case, ready to run on a device. Libraries keep what they need until the ``with`` block ends.

    Args:
        device: runs the steps.
        record: the steps.
        modules: the binaries, in the order of ``record.modules``.
        memory: the case's buffers.
        functions: the Python functions that ``Call`` steps name.

    Attributes:
        timed: the steps of a sample, each with the callable that runs it.
        calls: whether any step of a sample is a Python function or a library.
        packages: the steps that call a Python package, by their position.
        graph: the CUDA graph of the steps of a sample, if the case has one.
    """

    def __init__(
        self,
        device: Device,
        record: ReplayRecord,
        modules: Sequence[bytes],
        memory: CaseMemory,
        functions: Functions,
    ) -> None:
        self._device = device
        self._memory = memory
        self._functions = functions
        self._binaries = modules
        self._launches = [step for step in record.steps if isinstance(step, Launch)]
        self._modules: dict[tuple[int, int], Module] = {
            (gpu, module): device.on(gpu).load(modules[module])
            for gpu, module in sorted({(step.gpu, step.module) for step in self._launches})
        }
        self._enclosed = ((device.fork,), (device.join,)) if record.gpus > 1 else ((), ())
        self._metrics = [step for step in record.steps if isinstance(step, HostMetric)]
        # A worker with a device runs no program.
        self._steps = [step for step in record.steps if not isinstance(step, HostMetric | RunProgram)]
        self.graph = CaseGraph(device, record.graph)
        self.calls = any(
            isinstance(step, LibraryCall) or (isinstance(step, Call) and step.timed) for step in self._steps
        )
        self.packages = {
            position: PackageFunction(
                step,
                functions[step.source, step.function],
                functions[None, step.package.grid] if step.package.grid else None,
                point=dict(record.case.point),
                stream=device.stream,
                dtypes={buffer.array.name: buffer.array.dtype for buffer in record.buffers},
            )
            for position, step in enumerate(self._steps)
            if isinstance(step, Call) and step.package
        }
        self._libraries = {
            position: LibraryFunction(device, modules[step.module], step.entry, dict(step.values))
            for position, step in enumerate(self._steps)
            if isinstance(step, LibraryCall)
        }
        self._buffers = [buffer.array for buffer in record.buffers]
        try:
            self.bind()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A library may fail at its end because of the first error, which must not be hidden.
        with contextlib.suppress(LaunchError) if error else contextlib.nullcontext(), contextlib.ExitStack() as ends:
            for function in self._libraries.values():
                ends.callback(function.end)
            ends.callback(self.graph.drop)

    def bind(self) -> bool:
        """Bind the steps to the present addresses of the buffers; call it again after ``CaseMemory.move``.

        A graph of the steps is dropped.

        Returns:
            Whether a library has new work, which should run once before it is timed.
        """
        self.graph.drop()
        buffers = [(array, self._memory.address(array.name)) for array in self._buffers]
        is_new = [function.prepare(buffers) for function in self._libraries.values()]
        bound = [(step, *self._bind(position, step)) for position, step in enumerate(self._steps)]
        self.timed = [(step, timed) for step, timed, _ in bound if not isinstance(step, Call) or step.timed]
        first, last = self._enclosed
        self._all = [*first, *(checked for _, _, checked in bound), *last]
        self._queued = [*first, *(run for step, run in self.timed if not isinstance(step, HostFinish)), *last]
        return any(is_new)

    def capture(self, evict_bytes: int) -> None:
        """Capture the steps of a sample in a graph, if the case has one, and replay it; ``run`` must run before.

        Args:
            evict_bytes: bytes written before each sample.

        Raises:
            LaunchError: a step cannot be captured, or the replay failed.
        """
        self._memory.restore()  # for the replay
        self.graph.capture(self.timed, evict_bytes)

    @property
    def operations(self) -> int | None:
        """How many operations ``queue`` puts on the stream; None if a Python step or a library decides that."""
        if self.graph.captured:
            return 1
        return None if self.calls else len(self._queued)

    def set_constants(self) -> None:
        """Fill ``__constant__`` symbols from their buffers."""
        for launch in self._launches:
            for symbol, buffer in launch.constants:
                address, nbytes = self._memory.address(buffer), self._memory.nbytes(buffer)
                module = self._modules[launch.gpu, launch.module]
                self._device.on(launch.gpu).set_constant(module, symbol, address, nbytes)

    def prepare(self, timer: Timer) -> None:
        """Run every step, and compile and tune the functions of packages when their turn comes.

        The contents of the buffers are undefined afterwards, because tuning runs a step several times.

        Args:
            timer: times what a callable queues.
        """
        self._device.synchronize()
        views = self._memory.views()
        for position, run in enumerate(self._all):
            if position in self.packages:
                self.packages[position].prepare(views, self._device.synchronize, timer)
            run()
        self._device.synchronize()

    def run(self) -> list[Any]:
        """Run every step, host steps included, wait for the device, and return what each step returned.

        If the steps are captured, a replay runs them and returns nothing.
        """
        self._device.synchronize()  # inputs may still be uploading, and a pipeline has streams of its own
        if self.graph.captured:
            self.graph.launch()
            self._device.synchronize()
            return []
        returned = [step() for step in self._all]
        self._device.synchronize()
        return returned

    def sample(self) -> None:
        """Run every timed step and wait for the device: a sample of a ``pipeline`` variant."""
        for _, run in self.timed:
            run()
        self._device.synchronize()

    def queue(self) -> None:
        """Queue the timed steps that run on the device, without host steps: a sample of a ``kernel`` variant.

        If the steps are captured, queue a replay.
        """
        if self.graph.captured:
            self.graph.launch()
            return
        for step in self._queued:
            step()

    def metrics(self) -> dict[str, float]:
        """Return the metrics, by name, that are computed from the present content of buffers.

        Raises:
            LaunchError: a metric is not finite.
        """
        return {step.name: _metric(step, self._memory) for step in self._metrics}

    def _bind(self, position: int, step: _Bound | LibraryCall) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Return two callables without arguments that run a step: in a sample, and for a check.

        They differ only if a function returns its results: a check copies them into the outputs.
        """
        if position in self.packages:
            return self.packages[position].bind(self._memory.views())
        if isinstance(step, LibraryCall):
            return self._libraries[position].run, self._libraries[position].run
        run = self._bound(position, step)
        return run, run

    def _bound(self, position: int, step: _Bound) -> Callable[[], Any]:  # noqa: PLR0911 - one for each kind of step
        """Return a callable without arguments that runs the step at a position."""
        # The callable must not refer to this program: a cycle would keep its modules until a garbage collection.
        device, memory = self._device, self._memory
        match step:
            case Memset(buffer, byte):
                return partial(memory.device(buffer).fill, memory.address(buffer), memory.nbytes(buffer), byte)
            case Launch():
                args = [
                    _value(arg, memory, device, step.gpu, (position, number)) for number, arg in enumerate(step.args)
                ]
                return partial(device.on(step.gpu).launch, self._modules[step.gpu, step.module], step, args)
            case PeerCopy(source, target):
                to, where = ((memory.gpu(name), memory.address(name)) for name in (target, source))
                return partial(device.peer_copy, to, where, memory.nbytes(source))
            case AllReduce(sources, targets, operation):
                array = memory.array(sources[0])
                read, written = (list(map(memory.address, names)) for names in (sources, targets))
                return partial(device.all_reduce, read, written, array.dtype, math.prod(array.shape), operation)
            case Barrier():
                return partial(_meet, device)
            case HostFinish():
                return partial(_finish, step, memory)
            case Call(name, module):
                binary = () if module is None else (self._binaries[module],)
                return partial(_call, name, self._functions[None, name], memory.views(), device.stream, *binary)


def _meet(device: Device) -> None:
    """Let every GPU of a group wait for all others."""
    device.join()
    device.fork()


def _value(arg: Arg, memory: CaseMemory, device: Device, gpu: int, place: tuple[int, int]) -> np.generic:
    """Return the value that a launch passes for an argument; a buffer is passed by its address.

    Args:
        arg: the argument.
        memory: the case's buffers.
        device: the device of the case.
        gpu: the GPU of the launch.
        place: the position of the step, and of the argument in the step.
    """
    if isinstance(arg, BufferArg | TensorMapArg) and memory.gpu(arg.buffer) != gpu:
        device.require_access(gpu, memory.gpu(arg.buffer))
    if isinstance(arg, BufferArg):
        return np.uint64(memory.address(arg.buffer))
    if isinstance(arg, TensorMapArg):
        return device.on(gpu).tensor_map(memory.address(arg.buffer), arg)
    if isinstance(arg, StructArg):
        content = _struct(arg, memory, device, gpu)
        return np.uint64(memory.hold(device.on(gpu), place, content)) if arg.pointer else np.void(content)
    scalar: np.generic = np.dtype(arg.dtype).type(arg.value)
    return scalar


def _struct(arg: StructArg, memory: CaseMemory, device: Device, gpu: int) -> bytes:
    """Return the bytes of a struct; the bytes between its fields are zero."""
    content = bytearray(arg.nbytes)
    for offset, field in arg.fields:
        value = _value(field, memory, device, gpu, (0, 0)).tobytes()
        content[offset : offset + len(value)] = value
    return bytes(content)


def _finish(step: HostFinish, memory: CaseMemory) -> None:
    """Reduce a buffer on the host, for example to its sum, and write the result to another buffer."""
    values = memory.read(step.source)
    if is_float(values.dtype):
        values = values.astype(np.float64)
    memory.write(step.target, np.asarray(_REDUCE[step.operation](values)))


def _metric(step: HostMetric, memory: CaseMemory) -> float:
    """Return a metric computed from its buffer; raise ``LaunchError`` if it is not finite."""
    value = float(_REDUCE[step.operation](memory.read(step.buffer).astype(np.float64)))
    if not math.isfinite(value):
        raise LaunchError(
            f"the metric {step.name!r}, the {step.operation} of the buffer {step.buffer!r}, is {value:g}",
            cure="write every element of that buffer at each launch",
        )
    return value


def _call(name: str, function: Function, views: Mapping[str, Any], stream: int, *binary: bytes) -> Any:
    """Call a Python step and return its result; raise ``LaunchError`` with the step's name if it fails."""
    try:
        return function(views, stream, *binary)
    except Exception as error:
        raise LaunchError(
            f"the Python step {name!r} raised {type(error).__name__}: {error}",
            cure="correct the function in the benchmark file",
        ) from error
