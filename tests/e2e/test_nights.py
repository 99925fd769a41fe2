"""One night after another, from the command line: what is missing, what is compared, and what is never made."""

import shutil

import pytest


@pytest.fixture
def nightly(perfsvc):
    """A suite of its own, outside any repository, in which a variant can be taken out."""
    suite = perfsvc.folder / "kernels"
    shutil.copytree(perfsvc.suites / "scale", suite)
    perfsvc.play({"*": {"seconds": 1e-4}})
    return suite


def test_run_show_and_report_agree_on_the_level_that_verdicts_compare(perfsvc, nightly):
    perfsvc.play({"*": {"seconds": [1e-4, 1.1e-4, 1.5e-4]}})
    perfsvc.fake("--exclude", "*/gamma", suite=nightly, code=0)
    perfsvc.play({"*": {"seconds": [1e-4, 1.4e-4, 1.5e-4]}})
    rows = perfsvc.fake("--exclude", "*/gamma", "--format", "json", suite=nightly).json["results"]
    for row in rows:
        *_, shown = perfsvc("show", row["case"], "--format", "json", code=0).json
        reported = perfsvc("report", "--summary", "--format", "json", code=0).json
        (summed,) = [one for one in reported if one["case"] == row["case"]]
        (judged,) = [
            one
            for one in perfsvc("compare", "1", "2", "--format", "json").json["verdicts"]
            if one["case"] == row["case"]
        ]
        assert row["median_s"] == pytest.approx(judged["candidate_s"], rel=1e-6)
        assert judged["ratio"] == pytest.approx(judged["candidate_s"] / judged["baseline_s"], rel=1e-9)
        for end in ("median_s", "low_s", "high_s"):
            assert shown[end] == pytest.approx(row[end], rel=1e-9)
            assert summed[end] == pytest.approx(row[end], rel=1e-9)


@pytest.mark.parametrize(
    "command",
    [
        ("runs",),
        ("show", "scale/beta[n=100]"),
        ("report",),
        ("compare", "1", "2"),
        ("baseline", "show"),
        ("baseline", "set", "1"),
        ("baseline", "clear"),
    ],
    ids=" ".join,
)
def test_a_command_that_does_not_measure_makes_no_database(perfsvc, command):
    ended = perfsvc(*command, "--db", "typo.db", code=5)
    assert "there is no database typo.db" in ended.err
    assert "cure: perfsvc run makes it, or name another with --db" in ended.err
    assert not (perfsvc.folder / "typo.db").exists()
