"""Nothing stops a run: every fault costs its case alone, on the CPU device for real and on the fake by script."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.e2e.processes import alive, wait_for, workers

COUNT = "select count(*) from measurements"
GOOD = {f"faulty/{name}[n=1000]" for name in ("good", "also_good")}


def test_four_faults_are_four_failed_cases_and_all_others_are_measured(perfsvc):
    ended = perfsvc.cpu("--limit", "3", "--replicas", "2", "--format", "json", suite="faulty", code=4)
    rows = {row["case"].split("/")[1].split("[")[0]: row for row in ended.json["results"]}
    assert {row["case"] for row in rows.values() if row["status"] == "ok"} == GOOD
    assert {name: row["status"] for name, row in rows.items() if row["status"] != "ok"} == {
        "endless": "failed",
        "overrun": "wrong",
        "wrong": "wrong",
        "uncompilable": "failed",
    }
    assert "time limit" in rows["endless"]["reason"]
    assert "'out', up to 10 elements (40 bytes) from its end" in rows["overrun"]["reason"]
    assert "out[77] is" in rows["wrong"]["reason"]
    assert "uncompilable.cu" in rows["uncompilable"]["reason"]
    assert "undeclared_name" in rows["uncompilable"]["reason"]
    assert perfsvc.rows("select count(*) from measurements where status = 'ok'") == [(4,)]


FAULTS = {
    "wrong": ("wrong", "wrong result"),
    "overrun": ("wrong", "out of bounds"),
    "caches": ("wrong", "wrong result"),
    "refused": ("failed", "invalid configuration"),
    "illegal": ("failed", "illegal address"),
    "crash": ("failed", "killed by SIGKILL"),
    "hang": ("failed", "time limit"),
}


def test_a_fault_costs_its_case_alone(perfsvc):
    cases = [f"scale/{variant}[n={n}]" for n in (1000, 4000) for variant in ("alpha", "beta", "gamma")]
    for faults in (["wrong", "overrun", "caches", "refused"], ["illegal", "crash", "hang"]):
        faulty = dict(zip(cases, faults, strict=False))
        perfsvc.play({"*": {"seconds": 1e-4}} | {case: {"fault": fault} for case, fault in faulty.items()})
        limits = ("--limit", "2", "--points", "full", "--replicas", "2")
        rows = {row["case"]: row for row in perfsvc.fake(*limits, "--format", "json", code=4).json["results"]}
        for case, fault in faulty.items():
            status, reason = FAULTS[fault]
            row = rows.pop(case)
            assert (row["status"], reason in row["reason"]) == (status, True), row["reason"]
        assert {row["status"] for row in rows.values()} == {"ok"}


def test_a_lost_device_costs_its_remaining_cases(perfsvc):
    """Every case has the reason, and the next run measures again when the device is back."""
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "lost", "replica": 1}})
    rows = {row["case"]: row for row in perfsvc.fake("--format", "json", "--replicas", "3", code=4).json["results"]}
    assert {row["status"] for row in rows.values()} == {"failed"}
    assert all("FAKE-0" in row["reason"] and "lost" in row["reason"] for row in rows.values())
    assert perfsvc.rows("select distinct replica from measurements where status = 'ok' order by replica")[0] == (0,)
    assert perfsvc.rows("select state from runs") == [("finished",)]
    Path(f"{perfsvc.script}.lost").unlink()
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)


@pytest.fixture
def hanging(perfsvc):
    """A run whose last replica hangs in a case, its worker, and how much was measured: six measurements or more."""
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "hang", "replica": 2}})
    arguments = ("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale", "--seed", "1")
    with perfsvc.start(*arguments) as run:
        perfsvc.wait_for(run, 6)
        time.sleep(2)  # the last worker starts, and reaches the case that hangs
        (worker,) = workers(run)
        yield SimpleNamespace(run=run, worker=worker, measured=perfsvc.rows(COUNT))
        run.kill()
        run.communicate()


def test_a_killed_worker_costs_its_case_and_the_run_goes_on(perfsvc, hanging):
    os.kill(hanging.worker, signal.SIGKILL)
    out, err = hanging.run.communicate(timeout=60)
    assert hanging.run.returncode == 4, err
    assert "killed by SIGKILL" in out
    assert perfsvc.rows("select status, count(*) from measurements group by status order by status") == [
        ("failed", 1),
        ("ok", 8),
    ]


def test_a_killed_parent_loses_nothing_that_was_measured(perfsvc, hanging):
    hanging.run.kill()
    hanging.run.wait()
    wait_for(lambda: not alive(hanging.worker))
    assert perfsvc.rows(COUNT) == hanging.measured
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    assert perfsvc.rows("select state from runs order by id") == [("interrupted",), ("finished",)]


def test_ctrl_c_ends_the_worker_and_marks_the_run(perfsvc, hanging):
    hanging.run.send_signal(signal.SIGINT)
    _, err = hanging.run.communicate(timeout=30)
    assert hanging.run.returncode == 130, err
    wait_for(lambda: not alive(hanging.worker))
    assert perfsvc.rows("select state from runs") == [("interrupted",)]
    assert perfsvc.rows(COUNT) == hanging.measured
