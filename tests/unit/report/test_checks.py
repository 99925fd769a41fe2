"""A static check as people and programs read it."""

import html
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from perfsvc.errors import SuiteError
from perfsvc.judge import check_verdicts
from perfsvc.model import (
    Case,
    CheckedKernel,
    Limiter,
    LocalLine,
    Measurement,
    Occupancy,
    StaticBaseline,
    StaticFacts,
    Status,
    Verdict,
)
from perfsvc.report.checks import StaticCheck, check_lines, local_memory, skipped
from perfsvc.report.export.check_formats import check_junit, check_markdown
from perfsvc.report.export.github import workflow_commands
from perfsvc.report.export.objects import check_json
from perfsvc.report.review import check_review
from perfsvc.report.tables.check import check_table
from tests.unit.report.terminal import show as text

NVCC = "nvcc 13.0.88"
FULL, HALF = Occupancy(64, 64, Limiter.WARPS), Occupancy(32, 64, Limiter.REGISTERS)
FACTS = StaticFacts(32, 0, 0, 0, 4224, 1, (("global", 8), ("integer", 30)), "aa")
POINTS = [(("n", 4096),), (("n", 8192),)]
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


def kernels(variant="tiled", kernel="transpose_tiled", **given):
    return [
        CheckedKernel(
            Case("transpose", variant, point),
            architecture,
            kernel,
            **{"facts": FACTS, "occupancy": FULL, "threads": 256, "source": "old"} | given,
        )
        for point in POINTS
        for architecture in ARCHITECTURES
    ]


def shown(before, after, **given):
    verdicts = check_verdicts([StaticBaseline(one, NVCC) for one in before], after, NVCC)
    return StaticCheck(None, "main" if before else "", NVCC, "nvdisasm 13.5.37", after, verdicts, **given)


def slower(one):
    return replace(one, facts=replace(one.facts, registers=64), occupancy=HALF, source="new")


@pytest.fixture
def everywhere():
    """Return a check of a kernel that lost half of its occupancy at all points and on all architectures."""
    return shown(kernels(), list(map(slower, kernels())))


CHANGED = "occupancy 100 % → 50 % (registers), registers 32 → 64"


def test_equal_changes_share_one_line_and_unchanged_facts_have_none(everywhere):
    assert "unchanged transpose" not in text(check_table(shown(kernels(), kernels()), everything=True))
    (line,) = check_lines(everywhere.verdicts)
    assert (line.verdict, line.subject, line.architectures) == (Verdict.REGRESSION, "transpose/tiled", ARCHITECTURES)
    assert line.text == CHANGED
    assert f"\nregression kernel transpose/tiled\n    all  {CHANGED}" in text(check_table(everywhere))


def test_a_change_of_one_point_architecture_or_kernel_names_it():
    after = [slower(one) if one.case.point == POINTS[1] and one.architecture == "sm_90" else one for one in kernels()]
    (line,) = check_lines(shown(kernels(), after).verdicts)
    assert (line.subject, line.architectures) == ("transpose/tiled[n=8192]", ("sm_90",))
    both = [*kernels(kernel="first"), *kernels(kernel="second")]
    after = [slower(one) if one.kernel == "second" else one for one in both]
    (line,) = check_lines(shown(both, after).verdicts)
    assert line.subject == "transpose/tiled second"


def test_irrelevant_changes_are_counted_and_shown_on_demand():
    after = [replace(one, facts=replace(FACTS, registers=34)) for one in kernels()]
    quiet = shown(kernels(), after)
    assert "registers 32 → 34" not in text(check_table(quiet))
    assert "1 variant changed too little to matter: --all shows them" in text(check_table(quiet))
    assert "registers 32 → 34" in text(check_table(quiet, everything=True))


def test_local_memory_is_always_reported():
    spilling = kernels(facts=replace(FACTS, spill_store_bytes=40, spill_load_bytes=44, stack_bytes=24))
    assert local_memory(shown([], spilling)) == [("transpose/tiled", ARCHITECTURES, "spills 84 B, stack 24 B")]
    assert "local memory transpose/tiled (all): spills 84 B, stack 24 B" in text(check_table(shown([], spilling)))
    assert local_memory(shown([], kernels())) == []
    spilling = kernels(facts=replace(FACTS, spill_store_bytes=40))  # new since the baseline: it is reported once
    assert local_memory(shown(kernels(), spilling)) == []
    assert text(check_table(shown(kernels(), spilling))).count("spills") == 1


def test_variants_skipped_for_the_same_reason_share_a_line():
    one = CheckedKernel(
        Case("matmul", "wgmma", POINTS[0]), "sm_80", "", Status.SKIPPED, "requires sm_90a: this device is sm_80"
    )
    others = [one, replace(one, architecture="sm_100", reason="requires sm_90a: this device is sm_100")]
    assert skipped([*kernels(), *others]) == [("requires sm_90a", ["matmul/wgmma"], ("sm_80", "sm_100"))]
    assert "skipped matmul/wgmma (sm_80, sm_100): requires sm_90a" in text(
        check_table(shown([], [*kernels(), *others]))
    )


