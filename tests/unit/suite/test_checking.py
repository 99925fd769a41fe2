"""Every broken bench.py lists in comments the problems that must be reported: those of tests/data/suites/broken, and
the benchmarks of the table below, each of which differs in a field or two from one without problems.

``# problem: TEXT`` is on the line to be reported; ``# problem of the file: TEXT`` if no line is at fault.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from perfsvc.suite import Selection, discover
from tests.unit.suite.benches import VARIANT, text_of

SUITES = Path(__file__).parents[2] / "data" / "suites"
RELATIVE = {"relative_to": "'plain'", "variants": f"[{VARIANT[:-1]}    params={{'T': (1, 2)}})]"}
NAMED_LIKE_AN_AXIS = {
    "inputs": 'lambda rng, n: {"n": rng.random(n)}',
    "reference": "lambda n: n",
    "variants": f"[{VARIANT}]".replace('"x", ', ""),
}
TOO_LARGE_LATE = {
    "axes": '{"n": (10, 2**31)}',
    "inputs": 'lambda rng: {"x": rng.random(1)}',
    "outputs": '{"y": output("float64", 1)}',
    "variants": f"[{VARIANT}]".replace("Variant(", "Variant(  # problem: 2147483648: too large for int32"),
}
"""A benchmark whose problem is at a full point alone."""
WRONG_SHAPE = "reference of 'y' has the shape (9,), the output is declared as (10,)"
TABLE = {
    "axes_and_points": ("both axes and points are given", {"points": '[{"n": 5}]'}),
    "axis_value_of_no_kind": ("axis 'n' has the value None", {"axes": '{"n": (256, None)}'}),
    "axis_value_twice": ("axis 'n' has a value twice", {"axes": '{"n": (256, 256)}'}),
    "empty_axis": ("axis 'n' is empty", {"axes": '{"n": ()}'}),
    "input_named_like_an_axis": ("'n' is an axis and an input", NAMED_LIKE_AN_AXIS),
    "inputs_that_raise": (
        "",
        {"inputs": 'lambda rng, n: {"x": rng.normal(scale=-n)}  # problem: inputs raised ValueError'},
    ),
    "inputs_without_names": (
        "",
        {"inputs": "lambda rng, n: rng.random(n)  # problem: inputs returned an array of float64"},
    ),
    "name_of_no_id": ("the benchmark is called 'a/b'", {"name": "'a/b'"}),
    "no_reference": ("no reference", {"reference": None}),
    "no_smoke": ("no smoke point", {"smoke": None}),
    "no_tolerance": ("no tolerance", {"tolerance": None}),
    "no_variants": ("no variants", {"variants": None}),
    "output_named_like_an_axis": ("'n' is an axis and an output", {"outputs": '{"n": output("float64", 1)}'}),
    "reference_in_float32": ("", {"reference": "lambda x: x.astype('f4')  # problem: reference of 'y' is float32"}),
    "reference_of_another_input": ("", {"reference": "lambda z: z  # problem: reference asks for 'z'"}),
    "reference_of_another_name": (
        "",
        {"reference": "lambda x: {'z': x}  # problem: reference returned z, the outputs are y"},
    ),
    "reference_of_another_shape": ("", {"reference": f"lambda x: x[1:]  # problem: {WRONG_SHAPE}"}),
    "reference_that_raises": ("", {"reference": "lambda x: x @ x[1:]  # problem: reference raised ValueError"}),
    "reference_without_outputs": ("no outputs", {"outputs": None, "variants": '[Variant("v", run=inputs)]'}),
    "reference_without_signature": ("reference has parameters whose names cannot be read", {"reference": "dict"}),
    "relative_to_that_is_no_variant": ("relative_to is 'plain', which is no variant", RELATIVE),
    "shape_of_another_axis": (
        "",
        {"outputs": """{"y": output("float64", lambda m: m)}  # problem: shape of 'y' asks for 'm'"""},
    ),
    "smoke_of_other_axes": ("the smoke point names m, the axes are n", {"smoke": '{"m": 10}'}),
    "tolerance_below_zero": ("tolerance is Tolerance(max=-1.0, mean=0.0)", {"tolerance": "Tolerance(-1.0, 0.0)"}),
    "tolerance_of_no_kind": ("tolerance is 1e-06", {"tolerance": "lambda n: 1e-6"}),
    "too_large_at_a_full_point": ("", TOO_LARGE_LATE),
    "unknown_dtype": ("'y' has the dtype 'float23'", {"outputs": '{"y": output("float23", lambda n: n)}'}),
    "unknown_precision": ("precision is 'fp31'", {"work": "Work(flops=2, precision='fp31')"}),
    "version_zero": ("version is 0", {"version": "0"}),
    "work_of_a_float": ("read_bytes is 3.3333333333333335", {"work": "lambda n: Work(n / 3)"}),
    "work_of_another_axis": ("", {"work": "lambda m: Work(m)  # problem: work asks for 'm'"}),
    "work_of_no_kind": ("work is 80", {"work": "lambda n: 8 * n"}),
    "wrong_kinds": (
        "axes is [256] # problem: tolerance is 1e-06 # problem: version is 'two'",
        {"axes": "[256]", "tolerance": "1e-6", "version": "'two'"},
    ),
}
"""What is reported with the line of each broken benchmark, if anything, and the fields in which it differs."""


