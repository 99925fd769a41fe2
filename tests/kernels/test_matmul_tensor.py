"""matmul_bf16 and matmul_tf32 without tensor cores: how they round, and what is tolerated."""

import numpy as np
import pytest

from perfsvc.model import DeviceInfo, Launch
from perfsvc.suite import unmet
from perfsvc.suite.arrays import Inputs, make_arrays
from perfsvc.suite.points import smoke_point
from perfsvc.suite.resolving import BenchmarkPoint, resolve

PRECISIONS = pytest.mark.parametrize("name", ["matmul_bf16", "matmul_tf32"])
HOPPER = DeviceInfo(
    kind="cuda",
    spec="cuda:GPU-1",
    uuid="GPU-1",
    model="NVIDIA H100 80GB HBM3",
    target="sm_90",
    compute_capability="9.0",
)
SHARED_BYTES = 227 << 10  # of a block on compute capability 9.0
ADDITIONS_OF = 16  # products that a tensor core adds to a sum at once


def specs(suite, name, **point):
    """The cases of a benchmark at a point."""
    file = suite.benchmark(name)
    at_point = tuple(point.items()) if point else smoke_point(file.benchmark)
    shapes = Inputs().shapes([(file, at_point)])[file, at_point]
    listed = [case for case in suite.cases if case.file is file and case.points == "smoke"]
    return [resolve(case.expansion, BenchmarkPoint(file, at_point, shapes))[0] for case in listed]


def of_allowed(spec, found, expected):
    """The maximum and the mean error as parts of what is tolerated."""
    error = abs(found - expected) / np.maximum(abs(expected), np.sqrt(np.mean(expected**2)))
    return error.max() / spec.tolerance.max, error.mean() / spec.tolerance.mean


def rounded_to_tf32(values):
    return ((values.view("uint32") + 0x1000) & 0xFFFFE000).view("float32").astype(float)


def cut_off_to_tf32(values):
    return (values.view("uint32") & 0xFFFFE000).view("float32").astype(float)


@pytest.fixture
def smoke(suite):
    """Factors in float32 and the result, of a benchmark at its smoke point, with a case."""

    def make(name):
        spec = specs(suite, name)[0]
        made, expected = make_arrays(spec)
        factors = [made[of].astype("float32") for of in "AB"]
        return spec, *factors, expected["C"]

    return make


def test_factors_that_are_rounded_to_tf32_are_within_the_tolerance(smoke):
    spec, a, b, expected = smoke("matmul_tf32")
    assert max(of_allowed(spec, rounded_to_tf32(a) @ rounded_to_tf32(b).T, expected)) < 1


def test_factors_that_are_cut_off_to_tf32_are_beyond_the_tolerance(smoke):
    spec, a, b, expected = smoke("matmul_tf32")
    assert of_allowed(spec, cut_off_to_tf32(a) @ cut_off_to_tf32(b).T, expected)[1] > 1


def test_factors_in_bfloat16_are_beyond_the_tolerance_of_tf32(smoke):
    spec, a, b, expected = smoke("matmul_tf32")
    a, b = ((factor.view("uint32") & 0xFFFF0000).view("float32").astype(float) for factor in (a, b))
    assert min(of_allowed(spec, a @ b.T, expected)) > 1


def test_sums_that_are_cut_off_to_float32_are_within_the_tolerance_of_bfloat16(smoke):
    spec, a, b, expected = smoke("matmul_bf16")
    sums = np.zeros(expected.shape)
    for k in range(0, a.shape[1], ADDITIONS_OF):
        exact = sums + a[:, k : k + ADDITIONS_OF].astype(float) @ b[:, k : k + ADDITIONS_OF].T.astype(float)
        nearest = exact.astype("f4")
        sums = np.where(abs(nearest) > abs(exact), np.nextafter(nearest, np.float32(0)), nearest).astype(float)
    assert max(of_allowed(spec, sums, expected)) < 1


@PRECISIONS
def test_one_product_left_out_of_each_sum_is_beyond_the_tolerance(smoke, name):
    spec, a, b, expected = smoke(name)
    without = a[:, 1:].astype(float) @ b[:, 1:].T.astype(float)
    assert min(of_allowed(spec, without, expected)) > 1


@PRECISIONS
def test_kernels_that_copy_rows_in_pieces_of_16_bytes_skip_rows_that_end_within_one(suite, name):
    ends_within = {"m": 131, "n": 198, "k": 330 if name == "matmul_tf32" else 332}
    for spec in specs(suite, name, **ends_within):
        reason = unmet(spec, HOPPER)
        assert ("k is" in reason) == (spec.case.variant.startswith("wgmma") or spec.case.variant == "wmma_async")


@PRECISIONS
def test_kernels_that_store_two_columns_at_once_skip_odd_widths(suite, name):
    for spec in specs(suite, name, m=131, n=197, k=328):
        assert ("n is 197" in unmet(spec, HOPPER)) == spec.case.variant.startswith("wgmma")


@PRECISIONS
def test_a_hopper_has_the_shared_memory_that_is_asked_for(suite, name):
    launches = [step for spec in specs(suite, name) for step in spec.steps if isinstance(step, Launch)]
    assert 0 < max(step.shared_bytes for step in launches) <= SHARED_BYTES
