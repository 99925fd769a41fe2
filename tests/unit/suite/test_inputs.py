"""Resolving a suite needs the shapes of its inputs; the shapes are kept for later runs."""

import threading

import numpy as np
import pytest

from perfsvc.errors import SuiteError
from perfsvc.suite import Selection, discover, isolated
from perfsvc.suite.arrays import Inputs, KnownShapes
from perfsvc.suite.benchfile import load

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


def test_points_are_made_at_the_same_time(tmp_path, monkeypatch):
    barrier = threading.Barrier(2, timeout=30)
    monkeypatch.setattr(threading, "both", barrier.wait, raising=False)
    written(tmp_path, "n > 4 and __import__('threading').both()")
    file = load(tmp_path / "bench.py")
    assert len(Inputs(threads=2).shapes([(file, (("n", 8),)), (file, (("n", 16),))])) == 2
    assert barrier.broken is False


def test_only_cases_of_one_point_share_their_arrays(suite):
    specs = suite.resolve(Selection(), "full")[0]
    names = {(spec.case.point, spec.arrays) for spec in specs}
    assert len(names) == len({name for _, name in names}) == 2


def test_an_edit_of_the_file_changes_the_key_of_its_arrays(suite, tmp_path):
    (before, *_) = suite.resolve(Selection(), "full")[0]
    (tmp_path / "bench.py").write_text((tmp_path / "bench.py").read_text() + "# edited\n")
    (after, *_) = discover(tmp_path).resolve(Selection(), "full")[0]
    assert (before.seed, before.case) == (after.seed, after.case)
    assert before.arrays != after.arrays


# --- shapes that earlier runs found -----------------------------------------------------------------------------------


def later(tmp_path):
    """Return the folder of the shapes that earlier runs found."""
    return tmp_path / "cache" / "shapes"


def test_inputs_of_known_shapes_are_not_made_for_resolving(suite, tmp_path):
    first = suite.resolve(Selection(), "full", later(tmp_path))[0]
    assert suite.resolve(Selection(), "full", later(tmp_path))[0] == first
    assert sorted(calls(tmp_path)) == [8, 16]


@pytest.mark.parametrize("change", ["file", "numpy"])
def test_known_shapes_depend_on_the_file_and_numpy(suite, tmp_path, monkeypatch, change):
    suite.resolve(Selection(), "full", later(tmp_path))
    if change == "file":
        written(tmp_path, "pass  # edited")
    else:
        monkeypatch.setattr(np, "__version__", "99.0")
        (tmp_path / "calls").unlink()
    Inputs(known=KnownShapes(later(tmp_path))).shapes([(load(tmp_path / "bench.py"), (("n", 8),))])
    assert calls(tmp_path) == [8]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"arrays": 1}'])
def test_unreadable_shapes_are_unknown_and_stored_again(suite, tmp_path, damage):
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))[0]
    (entry,) = (tmp_path / "cache" / "shapes").iterdir()
    written_there = entry.read_bytes()
    entry.write_bytes(damage)
    assert suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))[0][0] == spec
    assert entry.read_bytes() == written_there
    assert calls(tmp_path) == [8, 8]


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(suite, tmp_path):
    (tmp_path / "cache").touch()
    for _ in range(2):
        assert len(suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))[0]) == 4
    assert calls(tmp_path) == [8, 8]


def test_inputs_of_other_shapes_than_known_fail_their_case_and_are_made_by_the_next_run(tmp_path, monkeypatch):
    suite = written(tmp_path, "n = n + int(__import__('os').environ.get('MORE', 0))")
    suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))
    monkeypatch.setenv("MORE", "1")
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))[0]
    with pytest.raises(SuiteError, match="of another shape or dtype than before") as caught:
        isolated.make_arrays(spec, later(tmp_path))
    assert "run again" in caught.value.cure
    (spec, *_) = suite.resolve(Selection(("*[n=8]",)), "full", later(tmp_path))[0]
    assert spec.buffers[0].array.shape == (9,)
