"""C++ kernels from the guide on the CPU device: named as in C++, with structs, linked, and launched in several ways."""

import re
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

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
