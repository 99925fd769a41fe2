"""Facts found without a GPU, against what the driver says of the very same kernels on one."""

import contextlib
import ctypes

import pytest

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.build.facts import VerboseNvcc, facts_of_all
from perfsvc.build.nvcc import is_ptx
from perfsvc.build.occupancy import MULTIPROCESSORS, WARP, occupancy
from perfsvc.installation import data_folder
from perfsvc.model import Launch
from perfsvc.suite import Selection, discover, unmet

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SHARED_BYTES, LOCAL_BYTES, REGISTERS, MOST_DYNAMIC = 1, 3, 4, 8  # CUfunction_attribute
RESERVED = {0, 1024}  # whether a driver counts what it reserves of shared memory is its own affair


class Driver:
    """CUDA's driver by ctypes: PyCUDA knows nothing of occupancy."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)

    def __call__(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        assert code == 0, f"{name} gave {code}"

    @contextlib.contextmanager
    def context(self):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self("cuCtxPopCurrent_v2", ctypes.byref(context))
            self("cuDevicePrimaryCtxRelease_v2", device)

    def function(self, code, name):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), code)
        self("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def attribute(self, function, which):
        value = ctypes.c_int()
        self("cuFuncGetAttribute", ctypes.byref(value), which, function)
        return value.value

    def blocks(self, function, threads, dynamic):
        self("cuFuncSetAttribute", function, MOST_DYNAMIC, dynamic)
        found = ctypes.c_int()
        self(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(found),
            function,
            threads,
            ctypes.c_size_t(dynamic),
        )
        return found.value


@pytest.fixture(scope="module")
def cases(gpus):
    """Every case of the built-in suite that the first GPU can run and that launches kernels."""
    specs = discover(data_folder("kernels")).resolve(Selection(), "smoke")[0]
    return [spec for spec in specs if not unmet(spec, gpus[0]) and any(isinstance(step, Launch) for step in spec.steps)]


def test_the_driver_reports_the_same_facts_and_the_same_occupancy(gpus, cases, tmp_path):
    target = gpus[0].target
    if target not in MULTIPROCESSORS:
        pytest.skip(f"the limits of {target} are unknown")
    units = {unit for spec in cases for unit in spec.units if not is_ptx(unit)}
    facts = facts_of_all(units, VerboseNvcc(target), Cache(tmp_path / "facts"), None)
    binaries = compile_all(units, toolchain_for(target), Cache(tmp_path / "binaries"))
    driver, wrong, seen = Driver(), [], 0
    with driver.context():
        for spec in cases:
            for step in filter(lambda step: isinstance(step, Launch), spec.steps):
                unit = spec.units[step.module]
                if is_ptx(unit):
                    continue
                binary, own = binaries[unit], facts[unit][step.entry]
                assert isinstance(binary, Binary)
                function = driver.function(binary.code, step.entry)
                threads = step.block[0] * step.block[1] * step.block[2]
                held = occupancy(target, own, threads, step.shared_bytes)
                blocks = held.warps // -(-threads // WARP)
                reported = (
                    driver.attribute(function, REGISTERS),
                    driver.attribute(function, LOCAL_BYTES) > 0,
                    driver.attribute(function, SHARED_BYTES) - own.shared_bytes in RESERVED,
                    driver.blocks(function, threads, step.shared_bytes),
                )
                seen += 1
                if reported != (own.registers, own.stack_bytes > 0, True, blocks):
                    wrong.append((spec.case.id, step.entry, reported, own, held))
    assert wrong == []
    assert seen > 50
