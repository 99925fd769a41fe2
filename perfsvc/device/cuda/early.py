"""Creating the device's context before anything is imported: both take a third of a second, and can do so at once."""

import contextlib
import ctypes
import os


def retain_context() -> None:
    """Retains the primary context of the one device that this process sees; PyCUDA then finds it made.

    Whatever goes wrong here goes wrong again where the device is opened, and is told there.
    """
    prepare()
    with contextlib.suppress(OSError):
        cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), 0):
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def prepare() -> None:
    """Sets what the driver reads from the environment when it starts."""
    # A lazily loaded kernel would make its first launch wait for the loading, behind the gate for ever.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that cuda:1 is nvidia-smi's GPU 1
