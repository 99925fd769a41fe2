"""Launches through the driver's C interface, with a library in place of the driver that is compiled with ``cuda.h``."""

import ctypes
import gc
import os
import shutil
import subprocess

import pytest

from perfsvc import entries
from perfsvc.build.nvcc import find_nvcc
from perfsvc.device.cuda import driver as interface
from perfsvc.device.cuda.driver import DriverError
from perfsvc.device.cuda.modules import CudaModule
from perfsvc.model import Launch

DRIVER = r"""
#include <cuda.h>
#include <stdio.h>
#include <string.h>

static char log_[4096];
static CUcontext pushed;

extern "C" {

const char *calls() { return log_; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    if (strncmp(static_cast<const char *>(image), "//", 2)) return CUDA_ERROR_INVALID_IMAGE;
    *module = reinterpret_cast<CUmodule>(0x1234567890abcdefull);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = reinterpret_cast<CUcontext>(0x7777888899990000ull);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    pushed = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    *context = pushed;
    pushed = nullptr;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    snprintf(log_ + strlen(log_), 100, "unload %p in %p\n", static_cast<void *>(module), static_cast<void *>(pushed));
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (strcmp(name, "_ZN5tiled3sumEPf")) return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(reinterpret_cast<unsigned long long>(module) + 1);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *nbytes, CUmodule, const char *name) {
    *address = 0xfedcba9876543210ull;
    *nbytes = 5000000000ull;
    return strcmp(name, "table") ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? 100000 : -1;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
    const char *name = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? "shared"
                       : attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED ? "large clusters" : "other";
    snprintf(log_ + strlen(log_), 100, "allow %s %d\n", name, value);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **parameters, void **extra) {
    if (c->blockDimX > 1024) return CUDA_ERROR_INVALID_VALUE;
    char *at = log_ + strlen(log_);
    at += sprintf(at, "launch %p %u,%u,%u %u,%u,%u %u %p", static_cast<void *>(function), c->gridDimX, c->gridDimY,
                  c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
                  static_cast<void *>(c->hStream));
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute &a = c->attrs[i];
        if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            at += sprintf(at, " cluster %u,%u,%u", a.value.clusterDim.x, a.value.clusterDim.y, a.value.clusterDim.z);
        else if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            at += sprintf(at, " cooperative %d", a.value.cooperative);
        else if (a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            at += sprintf(at, " programmatic %d", a.value.programmaticStreamSerializationAllowed);
        else
            at += sprintf(at, " unknown %d", a.id);
    }
    if (parameters) at += sprintf(at, " parameters");
    if (extra) {
        if (extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE ||
            extra[4] != CU_LAUNCH_PARAM_END)
            return CUDA_ERROR_UNKNOWN;
        at += sprintf(at, " ");
        for (size_t i = 0; i < *static_cast<size_t *>(extra[3]); i++)
            at += sprintf(at, "%02x", static_cast<unsigned char *>(extra[1])[i]);
    }
    sprintf(at, "\n");
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_NOT_FOUND ? "named symbol not found" : error == CUDA_ERROR_INVALID_VALUE
            ? "invalid argument" : "device kernel image is invalid";
    return CUDA_SUCCESS;
}

}
"""
PTX = b"//\n.visible .entry _ZN5tiled3sumEPf(\nperfsvc_kernel_%s = _ZN5tiled3sumEPf;\n" % (
    entries.key("tiled::sum").encode()
)
MODULE, FUNCTION, STREAM = "0x1234567890abcdef", "0x1234567890abcdf0", 0x7FFF12345678


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    nvcc = find_nvcc()
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc (pip install 'perfsvc[nvcc]') and g++")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cc").write_text(DRIVER)
    command = [nvcc, "-shared", "-cudart", "none", "-Xcompiler", "-fPIC", "driver.cc", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, env=os.environ | {"TMPDIR": str(folder)}, check=True, timeout=100)
    return folder / "libcuda.so.1"


