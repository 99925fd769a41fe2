"""A variant with its own reference is compared with that, and shares it with variants of the same reference."""

import numpy as np
import pytest

from perfsvc.suite import Selection, discover
from perfsvc.suite.arrays import SMALL_CASE_BYTES, make_arrays, make_fresh, replay_arrays
from perfsvc.suite.benchfile import load_text

LARGE = SMALL_CASE_BYTES // 8
"""Elements of a float64 array that is no longer small."""
BENCH = """
import numpy as np
from perfsvc.suite import *
def inputs(rng, n):
    return {{"x": rng.random(n)}}
def copied(x):
    return x
def variant(name, **more):
    return Variant(name, source="k.cu", entry="k", grid=1, block=1, args=("y", "x"), **more)
benchmark = Benchmark(
    axes={{"n": ({n},)}}, smoke={{"n": 4}}, inputs=inputs, outputs={{"y": output("float64", lambda n: n)}},
    reference=lambda x: 2 * x, tolerance=Tolerance(0, 0),
    variants=[
        variant("double"),
        variant("also"),
        variant("copy", params={{"WIDTH": (1, 4)}}, reference=copied),
        variant("memcpy", reference=copied),
        variant("zeros", reference=lambda x: np.zeros_like(x)),
    ])
"""


@pytest.fixture
def cases(tmp_path):
    """The cases by variant."""

    def cases(n=8):
        (tmp_path / "k.cu").write_text("")
        (tmp_path / "bench.py").write_text(BENCH.format(n=n))
        suite = discover(tmp_path)
        assert suite.problems == ()
        return {spec.case.variant: spec for spec in suite.resolve(Selection(), "full")[0]}

    return cases


def test_a_variant_is_compared_with_its_own_reference_on_the_inputs_of_all(cases):
    specs = cases()
    (inputs, double), (same, copied) = make_arrays(specs["double"]), make_arrays(specs["copy-WIDTH4"])
    np.testing.assert_array_equal(inputs["x"], same["x"])
    np.testing.assert_array_equal(double["y"], 2 * inputs["x"])
    np.testing.assert_array_equal(copied["y"], inputs["x"])


def test_only_variants_with_the_same_reference_share_expected_results(cases):
    specs = cases()
    assert specs["double"].arrays == specs["also"].arrays
    assert specs["copy-WIDTH1"].arrays == specs["copy-WIDTH4"].arrays == specs["memcpy"].arrays
    assert len({spec.arrays for spec in specs.values()}) == 3


def test_fresh_results_are_of_the_variants_own_reference(cases):
    spec = cases()["copy-WIDTH1"]
    inputs, expected = make_fresh(spec, lambda: make_arrays(spec)[0])
    np.testing.assert_array_equal(expected["y"], inputs["x"])


def test_the_variants_own_reference_shows_whether_a_large_result_changes(cases):
    specs = cases(n=LARGE)
    _, of_copy = make_fresh(specs["copy-WIDTH1"], lambda: make_arrays(specs["copy-WIDTH1"])[0])
    _, of_zeros = make_fresh(specs["zeros"], lambda: make_arrays(specs["zeros"])[0])
    assert (set(of_copy), set(of_zeros)) == (set(), {"y"})


def test_a_replay_finds_the_reference_by_the_variants_name():
    for variant, factor in {"copy-WIDTH4": 1, "memcpy": 1, "double": 2, "": 2}.items():
        inputs, expected = replay_arrays(load_text(BENCH.format(n=8), "b"), (("n", 8),), 1, variant)
        np.testing.assert_array_equal(expected["y"], factor * inputs["x"])


def test_a_replay_finds_the_reference_next_to_an_unusable_variant():
    text = BENCH.format(n=8).replace('variant("also")', 'variant("also", params=3, reference=copied)')
    inputs, expected = replay_arrays(load_text(text, "b"), (("n", 8),), 1, "memcpy")
    np.testing.assert_array_equal(expected["y"], inputs["x"])
