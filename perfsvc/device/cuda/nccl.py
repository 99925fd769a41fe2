"""NVIDIA's library for collective operations between GPUs, called by its C interface."""

import contextlib
import ctypes
from collections.abc import Mapping, Sequence

from perfsvc.device.protocol import Reduction
from perfsvc.errors import LaunchError
from perfsvc.installation import nccl_command, nccl_library

# The numbers of nccl.h, which have not changed since version 2.10.
_DTYPES: Mapping[str, int] = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
_OPERATIONS: Mapping[Reduction, int] = {"sum": 0, "max": 2, "min": 3}
_Handle = ctypes.c_void_p


class Communicators:
    """A communicator of NCCL for each GPU of a group, all in this process.

    Making them takes NCCL about a second, and some memory of each GPU.

    Args:
        ordinals: the numbers that CUDA gives the GPUs in this process.

    Raises:
        LaunchError: NCCL is missing, or cannot connect the GPUs.
    """

    def __init__(self, ordinals: Sequence[int]) -> None:
        try:
            self._library = ctypes.CDLL(nccl_library() or "libnccl.so.2")
        except OSError as error:
            raise LaunchError(f"NCCL cannot be loaded: {error}", cure=nccl_command()) from error
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._handles = (_Handle * len(ordinals))()
        devices = (ctypes.c_int * len(ordinals))(*ordinals)
        self._check("ncclCommInitAll", self._library.ncclCommInitAll(self._handles, len(ordinals), devices))

    def all_reduce(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        dtype: str,
        count: int,
        operation: Reduction,
        *,
        streams: Sequence[int],
    ) -> None:
        """Queue an all-reduce on the stream of each GPU; addresses and streams are in the order of the GPUs."""
        library, kind, how = self._library, _DTYPES[dtype], _OPERATIONS[operation]
        self._check("ncclGroupStart", library.ncclGroupStart())
        for source, target, handle, stream in zip(sources, targets, self._handles, streams, strict=True):
            result = library.ncclAllReduce(
                _Handle(source), _Handle(target), ctypes.c_size_t(count), kind, how, _Handle(handle), _Handle(stream)
            )
            self._check("ncclAllReduce", result)
        self._check("ncclGroupEnd", library.ncclGroupEnd())

    def close(self) -> None:
        """Free the communicators."""
        with contextlib.suppress(LaunchError):  # a lost GPU
            for handle in self._handles:
                self._check("ncclCommDestroy", self._library.ncclCommDestroy(_Handle(handle)))

    def _check(self, call: str, result: int) -> None:
        """Raise ``LaunchError`` if a call failed; the worker then ends, because the communicators are not usable."""
        if result:
            why = self._library.ncclGetErrorString(result).decode(errors="replace")
            raise LaunchError(f"{call} failed: {why}", cure="see why with NCCL_DEBUG=INFO", fatal=True)
