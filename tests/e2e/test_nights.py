"""What several commands say of one run, and a database that is never made."""

import pytest


def test_run_show_and_report_agree_on_the_level_that_verdicts_compare(perfsvc):
    perfsvc.play({"*": {"seconds": [1e-4, 1.1e-4, 1.5e-4]}})
    perfsvc.fake(code=0)
    perfsvc.play({"*": {"seconds": [1e-4, 1.4e-4, 1.5e-4]}})
    runs = perfsvc.fake("--format", "json").json["results"]
    summaries = perfsvc("report", "--summary", "--format", "json", code=0).json
    verdicts = perfsvc("compare", "1", "2", "--format", "json").json["verdicts"]
    judged = {row["case"]: row for row in verdicts}
    summed = {row["case"]: row for row in summaries}
    assert len(runs) == 3
    for row in runs:
        case = row["case"]
        *_, shown = perfsvc("show", case, "--format", "json", code=0).json
        assert row["median_s"] == pytest.approx(judged[case]["candidate_s"], rel=1e-6)
        ratio = judged[case]["candidate_s"] / judged[case]["baseline_s"]
        assert judged[case]["ratio"] == pytest.approx(ratio, rel=1e-9)
        for end in ("median_s", "low_s", "high_s"):
            assert [shown[end], summed[case][end]] == pytest.approx([row[end]] * 2, rel=1e-9)


@pytest.mark.parametrize(
    "command",
    [
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
