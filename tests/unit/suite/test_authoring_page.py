"""The examples in docs/how-to/write-a-benchmark.md work, and docs/reference/benchmark-files.md lists every field."""

import dataclasses
import re
from pathlib import Path

import pytest

from perfsvc.build.cpu.host import HostToolchain
from perfsvc.formats import FORMATS
from perfsvc.measure.worker.memory import GUARD_BYTES
from perfsvc.suite import Benchmark, Selection, Variant, discover
from perfsvc.suite.arrays import make_arrays
from perfsvc.suite.authoring import ProgramStep
from perfsvc.suite.steps.programs import FOLDERS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "how-to" / "write-a-benchmark.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "reference" / "benchmark-files.md").read_text(encoding="utf-8")
PROGRAMS = (DOCS / "reference" / "benchmark-programs.md").read_text(encoding="utf-8")
STEPS = (DOCS / "reference" / "benchmark-steps.md").read_text(encoding="utf-8")


@pytest.fixture
def tutorial(tmp_path):
    """The guide's files, each written to the path in its first line."""
    for text, path in re.findall(r"```(?:cuda|python)\n((?://|#) (mykernels/\S+)\n.*?)```", PAGE, re.DOTALL):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path / "mykernels"


def section(page, title):
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_tutorials_benchmark_has_the_cases_on_the_page(tutorial):
    suite = discover(tutorial)
    shown = re.search(r"four cases:\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert suite.problems == ()
    assert shown is not None
    assert [listed.case.id for listed in suite.select(Selection(), "full")] == shown[1].split()


def test_the_tutorials_inputs_and_reference_fit(tutorial):
    spec, _ = discover(tutorial).resolve(Selection(), "smoke")[0]
    inputs, expected = make_arrays(spec)
    assert expected["y"] == pytest.approx(2.5 * inputs["x"].astype(float) + inputs["y"])


def test_the_problem_on_the_page_is_reported_like_that(tutorial):
    bench = tutorial / "saxpy" / "bench.py"
    bench.write_text(bench.read_text().replace('"y", "x"', '"y", "z"'))
    (problem,) = discover(tutorial).problems
    shown = re.search(r"```\nmykernels/saxpy/(bench\.py:\d+: .*?\n.*?)\n```", PAGE)
    assert shown is not None
    assert str(problem) == f"{tutorial}/saxpy/{shown[1]}"


@pytest.mark.slow
def test_the_template_on_the_page_compiles(tmp_path):
    (source,) = re.findall(r"```cuda\n(.*?)```", section(PAGE, "Time a template"), re.DOTALL)
    (variant,) = re.findall(r"```python\n(Variant.*?)```", section(PAGE, "Time a template"), re.DOTALL)
    (tmp_path / "scale.cu").write_text(source)
    (tmp_path / "bench.py").write_text(
        "from perfsvc.suite import *\n"
        'benchmark = Benchmark(axes={"n": (8,)}, smoke={"n": 8},\n'
        '    inputs=lambda rng, n: {"x": rng.random(n, "float32")},\n'
        '    outputs={"y": output("float32", lambda n: n)}, reference=lambda x: 2 * x,\n'
        f"    tolerance=Tolerance(0, 0), variants=[{variant}])\n"
    )
    specs = discover(tmp_path).resolve(Selection(), "smoke")[0]
    assert [spec.case.variant for spec in specs] == ["scale-ITEMS1", "scale-ITEMS4"]
    for spec in specs:
        assert HostToolchain().compile(spec.units[0])


def test_the_page_has_the_size_of_the_guard_bands():
    assert f"guard bands of {GUARD_BYTES >> 10} KiB" in section(STEPS, "Steps")


def test_every_field_of_a_benchmark_is_in_its_table_and_no_other():
    rows = set(re.findall(r"^\| `(\w+)` \|", section(REFERENCE, "The benchmark"), re.MULTILINE))
    assert rows == {field.name for field in dataclasses.fields(Benchmark)} - {"line"}


def test_every_field_of_a_program_is_in_its_table_and_no_other():
    table = PROGRAMS.partition("| field of `program` |")[2].partition("\n\n")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert rows == {field.name for field in dataclasses.fields(ProgramStep)} - {"line", "command"}


def test_every_format_of_a_program_is_on_its_page():
    rows = set(re.findall(r'^\| `"([a-z-]+)"` \|', section(PROGRAMS, "Formats"), re.MULTILINE))
    assert rows == set(FORMATS) - FOLDERS


def test_every_field_of_a_variant_is_explained_and_no_other():
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section(REFERENCE, "Variants"), re.MULTILINE)
    explained = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} | {"name", "steps", "run"}
    assert explained == {field.name for field in dataclasses.fields(Variant)} - {"line"}
