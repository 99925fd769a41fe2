"""The built-in suite on the CPU device.

``check("transpose/tiled*", n=33)`` fails where a variant does, and returns the measurements of all by name.
"""

import gc

import pytest
from harness import SUITE, Kernels

from perfsvc.device.cpu import CpuDevice

NAMES = tuple(file.name for file in SUITE.benchmarks)


def pytest_generate_tests(metafunc):
    if "benchmark" in metafunc.fixturenames:
        metafunc.parametrize("benchmark", NAMES)


def pytest_runtest_setup():
    gc.freeze()  # measuring collects garbage, each time; what there is by now is none


@pytest.fixture(scope="session")
def suite():
    """The built-in suite."""
    return SUITE


@pytest.fixture(scope="session")
def kernels():
    """What runs its variants."""
    device = CpuDevice()
    yield Kernels(device)
    gc.unfreeze()
    device.close()


@pytest.fixture(scope="session")
def check(kernels):
    """``Kernels.check``."""
    return kernels.check
