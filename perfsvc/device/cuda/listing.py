"""List the CUDA devices that this process sees."""

import ctypes
import os
import uuid
from dataclasses import replace

import pycuda.driver as drv

from perfsvc.device import VISIBLE, telemetry
from perfsvc.errors import NoDeviceError
from perfsvc.model import DeviceInfo

_HZ_PER_KHZ = 1e3


def devices() -> list[DeviceInfo]:
    """Return every CUDA device that this process sees, in CUDA's order, without creating a context.

    Raises ``NoDeviceError`` if the driver finds none.
    """
    try:
        start()
        infos = [describe(ordinal) for ordinal in range(drv.Device.count())]
    except drv.Error as error:
        raise NoDeviceError(
            f"the CUDA driver finds no device: {error}",
            cure="see whether nvidia-smi lists one; check CUDA_VISIBLE_DEVICES",
        ) from error
    driver = telemetry.driver_version() or _cuda_version(drv.get_driver_version())
    return [replace(info, driver=driver, power_limit_w=telemetry.power_limit_w(info.uuid)) for info in infos]


def start() -> None:
    """Start the driver in this process; raises ``pycuda.driver.Error``."""
    # With lazy loading, a kernel's first launch would load its code, and wait for the kernel that blocks the stream.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # cuda:1 is nvidia-smi's GPU 1
    drv.init()


def ordinal_of(uuid: str) -> int:
    """Return CUDA's number of a device; raises ``NoDeviceError`` if CUDA does not list it."""
    for ordinal in range(drv.Device.count()):
        if _uuid(ordinal) == uuid:
            return ordinal
    raise NoDeviceError(f"there is no GPU {uuid}", cure="name one that `perfsvc devices` lists")


def describe(ordinal: int) -> DeviceInfo:
    """Return CUDA's description of a device; the power limit and the driver's own version are missing."""
    device = drv.Device(ordinal)
    major, minor = device.compute_capability()
    identity = _uuid(ordinal)

    def attribute(name: str) -> int:
        return int(device.get_attribute(getattr(drv.device_attribute, name)))

    return DeviceInfo(
        kind="cuda",
        spec=f"cuda:{identity}",
        uuid=identity,
        model=str(device.name()),
        target=f"sm_{major}{minor}",
        compute_capability=f"{major}.{minor}",
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        clock_hz=attribute("CLOCK_RATE") * _HZ_PER_KHZ,
        memory_clock_hz=attribute("MEMORY_CLOCK_RATE") * _HZ_PER_KHZ,
        memory_bytes=int(device.total_memory()),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        shared_bytes_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        registers_per_block=attribute("MAX_REGISTERS_PER_BLOCK"),
        warp_size=attribute("WARP_SIZE"),
    )


def _cuda_version(number: int) -> str:
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def _uuid(ordinal: int) -> str:
    """Return the UUID of a GPU or a MIG instance as nvidia-smi prints it; PyCUDA has no call for it."""
    library = ctypes.CDLL("libcuda.so.1")  # the library that PyCUDA has loaded
    handle, raw = ctypes.c_int(), ctypes.create_string_buffer(16)
    for result in (
        library.cuDeviceGet(ctypes.byref(handle), ordinal),
        library.cuDeviceGetUuid_v2(raw, handle),
    ):
        if result:
            raise NoDeviceError(f"the CUDA driver has no UUID for device {ordinal} (error {result})")
    identity = uuid.UUID(bytes=raw.raw)
    # CUDA does not report whether a UUID belongs to a MIG instance; the environment of a worker shows it.
    visible = os.environ.get(VISIBLE, "")
    return visible if visible == f"MIG-{identity}" else f"GPU-{identity}"
