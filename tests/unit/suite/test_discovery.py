import errno
import os
import shutil
from pathlib import Path

import pytest

from perfsvc.errors import UsageError
from perfsvc.model import CacheState, Kind
from perfsvc.suite import Selection, discover

SUITES = Path(__file__).parents[2] / "data" / "suites"


@pytest.fixture(scope="module")
def suite():
    return discover(SUITES / "good")


def test_benchmarks_are_found_in_nested_folders_by_their_names_and_without_problems(suite):
    assert suite.problems == ()
    assert [file.name for file in suite.benchmarks] == ["points", "python", "steps"]
    assert suite.benchmark("points").path == SUITES / "good" / "deep" / "nested" / "points" / "bench.py"
    with pytest.raises(KeyError):
        suite.benchmark("nothing")


def test_a_folder_that_is_not_there_or_has_no_benchmark_but_in_hidden_folders_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no folder") as caught:
        discover(tmp_path / "nothing")
    assert "--suite" in caught.value.cure
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bench.py").write_text("")
    with pytest.raises(UsageError, match=r"no bench\.py"):
        discover(tmp_path)


def test_a_bench_file_that_links_to_a_missing_file_is_a_problem(tmp_path):
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "bench.py").symlink_to(tmp_path / "missing.py")
    (problem,) = discover(tmp_path).problems
    assert problem.path == str(tmp_path / "gone" / "bench.py")
    assert "No such file" in problem.what


def test_a_folder_that_cannot_be_searched_is_a_problem(tmp_path, monkeypatch):
    shutil.copytree(SUITES / "good", tmp_path / "good")
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path):  # root may search every folder
        if Path(path).name == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    suite = discover(tmp_path)
    (problem,) = suite.problems
    assert (problem.path, problem.what) == (
        str(tmp_path / "locked" / "bench.py"),
        "the folder cannot be searched: Permission denied",
    )
    assert len(suite.benchmarks) == 3
    assert suite.split_problems(Selection(("points/*",))) == ((), (problem,))


def test_full_points_are_the_product_of_the_axes_that_only_allows_or_listed_and_smoke_points_have_their_order(suite):
    ids = [listed.case.id for listed in suite.select(Selection(("steps/full-TILE32-FAST0",)), "full")]
    assert ids == [f"steps/full-TILE32-FAST0[n={n},scale={scale}]" for n in (64, 4096) for scale in (0.5, 2.0)]
    ids = [listed.case.id for listed in suite.select(Selection(("points",)), "full")]
    assert ids == ["points/copy[rows=8,layout=row]", "points/copy[rows=16,layout=column]"]
    variants = [f"full-TILE{tile}-FAST{fast}" for tile in (16, 32) for fast in (0, 1)]  # a single value expands nothing
    ids = {listed.case.id for listed in suite.select(Selection(("steps",)), "smoke")}
    assert ids == {f"steps/{variant}[n=10,scale=0.5]" for variant in variants}


def test_former_names_expand_with_the_same_parameters(suite):
    (listed,) = suite.select(Selection(("steps/full-TILE16-FAST0",)), "smoke")
    assert listed.case.formerly == ("old-TILE16-FAST0",)
    assert listed.case.version == 3


def test_a_listed_case_has_kind_and_requirements_without_resolving(suite):
    (listed,) = suite.select(Selection(("python/host",)), "full")
    assert listed.kind is Kind.HOST
    assert listed.requires == ()
    assert listed.caches == (CacheState.COLD,)
    assert listed.case.id == "python/host"
