"""Loaded binaries and their launches, through the driver's C interface: PyCUDA knows no attributes of launches.

The structures are those of ``cuda.h`` (CUDA 13.0): ``CUlaunchConfig`` and ``CUlaunchAttribute``.
"""

import ctypes
import weakref
from dataclasses import dataclass
from math import prod

from perfsvc import entries
from perfsvc.device.arguments import ParameterLayout, parameter_layout
from perfsvc.device.cuda import driver
from perfsvc.model import Launch

_OPT_IN_SHARED_BYTES = 48 << 10  # beyond it a kernel has to opt in (CUDA C++ Programming Guide, shared memory)
_PORTABLE_CLUSTER = 8  # blocks; larger clusters have to be allowed for each kernel (thread block clusters)

# CUfunction_attribute
_MAX_DYNAMIC_SHARED_BYTES = 8
_NON_PORTABLE_CLUSTER_ALLOWED = 14

# CUlaunchAttributeID
_COOPERATIVE = 2
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6

# CU_LAUNCH_PARAM_…: the kinds of entries in the list of extra options of a launch
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0


class _AttributeValue(ctypes.Union):
    """``CUlaunchAttributeValue``, 64 bytes."""

    _fields_ = (
        ("pad", ctypes.c_char * 64),
        ("cluster", ctypes.c_uint * 3),
        ("flag", ctypes.c_int),
    )


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", _AttributeValue))


class _Configuration(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel of a loaded binary, prepared for one launch.

    Attributes:
        layout: the layout of its parameters; None if the binary does not contain it.
    """

    layout: ParameterLayout | None
    _function: ctypes.c_void_p
    _configuration: _Configuration

    def queue(self, packed: bytes) -> None:
        """Queue the launch with its packed arguments; raises ``DriverError``."""
        size = ctypes.c_size_t(len(packed))
        address = ctypes.cast(ctypes.c_char_p(packed), ctypes.c_void_p)
        extra = (ctypes.c_void_p * 5)(_BUFFER_POINTER, address.value, _BUFFER_SIZE, ctypes.addressof(size), _END)
        # The driver copies the arguments before it returns.
        arguments = extra if packed else None
        driver.call("cuLaunchKernelEx", ctypes.byref(self._configuration), self._function, None, arguments)


class CudaModule:
    """A loaded binary, and its kernels that have been launched; it is unloaded when nothing refers to it any more.

    Args:
        code: a cubin or PTX.

    Raises:
        DriverError: the driver cannot load the code.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._handle = ctypes.c_void_p()
        self._kernels: dict[tuple[object, ...], LoadedKernel] = {}
        context = ctypes.c_void_p()
        driver.call("cuCtxGetCurrent", ctypes.byref(context))
        driver.call("cuModuleLoadData", ctypes.byref(self._handle), ctypes.c_char_p(code))
        self._unload = weakref.finalize(self, _unload, context, self._handle)
        self._unload.atexit = False  # the device unloads it before it ends the context

    def unload(self) -> None:
        """Unload the binary; no kernel of it can be launched afterwards."""
        self._unload()

    def abandon(self) -> None:
        """Never unload the binary, because its context is lost, and the binary with it."""
        self._unload.detach()

    def constant(self, symbol: str) -> tuple[int, int]:
        """Return the address and the size in bytes of a global variable; raises ``DriverError``."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        driver.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._handle, symbol.encode())
        return address.value, size.value

    def kernel(self, launch: Launch, stream: int) -> LoadedKernel:
        """Return the kernel of a launch on a stream; raises ``DriverError`` if the binary does not have the kernel."""
        shape = (launch.grid, launch.block, launch.shared_bytes, launch.cluster)
        key = (launch.entry, *shape, launch.cooperative, launch.programmatic, stream)
        if key not in self._kernels:
            self._kernels[key] = self._prepared(launch, stream)
        return self._kernels[key]

    def _prepared(self, launch: Launch, stream: int) -> LoadedKernel:
        """Look up a kernel, let it have what the launch asks for, and describe the launch for the driver."""
        symbol = entries.symbol(self._code, launch.entry)
        function = ctypes.c_void_p()
        driver.call("cuModuleGetFunction", ctypes.byref(function), self._handle, symbol.encode())
        if launch.shared_bytes > _OPT_IN_SHARED_BYTES:
            # The limit is never lowered, because another launch of this kernel may need more.
            allowed = ctypes.c_int()
            driver.call("cuFuncGetAttribute", ctypes.byref(allowed), _MAX_DYNAMIC_SHARED_BYTES, function)
            driver.call(
                "cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_BYTES, max(launch.shared_bytes, allowed.value)
            )
        if launch.cluster and prod(launch.cluster) > _PORTABLE_CLUSTER:
            driver.call("cuFuncSetAttribute", function, _NON_PORTABLE_CLUSTER_ALLOWED, 1)
        attributes = _attributes(launch)
        configuration = _Configuration(
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
            stream=stream,
            attributes=(_Attribute * len(attributes))(*attributes),  # the configuration keeps this memory
            attribute_count=len(attributes),
        )
        return LoadedKernel(parameter_layout(self._code, symbol), function, configuration)


def _attributes(launch: Launch) -> list[_Attribute]:
    """Return the attributes of a launch as the driver takes them."""
    attributes = []
    if launch.cluster:
        attributes.append(_Attribute(_CLUSTER_DIMENSION, b"", _AttributeValue(cluster=launch.cluster)))
    if launch.cooperative:
        attributes.append(_Attribute(_COOPERATIVE, b"", _AttributeValue(flag=1)))
    if launch.programmatic:
        attributes.append(_Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, b"", _AttributeValue(flag=1)))
    return attributes


def _unload(context: ctypes.c_void_p, handle: ctypes.c_void_p) -> None:
    """Unload a binary in its own context: another GPU's may be current, or none, when nothing refers to it any more.

    A failed kernel may have taken the context with it, and then there is nothing to unload.
    """
    if driver.library().cuCtxPushCurrent_v2(context) == 0:
        driver.library().cuModuleUnload(handle)
        driver.library().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