def test_nothing_is_cut_off_however_narrow_the_terminal(everywhere):
    for width in [46, 60, 80, 200]:
        out = text(check_table(everywhere, everything=True), width)
        assert max(map(len, out.splitlines())) <= width, width
        words = " ".join(out.split())
        assert CHANGED in words, width
        assert [row.split()[-2:] for row in out.splitlines() if "64" in row and "sm_" in row] != [], width


@pytest.fixture
def troubled(everywhere, tmp_path):
    """Return the check with a broken benchmark file, a wrong result, and the source of the kernel."""
    source = tmp_path / "tiled.cu"
    source.write_text('// one\n// two\nextern "C" __global__ void transpose_tiled(float *b) {\n}\n')
    problem = SuiteError("nonsense: 100 %", path="kernels/dot/bench.py", line=3, cure="write sense")
    wrong = Measurement(kernels()[0].case, "cpu", 0, Status.WRONG, reason="off by | one\nor two")
    sources = {(one.case, one.kernel): source for one in everywhere.checked}
    return replace(everywhere, problems=(problem,), wrong=(wrong,), sources=sources)


def test_every_format_shows_problems_and_wrong_results(troubled):
    for written in (text(check_table(troubled)), check_markdown(troubled), check_junit(troubled)):
        assert "nonsense" in written
        assert "off by | one" in written


def check_github(check):
    return workflow_commands(check_review(check, passed=False))


