"""What cuBLAS is asked for by the variants of the matrix products, on a stand-in for nvmath."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

TABLE = {
    "matmul": ("float", "as it is", "as it is", "float32"),
    "matmul_bf16": ("bfloat16", "transposed", "as it is", "float32"),
    "matmul_tf32": ("float", "transposed", "as it is", "TF32"),
}
"""The type of the factors, what is done to each, and the precision of the products, by benchmark."""


class FakeBlas(ModuleType):
    """Products of matrices by columns at addresses, as BLAS defines them, with the names of ``nvmath``."""

    Operation = SimpleNamespace(T="transposed", N="as it is")
    ComputeType = SimpleNamespace(COMPUTE_32F="float32", COMPUTE_32F_FAST_TF32="TF32")
    GemmAlgo = SimpleNamespace(DFALT="default")

    def __init__(self):
        super().__init__("nvmath.bindings.cublas")
        self.handles, self.streams, self.asked = 0, [], set()

    def create(self):
        self.handles += 1
        return 42

    def set_stream(self, handle, stream):
        self.streams.append((handle, stream))

    # nvmath's own signature
    def gemm_ex(  # noqa: PLR0917
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, *how
    ):
        assert (handle, type_a, type_c) == (42, type_b, "float")
        self.asked.add((type_a, op_a, op_b, *how))
        first = by_columns(a, type_a, k, m, lda).T if op_a == "transposed" else by_columns(a, type_a, m, k, lda)
        target = by_columns(c, type_c, m, n, ldc)
        scaled = at(alpha, "float", 1)[0] * first @ by_columns(b, type_b, k, n, ldb)
        target[:] = scaled + at(beta, "float", 1)[0] * target


def at(address, kind, count):
    size = ctypes.c_uint16 if kind == "bfloat16" else ctypes.c_float
    found = np.ctypeslib.as_array((size * count).from_address(address))
    return (found.astype("uint32") << 16).view("float32") if kind == "bfloat16" else found


def by_columns(address, kind, rows, columns, stride):
    return at(address, kind, stride * columns).reshape(columns, stride)[:, :rows].T


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


@pytest.mark.parametrize("name", TABLE)
def test_cublas_is_asked_for_the_same_product_on_the_given_stream(suite, blas, name):
    benchmark = suite.benchmark(name).benchmark
    (variant,) = (variant for variant in benchmark.variants if variant.name == "cublas")
    variant.run.__globals__["cublas_handle"].cache_clear()
    for m, n, k in ((3, 5, 7), (1, 4, 2), (6, 1, 1)):
        made = benchmark.inputs(np.random.default_rng(4), m=m, n=n, k=k)
        arrays = {**made, "C": np.full((m, n), 9, "f4")}
        for stream in (7, 8):
            variant.run({of: on_device(array) for of, array in arrays.items()}, stream)
        a, b = (made[of].astype("f4") for of in "AB")
        np.testing.assert_allclose(arrays["C"], a @ (b if name == "matmul" else b.T), rtol=1e-5)
    assert (blas.handles, blas.streams) == (1, [(42, 7), (42, 8)] * 3)
    assert blas.asked == {(*TABLE[name], "default")}
