"""The details in the history of a case agree with those of the run's summary, which pandas computes."""

import math
import sqlite3
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from perfsvc.model import (
    Batch,
    CacheState,
    Case,
    Conditions,
    DeviceInfo,
    Environment,
    Estimate,
    Measurement,
    Provenance,
    Slowdown,
    Status,
    Work,
)
from perfsvc.report.export import frames
from perfsvc.service.history import history
from perfsvc.store import MeasurementEntry, RunState, Store

GPU = DeviceInfo(kind="cuda", spec="cuda:GPU-1", uuid="GPU-1", model="NVIDIA H100", target="sm_90")
FAST, SLOW = (Case("sum", variant, (("n", 64),)) for variant in ("fast", "slow"))


def entries():
    for case, time_s in ((FAST, 1e-4), (SLOW, 2e-4)):
        for replica in range(3):
            median_s = time_s * (1 + 0.01 * replica)
            conditions = Conditions(1.5e9 + replica, slowdowns=(Slowdown.POWER_CAP,))
            batch = Batch((median_s,) * 3, True, busy_s=1e-3, conditions=conditions)
            measured = Measurement(
                case,
                GPU.uuid,
                replica,
                Status.OK,
                samples_s=(median_s,) * 3,
                batches=(batch, replace(batch, rejected="throttled")),
                metrics={"energy_j": 1.0 + replica, "loss": math.nan, "zero": 0.0},
                stopped="precision" if replica else "time",
                note="a; b" if replica else "b; c",
            )
            yield MeasurementEntry(
                measured,
                Environment("550", "12.4", 700.0, 1),
                Work(1000, 24, 4000),
                Estimate(median_s, median_s, median_s, 3),
                relative_to="fast" if case is SLOW else "",
            )


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as opened:
        opened.devices.put(GPU)
        yield opened


def put(store, measured):
    run = store.runs.begin(Provenance(datetime.now(UTC), "perfsvc run", "kernels"))
    store.measurements.put(run, measured)
    store.runs.end(run, RunState.FINISHED)
    return run


@pytest.mark.parametrize("failed", [False, True])
def test_the_details_agree_with_the_summary_of_the_run(store, failed):
    measured = list(entries())
    if failed:
        broken = replace(measured[4].measurement, status=Status.FAILED, reason="it broke", samples_s=())
        measured[4] = replace(measured[4], measurement=broken, estimate=None)
    run = put(store, measured)
    summary = frames.summary(frames.frame(store.measurements.columns([run])))
    for case in (FAST, SLOW):
        (record,) = summary[summary["case"] == case.id].to_dict("records")
        (row,) = history(store, case.id, None)
        expected = frames.details(record)
        assert row.details is not None
        assert row.cache is CacheState.COLD
        for field in fields(expected):
            assert getattr(row.details, field.name) == pytest.approx(getattr(expected, field.name)), field.name
        assert (row.details.relative_speed is not None) == (case is SLOW and not failed)


def test_a_commit_keeps_the_order_and_the_metrics_of_its_measurements(store):
    measured = [entry.measurement for entry in entries()]
    run = put(store, entries())
    stored = store.measurements.of_run(run)
    assert [(one.case, one.replica) for one in stored] == [(one.case, one.replica) for one in measured]
    energy = dict(zip(*(store.measurements.columns([run])[name] for name in ("replica", "metrics")), strict=True))
    assert {replica: metrics["energy_j"] for replica, metrics in energy.items()} == {0: 1.0, 1: 2.0, 2: 3.0}


def test_a_run_whose_rows_name_no_environment_has_no_details(store):
    put(store, entries())
    with sqlite3.connect(store.database.engine.url.database) as connection:
        connection.execute("UPDATE measurements SET environment_id = 999")
    (row,) = history(store, FAST.id, None)
    assert row.details is None
