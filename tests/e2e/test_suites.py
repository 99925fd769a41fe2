"""What a suite may have wrong, and which of its cases a command takes."""

import json
import shutil

import pytest

MOODY = [f"moody/copy[n={n}]" for n in (1000, 2000, 3000)]


@pytest.fixture(scope="module")
def mixed(new_workplace):
    """A run of a suite with a broken benchmark file, and inputs that cannot be made at one point."""
    workplace = new_workplace()
    workplace.play({"*": {"seconds": 1e-4}})
    return workplace, workplace.fake("--points", "full", "--format", "json", suite="mixed", code=4)


def test_a_broken_benchmark_file_stops_none_of_the_others(mixed):
    workplace, ended = mixed
    problems = {problem["what"]: problem for problem in ended.json["problems"]}
    assert set(problems) == {"axis 'n' is empty", "no variants"}
    for problem in problems.values():
        assert (problem["path"], problem["line"]) == (str(workplace.suites / "mixed" / "broken" / "bench.py"), 5)
        assert problem["cure"]
    assert {row["case"] for row in ended.json["results"] if row["status"] == "ok"} == {MOODY[0], MOODY[2]}


def test_inputs_that_cannot_be_made_fail_their_case_alone(mixed):
    _, ended = mixed
    (row,) = (row for row in ended.json["results"] if row["status"] != "ok")
    assert (row["case"], row["status"]) == (MOODY[1], "failed")
    assert "inputs raised MemoryError: no room for 2000 (at n=2000)" in row["reason"]
    assert row["cure"] == "correct the function"


def test_a_problem_is_printed_with_file_line_and_cure(mixed):
    workplace, _ = mixed
    where = f"{workplace.suites / 'mixed' / 'broken' / 'bench.py'}:5: "
    listed = workplace("list", "--suite", workplace.suites / "mixed", code=4)
    assert f"error: {where}axis 'n' is empty\n  cure: give it at least one value" in listed.err
    assert all(case in listed.out for case in MOODY)
    script = f"fake:{workplace.script}"
    ended = workplace("run", "--device", script, "--suite", workplace.suites / "mixed", "--replicas", "1", code=4)
    printed = ended.out.replace("\n", "")
    assert f"✗ {where}axis 'n' is empty" in printed
    assert "cure: give it at least one value" in printed
    assert "moody/copy[n=100]" in ended.out


def test_a_suite_without_benchmarks_and_a_selection_that_takes_nothing_are_said(perfsvc):
    folder, suite = perfsvc.folder / "empty", ("--suite", perfsvc.suites / "scale")
    for command in ("list", "run"):
        ended = perfsvc(command, "--suite", folder, code=2)
        assert f"no folder {folder}" in ended.err
        assert "cure:" in ended.err
        ended = perfsvc(command, *suite, "--select", "scale/alhpa", code=2)
        assert "'scale/alhpa' selects no case" in ended.err
        assert "cure: the nearest are scale/alpha" in ended.err
    folder.mkdir()
    for command in ("list", "run"):
        assert f"no bench.py in {folder}" in perfsvc(command, "--suite", folder, code=2).err
    assert "every selected case is excluded" in perfsvc("list", *suite, "--exclude", "*", code=2).err
    assert "--points" in perfsvc("run", "--device", "cpu", *suite, "--select", "*[n=4000]", code=2).err
    assert not perfsvc.database.exists()


def test_a_run_whose_cases_cannot_run_here_has_measured_nothing_and_fails(perfsvc):
    suite = perfsvc.suites / "ladder"
    out = perfsvc("run", "--device", "cpu", "--suite", suite, "--select", "*/absent*", code=4).out
    assert "perfsvc_has_no_such_part" in out


def test_listed_cases_say_all_that_a_program_may_ask(perfsvc):
    arguments = ("--suite", perfsvc.suites / "kinds", "--select", "*/reports", "--select", "*/steps")
    rows = perfsvc("list", *arguments, "--format", "json", code=0).json
    common = {"benchmark": "kinds", "point": {"n": 1000}, "requires": [], "graph": "", "caches": ["cold"]}
    assert rows == [
        {"case": "kinds/steps[n=1000]", "variant": "steps", "kind": "kernel", **common},
        {"case": "kinds/reports[n=1000]", "variant": "reports", "kind": "host", **common},
    ]


def test_a_run_measures_what_is_selected_and_not_excluded(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    selected = ("--select", "scale/alpha", "--select", "*/gamma*[n=4000]", "--exclude", "*[n=1000]")
    rows = perfsvc.fake("--points", "full", *selected, "--format", "json", code=0).json["results"]
    assert [row["case"] for row in rows] == ["scale/alpha[n=4000]", "scale/gamma[n=4000]"]


@pytest.mark.parametrize(("spread", "rows"), [("each-device", 8), ("each-model", 4)])
def test_what_no_board_can_run_is_told_once_where_boards_share_the_cases(perfsvc, spread, rows):
    suite = perfsvc.folder / "suite"
    shutil.copytree(perfsvc.suites / "caches", suite)
    (suite / "caches" / "caches.cu").write_text("#error broken\n")
    boards = []
    for uuid in ("FAKE-1", "FAKE-2"):
        script = perfsvc.folder / f"{uuid}.json"
        script.write_text(json.dumps({"uuid": uuid}))
        boards += ["--device", f"fake:{script}"]
    ended = perfsvc("run", *boards, "--suite", suite, "--spread", spread, "--format", "json", code=4)
    assert [row["status"] for row in ended.json["results"]] == ["failed"] * rows
    assert {row["device"] for row in ended.json["results"]} <= {"FAKE-1", "FAKE-2"}
