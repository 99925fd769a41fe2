"""``report``: the runs that it takes, its standard output and its files."""

import pytest


@pytest.fixture(scope="module")
def place(new_workplace):
    """A workplace with two runs: in the second, everything takes twice as long."""
    workplace = new_workplace()
    for factor in (1, 2):
        workplace.play({"*": {"seconds": factor * 1e-4}})
        workplace.fake("--points", "full", "--replicas", "2", "--label", f"x{factor}")
    return workplace


def test_what_the_environment_moved_is_no_regression_in_the_table_and_the_page(place):
    table = place("report", "x2", code=0).out
    assert table.count("+100.0 % environment") == 6
    assert "0 regressions, 6 moved by the environment" in table
    page = place("report", "x2", "--format", "html", code=0).out
    verdict = '<td data-name="verdict" class="verdict environment"><span>environment <small>+100.0 %</small>'
    assert page.count(verdict) == 6
    rows = place("report", "x2", "--summary", "--format", "json", code=0).json
    assert {(row["verdict"], round(row["ratio"], 6), row["baseline_run"]) for row in rows} == {("regression", 2.0, 1)}


def test_standard_output_and_files_get_the_same_text_and_binary_formats_are_refused_there(place):
    for name in ("csv", "json", "markdown", "html"):
        path = place.folder / f"same.{name}"
        place("report", "--format", name, "--output", path, code=0)
        assert place("report", "--format", name, code=0).out == path.read_text()
    for name in ("parquet", "xlsx"):
        ended = place("report", "--format", name, code=2)
        assert ended.out == ""
        assert f"{name} is a binary format" in ended.err
        assert f"cure: --output report.{name}" in ended.err
    ended = place("report", "--output", place.folder / "no" / "report.csv", code=2)
    assert "report.csv cannot be written: No such file or directory" in ended.err
    assert "cure:" in ended.err


def test_runs_are_chosen_by_name_and_all_by_option(place):
    for arguments, runs in {
        (): {2},
        ("--all",): {1, 2},
        ("1", "latest"): {1, 2},
        ("x1",): {1},
        ("latest~1",): {1},
    }.items():
        rows = place("report", *arguments, "--format", "json", code=0).json
        assert {row["run"] for row in rows} == runs