def marked(path: Path) -> list[tuple[int, str]]:
    """Return the line and the text of each problem that a file lists."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found += [(0, text.strip()) for text in re.findall(r"# problem of the file: ([^#]+)", line)]
        found += [(number, text.strip()) for text in re.findall(r"# problem: ([^#]+)", line)]
    return sorted(found)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Return the folder of all broken benchmarks."""
    folder = tmp_path_factory.mktemp("suites") / "broken"
    shutil.copytree(SUITES / "broken", folder)
    for name, row in TABLE.items():
        (folder / name).mkdir()
        (folder / name / "bench.py").write_text(text_of(*row))
    return folder


@pytest.fixture(scope="module")
def suite(broken):
    return discover(broken)


def problems_of(suite, name):
    return [problem for problem in suite.problems if Path(problem.path).parent.name == name]


def test_exactly_the_problems_of_a_file_are_reported_with_their_lines_and_a_cure(broken, suite):
    wrong = {}
    for file in sorted(broken.glob("*/bench.py")):
        wanted = marked(file)
        problems = problems_of(suite, file.parent.name)
        found = sorted((problem.line, problem.what) for problem in problems)
        missing = [(line, text) for line, text in wanted if not any(text in what for at, what in found if at == line)]
        if not wanted or missing or [line for line, _ in found] != [line for line, _ in wanted]:
            wrong[file.parent.name] = (missing, found)
        assert all(problem.where.startswith(str(file)) and problem.cure for problem in problems)
        assert {problem.exit_code for problem in problems} == {4}
    assert wrong == {}


def test_a_broken_variant_does_not_remove_the_other_variants(suite):
    cases = [listed.case.id for listed in suite.select(Selection(("several_problems",)), "full")]
    variants = ("plain", "sized-T1", "sized-T2")  # the first ones of these names
    assert cases == [f"several_problems/{variant}[n={n}]" for variant in variants for n in (256, 1000)]


def test_a_problem_of_the_benchmark_removes_all_its_variants(suite):
    assert "reference_of_another_shape" not in {listed.case.benchmark for listed in suite.cases}


def test_selecting_a_broken_benchmark_is_no_usage_error(suite):
    assert suite.select(Selection(("no_smoke",)), "full") == ()


def test_the_second_benchmark_of_one_name_is_reported():
    suite = discover(SUITES / "same_name")
    (problem,) = suite.problems
    assert Path(problem.path).parent.name == "second"
    assert problem.line == 8
    assert "'same' exists already" in problem.what
    assert [listed.case.id for listed in suite.select(Selection(), "full")] == ["same/python"]


def test_relative_to_with_half_a_name_gets_the_nearest_name(suite):
    (problem,) = problems_of(suite, "relative_to_that_is_no_variant")
    assert problem.cure == "did you mean 'plain-T2'?"


def test_an_unusable_reference_variant_does_not_remove_the_others(tmp_path):
    copy = RELATIVE["variants"].strip("[]").replace('"plain"', '"copy"').replace("../scale.cu", "gone.cu")
    fields = RELATIVE | {"relative_to": "'copy-T1'", "variants": f"{RELATIVE['variants'][:-1]}, {copy}]"}
    (tmp_path / "scale.cu").write_text("")
    (tmp_path / "bench.py").write_text(text_of(fields=fields).replace("../scale.cu", "scale.cu"))
    suite = discover(tmp_path)
    (problem,) = suite.problems
    assert "no source file 'gone.cu'" in problem.what
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
    variants = f"[{VARIANT}, {VARIANT.replace('plain', 'other')}]"
    text = text_of(fields={"work": "lambda n: 8 * n", "variants": variants})
    (tmp_path / "scale.cu").write_text("")
    (tmp_path / "bench.py").write_text(text.replace("../scale.cu", "scale.cu"))
    (problem,) = discover(tmp_path).problems
    assert problem.what == "work is 80"
