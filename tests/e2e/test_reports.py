"""Every format of ``report``, read back as an analyst would."""

import re

import pandas as pd
import pytest

TIMES = {"scale/alpha": 1.25e-4, "scale/beta": 3e-6, "scale/gamma": 0.75}


@pytest.fixture(scope="module")
def place(new_workplace):
    """A workplace with three runs: two whole ones of different times, and one with a wrong case."""
    workplace = new_workplace()
    for factor in (1, 2):
        workplace.play({name: {"seconds": factor * seconds} for name, seconds in TIMES.items()})
        workplace.fake("--points", "full", "--replicas", "2", "--label", f"x{factor}")
    workplace.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "wrong"}})
    workplace.fake("--replicas", "1", code=4)
    return workplace


def test_every_format_gives_the_same_medians(place):
    for name in ("csv", "json", "parquet", "xlsx"):
        path = place.folder / f"report.{name}"
        ended = place("report", "x1", "--format", name, "--output", path, code=0)
        assert (ended.out, ended.err) == ("", "")
        table = getattr(pd, f"read_{'excel' if name == 'xlsx' else name}")(path)
        assert len(table) == 12, name  # three variants at two points in two replicas
        for variant, seconds in TIMES.items():
            rows = table[table["case"].str.startswith(variant)]
            assert rows["median_s"].astype(float).to_numpy() == pytest.approx(seconds, rel=1e-6)
        assert set(table["n"].astype(int)) == {1000, 4000}


def test_the_page_shows_every_case_and_makes_no_request(place):
    path = place.folder / "report.html"
    place("report", "x1", "--format", "html", "--output", path, code=0)
    page = path.read_text()
    shown = re.findall(
        r'<summary>(\w+)</summary>.*?<td data-name="point">(\S+)</td>.*?<span>(\S+ \S+) <small>', page, flags=re.DOTALL
    )
    medians = {"alpha": "125.0 µs", "beta": "3.000 µs", "gamma": "750.0 ms"}
    assert sorted(shown) == [(name, f"n={n}", median) for name, median in medians.items() for n in (1000, 4000)]
    assert "http" not in page


def test_verdicts_are_in_the_table_the_page_and_the_export(place):
    table = place("report", "x2", code=0).out
    assert len(re.findall(r"\+100\.0 % environment", table)) == 6
    assert "0 regressions, 6 moved by the environment" in table
    page = place("report", "x2", "--format", "html", code=0).out
    assert (
        page.count('<td data-name="verdict" class="verdict environment"><span>environment <small>+100.0 %</small>') == 6
    )
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
        (): {3},
        ("--all",): {1, 2, 3},
        ("1", "latest"): {1, 3},
        ("x2", "x1"): {1, 2},
        ("latest~1",): {2},
    }.items():
        rows = place("report", *arguments, "--format", "json", code=0).json
        assert {row["run"] for row in rows} == runs


def test_the_summary_has_one_row_a_case_and_run(place):
    rows = place("report", "--all", "--summary", "--format", "json", code=0).json
    assert len(rows) == 6 + 6 + 3
    medians = {(row["run"], row["case"]): row["median_s"] for row in rows}
    assert medians[1, "scale/beta[n=1000]"] == pytest.approx(3e-6, rel=1e-6)
    assert medians[2, "scale/beta[n=1000]"] == pytest.approx(6e-6, rel=1e-6)
    wrong = next(row for row in rows if row["status"] == "wrong")
    assert (wrong["case"], wrong["median_s"], wrong["replicas"]) == ("scale/beta[n=100]", None, 0)
    assert "scale" in wrong["reason"] or "out[" in wrong["reason"]
