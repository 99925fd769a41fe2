"""The queue of a device: one worker at a time, locks, lost devices, time budgets, stopping."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host import device_queue, pool
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.plan.order import Plan
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Measurement, OverBudget, Status
from perfsvc.process import child
from perfsvc.process.fork_servers import END_LIMIT_S
from perfsvc.process.shared_memory import map_arrays, share

LIVES = {
    "born": "log('born')",
    "start": "log('open', os.environ.get('CUDA_VISIBLE_DEVICES'), opening.visible, helper_kernels.decode())",
    "end": "time.sleep(0.1); log('end')",
}


def lifecycle(work):
    """Return the (worker, event) pairs in order."""
    return [(number, event) for number, event, *_ in work.logged()]


def test_the_next_worker_starts_when_the_last_one_is_gone(work):
    work.play(**LIVES)
    measurements = work.measure(Plan((work.task("good"),), 2, 1, 20.0), work.devices("only"))
    assert [measurement.status for measurement in measurements] == [Status.OK, Status.OK]
    assert lifecycle(work) == [(0, "born"), (0, "open"), (0, "end"), (1, "born"), (1, "open"), (1, "end")]


def test_a_worker_that_called_python_of_one_file_measures_no_case_of_another(work):
    work.play(each="log(variant, job.replica)")
    benches = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "good": "", "fine": ""}
    tasks = tuple(replace(work.task(variant), bench=bench) for variant, bench in benches.items())
    for seed in range(3):
        measurements = work.measure(Plan(tasks, 2, seed, 20.0), work.devices("only"))
        assert [measurement.status for measurement in measurements] == [Status.OK] * 12
    called: dict[int, str] = {}
    for worker, variant, _ in work.logged():
        assert called.get(worker, "") in {"", benches[variant]}
        called[worker] = benches[variant] or called.get(worker, "")
    assert len(called) <= 3 * 2 * 3  # for each replica at most one for each file, and one for the others


def test_a_worker_that_prints_without_end_does_not_fill_the_disk(work, monkeypatch):
    monkeypatch.setattr(child, "MOST_OUTPUT_BYTES", 1000)
    size = "os.fstat(1).st_size"
    flood = f"os.write(1, b'x' * 100_000); wait_for(lambda: {size} == 0); log({size})"
    work.play(each=flood)
    (measurement,) = work.measure(Plan((work.task("good"),), 1, 1, 10.0), work.devices("only"))
    assert measurement.status == Status.OK
    assert [size for _, size in work.logged()] == [0]


@pytest.mark.slow
def test_each_replica_on_the_cpu_device_comes_from_its_own_fork_server(work):
    servers = {}
    for kind in ("fake", "cuda", "cpu"):
        work.play(born="log(os.getppid())")
        devices = {uuid: replace(device, kind=kind) for uuid, device in work.devices("only").items()}
        work.measure(Plan((work.task("good"), work.task("fine")), 2, 1, 20.0), devices)
        assert len(work.born()) == 2
        servers[kind] = len({server for _, server in work.logged()})
        (work.folder / "log").unlink()
    assert servers == {"fake": 1, "cuda": 1, "cpu": 2}


@pytest.mark.slow
@pytest.mark.usefixtures("own_servers")
def test_a_worker_sees_no_gpu_until_it_opens_one_and_gets_the_helper_kernels_of_that_one(work, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    work.play(**LIVES)
    devices = work.devices("GPU-1", "FAKE")
    devices["GPU-1"] = replace(devices["GPU-1"], kind="cuda")
    plan = Plan(tuple(work.task("good", uuid) for uuid in devices), 1, 1, 20.0, helper_kernels={"GPU-1": b"ruler"})
    work.measure(plan, devices)
    assert sorted(words for _, event, *words in work.logged() if event == "open") == [
        ["", "", ""],
        ["", "GPU-1", "ruler"],
    ]


def test_a_right_result_is_known_to_later_replicas_of_the_same_case_and_cache_state(work):
    checks = "checked = CheckedResult({'out': f'{variant} {job.cache}'}, Error(0.0, 0.0)) if job.replica == 0 else None"
    work.play(each=f"{checks}; log(variant, job.cache, job.replica, job.checked and job.checked.digests['out'])")
    tasks = (work.task("good"), work.task("good", cache=CacheState.WARM), work.task("fine"))
    work.measure(Plan(tasks, 3, 1, 20.0), work.devices("only"))
    reported = {(variant, cache, replica): known for _, variant, cache, replica, known in work.logged()}
    assert len(reported) == 9
    for (variant, cache, replica), known in reported.items():
        assert known == (f"{variant} {cache}" if replica else None)


def _inputs(shared):
    return map_arrays(shared.descriptor, shared.layout.inputs)


def test_only_the_first_replica_gets_fresh_arrays_and_arrays_have_their_name(work):
    arrays = {"a": np.arange(3.0)}
    recipe = Recipe("three", lambda: share(arrays, arrays), lambda first: share(_inputs(first()), {}))
    work.play(
        each="fresh = job.fresh_arrays.inputs if job.fresh_arrays else (); "
        "log(job.array_name, len(job.arrays.inputs), len(job.arrays.expected), len(fresh))"
    )
    work.measure(Plan((work.task("good", arrays=recipe),), 2, 1, 20.0), work.devices("only"))
    assert [values for _, *values in work.logged()] == [["three", 1, 1, 1], ["three", 1, 1, 0]]


def test_a_worker_that_dies_between_two_cases_costs_neither(work):
    """The arrays of the second case are there only after the pool has noticed that the worker of the first is gone."""

    log, calls = work.folder / "log", []

    def made():
        calls.append(True)
        if len(calls) == 2:
            while not (log.exists() and log.read_text().endswith("\n")):
                time.sleep(0.02)
            (pid, _) = json.loads(log.read_text())
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.02)
        return share({}, {})

    work.play(after="log(variant); os._exit(1)")
    names = "good", "fine"
    work_off = Plan(tuple(work.task(name, arrays=Recipe(name, made)) for name in names), 1, 1, 20.0)
    measurements = {
        measurement.case.variant: measurement.status for measurement in work.measure(work_off, work.devices("only"))
    }
    assert measurements == dict.fromkeys(names, Status.OK)


def test_the_next_case_runs_while_a_measurement_is_stored(work):
    work.play(each="log(variant)")
    plan = Plan((work.task("good"), work.task("fine")), 1, 1, 20.0)
    measurements = pool.measure(plan, work.devices("only"))
    next(measurements)
    deadline = time.monotonic() + 30
    while len(work.logged()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert [measurement.status for measurement in measurements] == [Status.OK]


def test_other_cases_of_a_replica_pass_a_case_whose_arrays_are_not_ready(work, monkeypatch):
    def made():
        while not (log.exists() and "a 0" in log.read_text()):
            time.sleep(0.02)
        return share({}, {})

    log = work.folder / "log"
    monkeypatch.setattr(pool, "array_threads", lambda _: 2)
    work.play(each="log(f'{variant} {job.replica}')")
    tasks = (work.task("late", arrays=Recipe("late", made)), *map(work.task, ("a", "b", "c")))
    plan = Plan(tasks, 2, 1, 20.0)
    planned = [f"{task.key[0].variant} {replica}" for replica, task in plan.order("only")]
    assert planned[:4] == ["late 0", "b 0", "c 0", "a 0"]
    assert {measurement.status for measurement in work.measure(plan, work.devices("only"))} == {Status.OK}
    assert [words for _, words in work.logged()] == ["b 0", "c 0", "a 0", "late 0", *planned[4:]]


def test_no_case_passes_a_first_task_whose_arrays_are_not_ready(work, monkeypatch):
    monkeypatch.setattr(pool, "array_threads", lambda _: 2)
    work.play(each="log(variant)")
    peak = work.task("peak", arrays=Recipe("peak", lambda: time.sleep(0.2) or share({}, {})))
    work.measure(Plan((work.task("good"),), 1, 1, 20.0, first=(peak,)), work.devices("only"))
    assert [words for _, words in work.logged()] == ["peak", "good"]


def test_a_measurement_can_be_used_while_its_worker_ends(work):
    work.play(end="wait_for((folder / 'judged').exists); log('end')")
    measurements = pool.measure(Plan((work.task("good"),), 1, 1, 20.0), work.devices("only"))
    assert next(measurements).status is Status.OK
    (work.folder / "judged").touch()
    assert list(measurements) == []
    assert lifecycle(work) == [(0, "end")]


@pytest.mark.usefixtures("own_servers")
def test_an_exception_kills_the_workers_of_a_plan(work):
    work.play(**LIVES | {"end": "time.sleep(60)"})

    def fail_amid():
        with contextlib.closing(
            pool.measure(Plan((work.task("good"),), 1, 1, 20.0), work.devices("only"))
        ) as measurements:
            raise ZeroDivisionError(next(measurements))

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        fail_amid()
    assert time.monotonic() - began < END_LIMIT_S
    assert not any(Path(f"/proc/{pid}").exists() for pid in work.born())


@pytest.mark.slow
@pytest.mark.usefixtures("own_servers")
def test_a_fork_server_that_dies_is_replaced_once_without_blaming_the_device(work):
    def measured_after(deaths):
        dies = f"if len(logged().splitlines()) <= {deaths}: os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
        work.play(born="log('born')", start=dies)
        try:
            return work.measure(Plan((work.task("good"),), 1, 1, 20.0), work.devices("only"))
        finally:
            assert len(work.born()) == 2
            (work.folder / "log").unlink()

    (measurement,) = measured_after(1)
    assert measurement.status is Status.OK
    with pytest.raises(NoDeviceError, match="did not start"):
        measured_after(2)


# --- locks -----------------------------------------------------------------------------------------------------------


def taken_by_another_run(uuid):
    """The lock of a device, which the process 1 seems to hold: a queue waits silently for a lock of its own process."""
    lock = DeviceLock(uuid)
    assert lock.take()
    lock._path.write_text("1")
    return lock


def test_a_device_in_use_is_waited_for_and_reported_once(work):
    work.play()
    other = taken_by_another_run("only")

    def report(line):
        work.messages.append(line)
        Thread(target=lambda: (time.sleep(3 * device_queue.LOCK_POLL_S), other.release())).start()

    plan = Plan((work.task("good"),), 1, 1, 20.0)
    (measurements,) = pool.measure(plan, work.devices("only"), report)
    assert measurements.status is Status.OK
    assert work.messages == ["only is in use by another perfsvc run (pid 1): waiting"]


def test_other_devices_measure_while_one_is_in_use(work):
    work.play()
    other = taken_by_another_run("first")
    tasks = tuple(work.task(name, uuid) for uuid in ("first", "second") for name in ("good", "fine"))
    order = []
    for measurement in pool.measure(Plan(tasks, 2, 1, 20.0), work.devices("first", "second"), work.messages.append):
        order.append(measurement.device)
        if len(order) == 4:
            other.release()
    assert order == ["second"] * 4 + ["first"] * 4
    assert len(work.messages) == 1


def test_a_device_with_nothing_left_to_do_is_released_while_others_go_on(work):
    """Otherwise two runs on two devices could wait for each other."""
    work.play(each="device.uuid == 'second' and wait_for((folder / 'go').exists)")
    first = DeviceLock("first")

    def other_run():
        while not (work.folder / "done").exists() or not first.take():
            time.sleep(0.02)
        (work.folder / "go").touch()

    thread = Thread(target=other_run)
    thread.start()
    tasks = (work.task("good", "first"), work.task("good", "second"))
    statuses = {}
    for measurement in pool.measure(Plan(tasks, 1, 1, 20.0), work.devices("first", "second")):
        statuses[measurement.device] = measurement.status
        (work.folder / "done").touch()
    assert statuses == {"first": Status.OK, "second": Status.OK}
    thread.join()
    first.release()


def test_a_device_whose_lock_cannot_be_used_is_not_used(work, monkeypatch):
    work.play()
    (work.folder / "file").touch()
    monkeypatch.setenv("PERFSVC_LOCKS", str(work.folder / "file"))
    with pytest.raises(NoDeviceError, match="keeps two runs from sharing a GPU"):
        work.measure(Plan((work.task("good"),), 1, 1, 20.0), work.devices("only"))


# --- lost devices --------------------------------------------------------------------------------------------------

LOST = {
    "start": """
