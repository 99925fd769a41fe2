"""The conditions of a GPU during a measurement reach the reader of the numbers, on the fake device."""

import pytest

from perfsvc.store.measurements.batches import unpack_batches

CASES = {name: f"scale/{name}[n=100]" for name in ("alpha", "beta", "gamma")}
CALM = {"sm_clock_hz": 1.98e9, "temperature_c": 54, "power_w": 412}
HOT = {"slowdowns": ["thermal slowdown"], "sm_clock_hz": 1.4e9, "temperature_c": 92, "power_w": 300}
WARM_UP = 3
"""Readings of the conditions before the first batch that counts."""


@pytest.fixture(scope="module")
def throttled(new_workplace):
    """A run on a GPU that was too hot during one batch of beta in each replica, and its result."""
    workplace = new_workplace()
    conditions = [*[CALM] * WARM_UP, HOT, CALM]
    entry = {"seconds": 1e-4, "energy_j": 0.25, "conditions": conditions}
    workplace.play({"*": {"seconds": 1e-4}, "scale/alpha": {"fault": "synchronises"}, "scale/beta": entry})
    return workplace, workplace.fake("--replicas", "2", "--energy", "--format", "json", code=0)


def row_of(ended, name):
    (row,) = [row for row in ended.json["results"] if row["case"] == CASES[name]]
    return row


def test_rejected_batches_are_counted_with_their_reason_and_kept(throttled):
    workplace, ended = throttled
    assert row_of(ended, "beta")["notes"] == ["2 of 4 batches rejected: thermal slowdown"]
    blobs = workplace.rows("select batches from measurements where rejected_batches")
    kept = [batch for (blob,) in blobs for batch in unpack_batches(blob) if batch.rejected]
    assert [(batch.rejected, len(batch.samples_s)) for batch in kept] == [("thermal slowdown", 50)] * 2
    assert workplace.rows(
        "select distinct sample_count, rejected_batches from measurements where rejected_batches"
    ) == [(50, 1)]


def test_a_table_and_a_history_show_the_conditions_of_a_time(throttled):
    workplace, _ = throttled
    out = " ".join(workplace("report", code=0).out.split())
    assert f"! {CASES['beta']}: 2 of 4 batches rejected: thermal slowdown" in out
    assert f"! {CASES['alpha']}: timed without the blocking kernel, since the work synchronises with the host" in out
    assert f"! {CASES['alpha']}: no energy: it is measured only for samples behind the blocking kernel" in out
    *_, newest = workplace("show", CASES["beta"], "--format", "json", code=0).json
    details = newest["details"]
    assert (details["sm_clock_hz"], details["temperature_c"], details["power_w"]) == (1.98e9, 92, 412)
    assert (details["slowdowns"], details["rejected_batches"]) == ("thermal slowdown", 2)
    assert details["metrics"] == {"sm_cycles": pytest.approx(198_000), "energy_j": 0.25}
    shown = workplace("show", CASES["beta"], code=0).out
    for part in ("1.980 GHz", "92 °C", "412 W", "198 000", "0.25 J"):
        assert part in shown


def test_auxiliary_metrics_are_not_judged_but_energy_is_shown_if_it_changed(throttled):
    workplace, ended = throttled
    metrics = {metric["metric"]: metric for metric in row_of(ended, "beta")["metrics"]}
    assert {name: metric["verdict"] for name, metric in metrics.items()} == {"sm_cycles": None, "energy_j": None}
    assert workplace.rows(
        "select distinct metric from levels join series on series.id = series_id where verdict is not null"
    ) == [("time",)]
    workplace.play({"*": {"seconds": 1e-4}, "scale/beta": {"seconds": 1e-4, "energy_j": 99.0}})
    out = " ".join(workplace.fake("--replicas", "2", "--energy", code=0).out.split())
    assert "0 regressions, 1 moved by noise, 0 improvements, 3 unchanged" in out
    assert f"noise {CASES['beta']} energy_j: +39500.0 %" in out
    judged = workplace("compare", "1", "2", "--format", "json", code=0).json["verdicts"]
    assert {(verdict["case"], verdict["metric"]) for verdict in judged if verdict["verdict"] == "regression"} == {
        (CASES["beta"], "energy_j")
    }
    workplace.play({"*": {"seconds": 1e-4}})
    assert "0 regressions, 0 improvements, 3 unchanged" in workplace.fake("--replicas", "2", code=0).out
    assert "is the baseline of 4 series" in workplace("baseline", "set", "1", code=0).out


def test_a_gpu_that_does_not_recover_fails_its_case_with_the_reason(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/gamma": {"conditions": [HOT]}})
    ended = perfsvc.fake("--replicas", "1", "--format", "json", code=4)
    row = row_of(ended, "gamma")
    assert row["status"] == "failed"
    assert row["reason"].startswith("the GPU did not recover from thermal slowdown within 30 s")
    assert row["cure"]


def test_a_slower_clock_is_distinguished_from_slower_code(perfsvc):
    usual, capped = ({"seconds": 198_000 / hz, "conditions": [{"sm_clock_hz": hz}]} for hz in (1.98e9, 1.89e9))
    slow_memory = {"seconds": 198_000 / 1.89e9, "conditions": [{"sm_clock_hz": 1.98e9}]}
    perfsvc.play({"*": usual})
    perfsvc.fake(code=0)
    perfsvc.play({"*": usual, "scale/beta": capped, "scale/gamma": slow_memory})
    perfsvc.fake(code=0)
    judged = {row["case"]: row for row in perfsvc("compare", "1", "2", "--format", "json", code=0).json["verdicts"]}
    assert [judged[CASES[name]]["cause"] for name in ("alpha", "beta", "gamma")] == [None, "environment", "noise"]
    assert judged[CASES["beta"]]["reason"].endswith("it took as many cycles as before, at a clock 4.5 % slower")