@pytest.fixture
def driver(library, tmp_path, monkeypatch):
    """Return a function that returns the lines about calls of the driver since it was last called."""
    copied = shutil.copy(library, tmp_path / "own.so")  # with its own log
    loaded = ctypes.CDLL(str(copied))
    loaded.calls.restype = ctypes.c_char_p
    monkeypatch.setattr(interface, "library", lambda: loaded)
    seen = [0]

    def calls():
        lines = loaded.calls().decode().splitlines()
        new, seen[0] = lines[seen[0] :], len(lines)
        return new

    return calls


def launch(**fields):
    return Launch(0, "tiled::sum", **({"grid": (1, 2, 3), "block": (4, 5, 6), "args": ()} | fields))


@pytest.mark.parametrize(
    ("fields", "prepared", "launched"),
    [
        ({}, [], ""),
        ({"shared_bytes": 48 << 10}, [], ""),
        ({"shared_bytes": 60 << 10}, ["allow shared 100000"], ""),
        ({"shared_bytes": 200 << 10}, ["allow shared 204800"], ""),
        ({"cluster": (4, 2, 1)}, [], " cluster 4,2,1"),
        ({"cluster": (4, 2, 2)}, ["allow large clusters 1"], " cluster 4,2,2"),
        ({"cooperative": True}, [], " cooperative 1"),
        (
            {"cluster": (2, 1, 1), "cooperative": True, "programmatic": True},
            [],
            " cluster 2,1,1 cooperative 1 programmatic 1",
        ),
    ],
)
def test_the_driver_gets_the_launch_as_it_was_asked_for(driver, fields, prepared, launched):
    module = CudaModule(PTX)
    shared = fields.get("shared_bytes", 0)
    line = f"launch {FUNCTION} 1,2,3 4,5,6 {shared} {STREAM:#x}{launched} 000102ff"
    for expected in ([*prepared, line], [line]):  # a kernel is prepared once
        module.kernel(launch(**fields), STREAM).queue(b"\x00\x01\x02\xff")
        assert driver() == expected


def test_each_launch_of_a_kernel_has_its_own_attributes(driver):
    module = CudaModule(PTX)
    for cluster in (None, (2, 1, 1), None):
        module.kernel(launch(cluster=cluster), STREAM).queue(b"")
    plain = f"launch {FUNCTION} 1,2,3 4,5,6 0 {STREAM:#x}"
    assert driver() == [plain, f"{plain} cluster 2,1,1", plain]


def test_a_global_variable_has_its_address_and_size(driver):
    assert CudaModule(PTX).constant("table") == (0xFEDCBA9876543210, 5_000_000_000)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: CudaModule(b"nothing"), "cuModuleLoadData failed: device kernel image is invalid"),
        (lambda: CudaModule(PTX).constant("gone"), "cuModuleGetGlobal_v2 failed: named symbol not found"),
        (lambda: CudaModule(b"//").kernel(launch(), 0), "cuModuleGetFunction failed: named symbol not found"),
        (
            lambda: CudaModule(PTX).kernel(launch(block=(2048, 1, 1)), 0).queue(b""),
            "cuLaunchKernelEx failed: invalid argument",
        ),
    ],
)
def test_a_refusal_is_an_error_with_the_drivers_words(driver, ask, message):
    with pytest.raises(DriverError, match=message):
        ask()


def test_a_module_is_unloaded_once_when_nothing_refers_to_it(driver):
    module = CudaModule(PTX)
    module.kernel(launch(), STREAM).queue(b"")
    driver()
    del module
    gc.collect()
    assert driver() == [f"unload {MODULE} in 0x7777888899990000"]


def test_a_module_that_was_unloaded_or_abandoned_is_not_unloaded_again(driver):
    unloaded, abandoned = CudaModule(PTX), CudaModule(PTX)
    unloaded.unload()
    abandoned.abandon()
    assert driver() == [f"unload {MODULE} in 0x7777888899990000"]
    del unloaded, abandoned
    gc.collect()
    assert driver() == []
