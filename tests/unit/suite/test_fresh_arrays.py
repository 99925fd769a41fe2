"""The inputs of the check after timing, and their reference if a changed result does not prove enough."""

import numpy as np
import pytest

from perfsvc.errors import SuiteError
from perfsvc.suite import Selection, arrays, discover
from perfsvc.suite.arrays import (
    ELEMENTS_COMPARED_AT_ONCE,
    SMALL_CASE_BYTES,
    SMALL_RESULT_BYTES,
    fresh_seed,
    make_arrays,
    make_fresh,
    replay_arrays,
)
from perfsvc.suite.benchfile import load

LARGE = SMALL_CASE_BYTES // 8
"""Elements of a float64 array that is no longer small."""
TEMPLATE = """
from perfsvc.suite import *
import numpy as np
def inputs(rng, n):
    return {{"x": {inputs}}}
benchmark = Benchmark(
    axes={{"n": ({n},)}}, smoke={{"n": {smoke}}}, inputs=inputs, outputs={{"y": output("float64", lambda n: {shape})}},
    reference=lambda x, n: {reference}, tolerance=Tolerance(0, 0),
    variants=[Variant(name, source="k.cu", entry="k", grid=1, block=1, args=("y", "x")) for name in "vw"])
"""


@pytest.fixture
def cases(tmp_path):
    def cases(*, inputs="rng.random(n)", reference="2 * x", n=8, shape="n", smoke=4):
        (tmp_path / "k.cu").write_text("")
        (tmp_path / "bench.py").write_text(
            TEMPLATE.format(inputs=inputs, reference=reference, n=n, shape=shape, smoke=smoke)
        )
        suite = discover(tmp_path)
        assert suite.problems == ()
        return suite.resolve(Selection(), "full")[0]

    return cases


@pytest.fixture
def fresh(cases):
    """The fresh arrays of a benchmark with these fields."""

    def fresh(**written):
        spec, _ = cases(**written)
        return make_fresh(spec, lambda: make_arrays(spec)[0])

    return fresh


def test_fresh_inputs_have_the_same_shape_and_their_own_reference(cases):
    spec, sibling = cases()
    first, _ = make_arrays(spec)
    inputs, expected = make_fresh(spec, lambda: first)
    assert inputs["x"].shape == first["x"].shape
    assert not np.isin(inputs["x"], first["x"]).any()
    np.testing.assert_array_equal(expected["y"], 2 * inputs["x"])
    np.testing.assert_array_equal(make_fresh(sibling, lambda: first)[0]["x"], inputs["x"])


def test_the_seed_of_fresh_inputs_depends_on_the_cases_seed(cases):
    spec, _ = cases()
    inputs, expected = replay_arrays(load(spec.bench), spec.case.point, fresh_seed(spec.seed))
    made = make_fresh(spec, lambda: make_arrays(spec)[0])
    np.testing.assert_array_equal(made[0]["x"], inputs["x"])
    np.testing.assert_array_equal(made[1]["y"], expected["y"])
    assert fresh_seed(1) == 936699669143529330


def test_a_large_result_has_no_fresh_reference(fresh):
    inputs, expected = fresh(n=LARGE)
    assert inputs["x"].shape == (LARGE,)
    assert expected == {}


def test_a_small_result_of_large_inputs_has_a_fresh_reference(fresh):
    inputs, expected = fresh(n=LARGE, shape="1", reference="x.max()")
    assert expected["y"].tolist() == [inputs["x"].max()]


def test_a_result_is_small_below_a_mebibyte_and_inputs_and_results_below_sixteen(fresh):
    for result, known in ((SMALL_RESULT_BYTES - 8, True), (SMALL_RESULT_BYTES, False)):
        shape = f"{result // 8} if n > 4 else 4"
        _, expected = fresh(n=LARGE, shape=shape, reference=f"x[:{shape}]")
        assert bool(expected) is known
    for n, known in ((LARGE // 2 - 1, True), (LARGE // 2, False)):
        assert bool(fresh(n=n)[1]) is known


def test_a_result_that_no_input_changes_has_a_fresh_reference_however_large(fresh):
    inputs, expected = fresh(n=LARGE, inputs="rng.permutation(n).astype(float)", reference="np.sort(x)")
    assert not np.array_equal(inputs["x"], np.sort(inputs["x"]))
    np.testing.assert_array_equal(expected["y"], np.arange(LARGE))


def test_a_result_whose_change_its_dtype_cannot_hold_has_a_fresh_reference(fresh):
    _, expected = fresh(n=LARGE, reference="1 + 1e-17 * x")
    assert set(expected) == {"y"}


def test_equal_inputs_and_inputs_that_do_not_fit_are_not_fresh(fresh):
    of_any_size = "rng.random(n + rng.integers(1_000_000) * (n > 4))"
    for inputs in ("np.arange(n)", "np.full(n, np.nan)", "rng.random(n) if n < 8 else np.ones(n)", of_any_size):
        assert fresh(inputs=inputs, shape="1", reference="x.sum()") == ({}, {})


def test_a_difference_at_the_very_end_is_seen(fresh):
    inputs, _ = fresh(inputs="np.append(np.zeros(n - 1), rng.random(1))", n=2 * ELEMENTS_COMPARED_AT_ONCE + 1)
    assert set(inputs) == {"x"}


def test_a_benchmark_without_inputs_has_no_fresh_arrays(cases):
    (spec, _) = cases()
    assert make_fresh(spec, dict) == ({}, {})


def test_a_benchmark_without_outputs_has_no_fresh_arrays(tmp_path):
    (tmp_path / "bench.py").write_text(
        "from perfsvc.suite import *\n"
        "def metrics(arrays, stream):\n    return {'x': 1.0}\n"
        "benchmark = Benchmark(inputs=lambda rng: {'x': rng.random(8)},\n"
        "    variants=[Variant('v', kind='host', run=metrics)])\n"
    )
    (spec,) = discover(tmp_path).resolve(Selection(), "full")[0]
    assert make_fresh(spec, lambda: make_arrays(spec)[0]) == ({}, {})


@pytest.mark.parametrize(
    ("error", "what"), [("ValueError", "inputs raised ValueError"), ("MemoryError", "MemoryError")]
)
def test_inputs_that_fail_are_reported_with_their_line(cases, monkeypatch, error, what):
    spec, _ = cases(inputs=f"exec('raise {error}') if 'FAILS' in __import__('os').environ else rng.random(n)")
    first, _ = make_arrays(spec)
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(SuiteError, match=what) as caught:
        make_fresh(spec, lambda: first)
    assert caught.value.line == 5


def test_arrays_that_do_not_fit_into_memory_fail_only_their_case(cases, monkeypatch):
    def refuse(*_):
        raise MemoryError

    spec, _ = cases()
    monkeypatch.setattr(arrays, "make_expected", refuse)
    with pytest.raises(SuiteError, match="do not fit into this machine's memory") as caught:
        make_arrays(spec)
    assert caught.value.cure == "give it smaller points"
