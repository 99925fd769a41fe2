"""Workers that are the run itself measure what workers that are processes do."""

import gc
from contextlib import contextmanager

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.forks import ForkServers
from perfsvc.measure.in_process import InProcess
from perfsvc.model import DeviceInfo, Status
from perfsvc.service.running.request import RunRequest
from perfsvc.service.running.run import run


@pytest.fixture
def measured(perfsvc, monkeypatch):
    """What a run measures with the workers of some servers."""
    for name in ("PERFSVC_CACHE", "PERFSVC_LOCKS"):
        monkeypatch.setenv(name, perfsvc.environment[name])

    def with_workers_of(servers):
        asked = RunRequest(str(perfsvc.database), perfsvc.suites / "scale", (f"fake:{perfsvc.script}",), seed=1)
        with servers:
            return run(asked, servers=servers)

    return with_workers_of


@contextmanager
def begun(spec, kind="fake"):
    with InProcess() as servers:
        worker = servers.begin()
        worker.open(DeviceInfo(kind, spec, "UUID", "a model", "fake"), b"")
        try:
            yield worker
        finally:
            worker.end()


def by_place(outcome):
    return {(one.case, one.replica): one for one in outcome.measurements}


def test_they_measure_the_same(perfsvc, measured):
    perfsvc.play({"*": {"seconds": 1e-4, "within": 0.01, "between": 0.02}}, seed=3)
    forked, within = (by_place(measured(servers)) for servers in (ForkServers(), InProcess()))
    assert within.keys() == forked.keys()
    assert len(within) == 9
    for place, one in within.items():
        assert (one.status, one.samples_s) == (Status.OK, forked[place].samples_s)


def test_they_leave_the_collector_of_the_run_alone(perfsvc, measured):
    perfsvc.play({"*": {"seconds": 1e-4}})
    measured(InProcess())
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


def test_a_fault_of_one_costs_its_case_alone(perfsvc, measured):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "illegal"}})
    found = by_place(measured(InProcess()))
    assert {case.variant for (case, _), one in found.items() if one.status is Status.FAILED} == {"beta"}
    assert sum(one.status is Status.OK for one in found.values()) == 6


def test_a_fault_of_ours_costs_its_case_alone(perfsvc, measured, monkeypatch):
    def broken(device, job, *_):
        raise ZeroDivisionError(job.record.case.variant)

    perfsvc.play({"*": {"seconds": 1e-4}})
    monkeypatch.setattr("perfsvc.measure.worker.measure", broken)
    found = measured(InProcess()).measurements
    assert {one.reason for one in found} == {
        f"perfsvc itself failed: ZeroDivisionError: {variant}" for variant in ("alpha", "beta", "gamma")
    }


def test_what_runs_code_is_not_opened_in_one():
    with begun("cpu", kind="cpu") as worker:
        refused = worker.hear()
    assert "cpu is not opened within perfsvc itself" in refused.what


def test_a_device_that_is_not_there_is_refused(tmp_path):
    with begun(f"fake:{tmp_path}/nothing.json") as worker:
        assert "cannot be used" in worker.hear().what


def test_one_is_gone_when_it_is_dismissed_and_not_before(perfsvc):
    perfsvc.play({})
    with begun(f"fake:{perfsvc.script}") as worker:
        assert not worker.is_gone()
        worker.dismiss()
        assert worker.is_gone()


def test_a_run_on_nothing_that_they_open_fails(perfsvc, measured, monkeypatch):
    perfsvc.play({})
    monkeypatch.setattr("perfsvc.measure.in_process.FAKE", "nothing")
    with pytest.raises(NoDeviceError):
        measured(InProcess())
