"""Libraries of benchmarks in this process: shared objects that ``perfsvc.build`` made from host code in C++.

The structures have the layouts of those in ``perfsvc/build/include/perfsvc.h``.
"""

import contextlib
import ctypes
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from perfsvc import elf
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError
from perfsvc.model import Array, Value
from perfsvc.process import toolkits
from perfsvc.temporary import temporary_folder

ENTRY = "perfsvc_library_"
"""What comes before the name of an entry in the names that a shared object exports."""

_ABI = 1
_MESSAGE_BYTES = 4096
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ulonglong)


class _Message(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_ulonglong))


class _Array(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("elements", ctypes.c_ulonglong),
        ("bytes", ctypes.c_ulonglong),
        ("shape", ctypes.POINTER(ctypes.c_longlong)),
        ("dimensions", ctypes.c_ulonglong),
    )


class _Value(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_char),
        ("integer", ctypes.c_longlong),
        ("real", ctypes.c_double),
        ("text", ctypes.c_char_p),
    )


class _Case(ctypes.Structure):
    _fields_ = (
        ("arrays", ctypes.POINTER(_Array)),
        ("array_count", ctypes.c_ulonglong),
        ("values", ctypes.POINTER(_Value)),
        ("value_count", ctypes.c_ulonglong),
        ("allocate", _ALLOCATE),
    )


_PREPARE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Case), _Message)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, _Message)
_END = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _Message)


class _Entry(ctypes.Structure):
    _fields_ = (("abi", ctypes.c_uint), ("prepare", _PREPARE), ("run", _RUN), ("end", _END))


class LibraryFunction:
    """A function of a library, for the buffers and values of one case on one device.

    Args:
        device: the device, whose stream the library uses and whose memory is its workspace.
        code: the shared object.
        entry: the name of the function.
        values: the axes and parameters, by name.

    Raises:
        LaunchError: this machine cannot load the shared object.
    """

    def __init__(self, device: Device, code: bytes, entry: str, values: Mapping[str, Value]) -> None:
        self._device = device
        self._name = entry
        self._entry = _entry_of(code, entry)
        self._values = values
        self._prepared: int | None = None
        self._workspaces: list[int] = []
        self._refusal: LaunchError | None = None  # why the device gave no workspace
        self._described: Sequence[object] = ()
        self._buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._message = _Message(ctypes.cast(self._buffer, ctypes.c_char_p), _MESSAGE_BYTES)
        self._stream = ctypes.c_void_p(device.stream or None)
        self._run = self._entry.run

    def prepare(self, buffers: Sequence[tuple[Array, int]]) -> None:
        """Let the library prepare its work for buffers at these addresses, after it has ended its earlier work.

        Raises:
            LaunchError: the library returned an error.
        """
        self.end()
        self._refusal = None
        case = self._case(buffers)
        self._prepared = self._entry.prepare(ctypes.byref(case), self._message)
        if not self._prepared:
            error = self._refusal or self._error("failed before it was timed")
            self._free()
            raise error

    def __call__(self) -> None:
        """Queue the work of a sample on the device's stream; raises ``LaunchError`` if the library returns an error."""
        if self._run(self._prepared, self._stream, self._message):
            raise self._error("failed")

    def end(self) -> None:
        """Wait for the device, end the prepared work and free its workspace; do nothing if no work is prepared.

        Raises:
            LaunchError: the library returned an error, or the device's context is lost.
        """
        prepared, self._prepared = self._prepared, None
        if not prepared:
            return
        try:
            self._device.synchronize()
            if self._entry.end(prepared, self._message):
                raise self._error("failed at its end")
        finally:
            self._free()

    def _free(self) -> None:
        while self._workspaces:
            self._device.free(self._workspaces.pop())

    def _case(self, buffers: Sequence[tuple[Array, int]]) -> _Case:
        """Return the description of a case as the library takes it; it is valid until the next call."""
        arrays = (_Array * max(1, len(buffers)))()
        shapes = [(ctypes.c_longlong * max(1, len(array.shape)))(*array.shape) for array, _ in buffers]
        for described, shape, (array, address) in zip(arrays, shapes, buffers, strict=False):
            elements = math.prod(array.shape)
            described.name, described.dtype = array.name.encode(), array.dtype.encode()
            described.address, described.elements = address, elements
            described.bytes = elements * np.dtype(array.dtype).itemsize
            described.shape, described.dimensions = shape, len(array.shape)
        values = (_Value * max(1, len(self._values)))()
        for into, (name, value) in zip(values, self._values.items(), strict=False):
            into.name = name.encode()
            match value:
                case int():
                    into.kind, into.integer = b"i", value
                case float():
                    into.kind, into.real = b"f", value
                case str():
                    into.kind, into.text = b"t", value.encode()
        allocate = _ALLOCATE(self._allocate)
        self._described = (arrays, shapes, values, allocate)  # the library keeps their addresses
        return _Case(arrays, len(buffers), values, len(self._values), allocate)

    def _allocate(self, nbytes: int) -> int | None:
        """Return the address of a workspace, or None: C++ cannot pass on an exception of Python."""
        try:
            address = self._device.allocate(nbytes)
        except LaunchError as error:
            self._refusal = error
            return None
        self._workspaces.append(address)
        return address

    def _error(self, how: str) -> LaunchError:
        """Return the error with the library's message; it is fatal if the device's context is lost."""
        text = self._buffer.value.decode(errors="replace")
        what = f"the library function {self._name!r} {how}: {text}"
        try:
            self._device.synchronize()
        except LaunchError as lost:
            return LaunchError(f"{what}; {lost.what}", cure=lost.cure, fatal=lost.fatal)
        return LaunchError(what, cure="correct the library's source, or the arrays and values that it gets")


def _entry_of(code: bytes, name: str) -> _Entry:
    """Return an entry of a shared object; raise ``LaunchError`` if it has none, or one of another format."""
    try:
        library = _loaded(code)
        entry = _Entry.in_dll(library, f"{ENTRY}{name}")
    except ValueError as error:
        raise LaunchError(f"the library has no function {name!r}", cure="build it again with this perfsvc") from error
    if entry.abi != _ABI:
        raise LaunchError(
            f"the library was built for the format {entry.abi} of perfsvc.h; this perfsvc runs format {_ABI}",
            cure="build it again with this perfsvc",
        )
    return entry


_libraries: dict[str, ctypes.CDLL] = {}


def _loaded(code: bytes) -> ctypes.CDLL:
    """Return a shared object as this process has loaded it, once; raise ``LaunchError`` if it cannot be loaded."""
    key = hashlib.sha256(code).hexdigest()
    if key not in _libraries:
        for file_name in elf.needed_libraries(code):
            _load_needed(file_name)
        # Each file gets its own name, because the loader takes two files with one name for the same library.
        with temporary_folder() as folder:
            file = folder / f"{folder.name}.so"
            file.write_bytes(code)
            try:
                _libraries[key] = ctypes.CDLL(str(file))
            except OSError as error:
                message = str(error).replace(f"{file}: ", "")
                raise LaunchError(
                    f"the library cannot be loaded: {message}",
                    cure="install the libraries that it needs, or set CUDA_HOME to the toolkit that has them",
                ) from error
    return _libraries[key]


@cache
def _load_needed(file_name: str) -> None:
    """Load a library that a shared object needs from a toolkit or a Python package, where the loader does not look.

    A library that is in neither is left to the loader, which knows the system's folders.
    """
    path = toolkits.find_loadable(file_name)
    if path is not None:
        with contextlib.suppress(OSError):  # then the shared object cannot be loaded, and the loader's message is shown
            ctypes.CDLL(str(path))
