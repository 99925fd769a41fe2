"""matmul beyond what any point shows: how precise its sums are, where its tiles end, and what cuBLAS is asked for."""

import ctypes
import enum
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from perfsvc.model import Status

PRECISE = 1e-6


def test_compensated_sums_are_precise_where_plain_ones_are_not(check):
    point = {"m": 65, "n": 66, "k": 1000}
    assert check("matmul/kahan", **point)["kahan"].max_error < PRECISE
    assert check("matmul/naive", **point)["naive"].max_error > PRECISE


@pytest.mark.parametrize("n", [1, 15, 16, 17, 31, 32, 33, 47, 49])
def test_the_second_column_of_a_thread_may_lie_beyond_the_last_one(check, n):
    assert check("matmul/two_columns", m=18, n=n, k=5)["two_columns"].status is Status.OK


@pytest.mark.parametrize("k", [1, 7, 8, 9, 16, 23, 24, 25, 31, 32, 33, 48, 49])
@pytest.mark.parametrize("n", [130, 132])
def test_stages_are_right_before_they_are_all_filled_and_when_they_come_round(check, n, k):
    assert check("matmul/pipelined", m=3, n=n, k=k)["pipelined"].status is Status.OK


@pytest.mark.parametrize("beyond", [2, 4])  # copies of one float, and of four
def test_tiles_are_high_where_every_multiprocessor_has_one_and_right_there_too(suite, check, beyond):
    names = suite.benchmark("matmul").names
    n = 128 * (names["SMS"] - 1) + beyond
    assert (names["tile_height"](3, n), names["tile_height"](3, n - 128)) == (128, 64)
    assert check("matmul/pipelined", m=3, n=n, k=20)["pipelined"].status is Status.OK


def test_the_cycles_of_a_block_are_counted(check):
    found = check("matmul/flat_index", m=20, n=30, k=40)["flat_index"]
    assert found.metrics["block_cycles"] > 0


class Operation(enum.IntEnum):
    N = 0


class FakeBlas(ModuleType):
    """Products of matrices by columns at addresses, as BLAS defines them, with the names of ``nvmath``."""

    Operation = Operation
    ComputeType = SimpleNamespace(COMPUTE_32F="single precision")
    GemmAlgo = SimpleNamespace(DFALT="default")

    def __init__(self):
        super().__init__("nvmath.bindings.cublas")
        self.handles, self.streams = 0, []

    def create(self):
        self.handles += 1
        return 42

    def set_stream(self, handle, stream):
        self.streams.append((handle, stream))

    # nvmath's own signature
    def gemm_ex(  # noqa: PLR0917
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, *how
    ):
        assert (handle, op_a, op_b, *how) == (42, Operation.N, Operation.N, "single precision", "default")
        assert type_a == type_b == type_c == "float"
        product = by_columns(a, m, k, lda) @ by_columns(b, k, n, ldb)
        target = by_columns(c, m, n, ldc)
        target[:] = at(alpha, 1)[0] * product + at(beta, 1)[0] * target


def at(address, count):
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def by_columns(address, rows, columns, stride):
    return at(address, stride * columns).reshape(columns, stride)[:, :rows].T


@pytest.fixture
def blas(monkeypatch):
    fake = FakeBlas()
    nvmath, bindings = ModuleType("nvmath"), ModuleType("nvmath.bindings")
    nvmath.CudaDataType = SimpleNamespace(CUDA_R_32F="float")
    bindings.cublas = fake
    monkeypatch.setitem(sys.modules, "nvmath", nvmath)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    return fake


def on_device(array):
    interface = {"data": (array.ctypes.data, False)}
    return SimpleNamespace(shape=array.shape, __cuda_array_interface__=interface)


@pytest.mark.parametrize("point", [(3, 5, 7), (1, 4, 2), (6, 1, 1)])
def test_cublas_is_asked_for_the_product_by_rows_on_the_given_stream(suite, blas, point):
    m, n, k = point
    rng = np.random.default_rng(4)
    arrays = {"A": rng.random((m, k), "f4"), "B": rng.random((k, n), "f4"), "C": np.full((m, n), 9, "f4")}
    (relative_to,) = (variant for variant in suite.benchmark("matmul").benchmark.variants if variant.name == "cublas")
    relative_to.run.__globals__["cublas_handle"].cache_clear()
    for stream in (7, 8):
        relative_to.run({name: on_device(array) for name, array in arrays.items()}, stream)
    np.testing.assert_allclose(arrays["C"], arrays["A"] @ arrays["B"], rtol=1e-6)
    assert blas.handles == 1
    assert blas.streams == [(42, 7), (42, 8)]
