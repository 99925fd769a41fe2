"""Cases on several GPUs: which GPUs form a group, what it waits for, and what a fault of one GPU costs."""

import json
import os

import pytest

from perfsvc.device.find import find
from perfsvc.errors import UsageError
from perfsvc.measure.host.lock import DeviceLock, DeviceLocks

FEW = ("--replicas", "1", "--samples", "3")
GROUP = "FAKE-0+FAKE-1"
RIGHT = ("pair/alone", "pair/each", "pair/other", "pair/half", "pair/moved", "pair/all", "pair/three")


@pytest.fixture
def run(perfsvc):
    """Run the suite of pairs on fake GPUs of one model; the rows by device and case."""

    def start(*scripts, select=("pair/alone", "pair/each"), code=0):
        for number, cases in enumerate(scripts):
            (perfsvc.folder / f"{number}.json").write_text(json.dumps({"uuid": f"FAKE-{number}", "cases": cases}))
        devices = [word for number in range(len(scripts)) for word in ("--device", f"fake:{number}.json")]
        selected = [word for name in select for word in ("--select", name)]
        suite = perfsvc.folder / "groups"
        suite = suite if suite.exists() else perfsvc.own("groups")
        ended = perfsvc("run", "--suite", suite, *devices, *selected, "--replicas", "2", "--format", "json", code=code)
        return {(row["device"], row["case"].partition("[")[0]): row for row in ended.json["results"]}

    return start


def test_the_first_gpus_of_a_model_form_a_group_with_series_of_its_own(run, perfsvc):
    rows = run({}, {}, {})
    assert {key: row["status"] for key, row in rows.items()} == {
        ("FAKE-0", "pair/alone"): "ok",
        ("FAKE-1", "pair/alone"): "ok",
        ("FAKE-2", "pair/alone"): "ok",
        (GROUP, "pair/each"): "ok",
    }
    assert rows[GROUP, "pair/each"]["device_model"] == "2 × Fake GPU"
    assert rows[GROUP, "pair/each"]["bus_bytes_per_s"] == pytest.approx(400 / 1e-4)
    again = run({}, {}, {"*": {"seconds": 2e-4}})
    assert again[GROUP, "pair/each"]["verdict"] == "unchanged"
    query = "SELECT name FROM gpu_peaks JOIN devices d ON d.id = device_id WHERE uuid = ?"
    assert perfsvc.rows(query, GROUP) == [("link",)]
    perfsvc.rebuild(perfsvc.folder / "groups")
    slower = run({"pair/each": {"seconds": 2e-4}}, {}, {}, code=1)
    assert slower[GROUP, "pair/each"]["verdict"] == "regression"
    assert slower["FAKE-1", "pair/alone"]["verdict"] == "unchanged"


def test_a_machine_with_fewer_gpus_skips_the_case_with_the_reason(run):
    rows = run({}, {}, select=("pair/each", "pair/three"))
    assert rows[GROUP, "pair/each"]["status"] == "ok"
    assert (rows["FAKE-0", "pair/three"]["status"], rows["FAKE-0", "pair/three"]["reason"]) == (
        "skipped",
        "needs 3 GPUs of one model; this run has 2",
    )
    (row,) = run({}, select=("pair/all",), code=4).values()
    assert row["reason"] == "needs 2 GPUs of one model; this run has 1"
    rows = run({}, {}, {}, select=("pair/all", "pair/each"))
    assert set(rows) == {("FAKE-0+FAKE-1+FAKE-2", "pair/all"), (GROUP, "pair/each")}


def test_a_group_begins_when_the_cases_of_its_gpus_are_measured(run, perfsvc):
    run({}, {}, select=("pair/alone", "pair/each", "pair/other"))
    ended = perfsvc.rows(
        "SELECT uuid, min(measured_at), max(measured_at) "
        "FROM measurements JOIN devices d ON d.id = device_id GROUP BY uuid"
    )
    first, last = ({row[0]: row[number] for row in ended} for number in (1, 2))
    assert max(last["FAKE-0"], last["FAKE-1"]) < first[GROUP]


@pytest.mark.quick
def test_a_lost_gpu_costs_the_cases_of_its_group_and_not_those_of_the_other_gpus(run):
    rows = run({}, {"pair/alone": {"fault": "lost", "replica": 0}}, code=4)
    assert {key: row["status"] for key, row in rows.items()} == {
        ("FAKE-0", "pair/alone"): "ok",
        ("FAKE-1", "pair/alone"): "failed",
        (GROUP, "pair/each"): "failed",
    }
    assert "FAKE-1 is lost" in rows[GROUP, "pair/each"]["reason"]


def test_the_cpu_device_stands_in_for_any_number_of_gpus(perfsvc):
    ended = perfsvc.cpu(*FEW, "--select", "pair", "--format", "json", suite="groups", code=4)
    rows = {row["case"].partition("[")[0]: row for row in ended.json["results"]}
    assert {rows[name]["status"] for name in RIGHT} == {"ok"}
    assert rows["pair/forgets"]["status"] == "wrong"
    assert "y@1[0] is nan" in rows["pair/forgets"]["reason"]


def test_a_named_group_measures_the_cases_of_its_size_alone(perfsvc):
    for number in (0, 1):
        (perfsvc.folder / f"{number}.json").write_text(json.dumps({"uuid": f"FAKE-{number}"}))
    spec = f"fake:{perfsvc.folder}/1.json+{perfsvc.folder}/0.json"
    select = [word for name in ("alone", "each", "three") for word in ("--select", f"pair/{name}")]
    suite = perfsvc.own("groups")
    ended = perfsvc("run", "--suite", suite, "--device", spec, *select, "--format", "json", code=0)
    assert [(row["device"], row["variant"]) for row in ended.json["results"]] == [("FAKE-1+FAKE-0", "each")]


def test_gpus_of_two_models_and_a_gpu_named_twice_are_no_group(tmp_path):
    for name, model in (("a", "A"), ("b", "B")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"uuid": name, "model": model}))
    with pytest.raises(UsageError, match="several models"):
        find([f"fake:{tmp_path}/a.json+{tmp_path}/b.json"])
    with pytest.raises(UsageError, match="names a GPU twice"):
        find([f"fake:{tmp_path}/a.json+{tmp_path}/a.json"])


def test_a_group_takes_the_locks_of_all_its_gpus_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "locks"))
    group, first, second = DeviceLocks(["B", "A"]), DeviceLock("A"), DeviceLock("B")
    assert second.take()
    assert (group.take(), group.held, group.holder()) == (False, False, os.getpid())
    assert first.take()  # it was given back
    second.release()
    assert not group.take()
    first.release()
    assert group.take()
    assert not first.take()
    group.release()
    assert first.take()
    first.release()
