"""What is special to the transpose: rows aligned for float4 or not, and a library's stream."""

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest


@pytest.mark.slow
def test_float4_turns_rows_that_are_aligned_for_it_and_rows_that_are_not(check):
    for n in (2, 3, 4, 5, 61, 62, 66, 67, 68):
        found = check("transpose/float4", n=n) | check("transpose/registers", n=n)
        assert [result.max_error for result in found.values()] == [0.0, 0.0]


def test_cupy_turns_the_matrix_on_the_stream_that_it_is_given(suite, monkeypatch):
    memory = {"a": np.arange(9, dtype=np.float32).reshape(3, 3), "b": np.zeros((3, 3), np.float32)}
    calls = []

    def asarray(name):
        calls.append(f"takes {name}")
        return memory[name]

    @contextlib.contextmanager
    def external_stream(address):
        calls.append(f"on {address}")
        yield
        calls.append("done")

    def copyto(target, source):
        calls.append("copies")
        np.copyto(target, source)

    library = SimpleNamespace(asarray=asarray, copyto=copyto, cuda=SimpleNamespace(ExternalStream=external_stream))
    monkeypatch.setitem(sys.modules, "cupy", library)
    suite.benchmark("transpose").names["with_cupy"]({"a": "a", "b": "b"}, 7)
    assert np.array_equal(memory["b"], memory["a"].T)
    assert calls == ["takes a", "takes b", "on 7", "copies", "done"]
