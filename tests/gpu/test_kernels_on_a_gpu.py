"""The built-in suite on a GPU, in this process: every variant that it can run, at the smoke point and at awkward sizes.

A kernel that leaves the GPU's context unusable ends the whole session, with the name of its case.
"""

import gc
import itertools

import pytest

from perfsvc.device.find import open_device
from perfsvc.model import Status

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what libraries warn of is none of the suite's business
]


def over(**axes):
    """Every combination of the axes' values."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def each(axes, *points):
    """Points written as values in the order of the axes."""
    return [dict(zip(axes.split(), values, strict=True)) for values in points]


# Tensor cores' tiles are 128 x 128 or 128 x 256; rows that are copied in pieces of 16 bytes are multiples of 4 or 8.
# The last point has more tiles than a GPU has multiprocessors, so that a block gets several.
TENSOR = each(
    "m n k",
    *((1, 1, 1), (1, 2, 8), (127, 126, 56), (128, 128, 64), (129, 130, 72), (255, 254, 248), (257, 258, 264)),
    *((131, 197, 331), (1409, 2818, 72)),
)

AWKWARD = {
    "constant_memory": over(index=("uniform", "divergent"), n=(1, 255, 256, 257, 1_000_003)),
    "dot": over(n=(1, 3, 255, 256, 257, 4097, 1_000_003)),
    "jit": over(terms=(1, 2, 33)),
    "matmul": each(
        "m n k",
        *((1, 1, 1), (1, 33, 7), (33, 1, 9), (31, 32, 33), (63, 65, 64), (127, 128, 129), (128, 129, 127)),
        *((129, 127, 128), (128, 128, 32), (257, 131, 61)),
    ),
    "matmul_bf16": TENSOR,
    "matmul_tf32": TENSOR,
    "matrix_add": each(
        "rows columns", (1, 1), (1, 33), (31, 32), (32, 31), (33, 127), (128, 4), (129, 1021), (1021, 3)
    ),
    "overlap": over(n=(1, 7, 8, 9, 2047, 2048, 2049, 1_000_003)),
    "pitched": each("slices rows width", (1, 1, 1), (1, 7, 33), (2, 8, 31), (3, 9, 127), (2, 1, 128), (5, 31, 1021)),
    "sum_of_cubes": over(n=(1, 3, 255, 256, 257, 4099, 1_000_003)),
    "transpose": over(n=(1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 1021)),
    "vector_add": over(n=(1, 3, 255, 256, 257, 1023, 1024, 1025, 8191, 8193, 1_000_003)),
}
"""By benchmark: one, around tiles, blocks and chunks, primes."""

LAUNCHED_BY_PYTHON = {"jit", "overlap"}
"""Their kernels are the suite's own. What Python calls elsewhere is other people's, right at the smoke point."""

SEVERAL_GPUS = {"all_reduce", "matmul_split", "peer_copy"}
"""They need a group of GPUs: test_groups_on_gpus.py measures them."""


@pytest.fixture(scope="module")
def kernels(gpus, helper_kernels):
    from harness import Kernels  # it reads the suite, which takes a second where no test needs it

    device = open_device(gpus[0].spec, helper_kernels)
    gc.freeze()  # measuring collects garbage; what the tests have imported is none
    yield Kernels(device)
    gc.unfreeze()
    device.close()


@pytest.fixture(scope="module")
def suite():
    from harness import SUITE

    return SUITE


def test_every_benchmark_has_awkward_sizes_or_needs_several_gpus(suite):
    assert {file.name for file in suite.benchmarks} == AWKWARD.keys() | SEVERAL_GPUS


@pytest.mark.parametrize("name", AWKWARD)
def test_the_smoke_point_is_right(kernels, suite, name):
    found = kernels.check(name, **suite.benchmark(name).benchmark.smoke)
    assert any(result.status is Status.OK for result in found.values())
    assert all(result.reason for result in found.values() if result.status is Status.SKIPPED)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_sizes_are_right(kernels, name):
    for point in AWKWARD[name]:
        kernels.check(name, python=name in LAUNCHED_BY_PYTHON, **point)
