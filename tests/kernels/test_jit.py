"""What is special to jit: which text is loaded, and that what was loaded computes the result."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.model import Call
from perfsvc.suite import Selection, functions

PTX = b"//\n.version 9.0\n.entry series() {}\n"


@pytest.fixture
def loaded(monkeypatch):
    """Every binary that is loaded, by a stand-in for PyCUDA."""
    found = []

    def module_from_buffer(binary):
        found.append(binary)
        return SimpleNamespace(get_function=lambda name: kernel)

    def kernel(y, x, n, *, grid, block):
        assert (grid[0] - 1) * block[0] < n <= grid[0] * block[0]
        launched.append((y, x, n))

    launched = []
    driver = SimpleNamespace(module_from_buffer=module_from_buffer, launched=launched)
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    return SimpleNamespace(binaries=found, launches=launched)


@pytest.fixture
def run(suite):
    def variant(name):
        (spec,) = suite.resolve(Selection((f"jit/{name}",)), "smoke")[0]
        ((step, *_),) = (spec.steps,)
        assert step == Call(step.function, module=0)
        arrays = {
            name: SimpleNamespace(__cuda_array_interface__={"data": (address, False)})
            for name, address in (("x", 1), ("y", 2))
        }
        return functions(suite.benchmark("jit").text, [step.function])[step.function](arrays, 0, PTX)

    return variant


def test_ptx_is_made_for_the_variants_that_load_it(suite):
    specs = suite.resolve(Selection(("jit",)), "smoke")[0]
    assert {spec.case.variant: spec.units[0].options for spec in specs} == {
        "ptx_cold": ("-ptx",),
        "ptx_warm": ("-ptx",),
        "cubin": (),
    }


def test_every_cold_load_is_of_new_text_with_the_same_result(loaded, run):
    run("ptx_cold")
    run("ptx_cold")
    assert len(set(loaded.binaries)) == len(loaded.binaries) == 22
    assert {re.sub(rb"\n// [0-9a-f]{16}$", b"", binary) for binary in loaded.binaries} == {PTX}


def test_every_other_load_is_of_the_same_bytes_once_they_have_been_loaded(loaded, run):
    for variant in ("ptx_warm", "cubin"):
        loaded.binaries.clear()
        run(variant)
        assert loaded.binaries == 12 * [PTX]


def test_the_loaded_kernel_runs_over_every_element(loaded, run):
    for variant in ("ptx_cold", "ptx_warm", "cubin"):
        loaded.launches.clear()
        assert run(variant)["load_s"] > 0
        assert loaded.launches == [(2, 1, 10_007)]


def test_the_reference_is_the_series_of_a_logarithm(suite):
    x = np.array([0.1, 0.3, 0.5])
    assert suite.benchmark("jit").names["reference"](x, 60) == pytest.approx(-np.log1p(-x), rel=1e-12)
    assert suite.benchmark("jit").names["reference"](x, 1) == pytest.approx(x)
