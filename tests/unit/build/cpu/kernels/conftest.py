"""Kernels compiled by every compiler of this machine, and a device that runs them on NumPy arrays."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from perfsvc.build.cpu import cuda_text
from perfsvc.build.cpu.host import HostToolchain, find_compiler, find_zig
from perfsvc.device.cpu import CpuDevice
from perfsvc.errors import NoCompilerError
from perfsvc.model import Launch, Unit

DATA = Path(__file__).parents[4] / "data" / "cuda_on_cpu"


@pytest.fixture(scope="session")
def data():
    return DATA


@pytest.fixture(scope="session")
def zig_cache(tmp_path_factory):
    """An empty cache, as on a fresh machine."""
    before = os.environ.get("ZIG_GLOBAL_CACHE_DIR")
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(tmp_path_factory.mktemp("zig"))
    yield
    del os.environ["ZIG_GLOBAL_CACHE_DIR"]
    if before is not None:
        os.environ["ZIG_GLOBAL_CACHE_DIR"] = before


@pytest.fixture(scope="session", params=["host", "zig"])
def toolchain(request, zig_cache):
    if request.param == "zig":
        compiler = find_zig()
        assert compiler is not None, "the test extra installs ziglang"
        return HostToolchain(compiler)
    try:
        compiler = find_compiler()
    except NoCompilerError as error:
        pytest.skip(str(error))
    if compiler == find_zig():
        pytest.skip("this machine has no compiler but zig, which is tested beside this")
    return HostToolchain(compiler)


@pytest.fixture(scope="session")
def device():
    opened = CpuDevice()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def load(toolchain, device):
    """Load a file of the data folder with all its entries."""

    @cache
    def loaded(name, *defines):
        source = DATA / name
        unit = Unit(source, (), defines)
        wanted = cuda_text.entries(toolchain.preprocessed(unit, "-E")[0])
        return device.load(toolchain.compile(Unit(source, wanted, defines)))

    return loaded


class Kernels:
    """A module's kernels as functions of NumPy arrays, which they change, and scalars."""

    def __init__(self, device, module):
        self.device = device
        self.module = module

    def __call__(self, entry, grid, block, *args, shared_bytes=0):
        addresses = {id(arg): self._upload(arg) for arg in args if isinstance(arg, np.ndarray)}
        values = [np.uint64(addresses[id(arg)]) if id(arg) in addresses else arg for arg in args]
        self.device.launch(self.module, Launch(0, entry, _three(grid), _three(block), (), shared_bytes), values)
        for arg in args:
            if isinstance(arg, np.ndarray):
                self.device.download(addresses[id(arg)], arg)
                self.device.free(addresses[id(arg)])

    def _upload(self, array):
        address = self.device.allocate(array.nbytes)
        self.device.upload(address, array)
        return address


def _three(size):
    sizes = size if isinstance(size, tuple) else (size,)
    return (*sizes, 1, 1)[:3]


@pytest.fixture
def kernels(load, device):
    return lambda name, *defines: Kernels(device, load(name, *defines))
