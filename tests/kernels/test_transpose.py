"""What is special to the transpose: a last tile of any width, rows aligned for float4 or not, a library's stream."""

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.model import Status

LARGEST_TILE = 64
LIBRARIES = {"cupy", "torch", "triton"}


@settings(max_examples=10, deadline=None)
@given(whole=st.integers(0, 2), beside=st.integers(1, LARGEST_TILE))
def test_a_last_tile_of_any_width_is_turned(check, whole, beside):
    found = check("transpose", n=whole * LARGEST_TILE + beside)
    assert {one.status for name, one in found.items() if name not in LIBRARIES} == {Status.OK}


@pytest.mark.parametrize("n", [2, 3, 4, 5, 61, 62, 66, 67, 68])
def test_float4_turns_rows_that_are_aligned_for_it_and_rows_that_are_not(check, n):
    found = check("transpose/float4", n=n) | check("transpose/registers", n=n)
    assert [one.max_error for one in found.values()] == [0.0, 0.0]


def test_cupy_turns_the_matrix_on_the_stream_that_it_is_given(suite, monkeypatch):
    streams = []

    @contextlib.contextmanager
    def external_stream(address):
        streams.append(address)
        yield
        streams.append(None)

    def copyto(target, source):
        assert streams == [7]
        np.copyto(target, source)

    numpy_like = SimpleNamespace(
        asarray=np.asarray, copyto=copyto, cuda=SimpleNamespace(ExternalStream=external_stream)
    )
    monkeypatch.setitem(sys.modules, "cupy", numpy_like)
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    arrays = {"a": a, "b": np.zeros_like(a)}
    suite.benchmark("transpose").names["with_cupy"](arrays, 7)
    assert np.array_equal(arrays["b"], a.T)
