"""Calls of the CUDA driver that concern several GPUs, and that PyCUDA lacks."""

import ctypes
from collections.abc import Sequence
from itertools import permutations

from perfsvc.errors import LaunchError

_DRIVER = ctypes.CDLL("libcuda.so.1")  # the library that PyCUDA has loaded
_ALREADY_ENABLED = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING

Handle = ctypes.c_void_p
"""A context, a stream or an event of the driver."""


def current_context() -> Handle:
    """Return the context that is current in this thread."""
    context = Handle()
    _check("cuCtxGetCurrent", _DRIVER.cuCtxGetCurrent(ctypes.byref(context)))
    return context


def make_current(context: Handle) -> None:
    """Replace the context that is current in this thread."""
    _check("cuCtxSetCurrent", _DRIVER.cuCtxSetCurrent(context))


def inaccessible(ordinals: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of positions in ``ordinals`` of which the first GPU cannot access the memory of the second."""
    pairs = []
    for first, second in permutations(range(len(ordinals)), 2):
        can = ctypes.c_int()
        result = _DRIVER.cuDeviceCanAccessPeer(ctypes.byref(can), ordinals[first], ordinals[second])
        _check("cuDeviceCanAccessPeer", result)
        if not can.value:
            pairs.append((first, second))
    return pairs


def enable_access(peer: Handle) -> None:
    """Let kernels of the current context access the memory of another context."""
    result = _DRIVER.cuCtxEnablePeerAccess(peer, 0)
    if result != _ALREADY_ENABLED:
        _check("cuCtxEnablePeerAccess", result)


class Order:
    """Orders the streams of several GPUs by events.

    Args:
        streams: the streams; the first is the lead's.
        events: an event of the context of each stream.
    """

    def __init__(self, streams: Sequence[int], events: Sequence[Handle]) -> None:
        self._streams = [Handle(stream) for stream in streams]
        self._events = list(events)

    def fork(self) -> None:
        """Have all other streams wait for what is queued on the lead's."""
        self._record(0)
        for stream in self._streams[1:]:
            _check("cuStreamWaitEvent", _DRIVER.cuStreamWaitEvent(stream, self._events[0], 0))

    def join(self) -> None:
        """Have the lead's stream wait for what is queued on all others."""
        for position in range(1, len(self._streams)):
            self._record(position)
            result = _DRIVER.cuStreamWaitEvent(self._streams[0], self._events[position], 0)
            _check("cuStreamWaitEvent", result)

    def _record(self, position: int) -> None:
        _check("cuEventRecord", _DRIVER.cuEventRecord(self._events[position], self._streams[position]))

    def close(self) -> None:
        """Destroy the events."""
        for event in self._events:
            _DRIVER.cuEventDestroy_v2(event)


def new_event() -> Handle:
    """Return a new event of the current context, which measures no time."""
    event = Handle()
    _check("cuEventCreate", _DRIVER.cuEventCreate(ctypes.byref(event), _NO_TIMING))
    return event


def copy(  # noqa: PLR0917 - the driver's own order
    target: int, target_context: Handle, source: int, source_context: Handle, nbytes: int, stream: int
) -> None:
    """Queue a copy from the memory of one context to that of another on a stream."""
    result = _DRIVER.cuMemcpyPeerAsync(
        ctypes.c_uint64(target),
        target_context,
        ctypes.c_uint64(source),
        source_context,
        ctypes.c_size_t(nbytes),
        Handle(stream),
    )
    _check("cuMemcpyPeerAsync", result)


def _check(call: str, result: int) -> None:
    """Raise ``LaunchError`` if a call of the driver failed; the worker then ends."""
    if not result:
        return
    text = ctypes.c_char_p()
    _DRIVER.cuGetErrorString(result, ctypes.byref(text))
    why = text.value.decode(errors="replace") if text.value else f"error {result}"
    raise LaunchError(f"{call} failed: {why}", cure="see dmesg for the driver's own report (Xid)", fatal=True)
