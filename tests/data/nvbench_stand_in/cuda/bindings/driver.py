"""As much of cuda-bindings' driver module as tests/benchmarks/nvbench/cases.py uses, on the host's memory.

What is launched is written to the file that ``STAND_IN`` names as ``launched``, arguments as the bytes they point to.
"""

import ctypes
import json
import os
from enum import IntEnum
from pathlib import Path

LAUNCHED = []
MEMORY = []
FILLED = {}  # how many bytes were copied to an address, and on from there
CUstream = int
CUdeviceptr = int


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


OK = CUresult.CUDA_SUCCESS


def cuInit(flags):
    return (OK,)


def cuDeviceGet(number):
    return OK, number


def cuDevicePrimaryCtxRetain(device):
    return OK, "context"


def cuCtxSetCurrent(context):
    return (OK if context == "context" else CUresult.CUDA_ERROR_INVALID_VALUE,)


def cuCtxSynchronize():
    return (OK,)


def cuMemAlloc(size):
    buffer = ctypes.create_string_buffer(size)
    MEMORY.append(buffer)
    return OK, ctypes.addressof(buffer)


def cuMemcpyHtoD(target, source, size):
    ctypes.memmove(target, source, size)
    FILLED[target] = size
    return (OK,)


def cuMemcpyDtoD(target, source, size):
    assert target == source + FILLED[source]
    ctypes.memmove(target, source, size)
    FILLED[source] += size
    return (OK,)


def cuMemsetD8Async(address, byte, size, stream):
    ctypes.memset(address, byte, size)
    return (OK,)


def cuModuleLoadData(code):
    return OK, "module"


def cuModuleGetFunction(module, name):
    return OK, name.decode()


def cuLaunchKernel(entry, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
    assert stream == 77
    # Every case here takes some buffers, then an integer.
    count = {"copy": 3, "transpose_naive": 3, "transpose_tiled": 3}.get(entry, 4)
    *buffers, n = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))[:count]
    held = [ctypes.c_uint64.from_address(one).value for one in buffers]
    inputs = [ctypes.string_at(address, 64).hex() for address in held[1:]]
    last = [ctypes.string_at(address + FILLED[address] - 65, 64).hex() for address in held[1:]]
    LAUNCHED.append(
        {
            "entry": entry,
            "grid": [gx, gy, gz],
            "block": [bx, by, bz],
            "n": ctypes.c_int32.from_address(n).value,
            "begin": inputs,
            "end": last,
        }
    )
    Path(json.loads(os.environ["STAND_IN"])["launched"]).write_text(json.dumps(LAUNCHED))
    return (OK,)