def test_annotations_name_file_and_line_and_escape_special_characters(troubled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, problem, wrong, last = check_github(troubled).splitlines()
    assert first.startswith("::error file=tiled.cu,line=3,title=regression%3A transpose/tiled (all)::")
    assert first.endswith("::" + CHANGED.replace("%", "%25") + "; cause: kernel")
    assert problem == "::error file=kernels/dot/bench.py,line=3,title=broken benchmark::nonsense: 100 %25"
    assert wrong.endswith("::off by | one%0Aor two")
    assert last == "::notice title=perfsvc check::6 regressions, 0 improvements, 0 unchanged"


# --- lines that access local memory ----------------------------------------------------------------------------------

SPILLING = replace(FACTS, spill_store_bytes=40, spill_load_bytes=44)
LINES = (LocalLine(Path("own/a.cuh"), 31, 6), LocalLine(Path("own/b.cu"), 5, 3), LocalLine(Path("own/b.cu"), 7, 1))
WHERE = "local memory: own/a.cuh:31 (60 %), own/b.cu:5 (30 %), own/b.cu:7 (10 %)"


def with_lines(check, lines=LINES):
    return replace(check, verdicts=[replace(verdict, local_lines=lines) for verdict in check.verdicts])


@pytest.fixture
def spilling():
    """Return a check of a kernel that spills now, at known lines."""
    return with_lines(shown(kernels(), kernels(facts=SPILLING, source="new")))


def test_every_format_names_the_lines_of_local_memory_if_they_are_known(spilling):
    unknown = with_lines(spilling, ())
    assert "::warning" not in check_github(unknown)
    assert "local memory" not in text(check_table(unknown))
    assert check_json(unknown)["verdicts"][0]["local_lines"] == []
    assert [row.strip() for row in text(check_table(spilling)).splitlines()][4:6] == ["all  spills 0 → 84 B", WHERE]
    assert f"spills 0 → 84 B; {WHERE} |" in check_markdown(spilling)
    assert f">spills 0 → 84 B; {WHERE}<" in check_junit(spilling)
    assert check_json(spilling)["verdicts"][0]["local_lines"] == [
        {"file": "own/a.cuh", "line": 31, "instructions": 6},
        {"file": "own/b.cu", "line": 5, "instructions": 3},
        {"file": "own/b.cu", "line": 7, "instructions": 1},
    ]


def test_each_line_of_local_memory_has_an_annotation(spilling):
    error, *warnings, _ = check_github(spilling).splitlines()
    assert error.endswith(f"::spills 0 → 84 B; {WHERE}; cause: kernel".replace("%", "%25"))
    assert [warning.partition("::60 ")[0].partition(",title")[0] for warning in warnings] == [
        "::warning file=own/a.cuh,line=31",
        "::warning file=own/b.cu,line=5",
        "::warning file=own/b.cu,line=7",
    ]
    accepted = check_github(replace(spilling, accepted="it is faster"))
    assert "::warning" not in accepted
    assert "::notice file=own/a.cuh,line=31," in accepted
    assert warnings[0].endswith(
        "title=local memory::60 %25 of the loads and stores of local memory in transpose/tiled (all): spills 0 → 84 B"
    )


def test_verdicts_with_one_line_share_its_annotation():
    both = [*kernels(), *kernels("naive")]
    check = with_lines(shown(both, [replace(one, facts=SPILLING, source="new") for one in both]), LINES[:1])
    (only,) = (line for line in check_github(check).splitlines() if line.startswith("::warning"))
    assert "memory in transpose/naive (all): spills 0 → 84 B%0A100 %25 of" in only


def test_lines_of_several_architectures_are_added_up_and_many_lines_are_counted():
    verdicts = shown(kernels(), kernels(facts=SPILLING, source="new")).verdicts
    file = Path("a.cu")
    lines = [tuple(LocalLine(file, 10 + number, 1 + number * index) for number in range(5)) for index in range(6)]
    (line,) = check_lines(replace(verdict, local_lines=found) for verdict, found in zip(verdicts, lines, strict=True))
    assert [(found.line, found.instructions) for found in line.local_lines] == [
        (14, 66), (13, 51), (12, 36), (11, 21), (10, 6)
    ]  # fmt: skip
    assert line.where == "local memory: a.cu:14 (37 %), a.cu:13 (28 %), a.cu:12 (20 %), 2 more lines (15 %)"


def test_a_files_name_cannot_end_its_annotation(spilling):
    hostile = with_lines(spilling, (LocalLine(Path("a,line=1::x\n::error::owned 100%|*b*.cu"), 2, 1),))
    error, warning, last = check_github(hostile).splitlines()
    assert warning.startswith("::warning file=a%2Cline=1%3A%3Ax%0A\\%3A%3Aerror%3A%3Aowned 100%25|*b*.cu,line=2,title=")
    assert error.startswith("::error title=")
    assert last.startswith("::notice title=perfsvc check::")
    (row,) = [line for line in check_markdown(hostile).splitlines() if "spills" in line]
    assert "*b*" not in row
    assert "\\|" in row


SAID = "k.cu(3): error: no `f<float>` for **x**, __global__ [a](b)\n<img src=x> & more"


def test_markdown_and_junit_show_a_compilers_message_unchanged_but_for_what_they_forbid():
    failed = CheckedKernel(Case("dot", "tree"), "sm_90", "", Status.FAILED, SAID)
    wrong = Measurement(kernels()[0].case, "cpu", 0, Status.WRONG, reason=SAID)
    problem = SuiteError(SAID, path="bench.py")
    written = check_markdown(replace(shown([], [failed]), wrong=(wrong,), problems=(problem,), accepted=SAID))
    starts = [line.partition(" ")[0] for line in written.splitlines() if line]
    assert starts == ["###", "1", "|", "|---|---|---|---|---|", "|", "-", "-"]
    assert not any(raw in written for raw in ("<float>", "**x**", "__global__", "[a]", "`f", "<img", "& more"))
    assert html.unescape(written).count(SAID.replace("\n", "<br>")) == 4
    written = check_markdown(shown([], [replace(failed, reason="a | b\nc")]))
    assert "| broken | `dot/tree` | sm_90 | a \\| b<br>c |  |" in written
    root = ET.fromstring(check_junit(shown([], [replace(failed, reason="a\x1b[31mred\x00")])))  # noqa: S314 - our own
    assert next(root.iter("failure")).text == "a␛[31mred␀"


def test_junit_has_a_suite_for_each_architecture_and_the_failures(troubled):
    root = ET.fromstring(check_junit(troubled))  # noqa: S314 - our own
    assert [suite.get("name") for suite in root] == [*ARCHITECTURES, "suite"]
    assert {suite.get("failures") for suite in root} == {"2"}
    assert {failure.get("type") for failure in root.iter("failure")} == {"regression", "broken"}


def test_accepted_changes_do_not_fail_and_broken_kernels_do(everywhere):
    accepted = replace(everywhere, accepted="it is faster")
    root = ET.fromstring(check_junit(accepted))  # noqa: S314 - our own
    assert list(root.iter("failure")) == []
    assert {suite.get("failures") for suite in root} == {"0"}
    assert {tests.text for tests in root.iter("system-out")} == {f"regression: {CHANGED}"}
    assert check_github(accepted).startswith("::notice title=regression%3A transpose/tiled")
    assert text(check_table(accepted)).rstrip().endswith("accepted: it is faster")
    failed = CheckedKernel(Case("dot", "tree"), "sm_90", "", Status.FAILED, "no")
    broken = replace(shown([], [failed]), accepted="whatever")
    assert "<failure" in check_junit(broken)
    assert check_github(broken).startswith("::error ")


def test_junit_reports_missing_and_inconclusive_kernels():
    before = [*kernels(kernel="first"), *kernels(kernel="second")]
    after = [*kernels(kernel="first"), *kernels(kernel="third"), *kernels(kernel="fourth")]
    root = ET.fromstring(check_junit(shown(before, after)))  # noqa: S314 - our own
    assert {(suite.get("tests"), suite.get("failures"), suite.get("skipped")) for suite in root} == {("8", "0", "2")}
    tests = {test.get("name").split()[1]: [child.tag for child in test] for test in root.iter("testcase")}
    assert tests == {"first": [], "second": ["skipped"], "third": ["system-out"], "fourth": ["system-out"]}
    assert next(root.iter("skipped")).get("message").startswith("missing: ")
    assert next(root.iter("system-out")).text.startswith("inconclusive: ")


def test_json_of_a_missing_kernel_has_no_facts():
    (first, *_) = check_json(shown(kernels(), []))["verdicts"]
    assert (first["verdict"], first["found"]) == ("missing", None)
