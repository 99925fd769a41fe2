"""Several GPUs: they measure at once, share the cases or not, get lost, or are in use."""

import json
import time
from collections import Counter

import pytest

from perfsvc import suite
from perfsvc.device.find import find
from perfsvc.measure.host import pool
from perfsvc.measure.plan.assignment import spread as assign
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Status, digest
from perfsvc.service.prepare.recipes import arrays

SAMPLING = Sampling(samples=60, recovery_s=0)
USUAL = {"*": {"seconds": 1e-4}}
CASES = [f"scale/{name}[n={n}]" for name in ("alpha", "beta", "gamma") for n in (1000, 4000)]


class Host:
    """A machine with fake GPUs, on which the cases of a suite are measured."""

    def __init__(self, folder, cases):
        self.folder = folder
        self.specs = cases
        self.messages = []

    def devices(self, **scripts):
        """Make fake GPUs of one model, by their UUIDs."""
        for uuid, cases in scripts.items():
            (self.folder / f"{uuid}.json").write_text(json.dumps({"uuid": uuid, "cases": cases}))
        return {device.uuid: device for device in find([f"fake:{self.folder / uuid}.json" for uuid in scripts])}

    def task(self, uuid, spec):
        return Task(
            uuid,
            spec.record(["0" * 64 for _ in spec.units], digest(spec.bench_text.encode())),
            (b"code",) * len(spec.units),
            spec.cache,
            SAMPLING,
            spec.tolerance,
            arrays(spec, 60.0),
        )

    def plan(self, devices, spread, replicas=2):
        tasks = [self.task(uuid, spec) for uuid in devices for spec in self.specs]
        assigned = assign(tasks, devices.values(), spread)
        return Plan(assigned, replicas, 1, 60.0, spread=spread)

    def measure(self, devices, spread):
        """Return the measurement of each case on each device in each replica."""
        measured = pool.measure(self.plan(devices, spread), devices, self.messages.append)
        return {(measurement.device, measurement.case.id, measurement.replica): measurement for measurement in measured}


@pytest.fixture
def host(perfsvc, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(perfsvc.folder / "locks"))
    return Host(perfsvc.folder, suite.discover(perfsvc.suites / "scale").resolve(suite.Selection(), "full")[0])


def timed(measured, device):
    """Return the cases that have times on a device, with the number of their replicas."""
    return Counter(
        case for (uuid, case, _), measurement in measured.items() if uuid == device and measurement.status is Status.OK
    )


def test_every_device_measures_every_case_once_in_each_replica(host):
    measured = host.measure(host.devices(A={"*": {"seconds": 1e-4}}, B={"*": {"seconds": 3e-4}}), "each-device")
    assert timed(measured, "A") == timed(measured, "B") == dict.fromkeys(CASES, 2)
    assert {(uuid, measurement.samples_s[0]) for (uuid, *_), measurement in measured.items()} == {
        ("A", 1e-4),
        ("B", 3e-4),
    }


def test_devices_measure_at_the_same_time(host):
    devices = host.devices(A={"*": {"fault": "hang"}}, B=USUAL)
    measuring = pool.measure(host.plan(devices, "each-device"), devices)
    assert [next(measuring).device for _ in range(2 * len(CASES))] == ["B"] * 2 * len(CASES)
    measuring.close()


@pytest.mark.slow
def test_a_case_is_assigned_to_the_same_device_every_night(host):
    devices = host.devices(A=USUAL, B=USUAL)
    tonight = host.measure(devices, "each-model")
    assert timed(tonight, "A") + timed(tonight, "B") == dict.fromkeys(CASES, 2)
    assert set(timed(tonight, "A")).isdisjoint(timed(tonight, "B"))
    assert timed(tonight, "A")
    assert timed(tonight, "B")
    tomorrow = host.measure(dict(reversed(devices.items())), "each-model")
    assert set(tomorrow) == set(tonight)


def lose_a(host, spread):
    """Lose A at its first case of the second replica; returns the measurements, that case, and A's other cases."""
    order = host.plan(host.devices(A=USUAL, B=USUAL), spread).order("A")
    broke, *others = (task.record.case.id for replica, task in order if replica == 1)
    assert len(others) >= 2
    measured = host.measure(host.devices(A=USUAL | {broke: {"fault": "lost", "replica": 1}}, B=USUAL), spread)
    assert timed(measured, "A") == dict.fromkeys([broke, *others], 1)
    assert measured["A", broke, 1].status is Status.FAILED
    assert "lost" in measured["A", broke, 1].reason
    return measured, broke, others


