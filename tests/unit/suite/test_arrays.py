from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import SuiteError
from perfsvc.suite import Selection, discover
from perfsvc.suite.arrays import make_arrays, replay_arrays, seed_of
from perfsvc.suite.benchfile import load, load_text

GOOD = Path(__file__).parents[2] / "data" / "suites" / "good"
TEMPLATE = """
from perfsvc.suite import *
import numpy as np
def inputs(rng, n):
    return {{"x": {inputs}}}
benchmark = Benchmark(
    axes={{"n": (8,)}}, smoke={{"n": 4}}, inputs=inputs, outputs={{"y": output("{dtype}", lambda n: n)}},
    reference=lambda x, n: {reference}, tolerance=Tolerance(0, 0),
    variants=[Variant("v", source="k.cu", entry="k", grid=1, block=1, args=("y", "x"))])
"""


def arrays_of(inputs="rng.random(n)", reference="x", dtype="float64"):
    text = TEMPLATE.format(inputs=inputs, reference=reference, dtype=dtype)
    return replay_arrays(load_text(text, "b"), (("n", 8),), 1)


@pytest.fixture(scope="module")
def spec():
    (spec,) = discover(GOOD).resolve(Selection(("steps/full-TILE16-FAST0",)), "smoke")[0]
    return spec


def test_inputs_and_expected_results_come_by_name(spec):
    inputs, expected = make_arrays(spec)
    assert set(inputs) == {"x", "y", "weights", "unused"}
    assert set(expected) == {"y", "sum"}
    assert expected["sum"].shape == (1,)
    np.testing.assert_allclose(
        expected["y"], inputs["y"] + 0.5 * inputs["x"].astype(float) * inputs["weights"].astype(float).sum()
    )


def test_the_same_seed_gives_the_same_arrays_and_another_seed_others(spec):
    first, again = make_arrays(spec), make_arrays(spec)
    other = replay_arrays(load(spec.bench), spec.case.point, spec.seed + 1)
    assert all(np.array_equal(first[0][name], again[0][name]) for name in first[0])
    assert not np.array_equal(first[0]["x"], other[0]["x"])


def test_the_seed_depends_only_on_benchmark_version_and_point():
    point = (("n", 4096), ("dtype", "f32"))
    assert seed_of("transpose", 1, point) == 5578592408430117356
    assert seed_of("transpose", 1, tuple(reversed(point))) == seed_of("transpose", 1, point)
    assert len({seed_of("transpose", 2, point), seed_of("dot", 1, point), seed_of("transpose", 1, ())}) == 3


def test_stored_text_makes_the_arrays_of_its_run(spec):
    text = spec.bench.read_text(encoding="utf-8")
    then = replay_arrays(load_text(text, "steps"), spec.case.point, spec.seed)
    now = make_arrays(spec)
    for before, after in zip(then, now, strict=True):
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_floating_inputs_reach_the_reference_in_float64():
    _, expected = arrays_of("np.full(n, np.float32(0.1))", "x * 3", "float32")
    assert expected["y"].dtype == np.float64
    assert expected["y"][0] == float(np.float32(0.1)) * 3


def test_a_reference_that_works_in_place_does_not_change_the_inputs():
    inputs, expected = arrays_of("np.ones(n, np.int32)", "np.add(x, 1, out=x)", "int32")
    assert inputs["x"].tolist() == [1] * 8
    assert expected["y"].tolist() == [2] * 8


def test_integer_references_stay_integers_for_integer_outputs_alone():
    _, expected = arrays_of("np.full(n, 2**62 + 1)", "x", "int64")
    assert expected["y"].dtype == np.int64
    assert expected["y"][0] == 2**62 + 1
    assert arrays_of("np.ones(n, np.int32)", "x", "float32")[1]["y"].dtype == np.float64


def test_arrays_are_returned_without_a_copy():
    inputs, expected = arrays_of("np.broadcast_to(rng.random(1), n)", "x[::-1]")
    assert inputs["x"].strides == (0,)
    assert not expected["y"].flags.c_contiguous


def test_wrong_arrays_are_reported_with_the_line_of_the_function():
    table = [
        ({"inputs": "[1.0] * n"}, "input 'x' is list", 4),
        ({"inputs": "np.array(['a'] * n)"}, "input 'x' is an array of <U1", 4),
        ({"inputs": "np.zeros(0)"}, r"input 'x' has the shape \(0,\)", 4),
        ({"inputs": "np.array(1.0)"}, r"input 'x' has the shape \(\)", 4),
        ({"reference": "x.sum()"}, r"has the shape \(\), the output is declared as \(8,\)", 8),
        ({"reference": "{}"}, "reference returned , the outputs are y", 8),
        ({"reference": "None"}, "reference of 'y' is NoneType None", 8),
        ({"reference": "x.astype('float16')"}, "reference of 'y' is float16", 8),
    ]
    for fault, what, line in table:
        with pytest.raises(SuiteError, match=what) as caught:
            arrays_of(**fault)
        assert caught.value.line == line
        assert caught.value.cure


def test_an_input_changed_in_place_has_the_shape_of_the_output():
    text = TEMPLATE.format(inputs='rng.random(3), "y": rng.random(3)', reference="x", dtype="float64")
    with pytest.raises(SuiteError, match=r"'y' is float64\[3\] as an input and float64\[8\] as an output"):
        replay_arrays(load_text(text, "b"), (("n", 8),), 1)


def test_an_edit_of_the_file_does_not_change_a_resolved_case(tmp_path):
    (tmp_path / "k.cu").write_text("")
    text = TEMPLATE.format(inputs="np.ones(n)", reference="x", dtype="float64")
    (tmp_path / "bench.py").write_text(text)
    (spec,) = discover(tmp_path).resolve(Selection(), "full")[0]
    (tmp_path / "bench.py").write_text("no Python any more (")
    assert spec.bench_text == text
    assert make_arrays(spec)[0]["x"].tolist() == [1] * 8


def test_a_benchmark_without_inputs_and_outputs_has_no_arrays():
    text = "from perfsvc.suite import Benchmark\nbenchmark = Benchmark()\n"
    assert replay_arrays(load_text(text, "b"), (), 1) == ({}, {})
