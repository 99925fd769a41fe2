"""C++ kernels from the guide on the CPU device: named as in C++, with structs, linked, and launched in several ways."""

import re
import shutil
from pathlib import Path

import pytest

from perfsvc.build.nvcc import find_nvcc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-cpp-kernels.md"
FEW = ("--replicas", "1", "--samples", "5")


@pytest.fixture(scope="module")
def measured(new_workplace):
    """A workplace with the suite of the guide, and its first run."""
    perfsvc = new_workplace()
    for text, path in re.findall(r"```(?:python|cuda)\n((?:#|//) (\S+)\n.*?)```", GUIDE.read_text("utf-8"), re.DOTALL):
        (perfsvc.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (perfsvc.folder / path).write_text(text, encoding="utf-8")
    rows = perfsvc.cpu(*FEW, "--format", "json", suite=perfsvc.folder / "mykernels", code=0).json["results"]
    return perfsvc, {(row["benchmark"], row["variant"]): row for row in rows}


def test_the_examples_of_the_guide_are_right_or_skipped_with_a_reason(measured):
    _, rows = measured
    skipped = {
        ("pairs", "cluster"): "requires sm_90: this is the CPU device",
        ("share", "cooperative"): "requires cuda: this is the CPU device",
    }
    assert {key: row["reason"] for key, row in rows.items() if row["status"] == "skipped"} == skipped
    assert {row["status"] for key, row in rows.items() if key not in skipped} == {"ok"}
    assert {key for key in rows if key not in skipped} == {
        ("chain", "one_by_one"),
        ("chain", "programmatic"),
        ("linked", "apply"),
        ("scale", "tiled-ITEMS1"),
        ("scale", "tiled-ITEMS4"),
        ("smooth", "by_address"),
        ("smooth", "by_value"),
    }


def test_a_template_that_became_slower_is_measured_again_from_its_stored_binary(measured):
    perfsvc, _ = measured
    suite = Path(shutil.copytree(perfsvc.folder / "mykernels", perfsvc.folder / "later"))
    source = suite / "scale" / "scale.cu"
    slower = "for (int i = first; i < min(first + items, n); ++i) {"
    text = source.read_text("utf-8")
    assert slower in text
    select = ("--replicas", "3", "--samples", "10", "--select", "scale/tiled-ITEMS4")
    perfsvc.cpu(*select, suite=suite, code=0)
    again = "for (volatile int more = 0; more < 200; ++more) {\n"
    source.write_text(text.replace(slower, slower + again).replace("y[i] = 2 * x[i];", "y[i] = 2 * x[i]; }"), "utf-8")
    ended = perfsvc.cpu(*select, "--confirm", "--format", "json", suite=suite, code=1)
    (confirmation,) = ended.json["confirmations"]
    assert confirmation["cause"] == "kernel"
    sides = perfsvc.rows("select distinct side, status from confirmation_runs")
    assert sorted(sides) == [("baseline", "ok"), ("candidate", "ok")]


def test_a_wrong_name_fails_its_case_alone_and_lists_the_kernels(measured):
    perfsvc, _ = measured
    suite = Path(shutil.copytree(perfsvc.folder / "mykernels", perfsvc.folder / "wrong"))
    bench = suite / "scale" / "bench.py"
    bench.write_text(bench.read_text("utf-8").replace("tiled::scale<", "tiled::scal<"), "utf-8")
    ended = perfsvc.cpu(*FEW, "--format", "json", "--select", "scale", "--select", "linked", suite=suite, code=4)
    rows = {(row["benchmark"], row["variant"]): row for row in ended.json["results"]}
    assert rows["linked", "apply"]["status"] == "ok"
    reason = rows["scale", "tiled-ITEMS4"]["reason"]
    assert (
        "scale.cu has no kernel named tiled::scal<float, 4>; it has template <typename T, int items> scale(T *y"
        in reason
    )


def test_a_struct_of_another_size_is_an_error(measured):
    perfsvc, _ = measured
    suite = Path(shutil.copytree(perfsvc.folder / "mykernels", perfsvc.folder / "sizes"))
    bench = suite / "smooth" / "bench.py"
    bench.write_text(bench.read_text("utf-8").replace("(f32(0.25), f32(0.5), f32(0.25))", "(f32(0.25),) * 4"), "utf-8")
    ended = perfsvc.cpu(*FEW, "--format", "json", "--select", "smooth/by_value", suite=suite, code=4)
    (row,) = ended.json["results"]
    assert "argument 2 of kernel smooth::by_value has 24 bytes, and the launch gives it a struct of 32" in row["reason"]


@pytest.mark.skipif(find_nvcc() is None or shutil.which("g++") is None, reason="needs nvcc and g++")
def test_the_check_shows_the_names_of_the_author(measured):
    perfsvc, _ = measured
    ended = perfsvc("check", "--suite", "mykernels", "--arch", "sm_90", "--format", "json", code=0)
    kernels = {(row["case"].partition("[")[0], row["kernel"]) for row in ended.json["verdicts"]}
    assert {
        ("scale/tiled-ITEMS4", "tiled::scale<float, 4>"),
        ("smooth/by_value", "smooth::by_value"),
        ("linked/apply", "apply"),
        ("chain/programmatic", "chain::add_one"),
        ("pairs/cluster", "pairs::sum"),
    } <= kernels