def test_the_cases_of_a_lost_device_are_measured_in_full_on_another_of_its_model(host):
    measured, broke, others = lose_a(host, "each-model")
    assert timed(measured, "B") == dict.fromkeys(set(CASES) - {broke}, 2)
    assert {measurement.status for key, measurement in measured.items() if key != ("A", broke, 1)} == {Status.OK}
    assert host.messages == [f"A is lost (the fake device A is lost): B measures {len(others)} of its cases"]


def test_the_cases_of_a_lost_device_fail_with_the_reason_if_every_device_measures_them(host):
    measured, broke, others = lose_a(host, "each-device")
    assert timed(measured, "B") == dict.fromkeys(CASES, 2)
    failed = {
        key: measurement
        for key, measurement in measured.items()
        if measurement.status is Status.FAILED and key != ("A", broke, 1)
    }
    assert set(failed) == {("A", case, 1) for case in others}
    assert {measurement.reason for measurement in failed.values()} == {"the fake device A is lost"}
    assert all(measurement.cure for measurement in failed.values())


def on_two_devices(perfsvc, *arguments, code, **scripts):
    """Run the suite from the command line on GPUs of one model."""
    devices = []
    for uuid, cases in scripts.items():
        (perfsvc.folder / f"{uuid}.json").write_text(json.dumps({"uuid": uuid, "cases": cases}))
        devices += ["--device", f"fake:{perfsvc.folder / uuid}.json"]
    suite = ("--suite", perfsvc.suites / "scale", "--points", "full", "--replicas", "2")
    return perfsvc("run", *devices, *suite, *arguments, code=code)


def stored(perfsvc, run, status="ok"):
    """Return the cases with this status in a run, by device, with the number of their replicas."""
    rows = perfsvc.rows(
        "select m.run_id, m.status, d.uuid, c.variant, c.point from measurements m"
        " join devices d on d.id = m.device_id join cases c on c.id = m.case_id"
    )
    return Counter(tuple(case) for of_run, how, *case in rows if (of_run, how) == (run, status))


def test_cases_are_assigned_on_the_command_line_and_compared_with_the_run_before(perfsvc):
    for _ in range(2):
        on_two_devices(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    first, second = stored(perfsvc, 1), stored(perfsvc, 2)
    assert first == second
    assert sorted(first.values()) == [2] * len(CASES)
    assert {uuid for uuid, *_ in first} == {"A", "B"}
    assert perfsvc.rows("select distinct verdict from verdicts where run_id = 2 and ratio is not null") == [
        ("unchanged",)
    ]


@pytest.mark.slow
def test_the_cases_of_a_missing_device_return_to_it(perfsvc):
    on_two_devices(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    on_two_devices(perfsvc, "--spread", "each-model", code=0, A=USUAL)
    on_two_devices(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    first, second, third = ({case for case in stored(perfsvc, run) if case[0] == "B"} for run in (1, 2, 3))
    assert not second
    assert first & third  # which cases even the two devices depends on real times


@pytest.mark.slow
def test_cases_that_another_device_took_over_are_stored_under_that_device(perfsvc):
    on_two_devices(perfsvc, "--spread", "each-model", code=0, A=USUAL, B=USUAL)
    assigned = stored(perfsvc, 1)
    lost = USUAL | {"scale": {"fault": "lost"}}
    ended = on_two_devices(perfsvc, "--spread", "each-model", code=4, A=lost, B=USUAL)
    assert "A is lost" in ended.err
    ((uuid, *broke),) = stored(perfsvc, 2, "failed")
    assert uuid == "A"
    assert stored(perfsvc, 2) == {("B", *case): 2 for _, *case in assigned if case != broke}


@pytest.mark.slow
def test_a_second_run_reports_that_it_waits_for_the_device_and_then_continues(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "hang"}})
    arguments = ("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale", "--replicas", "1")
    lock = perfsvc.folder / "locks" / "FAKE-0.lock"
    with perfsvc.start(*arguments) as first:
        while not (lock.exists() and lock.read_text()):
            time.sleep(0.05)
        with perfsvc.start(*arguments, "--select", "scale/alpha") as second:
            line = second.stderr.readline()
            while line and "in use" not in line:
                line = second.stderr.readline()
            assert f"FAKE-0 is in use by another perfsvc run (pid {first.pid}): waiting" in line
            first.kill()
            second.communicate(timeout=60)
            assert second.returncode == 0
    assert perfsvc.rows("select count(*) from measurements where run_id = 2 and status = 'ok'") == [(1,)]
