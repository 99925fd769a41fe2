"""Every broken bench.py of tests/data/suites/broken lists in comments the problems that must be reported.

``# problem: TEXT`` is on the line to be reported; ``# problem of the file: TEXT`` if no line is at fault.
"""

import re
import sys
from pathlib import Path

import pytest

from perfsvc.suite import Selection, discover

BROKEN = Path(__file__).parents[2] / "data" / "suites" / "broken"
NAMES = sorted(path.parent.name for path in BROKEN.glob("*/bench.py"))


def marked(path: Path) -> list[tuple[int, str]]:
    """Return the line and the text of each problem that a file lists."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found += [(0, text.strip()) for text in re.findall(r"# problem of the file: ([^#]+)", line)]
        found += [(number, text.strip()) for text in re.findall(r"# problem: ([^#]+)", line)]
    return sorted(found)


@pytest.fixture(scope="module")
def suite():
    return discover(BROKEN)


def problems_of(suite, name):
    return [problem for problem in suite.problems if Path(problem.path).parent.name == name]


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_problems_of_a_file_are_reported_with_their_lines(suite, name):
    wanted = marked(BROKEN / name / "bench.py")
    found = sorted((problem.line, problem.what) for problem in problems_of(suite, name))
    assert wanted
    assert [line for line, _ in found] == [line for line, _ in wanted]
    for line, text in wanted:
        assert any(text in what for at, what in found if at == line), (text, found)


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_names_its_file_and_a_cure(suite, name):
    for problem in problems_of(suite, name):
        assert problem.where.startswith(str(BROKEN / name / "bench.py"))
        assert problem.cure
        assert problem.exit_code == 4


def test_a_broken_variant_does_not_remove_the_other_variants(suite):
    cases = {listed.case.id for listed in suite.select(Selection(("several_problems",)), "full")}
    assert cases == {"several_problems/plain[n=256]", "several_problems/plain[n=1000]"}


def test_the_first_of_two_variants_with_equal_names_stays(suite):
    variants = [listed.case.variant for listed in suite.select(Selection(("duplicate*",)), "smoke")]
    assert variants == ["plain-T1", "plain-T2", "plain"]


def test_a_problem_of_the_benchmark_removes_all_its_variants(suite):
    assert "reference_of_another_shape" not in {listed.case.benchmark for listed in suite.cases}


def test_selecting_a_broken_benchmark_is_no_usage_error(suite):
    assert suite.select(Selection(("no_smoke",)), "full") == ()


def test_the_second_benchmark_of_one_name_is_reported():
    suite = discover(BROKEN.parent / "same_name")
    (problem,) = suite.problems
    assert Path(problem.path).parent.name == "second"
    assert problem.line == 8
    assert "'same' exists already" in problem.what
    assert [listed.case.id for listed in suite.select(Selection(), "full")] == ["same/python"]


def test_problems_that_hold_only_at_a_full_point_are_found_too(tmp_path):
    folder = tmp_path / "late"
    folder.mkdir()
    (folder / "k.cu").write_text("")
    (folder / "bench.py").write_text(
        "from perfsvc.suite import *\n"
        "benchmark = Benchmark(\n"
        "    axes={'n': (10, 2**31)}, smoke={'n': 1}, inputs=lambda rng: {'x': rng.random(1)},\n"
        "    outputs={'y': output('float64', 1)}, reference=lambda x: x, tolerance=Tolerance(0, 0),\n"
        "    variants=[Variant('v', source='k.cu', entry='k', grid=1, block=1, args=('y', 'n'))])\n"
    )
    (problem,) = discover(tmp_path).problems
    assert problem.line == 5
    assert "2147483648: too large for int32" in problem.what
    assert "i64('n')" in problem.cure


def test_relative_to_with_half_a_name_gets_the_nearest_name(suite):
    (problem,) = problems_of(suite, "relative_to_that_is_no_variant")
    assert problem.cure == "did you mean 'plain-T2'?"


def test_an_unusable_reference_variant_does_not_remove_the_others(tmp_path):
    text = (BROKEN / "relative_to_that_is_no_variant" / "bench.py").read_text().replace("../scale.cu", "scale.cu")
    start, end = text.index("        Variant("), text.index("    ],\n")
    copy = text[start:end].replace('"plain"', '"copy"').replace("scale.cu", "copy.cu")
    (tmp_path / "scale.cu").write_text("")
    (tmp_path / "bench.py").write_text(
        (text[:end] + copy + text[end:]).replace('"plain",\n    var', '"copy-T1",\n    var')
    )
    suite = discover(tmp_path)
    (problem,) = suite.problems
    assert "no source file 'copy.cu'" in problem.what
    assert {listed.case.variant for listed in suite.cases} == {"plain-T1", "plain-T2"}


def test_text_that_is_not_utf8_is_reported(tmp_path):
    (tmp_path / "bench.py").write_bytes(b"# caf\xe9\n")
    (problem,) = discover(tmp_path).problems
    assert "cannot be read" in problem.what


def test_reading_a_suite_leaves_nothing_behind(tmp_path):
    (tmp_path / "bench.py").write_text("from perfsvc.suite import Benchmark\nbenchmark = Benchmark()\n")
    modules = set(sys.modules)
    discover(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.py"]
    assert set(sys.modules) == modules


def test_a_problem_that_every_variant_meets_is_reported_once(tmp_path):
    text = (BROKEN / "work_of_no_kind" / "bench.py").read_text().replace("../scale.cu", "scale.cu")
    start, end = text.index("        Variant("), text.index("    ],\n")
    (tmp_path / "scale.cu").write_text("")
    (tmp_path / "bench.py").write_text(text[:end] + text[start:end].replace("plain", "other") + text[end:])
    (problem,) = discover(tmp_path).problems
    assert problem.what == "work is 80"


def test_an_option_whose_quote_is_never_closed_is_reported_with_its_line(tmp_path):
    (tmp_path / "k.cu").write_text("")
    (tmp_path / "bench.py").write_text(
        "from perfsvc.suite import *\n"
        'benchmark = Benchmark(axes={"n": (8,)}, smoke={"n": 8}, variants=[\n'
        """    Variant("v", source="k.cu", entry="k", grid=1, block=1, options="-DX='1")])\n"""
    )
    (problem,) = discover(tmp_path).problems
    assert problem.line == 3
    assert "options is" in problem.what
    assert "every quote closed" in problem.cure
