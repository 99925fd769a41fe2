"""Launches through the driver's C interface, with a library in place of the driver that is compiled with ``cuda.h``."""

import ctypes
import gc
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perfsvc import entries
from perfsvc.build.nvcc import find_nvcc
from perfsvc.device.cuda import driver as interface
from perfsvc.device.cuda.driver import DriverError
from perfsvc.device.cuda.modules import CudaModule
from perfsvc.model import Launch

DRIVER = Path(__file__).with_name("driver.cc")
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
    command = [nvcc, "-shared", "-cudart", "none", "-Xcompiler", "-fPIC", DRIVER, "-o", "libcuda.so.1"]
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


def test_the_driver_gets_the_launch_as_it_was_asked_for(driver):
    table = [
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
    ]
    for fields, prepared, launched in table:
        module = CudaModule(PTX)
        shared = fields.get("shared_bytes", 0)
        line = f"launch {FUNCTION} 1,2,3 4,5,6 {shared} {STREAM:#x}{launched} 000102ff"
        for expected in ([*prepared, line], [line]):  # a kernel is prepared once
            module.kernel(launch(**fields), STREAM).queue(b"\x00\x01\x02\xff")
            assert driver() == expected
        module.abandon()


def test_each_launch_of_a_kernel_has_its_own_attributes(driver):
    module = CudaModule(PTX)
    for cluster in (None, (2, 1, 1), None):
        module.kernel(launch(cluster=cluster), STREAM).queue(b"")
    plain = f"launch {FUNCTION} 1,2,3 4,5,6 0 {STREAM:#x}"
    assert driver() == [plain, f"{plain} cluster 2,1,1", plain]


def test_a_global_variable_has_its_address_and_size(driver):
    assert CudaModule(PTX).constant("table") == (0xFEDCBA9876543210, 5_000_000_000)


def test_a_refusal_is_an_error_with_the_drivers_words(driver):
    large = launch(block=(2048, 1, 1))
    asks = {
        "cuModuleLoadData failed: device kernel image is invalid": lambda: CudaModule(b"nothing"),
        "cuModuleGetGlobal_v2 failed: named symbol not found": lambda: CudaModule(PTX).constant("gone"),
        "cuModuleGetFunction failed: named symbol not found": lambda: CudaModule(b"//").kernel(launch(), 0),
        "cuLaunchKernelEx failed: invalid argument": lambda: CudaModule(PTX).kernel(large, 0).queue(b""),
    }
    for message, ask in asks.items():
        with pytest.raises(DriverError, match=message):
            ask()


def test_a_module_is_unloaded_once_and_no_later_than_when_nothing_refers_to_it(driver):
    gc.freeze()  # collecting garbage costs little then
    module = CudaModule(PTX)
    module.kernel(launch(), STREAM).queue(b"")
    driver()
    del module
    gc.collect()
    assert driver() == [f"unload {MODULE} in 0x7777888899990000"]
    unloaded, abandoned = CudaModule(PTX), CudaModule(PTX)
    unloaded.unload()
    abandoned.abandon()
    assert driver() == [f"unload {MODULE} in 0x7777888899990000"]
    del unloaded, abandoned
    gc.collect()
    assert driver() == []
