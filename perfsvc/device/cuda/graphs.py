"""CUDA graphs: capture what steps queue on a stream, and replay it. PyCUDA has no graphs, so ctypes calls the driver.

The symbols are those that ``cuda.h`` maps its names to from CUDA 11.4 on. Nodes of the graph record the events inside a
graph (``CU_EVENT_RECORD_EXTERNAL``), at each replay anew.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from perfsvc.device.cuda.driver import DriverError, call, library
from perfsvc.device.cuda.memory import Eviction
from perfsvc.device.protocol import GraphStep
from perfsvc.errors import LaunchError

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads, such as a library's, may do what they like
_NOT_CAPTURING, _CAPTURING = 0, 1  # CU_STREAM_CAPTURE_STATUS_NONE, _ACTIVE
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL
_SECONDS_PER_MS = 1e-3

_CURE = (
    "let the step only queue work on its stream: it must not wait for the GPU, allocate or free memory, or use the "
    "default stream; or remove graph= from the variant"
)


def _status(stream: Any) -> int:
    """Return whether a stream is being captured; ``_CAPTURING`` only if the capture is still valid."""
    status = ctypes.c_int()
    call("cuStreamIsCapturing", ctypes.c_void_p(int(stream.handle)), ctypes.byref(status))
    return status.value


class CudaGraph:
    """A ``Graph`` on a GPU: an executable graph, and two events for each step that is timed by itself.

    Args:
        stream: the stream that replays are queued on.
        events: two events for each step; none if the steps are not timed by themselves.
        fail: raises a ``LaunchError`` for an error of the driver.
    """

    def __init__(
        self,
        stream: Any,
        events: Sequence[tuple[ctypes.c_void_p, ctypes.c_void_p]],
        fail: Callable[[Exception], object],
    ) -> None:
        self._fail = fail
        self._stream = ctypes.c_void_p(int(stream.handle))
        self.events = events
        self._executable = ctypes.c_void_p()

    def instantiate(self, graph: ctypes.c_void_p) -> None:
        """Make the graph executable, and copy it to the GPU, so that the first replay does not have to."""
        call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0))
        call("cuGraphUpload", self._executable, self._stream)

    def launch(self) -> None:
        """Queue a replay; raise ``LaunchError`` if the driver refuses it."""
        try:
            call("cuGraphLaunch", self._executable, self._stream)
        except DriverError as error:
            self._fail(error)

    def seconds(self) -> float:
        """Return the sum of the steps' times in the last replay, which has ended."""
        total_ms, elapsed_ms = 0.0, ctypes.c_float()
        for start, end in self.events:
            call("cuEventElapsedTime", ctypes.byref(elapsed_ms), start, end)
            total_ms += elapsed_ms.value
        return total_ms * _SECONDS_PER_MS

    def close(self) -> None:
        """Free the graph and its events; if the context is lost, the driver returns errors, because they are free."""
        if self._executable:
            library().cuGraphExecDestroy(self._executable)
            self._executable = ctypes.c_void_p()
        for pair in self.events:
            for event in pair:
                library().cuEventDestroy_v2(event)
        self.events = ()


def capture(
    stream: Any,
    steps: Sequence[GraphStep],
    eviction: Eviction,
    fail: Callable[[Exception], object],
    *,
    apart: bool,
    evict_bytes: int,
) -> CudaGraph:
    """Return the graph of what steps queue on a stream; see ``Device.capture``.

    Raises:
        LaunchError: a step cannot be captured; the error names it.
        DriverError: the driver refuses the graph.
    """
    if evict_bytes:
        eviction.prepare(evict_bytes)  # may allocate, which a capture forbids
    captured = CudaGraph(stream, [(_event(), _event()) for _ in steps] if apart else (), fail)
    graph = ctypes.c_void_p()
    handle = ctypes.c_void_p(int(stream.handle))
    try:
        call("cuStreamBeginCapture_v2", handle, ctypes.c_int(_THREAD_LOCAL))
        for number, step in enumerate(steps):
            if evict_bytes:
                eviction.queue(evict_bytes)
            if apart:
                _record(captured, number, 0, handle)
            _queue(stream, step)
            if apart:
                _record(captured, number, 1, handle)
        _end(handle, graph)
        captured.instantiate(graph)
    except BaseException:
        abandon(stream)
        captured.close()
        raise
    finally:
        if graph:
            library().cuGraphDestroy(graph)
    return captured


def _queue(stream: Any, step: GraphStep) -> None:
    """Let a step queue its work; raise ``LaunchError`` with the step's name if that ended the capture."""
    name, queue = step
    try:
        queue()
        broken = _status(stream) != _CAPTURING
    except Exception as error:
        if isinstance(error, LaunchError) and error.fatal:
            raise
        raise LaunchError(f"{name} cannot be captured in a CUDA graph: {error}", cure=_CURE) from error
    if broken:
        raise LaunchError(f"{name} broke the capture of its CUDA graph", cure=_CURE)


def _end(handle: ctypes.c_void_p, graph: ctypes.c_void_p) -> None:
    """End a capture and store its graph; raise ``LaunchError`` if the capture is broken."""
    try:
        call("cuStreamEndCapture", handle, ctypes.byref(graph))
    except DriverError as error:
        what = f"the steps cannot be captured in a CUDA graph: {error}"
        cure = f"let the stream wait for every other stream that a step uses; {_CURE}"
        raise LaunchError(what, cure=cure) from error


def abandon(stream: Any) -> None:
    """End the capture of a stream, if there is one, and throw its graph away; the stream can be used again."""
    try:
        if _status(stream) == _NOT_CAPTURING:
            return
    except DriverError:  # the context is lost
        return
    graph = ctypes.c_void_p()
    library().cuStreamEndCapture(ctypes.c_void_p(int(stream.handle)), ctypes.byref(graph))
    if graph:
        library().cuGraphDestroy(graph)


def _event() -> ctypes.c_void_p:
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
    return event


def _record(captured: CudaGraph, step: int, which: int, handle: ctypes.c_void_p) -> None:
    """Add a node that records the first (0) or second (1) event of a step."""
    call("cuEventRecordWithFlags", captured.events[step][which], handle, ctypes.c_uint(_EXTERNAL))
