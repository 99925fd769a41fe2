"""What the commands say of the machine, and what happens where its devices do not work."""

import json

import pytest

from perfsvc.device.find import find

BEFORE_A_WORKER = """
import os
import sys

if "perfsvc.measure.worker.main" in sys.orig_argv:
    print("cannot map the device", flush=True)
    """


@pytest.mark.quick
def test_every_device_is_listed(perfsvc):
    rows = {row["spec"]: row for row in perfsvc("devices", "--format", "json", code=0).json}
    (cpu,) = find(["cpu"])
    assert (rows["cpu"]["uuid"], rows["cpu"]["model"], rows["cpu"]["warp_size"]) == (cpu.uuid, cpu.model, 32)
    assert rows["cpu"]["toolkit"]
    out = perfsvc("devices", code=0).out
    for shown in (cpu.model, cpu.uuid, "--device cpu", rows["cpu"]["toolkit"]):
        assert shown in out


def test_the_doctor_finds_nothing_missing_here(perfsvc):
    rows = {row["check"]: row for row in perfsvc("doctor", "--format", "json", code=0).json}
    assert {"Python", "packages", "C++ compiler", "CPU device", "nvcc", "database"} <= set(rows)
    assert all(rows[name]["ok"] for name in ("Python", "packages", "C++ compiler", "CPU device"))
    assert rows["database"]["ok"] is None  # nothing was measured yet
    assert all(row["cure"] for row in rows.values() if not row["ok"])
    out = perfsvc("doctor", code=0).out
    assert "C++ compiler" in out
    assert "✗" not in out


def test_the_doctor_exits_with_5_where_something_needed_is_missing(perfsvc):
    perfsvc.database.write_text("buy milk\n" * 1000)
    rows = {row["check"]: row for row in perfsvc("doctor", "--format", "json", code=5).json}
    assert rows["database"]["ok"] is False
    assert "file is not a database" in rows["database"]["found"]
    assert "✗ missing" in perfsvc("doctor", code=5).out


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "No such file or directory"),
        ("{", "script.json cannot be used"),
        (json.dumps({"cases": {"*": {"fault": "explode"}}}), "explode"),
    ],
)
def test_a_fake_device_needs_a_script(perfsvc, script, message):
    if script is not None:
        perfsvc.script.write_text(script)
    ended = perfsvc("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale", code=5)
    assert message in ended.err
    assert "cure: name a JSON script" in ended.err
    assert not perfsvc.database.exists()


@pytest.mark.parametrize("spec", ["gpu", "fake:", "cpu:1"])
def test_a_device_that_means_nothing_is_a_usage_error(perfsvc, spec):
    ended = perfsvc("run", "--device", spec, "--suite", perfsvc.suites / "scale", code=2)
    assert f"no device can be named {spec!r}" in ended.err
    assert "cure: name one of: auto, cpu, cuda" in ended.err


DID_NOT_START = ["error: the worker for fake:{script} did not start", "exit status 3): cannot map the device"]
ENDS = {
    "os._exit(3)": [*DID_NOT_START, "cure: see what this machine lacks: perfsvc doctor"],
    "os.remove({script!r})": ["the fake device's script {script} cannot be used", "cure: name a JSON script"],
}


@pytest.mark.parametrize(("end", "messages"), ENDS.items())
def test_a_worker_that_does_not_start_or_finds_no_device_ends_the_run(perfsvc, end, messages):
    script = str(perfsvc.script)
    perfsvc.own_servers = True
    (perfsvc.folder / "sitecustomize.py").write_text(BEFORE_A_WORKER + end.format(script=script))
    perfsvc.environment["PYTHONPATH"] = str(perfsvc.folder)
    perfsvc.play({"*": {"seconds": 1e-4}})
    ended = perfsvc.fake(code=5)
    assert [message for message in messages if message.format(script=script) not in ended.err] == []
    assert perfsvc.rows("select state from runs") == [("failed",)]
