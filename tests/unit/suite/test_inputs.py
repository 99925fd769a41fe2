"""Inputs are made once: resolving a suite needs their shapes, and they are kept until they are measured."""

import threading

import numpy as np
import pytest

from perfsvc.errors import SuiteError
from perfsvc.suite import Inputs, KnownShapes, Selection, discover, load, make_arrays

BENCH = """
from pathlib import Path
from perfsvc.suite import *
def inputs(rng, n):
    with Path(__file__).with_name("calls").open("a") as calls:
        print(n, file=calls)
    {extra}
    return {{"x": rng.random(n)}}
benchmark = Benchmark(
    axes={{"n": (8, 16)}}, smoke={{"n": 4}}, inputs=inputs, outputs={{"y": output("float64", lambda n: n)}},
    reference=lambda x: 2 * x, tolerance=Tolerance(0, 0),
    variants=[Variant(name, source="k.cu", entry="k", grid=1, block=1, args=("y", "x"), cache="both") for name in "vw"])
"""


@pytest.fixture
def suite(tmp_path):
    return written(tmp_path)


def written(folder, extra="pass"):
    (folder / "k.cu").write_text("")
    (folder / "bench.py").write_text(BENCH.format(extra=extra))
    suite = discover(folder)
    assert suite.problems == ()
    (folder / "calls").unlink()  # by the checks of discover
    return suite


def calls(folder):
    return [int(line) for line in (folder / "calls").read_text().split()]


def test_each_points_inputs_are_made_once_to_resolve_and_to_measure(suite, tmp_path):
    inputs = Inputs(keep_bytes=1000)
    specs = suite.resolve(Selection(), "full", inputs)
    specs += suite.resolve(Selection(), "full", inputs)  # for another device
    by_point = {spec.case.point: spec for spec in specs}
    made = {point: make_arrays(spec, inputs) for point, spec in by_point.items()}
    assert sorted(calls(tmp_path)) == [8, 16]
    for point, spec in by_point.items():
        np.testing.assert_array_equal(made[point][0]["x"], make_arrays(spec)[0]["x"])
        np.testing.assert_array_equal(made[point][1]["y"], 2 * made[point][0]["x"])


def test_inputs_are_taken_once_and_then_made_again(suite, tmp_path):
    inputs = Inputs(keep_bytes=1000)
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", inputs)
    first, again = make_arrays(spec, inputs), make_arrays(spec, inputs)
    assert calls(tmp_path) == [8, 8]
    np.testing.assert_array_equal(first[0]["x"], again[0]["x"])


def test_inputs_that_do_not_fit_are_made_again_and_taken_inputs_free_their_bytes(suite, tmp_path):
    inputs = Inputs(keep_bytes=16 * 8)
    (small, *_) = suite.resolve(Selection(("*[n=8]",)), "full", inputs)
    (large, *_) = suite.resolve(Selection(("*[n=16]",)), "full", inputs)
    assert inputs.take(large) is None
    assert inputs.take(small)["x"].size == 8
    other = load(tmp_path / "bench.py")
    inputs.shapes([(other, (("n", 15),))])
    assert inputs.take(small) is None
    assert calls(tmp_path) == [8, 16, 15]


def test_by_default_no_inputs_are_kept(suite):
    inputs = Inputs()
    (spec, *_) = suite.resolve(Selection(), "full", inputs)
    assert inputs.take(spec) is None


def test_points_are_made_at_the_same_time(tmp_path, monkeypatch):
    barrier = threading.Barrier(2, timeout=30)
    monkeypatch.setattr(threading, "both", barrier.wait, raising=False)
    suite = written(tmp_path, "n > 4 and __import__('threading').both()")
    assert len(suite.resolve(Selection(), "full", Inputs(threads=2))) == 8
    assert barrier.broken is False


def test_only_cases_of_one_point_share_their_arrays(suite):
    specs = suite.resolve(Selection(), "full")
    names = {(spec.case.point, spec.arrays) for spec in specs}
    assert len(names) == len({name for _, name in names}) == 2


def test_an_edit_of_the_file_changes_the_key_of_its_arrays(suite, tmp_path):
    (before, *_) = suite.resolve(Selection(), "full")
    (tmp_path / "bench.py").write_text((tmp_path / "bench.py").read_text() + "# edited\n")
    (after, *_) = discover(tmp_path).resolve(Selection(), "full")
    assert (before.seed, before.case) == (after.seed, after.case)
    assert before.arrays != after.arrays


# --- shapes that earlier runs found -----------------------------------------------------------------------------------


def later(tmp_path):
    """What a later run starts with."""
    return Inputs(keep_bytes=1000, known=KnownShapes(tmp_path / "cache" / "shapes"))


def test_inputs_of_known_shapes_are_not_made_for_resolving(suite, tmp_path):
    first = suite.resolve(Selection(), "full", later(tmp_path))
    inputs = later(tmp_path)
    assert suite.resolve(Selection(), "full", inputs) == first
    assert sorted(calls(tmp_path)) == [8, 16]
    np.testing.assert_array_equal(make_arrays(first[0], inputs)[0]["x"], make_arrays(first[0])[0]["x"])


@pytest.mark.parametrize("change", ["file", "numpy"])
def test_known_shapes_depend_on_the_file_and_numpy(suite, tmp_path, monkeypatch, change):
    suite.resolve(Selection(), "full", later(tmp_path))
    if change == "file":
        suite = written(tmp_path, "pass  # edited")
    else:
        monkeypatch.setattr(np, "__version__", "99.0")
        (tmp_path / "calls").unlink()
    suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))
    assert calls(tmp_path) == [8]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"arrays": 1}'])
def test_unreadable_shapes_are_unknown_and_stored_again(suite, tmp_path, damage):
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))
    (entry,) = (tmp_path / "cache" / "shapes").iterdir()
    written_there = entry.read_bytes()
    entry.write_bytes(damage)
    assert suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))[0] == spec
    assert entry.read_bytes() == written_there
    assert calls(tmp_path) == [8, 8]


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(suite, tmp_path):
    (tmp_path / "cache").touch()
    for _ in range(2):
        assert len(suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))) == 4
    assert calls(tmp_path) == [8, 8]


def test_inputs_of_other_shapes_than_known_fail_their_case_and_are_made_by_the_next_run(tmp_path, monkeypatch):
    suite = written(tmp_path, "n = n + int(__import__('os').environ.get('MORE', 0))")
    suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))
    monkeypatch.setenv("MORE", "1")
    inputs = later(tmp_path)
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", inputs)
    with pytest.raises(SuiteError, match="of another shape or dtype than before") as caught:
        make_arrays(spec, inputs)
    assert "run again" in caught.value.cure
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))
    assert spec.buffers[0].array.shape == (9,)
