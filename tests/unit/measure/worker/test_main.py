"""The worker: it opens a device, serves jobs, and shows CUDA only its own GPU."""

import gc
import json
import os
import socket
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.device.fake import FakeDevice
from perfsvc.measure.protocol.messages import CaseJob, Measured, Open, Reply, Request, Sampling
from perfsvc.measure.worker import main
from perfsvc.measure.worker.sampling.batches import SETTLE_S
from perfsvc.model import (
    Array,
    Buffer,
    CacheState,
    Call,
    Case,
    Kind,
    Launch,
    ReplayRecord,
    Role,
    Status,
    Tolerance,
    codec,
)
from perfsvc.process import frames
from perfsvc.process.shared_memory import ArrayLayout, share

KEEPS = """
import kept


class Workspace:
    pass


def work(arrays, stream):
    arrays["out"][...] = 2
    kept.note(workspace)
    return {"cost": 1.0}


workspace = Workspace()
"""


@pytest.mark.parametrize(
    ("opening", "visible"), [(Open("cuda:GPU-1", "GPU-1"), "GPU-1"), (Open("cpu"), "0,1")], ids=["cuda", "cpu"]
)
def test_the_driver_sees_the_gpu_of_the_worker_alone(monkeypatch, opening, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(main, "open_device", lambda *opened: (*opened, os.environ["CUDA_VISIBLE_DEVICES"]))
    opened = main._open(opening, (b"cubin",))
    assert opened == (opening.device, b"cubin", visible)


def served(script, jobs, arrays=None, codes=()):
    """Return the replies of a worker on the fake device to jobs."""
    arrays = arrays or share({}, {})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(ours, codec.encode(Request(Open(f"fake:{script}"))), (b"",))
        for job in jobs:
            frames.send(ours, codec.encode(Request(job)), codes, (arrays.descriptor,))
        ours.shutdown(socket.SHUT_WR)
        try:
            assert main.serve(theirs) == 0
        finally:
            gc.unfreeze()
            arrays.close()
        frames.receive(ours)  # Ready
        return [codec.decode(Reply, frames.receive(ours).text).body for _ in jobs]


def job_of(record, layout=ArrayLayout(), bench=""):  # noqa: B008 - a layout is frozen
    return CaseJob(record, 0, CacheState.COLD, Tolerance(0, 0), Sampling(), "none", layout, bench=bench)


@pytest.fixture
def script(tmp_path):
    """Return the script of a fake device on which one case reaches the power limit."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"cases": {"scale/hot": {"conditions": [{"slowdowns": ["power cap"]}]}}}))
    return path


def test_objects_kept_by_the_functions_of_a_case_are_collected_after_it(monkeypatch, script):
    kept, alive = [], []

    def note(workspace):
        if all(known() is not workspace for known in kept):
            alive.append([known() is not None for known in kept])
            kept.append(weakref.ref(workspace))

    monkeypatch.setitem(sys.modules, "kept", SimpleNamespace(note=note))
    out = Array("out", "float32", (1,))
    record = ReplayRecord(Case("keeps", "all"), Kind.HOST, (Buffer(out, Role.OUTPUT),), (Call("work"),), (), "", seed=0)
    arrays = share({}, {"out": np.full(1, 2.0)})
    replies = served(script, [job_of(record, arrays.layout, KEEPS)] * 3, arrays)
    assert all(isinstance(reply, Measured) and reply.measurement.status is Status.OK for reply in replies)
    assert alive == [[], [False], [False, False]]


def test_an_error_of_perfsvc_itself_costs_its_case_alone(monkeypatch, script):
    def broken(device, job, *_):
        raise ZeroDivisionError(job.record.case.variant)

    monkeypatch.setattr(main, "measure", broken)
    (reply,) = served(script, [job_of(ReplayRecord(Case("scale", "all"), Kind.KERNEL, (), (), (), "", seed=0))])
    assert not reply.usable
    assert reply.measurement.status is Status.FAILED
    assert reply.measurement.reason == "perfsvc itself failed: ZeroDivisionError: all"


def test_the_case_after_one_that_reached_the_power_limit_waits(monkeypatch, script):
    log = []
    measure = main.measure
    monkeypatch.setattr(main, "measure", lambda *args: log.append(args[1].record.case.variant) or measure(*args))
    monkeypatch.setattr(FakeDevice, "rest", lambda _, seconds: log.append(seconds))
    launch = Launch(0, "scale", (1, 1, 1), (1, 1, 1), ())
    records = [
        ReplayRecord(Case("scale", variant), Kind.KERNEL, (), (launch,), ("1",), "", seed=0)
        for variant in ("cool", "hot", "cool", "cool")
    ]
    served(script, [job_of(record) for record in records], codes=(b"code",))
    assert log == ["cool", "hot", SETTLE_S, "cool", "cool"]
