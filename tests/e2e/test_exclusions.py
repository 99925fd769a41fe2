"""A bad run is excluded and judged nowhere; a run is deleted with its record left."""

import io
import sys

import pytest

USUAL = {"*": {"seconds": 1e-4}}
SLOW = {"*": {"seconds": 1.05e-4}}
WHY = "a training job shared the GPU"
CASE = "scale/beta[n=1000]"


def run(workplace, cases):
    workplace.play(cases)
    workplace.fake("--points", "full", suite=workplace.folder / "scale", code=0)


def three_runs(workplace):
    workplace.own("scale")
    for cases in (USUAL, USUAL, SLOW):
        run(workplace, cases)


@pytest.fixture
def measured(prepared):
    """Return a workplace with two usual runs, and a slow one of the same code."""
    return prepared(three_runs)


def findings(perfsvc):
    return [(found["id"], found["state"]) for found in perfsvc("findings", "--all", "--format", "json", code=0).json]


def test_the_findings_of_an_excluded_run_are_resolved_until_it_is_included_again(measured):
    assert findings(measured) == [(1, "open")]
    unknown = measured("runs", "exclude", "nightly", "--reason", WHY, code=2)
    assert "'nightly' is no run, label or git revision" in unknown.err
    out = measured("runs", "exclude", "latest", "--reason", WHY, code=0).out
    assert out.splitlines() == ["run 3 (latest) is excluded from judging", "finding 1 is resolved"]
    assert findings(measured) == [(1, "resolved")]
    (row, *_) = measured("runs", "--format", "json", code=0).json
    assert row["excluded"][0]["reason"] == WHY
    export = measured("report", "--all", "--format", "json", code=0).json
    assert {(line["run"], line["excluded"]) for line in export} == {(1, ""), (2, ""), (3, WHY)}
    measured("runs", "include", "3", code=0)
    assert findings(measured) == [(1, "open")]


def test_an_excluded_run_or_case_is_compared_with_nothing(measured):
    measured("runs", "exclude", "3", "--reason", WHY, code=0)
    refused = measured("compare", "1", "3", code=2)
    assert "run 3 is excluded from judging" in refused.err
    assert "perfsvc runs include 3" in refused.err
    assert measured("compare", "1", "latest", "--format", "json", code=0).json["new"] == 2
    assert "excluded" in measured("baseline", "set", "3", code=2).err
    measured("runs", "include", "3", code=0)
    out = measured("runs", "exclude", "3", "scale/beta", "--reason", WHY, code=0).out
    assert out.startswith("2 cases of run 3 are excluded from judging")
    export = measured("report", "3", "--format", "json", code=0).json
    assert {line["variant"] for line in export if line["excluded"]} == {"beta"}
    judged = measured("compare", "2", "3", "--format", "json", code=0).json["verdicts"]
    assert {verdict["variant"] for verdict in judged} == {"alpha", "gamma"}
    unknown = measured("runs", "exclude", "3", "scale/omega", "--reason", WHY, code=2)
    assert "run 3 did not measure scale/omega" in unknown.err


def test_the_run_after_an_excluded_one_is_judged_without_it(measured):
    measured("runs", "exclude", "3", "--reason", WHY, code=0)
    run(measured, USUAL)
    judged = measured("compare", "@baseline", "4", "--format", "json", code=0).json
    assert {verdict["verdict"] for verdict in judged["verdicts"]} == {"unchanged"}


def test_later_runs_are_judged_again_without_the_excluded_level(perfsvc):
    suite = perfsvc.own("scale")
    times = (1e-4, 0.5e-4, 1e-4)
    for number, seconds in enumerate(times, start=1):  # the second run is faster by a mistake
        perfsvc.play({"*": {"seconds": seconds}})
        perfsvc.rebuild(suite)
        perfsvc.fake("--select", "scale/beta", suite=suite, code=1 if number == 3 else 0)
    out = perfsvc("runs", "exclude", "2", "--reason", "a wrong clock", code=0).out
    assert "1 later run judged again: 3" in out
    export = perfsvc("report", "3", "--format", "json", code=0).json
    assert {(line["verdict"], line["baseline_run"]) for line in export} == {("unchanged", 1)}


def test_a_finding_and_a_pin_keep_their_run_and_the_record_of_a_deleted_run_stays(measured):
    refused = measured("runs", "delete", "3", "--yes", code=2).err
    assert "finding 1 (open) is about run 3" in refused
    measured("baseline", "set", "2", "--select", CASE, code=0)
    refused = measured("runs", "exclude", "2", "--reason", WHY, code=2).err
    assert f"a pin makes run 2 the baseline of {CASE}" in refused
    assert "a pin makes run 2" in measured("runs", "delete", "2", "--yes", code=2).err
    measured("runs", "exclude", "3", "--reason", WHY, code=0)
    out = measured("runs", "delete", "3", "--yes", "--reason", "no use", code=0).out
    assert out.splitlines() == ["run 3 is deleted", "finding 1 is deleted"]
    assert [row["id"] for row in measured("runs", "--format", "json", code=0).json] == [2, 1]
    assert "deleted run 3" in measured("runs", "history", code=0).out


@pytest.mark.quick
def test_deleting_asks_first(measured, monkeypatch):
    for answer in ("n\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        ended = measured("runs", "delete", "2", code=2)
        assert "delete run 2 of " in ended.err
        assert "run 2 is not deleted\n  cure: answer y, or give --yes" in ended.err
        assert len(measured("runs", "--format", "json", code=0).json) == 3
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    measured("runs", "delete", "2", code=0)
