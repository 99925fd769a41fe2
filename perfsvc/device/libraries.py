"""Libraries of benchmarks in this process: shared objects that ``perfsvc.build`` made from host code in C++.

The structures have the layouts of those in ``perfsvc/build/include/perfsvc.h``.
"""

import contextlib
import ctypes
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from perfsvc import elf
from perfsvc.device.memory import array_bytes
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError
from perfsvc.model import Array, Value
from perfsvc.process import toolkits
from perfsvc.temporary import temporary_folder

ENTRY = "perfsvc_library_"
"""What comes before the name of an entry in the names that a shared object exports."""

_ABI = 1
_MESSAGE_BYTES = 4096
_INTEGERS = range(-(1 << 63), 1 << 63)
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


@dataclass(slots=True)
class _Work:
    """What a library has prepared for buffers at some addresses.

    Attributes:
        handle: the address of the library's object; 0 if it failed.
        workspaces: the addresses of device memory that the library uses.
        case: the description of the case, to which the library keeps pointers.
    """

    handle: int = 0
    workspaces: list[int] = field(default_factory=list)
    case: _Case | None = None


class LibraryFunction:
    """A function of a library, for the values of one case on one device.

    Args:
        device: the device, whose stream the library uses and whose memory is its workspace.
        code: the shared object.
        entry: the name of the function.
        values: the axes and parameters, by name.

    Raises:
        LaunchError: this machine cannot load the shared object, or a value is too large for ``long long``.
    """

    def __init__(self, device: Device, code: bytes, entry: str, values: Mapping[str, Value]) -> None:
        _require_integers(values)
        self._device = device
        self._name = entry
        self._entry = _entry_of(code, entry)
        self._run = self._entry.run
        self._values = values
        self._works: dict[tuple[int, ...], _Work] = {}
        self._handle = 0
        self._stream = ctypes.c_void_p(device.stream or None)
        self._buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._message = _Message(ctypes.cast(self._buffer, ctypes.c_char_p), _MESSAGE_BYTES)

    def prepare(self, buffers: Sequence[tuple[Array, int]]) -> bool:
        """Let the library prepare its work for buffers at these addresses, unless it has done so before.

        The work is kept until ``end``. If the device has no room for one more work, all earlier work is ended.

        Returns:
            Whether the work is new. A library may load code and allocate memory when new work runs for the first time.

        Raises:
            LaunchError: the library returned an error.
        """
        key = tuple(address for _, address in buffers)
        is_new = key not in self._works
        if is_new:
            try:
                work = self._prepared(buffers)
            except LaunchError as error:
                if error.fatal or not self._works:
                    raise
                self.end()
                work = self._prepared(buffers)
            self._works[key] = work
        self._handle = self._works[key].handle
        return is_new

    def run(self) -> None:
        """Queue the work of a sample on the device's stream; raises ``LaunchError`` if the library returns an error."""
        if self._run(self._handle, self._stream, self._message):
            raise self._error("failed")

    def end(self) -> None:
        """Wait for the device, and end all prepared work.

        Raises:
            LaunchError: the library returned an error, or the device's context is lost.
        """
        if not self._works:
            return
        errors = []
        try:
            self._device.synchronize()
        finally:
            while self._works:
                _, work = self._works.popitem()
                if self._entry.end(work.handle, self._message):
                    errors.append(self._error("failed at its end"))
                self._free(work)
        if errors:
            raise errors[0]

    def _prepared(self, buffers: Sequence[tuple[Array, int]]) -> _Work:
        """Return new work for buffers; raise ``LaunchError`` if the library returns an error."""
        work, refusals = _Work(), []

        def allocate(nbytes: int) -> int | None:  # returns None for an error: C++ cannot pass on Python's exceptions
            try:
                address = self._device.allocate(nbytes)
            except LaunchError as error:
                refusals.append(error)
                return None
            work.workspaces.append(address)
            return address

        arrays, values = _arrays(buffers), _values(self._values)
        case = _Case(arrays, len(buffers), values, len(self._values), _ALLOCATE(allocate))
        work.case = case
        work.handle = self._entry.prepare(ctypes.byref(case), self._message) or 0
        if not work.handle:
            error = self._error("failed while it prepared its work")
            self._free(work)
            raise refusals[0] if refusals else error
        return work

    def _free(self, work: _Work) -> None:
        while work.workspaces:
            self._device.free(work.workspaces.pop())

    def _error(self, how: str) -> LaunchError:
        """Return the error with the library's message; it is fatal if the device's context is lost."""
        text = self._buffer.value.decode(errors="replace")
        what = f"the library function {self._name!r} {how}: {text}"
        try:
            self._device.synchronize()
        except LaunchError as lost:
            return LaunchError(f"{what}; {lost.what}", cure=lost.cure, fatal=lost.fatal)
        return LaunchError(what, cure="correct the library's source, or the arrays and values that it gets")


def _arrays(buffers: Sequence[tuple[Array, int]]) -> ctypes.Array[_Array]:
    """Return the description of buffers, each with its address; it keeps what its pointers refer to."""
    described = (_Array * max(1, len(buffers)))()
    for into, (array, address) in zip(described, buffers, strict=False):
        into.name, into.dtype = array.name.encode(), array.dtype.encode()
        into.address, into.elements = address, math.prod(array.shape)
        into.bytes = array_bytes(array)
        into.shape = (ctypes.c_longlong * max(1, len(array.shape)))(*array.shape)
        into.dimensions = len(array.shape)
    return described


def _values(values: Mapping[str, Value]) -> ctypes.Array[_Value]:
    """Return the description of axes and parameters; it keeps what its pointers refer to."""
    described = (_Value * max(1, len(values)))()
    for into, (name, value) in zip(described, values.items(), strict=False):
        into.name = name.encode()
        match value:
            case int():
                into.kind, into.integer = b"i", value
            case float():
                into.kind, into.real = b"f", value
            case str():
                into.kind, into.text = b"t", value.encode()
    return described


def _require_integers(values: Mapping[str, Value]) -> None:
    """Raise ``LaunchError`` if a value is too large for ``long long``: ctypes would pass its lowest 64 bits."""
    for name, value in values.items():
        if isinstance(value, int) and value not in _INTEGERS:
            raise LaunchError(f"{name} is {value}, and a library takes integers of 64 bits", cure="use smaller values")


def _entry_of(code: bytes, name: str) -> _Entry:
    """Return an entry of a shared object; raise ``LaunchError`` if it has none, or one of another format."""
    library = _loaded(code)
    try:
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
        try:
            needed = elf.needed_libraries(code)
        except ValueError as error:
            raise LaunchError(f"the library cannot be loaded: {error}", cure="build it again") from error
        for file_name in needed:
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
