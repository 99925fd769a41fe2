"""matmul_bf16 and matmul_tf32 without tensor cores: how they round, what is tolerated, what is asked of a device."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

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


def floats(bits):
    return (bits.astype("uint32") << 16).view("float32")


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


def test_bfloat16_are_the_nearest_and_of_two_as_near_the_even_one():
    above = np.float32(2**-8)  # half of the distance from 1 to the next bfloat16
    values = np.array([1, 1 + above, 1 + 3 * above, 1 + above * np.float32(1.01), -1 - above, 0, 0.2], "f4")
    expected = np.array([1, 1, 1 + 4 * above, 1 + 2 * above, -1, 0, 0.2001953125], "f4")
    assert values.astype("bfloat16").astype("f4").tolist() == expected.tolist()


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


# --- cuBLAS ----------------------------------------------------------------------------------------------------------


class FakeBlas(ModuleType):
    """Products of a transposed matrix and another, both by columns, as BLAS defines them, with the names of nvmath."""

    Operation = SimpleNamespace(T="transposed", N="as it is")
    ComputeType = SimpleNamespace(COMPUTE_32F="float32", COMPUTE_32F_FAST_TF32="TF32")
    GemmAlgo = SimpleNamespace(DFALT="default")

    def __init__(self):
        super().__init__("nvmath.bindings.cublas")
        self.asked = []

    def create(self):
        return 42

    def set_stream(self, *asked):
        self.asked.append(asked)

    # nvmath's own signature
    def gemm_ex(  # noqa: PLR0917
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, *how
    ):
        assert (handle, op_a, op_b) == (42, "transposed", "as it is")
        assert (lda, ldb, ldc, type_c) == (k, k, m, "float")
        self.asked.append((type_a, type_b, *how))
        sums = at(alpha, "float", 1) * at(b, type_b, n, k) @ at(a, type_a, m, k).T
        at(c, type_c, n, m)[:] = sums + at(beta, "float", 1) * at(c, type_c, n, m)


def at(address, kind, *shape):
    size = ctypes.c_uint16 if kind == "bfloat16" else ctypes.c_float
    found = np.ctypeslib.as_array((size * int(np.prod(shape))).from_address(address)).reshape(shape)
    return floats(found) if kind == "bfloat16" else found


@pytest.fixture
def blas(monkeypatch):
    fake = FakeBlas()
    nvmath, bindings = ModuleType("nvmath"), ModuleType("nvmath.bindings")
    nvmath.CudaDataType = SimpleNamespace(CUDA_R_32F="float", CUDA_R_16BF="bfloat16")
    bindings.cublas = fake
    monkeypatch.setitem(sys.modules, "nvmath", nvmath)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    return fake


def on_device(array):
    interface = {"data": (array.ctypes.data, False)}
    return SimpleNamespace(shape=array.shape, __cuda_array_interface__=interface)


@pytest.mark.parametrize(
    ("name", "kind", "precision"), [("matmul_bf16", "bfloat16", "float32"), ("matmul_tf32", "float", "TF32")]
)
def test_cublas_is_asked_for_the_same_product_on_the_given_stream(suite, blas, name, kind, precision):
    benchmark = suite.benchmark(name).benchmark
    made = benchmark.inputs(np.random.default_rng(4), m=3, n=5, k=7)
    arrays = {**made, "C": np.full((3, 5), 9, "f4")}
    (relative_to,) = (variant for variant in benchmark.variants if variant.name == benchmark.relative_to)
    relative_to.run.__globals__["cublas_handle"].cache_clear()
    relative_to.run({of: on_device(array) for of, array in arrays.items()}, 7)
    a, b = (made[of].astype("f4") for of in "AB")
    np.testing.assert_allclose(arrays["C"], a @ b.T, rtol=1e-5)
    assert blas.asked == [(42, 7), (kind, kind, precision, "default")]
