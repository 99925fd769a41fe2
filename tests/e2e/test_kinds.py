"""Every kind of variant and every kind of step, on the CPU device."""

import pytest

FAILURES = {
    "raises": "the Python step 'fail' raised LookupError: no plan for this size",
    "silent": "a host variant returned no usable metrics: nothing",
    "wordy": "a host variant returned no usable metrics: {'latency_ms': 'quick'}",
}
REPORTS = "kinds/reports[n=1000]"
FEW = ("--samples", "5", "--replicas", "2")


@pytest.fixture(scope="module")
def first(new_workplace):
    """A workplace in which the whole suite was measured once, and how that ended."""
    workplace = new_workplace()
    return workplace, workplace.cpu(*FEW, "--format", "json", suite="kinds", code=4)


@pytest.fixture(scope="module")
def slower(first):
    """The same after a second run, in which the host variant reported twice the latency."""
    workplace, _ = first
    suite = workplace.own("kinds")
    bench = suite / "kinds" / "bench.py"
    bench.write_text(bench.read_text().replace('"latency_ms": 2.0', '"latency_ms": 4.0'))
    return workplace, workplace.cpu(*FEW, "--select", "kinds/reports", suite=suite, code=1)


def results(ended):
    return {row["case"].split("/")[1].split("[")[0]: row for row in ended.json["results"]}


def test_steps_and_python_functions_give_right_results_and_times_or_fail_in_their_own_words(first):
    workplace, ended = first
    rows = results(ended)
    for name in ("steps", "whole", "python"):
        row = rows[name]
        assert (row["status"], row["reason"]) == ("ok", "")
        assert row["median_s"] > 0
        assert row["max_error"] < 1e-5
        assert row["bandwidth_bytes_per_s"] == pytest.approx(4004 / row["median_s"])
    failed = {name: row["reason"] for name, row in rows.items() if row["status"] == "failed"}
    assert failed == FAILURES
    assert all(rows[name]["cure"] and rows[name]["verdict"] == "broken" for name in FAILURES)
    for tool, profiler in (("ncu", "Nsight Compute"), ("nsys", "Nsight Systems")):
        refused = workplace("profile", "kinds/steps[n=1000]", "--device", "cpu", "--tool", tool, code=5)
        assert f"{profiler} profiles NVIDIA GPUs" in refused.err


def test_what_a_host_variant_returns_is_stored_and_shown(first):
    workplace, ended = first
    row = results(ended)["reports"]
    assert (row["status"], row["median_s"]) == ("ok", None)
    metrics = {metric["metric"]: metric for metric in row["metrics"]}
    assert set(metrics) == {"buffers", "latency_ms", "stream"}
    assert metrics["latency_ms"]["value"] == pytest.approx(2.0)
    assert metrics["latency_ms"]["verdict"] == "new"
    assert workplace.rows("select value from metrics where name = 'buffers'") == [(2.0,)] * 2


def test_a_metric_is_better_when_it_is_lower(slower):
    workplace, ended = slower
    assert ended.out.splitlines()[-1] == "run 2: 1 ok; 1 regression, 0 improvements, 2 unchanged among 3 metrics"
    rows = workplace("compare", "1", "2", "--select", REPORTS, "--format", "json", code=1).json["verdicts"]
    verdicts = {row["metric"]: row for row in rows if row["case"] == REPORTS}
    assert verdicts["latency_ms"]["verdict"] == "regression"
    assert verdicts["latency_ms"]["ratio"] == pytest.approx(2.0)
    back = workplace("compare", "2", "1", "--format", "json", code=4).json["verdicts"]
    assert {row["metric"]: row["verdict"] for row in back if row["case"] == REPORTS}["latency_ms"] == "improvement"
    assert f"{REPORTS} latency_ms" in workplace("compare", "1", "2").out


def test_a_case_without_times_has_a_history(slower):
    workplace, _ = slower
    rows = workplace("show", REPORTS, "--format", "json", code=0).json
    assert [(row["run"], row["status"], row["median_s"]) for row in rows] == [(1, "ok", None), (2, "ok", None)]
    out = workplace("show", REPORTS, code=0).out
    assert [f"{name} on " in out for name in ("buffers", "latency_ms", "stream")] == [True] * 3
