"""Workers that are threads measure what workers that are processes do."""

import gc
import socket
import tempfile
from contextlib import contextmanager

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.forks import ForkServers
from perfsvc.measure.process import Process
from perfsvc.measure.threads import ThreadServer
from perfsvc.model import DeviceInfo, Status
from perfsvc.service.running.request import RunRequest
from perfsvc.service.running.run import run

LIMIT_S = 20.0


@pytest.fixture
def measured(perfsvc, monkeypatch):
    """What a run measures with the workers of some servers."""
    for name in ("PERFSVC_CACHE", "PERFSVC_LOCKS"):
        monkeypatch.setenv(name, perfsvc.environment[name])

    def with_workers_of(start):
        asked = RunRequest(str(perfsvc.database), perfsvc.suites / "scale", (f"fake:{perfsvc.script}",), seed=1)
        if start is None:
            return run(asked)
        with ForkServers(start) as servers:
            return run(asked, servers=servers)

    return with_workers_of


@contextmanager
def thread(spec, kind="fake"):
    worker = Process(ThreadServer())
    worker.open(DeviceInfo(kind, spec, "UUID", "a model", "fake"), b"")
    try:
        yield worker
    finally:
        worker.end()


def by_place(outcome):
    return {(one.case, one.replica): one for one in outcome.measurements}


def test_they_measure_the_same(perfsvc, measured):
    perfsvc.play({"*": {"seconds": 1e-4, "within": 0.01, "between": 0.02}}, seed=3)
    forked, threaded = (by_place(measured(start)) for start in (None, ThreadServer))
    assert threaded.keys() == forked.keys()
    assert len(threaded) == 9
    for place, one in threaded.items():
        assert (one.status, one.samples_s) == (Status.OK, forked[place].samples_s)


def test_what_one_put_out_of_the_collectors_sight_is_back_when_it_has_ended(perfsvc, measured):
    perfsvc.play({"*": {"seconds": 1e-4}})
    measured(ThreadServer)
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


def test_a_fault_of_one_costs_its_case_alone(perfsvc, measured):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "illegal"}})
    found = by_place(measured(ThreadServer))
    assert {case.variant for (case, _), one in found.items() if one.status is Status.FAILED} == {"beta"}
    assert sum(one.status is Status.OK for one in found.values()) == 6


def test_what_runs_code_is_not_opened_in_one():
    with thread("cpu", kind="cpu") as worker:
        refused = worker.hear()
    assert "cpu is not opened in a thread of perfsvc itself" in refused.what


def test_a_device_that_is_not_there_is_refused(tmp_path):
    with thread(f"fake:{tmp_path}/nothing.json") as worker:
        assert "cannot be used" in worker.hear().what


def test_one_that_nobody_speaks_to_ends_when_it_is_killed():
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as words:
        worker = ThreadServer().fork(theirs, words)
        assert not worker.wait(0.0)
        worker.kill()
        assert worker.wait(LIMIT_S)
        assert worker.status == 0


def test_a_fault_of_ours_ends_one_with_its_traceback():
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as words:
        with theirs:
            worker = ThreadServer().fork(theirs, words)
        ours.sendall(b"-\0\0\0\1\0\0\0\0\0\0\0\1?")
        assert worker.wait(LIMIT_S)
        words.seek(0)
        assert (worker.status, b"ValidationError" in words.read()) == (1, True)


def test_a_server_that_is_done_is_replaced(perfsvc):
    with ForkServers(ThreadServer) as servers:
        first = servers.take()
        assert servers.take(unused=True) is first
        first.dismiss()
        assert servers.take() is not first


def test_a_run_on_nothing_that_they_open_fails(perfsvc, measured, monkeypatch):
    perfsvc.play({})
    monkeypatch.setattr("perfsvc.measure.threads.FAKE", "nothing:")
    with pytest.raises(NoDeviceError):
        measured(ThreadServer)
