"""Fixtures of the tests on a GPU, which are skipped with the reason if there is none."""

from pathlib import Path

import pytest

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.device import helper_kernels as own_kernels
from perfsvc.device.find import find, open_device
from perfsvc.errors import NoDeviceError
from perfsvc.model import Unit

KERNELS = Path(__file__).parent / "kernels.cu"
ENTRIES = ("add", "scale", "reverse", "spin", "stray", "crooked", "mixed", "keep")


@pytest.fixture(scope="session", autouse=True)
def gpus():
    try:
        return find(["cuda"])
    except NoDeviceError as error:
        pytest.skip(error.what)


@pytest.fixture(scope="session")
def cubin(gpus, tmp_path_factory):
    """The path of a cubin of kernels.cu for the first GPU."""
    unit = Unit(KERNELS, ENTRIES)
    cache = Cache(tmp_path_factory.mktemp("cache"))
    built = compile_all([unit], toolchain_for(gpus[0].target), cache)[unit]
    assert isinstance(built, Binary), built
    path = tmp_path_factory.mktemp("cubin") / "kernels.cubin"
    path.write_bytes(built.code)
    return path


@pytest.fixture(scope="session")
def helper_kernels(gpus, tmp_path_factory):
    """The compiled helper kernels, with which the first GPU is opened."""
    unit = own_kernels.unit("cuda")
    built = compile_all([unit], toolchain_for(gpus[0].target), Cache(tmp_path_factory.mktemp("cache")))[unit]
    assert isinstance(built, Binary), built
    return built.code


@pytest.fixture
def device(gpus, helper_kernels):
    opened = open_device(gpus[0].spec, helper_kernels)
    yield opened
    opened.close()


@pytest.fixture
def times(device):
    """Return the sample times of what a function queues."""

    def taken(sample, count, *, clock="device", cold=True):
        nbytes = 2 * device.info.l2_bytes if cold else 0
        return device.batch(sample, count, clock=clock, evict_bytes=nbytes, blocked=clock == "device").samples_s

    return taken


@pytest.fixture
def module(device, cubin):
    return device.load(cubin.read_bytes())