if (folder / f"{device.uuid}.lost").exists():
    send(Refused(f"{device.uuid} fell off the bus", "look at it"))
    sys.exit(5)
""",
    "each": "checked = CheckedResult({}, Error(0.0, 0.0)); log(device.uuid, variant, job.replica, bool(job.checked))",
    "bad": """
        if job.replica == 1 and device.uuid == "first":
            (folder / "first.lost").touch()
            os._exit(1)
""",
}
NAMES = "good", "bad", "fine"


def measured(work, tasks, names=("first", "second", "other"), **settings):
    """Return the measurement of each case on each device; ``first`` is lost with ``bad`` in its second replica."""
    work.play(**LOST)
    plan = Plan(tuple(tasks), 3, 1, 20.0, **settings)
    devices = work.devices("first", "second") | work.devices("other", model="Other GPU")
    measurements = work.measure(plan, {uuid: devices[uuid] for uuid in names})
    assert all(
        measurement.reason and measurement.cure for measurement in measurements if measurement.status is not Status.OK
    )
    keys = [(measurement.device, measurement.case.variant, measurement.replica) for measurement in measurements]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, measurements, strict=True))


def of(measurements, device, status):
    return {
        (variant, replica)
        for (uuid, variant, replica), measurement in measurements.items()
        if (uuid, measurement.status) == (device, status)
    }


IN_FULL = {(variant, replica) for variant in ("good", "fine") for replica in range(3)}


def test_the_cases_of_a_lost_device_are_measured_in_full_and_checked_anew_on_another_of_its_model(work):
    tasks = [*(work.task(name, "first") for name in NAMES), *(work.task(name, "second") for name in ("bad", "own"))]
    measurements = measured(work, tasks, spread="each-model")
    own = {(variant, replica) for variant in ("bad", "own") for replica in range(3)}
    assert of(measurements, "second", Status.OK) == IN_FULL | own
    assert not of(measurements, "second", Status.FAILED)
    assert of(measurements, "first", Status.FAILED) == {("bad", 1)}  # it may be what broke the GPU
    assert {(name, 0) for name in NAMES} <= of(measurements, "first", Status.OK)
    assert {uuid for uuid, *_ in measurements} == {"first", "second"}
    assert work.messages == ["first is lost (first fell off the bus): second measures 2 of its cases"]
    known = {(uuid, variant, replica): known for _, uuid, variant, replica, known in work.logged()}
    assert all(value == (replica > 0) for (_, _, replica), value in known.items())


@pytest.mark.parametrize(("spread", "heir"), [("each-device", "second"), ("each-model", "other")])
def test_the_cases_of_a_lost_device_fail_if_no_other_device_may_take_them_over(work, spread, heir):
    tasks = [work.task(name, uuid) for uuid in ("first", heir) for name in NAMES]
    measurements = measured(work, tasks, names=("first", heir), spread=spread)
    failed = {
        variant: measurements["first", variant, replica]
        for variant, replica in of(measurements, "first", Status.FAILED)
    }
    assert set(failed) == set(NAMES)
    assert {failed[variant].reason for variant in ("good", "fine")} == {"first fell off the bus"}
    assert of(measurements, heir, Status.OK) == {(variant, replica) for variant in NAMES for replica in range(3)}


def test_every_device_measures_its_first_tasks_once_and_they_are_never_taken_over(work):
    (work.folder / "first.lost").touch()
    peaks = tuple(work.task("peak", uuid) for uuid in ("first", "second"))
    measurements = measured(work, (work.task(name, "first") for name in NAMES), spread="each-model", first=peaks)
    assert measurements["first", "peak", 0].reason == "first fell off the bus"
    assert next((uuid, variant) for _, uuid, variant, *_ in work.logged()) == ("second", "peak")
    assert [key for key in measurements if key[1] == "peak"] == [("first", "peak", 0), ("second", "peak", 0)]
    assert of(measurements, "second", Status.OK) == IN_FULL | {("peak", 0)} | {("bad", replica) for replica in range(3)}


def test_no_case_moves_to_a_device_that_is_lost_itself(work):
    (work.folder / "second.lost").touch()
    tasks = [*(work.task(name, "first") for name in NAMES), work.task("own", "second")]
    measurements = measured(work, tasks, spread="each-model")
    assert {uuid for uuid, *_ in measurements} == {"first"}
    assert {variant for variant, _ in of(measurements, "first", Status.FAILED)} == {*NAMES, "own"}
    assert work.messages == ["second is lost (second fell off the bus): first measures 1 of its cases"]


def test_a_run_fails_if_every_device_is_lost_before_it_was_opened(work):
    (work.folder / "first.lost").touch()
    (work.folder / "second.lost").touch()
    with pytest.raises(NoDeviceError, match="fell off the bus"):
        measured(work, (work.task(name, "first") for name in NAMES), spread="each-model")


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """The clock of the queues, which a test can move forward."""
    moved = SimpleNamespace(seconds=0.0)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + moved.seconds)
    monkeypatch.setattr(device_queue, "time", clock)
    return moved


def over_after(work, clock, events, tasks, **settings):
    """Measure tasks whose budget ends after this many events, when the next case has begun; returns all events."""
    work.play()
    measurements = []
    for event in pool.measure(Plan(tuple(tasks), 2, 1, 20.0, budget_s=3600.0, **settings), work.devices("only")):
        measurements.append(event)
        clock.seconds = 4000.0 * (len(measurements) >= events)
    return measurements


def test_no_case_begins_when_the_budget_is_over_and_unmeasured_cases_are_reported(work, clock):
    measurements = over_after(work, clock, 1, [work.task(name) for name in ("a", "b", "c", "d")])
    kinds = [type(event) for event in measurements]
    assert kinds == [Measurement, Measurement, OverBudget, OverBudget]
    assert sorted(event.case.variant for event in measurements) == ["a", "b", "c", "d"]
    reason = "the budget of 3600 s was used up before the case was measured"
    assert {event.reason for event in measurements[2:]} == {reason}
    assert {(event.device, event.cache) for event in measurements[2:]} == {("only", CacheState.COLD)}


def test_a_case_with_fewer_replicas_than_planned_is_not_over_budget(work, clock):
    measurements = over_after(work, clock, 2, [work.task("a"), work.task("b")])
    assert [type(event) for event in measurements] == [Measurement] * 2


def test_first_tasks_are_never_over_budget(work, clock):
    peaks = tuple(work.task(name) for name in ("copy", "read"))
    measurements = over_after(work, clock, 1, [work.task("a")], first=peaks)
    reported = [(type(event), event.case.variant) for event in measurements]
    assert reported == [(Measurement, "copy"), (Measurement, "read"), (OverBudget, "a")]


def test_waiting_for_a_device_in_use_does_not_count_against_the_budget(work, clock):
    other = taken_by_another_run("only")

    def report(line):
        clock.seconds = 4000.0
        other.release()

    work.play()
    plan = Plan((work.task("a"),), 1, 1, 20.0, budget_s=3600.0)
    assert [type(event) for event in pool.measure(plan, work.devices("only"), report)] == [Measurement]


# --- stopping --------------------------------------------------------------------------------------------------------


def drained(work, plan, stopping, *names):
    """Measure a plan that stops when ``stopping`` returns true; returns (variant, status) pairs."""
    measurements = pool.measure(plan, work.devices(*names), work.messages.append, stopping=stopping)
    return [(measurement.case.variant, measurement.status) for measurement in measurements]


def test_a_stopping_run_finishes_the_current_case_and_begins_no_other(work):
    """Two of three devices measure a case when the run is to stop; the third waits for its lock."""
    work.play(each="log(variant); time.sleep(0.3)")
    log = work.folder / "log"
    other = taken_by_another_run("third")
    names = ("first", "second", "third")
    tasks = tuple(work.task(f"{name}-{number}", name) for name in names for number in range(3))
    measurements = drained(
        work, Plan(tasks, 2, 1, 20.0), lambda: log.exists() and log.read_text().count("\n") >= 2, *names
    )
    other.release()
    begun = [variant for _, variant in work.logged()]
    assert sorted(measurements) == sorted((variant, Status.OK) for variant in begun)
    assert {variant.split("-")[0] for variant in begun} == {"first", "second"}
    assert len(begun) == 2
    reported = [f"stopping: waiting for scale/{variant} to finish" for variant in begun]
    assert sorted(line for line in work.messages if line.startswith("stopping")) == sorted(reported)


def test_a_run_stopped_before_its_first_case_measures_nothing_and_releases_its_device(work):
    work.play(start="log('opened')", each="log(variant)")
    assert drained(work, Plan((work.task("good"),), 1, 1, 20.0), lambda: True, "only") == []
    assert not (work.folder / "log").exists()
    assert DeviceLock("only").take()


def test_a_stopping_run_does_not_wait_for_a_device_that_is_still_being_opened(work):
    work.play(born="log('born')", start="wait_for(lambda: pool.recv(1) == b'')", each="log(variant)")
    plan = Plan((work.task("good"),), 1, 1, 20.0)
    assert drained(work, plan, (work.folder / "log").exists, "only") == []
    assert [event for _, event in work.logged()] == ["born"]


@pytest.mark.slow
def test_a_case_that_does_not_finish_in_a_stopping_run_is_given_up_and_not_failed(work, monkeypatch):
    monkeypatch.setattr(device_queue, "GRACE_S", 0.3)
    work.play(each="log(variant); time.sleep(60)")
    assert drained(work, Plan((work.task("good"),), 1, 1, 50.0), (work.folder / "log").exists, "only") == []


def test_a_case_past_its_own_limit_fails_in_a_stopping_run_as_well(work):
    work.play(each="log(variant); time.sleep(60)")
    plan = Plan((work.task("bad"), work.task("fine")), 2, 1, 0.4)
    ((_, status),) = drained(work, plan, (work.folder / "log").exists, "only")
    assert status is Status.FAILED


def test_the_cases_of_a_lost_device_do_not_move_in_a_stopping_run(work):
    work.play(start="log(device.uuid); os._exit(3) if device.uuid == 'first' else None", each="log('case')")
    tasks = tuple(work.task(name, "first") for name in ("a", "b"))
    stopped = []

    def report(line):
        stopped.append(line)

    measurements = list(
        pool.measure(
            Plan((*tasks, work.task("c", "second")), 1, 1, 20.0, spread="each-model"),
            work.devices("first", "second"),
            report,
            stopping=lambda: bool(stopped),
        )
    )
    assert any("first is lost" in line for line in stopped)
    assert {measurement.case.variant for measurement in measurements} <= {"c"}
