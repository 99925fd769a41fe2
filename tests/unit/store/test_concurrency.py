"""Several processes use one database at once, and processes die while they write."""

import os
import platform
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.store import RunState, Store, runs
from tests.unit.store.conftest import ON_BOTH

pytestmark = ON_BOTH

PRELUDE = """
import sys
from datetime import UTC, datetime
from perfsvc.model import *
from perfsvc.store import MeasurementEntry, RunState, Store

place, name = sys.argv[1:]

def begin(store):
    store.devices.put(DeviceInfo("fake", "fake", "GPU-1", "Fake", "fake"))
    return store.runs.begin(Provenance(datetime.now(UTC), "perfsvc run", "kernels", label=name))

def put(store, run, number):
    case = Case("dot", "shuffle", (("n", number),), formerly=("tree",))
    measurement = Measurement(case, "GPU-1", 0, Status.OK, samples_s=(1.0,))
    entry = MeasurementEntry(measurement, Environment(name), Work(), Estimate(1.0, 1.0, 1.0, 1))
    store.measurements.put(run, [entry])

print("ready", flush=True)
sys.stdin.readline()
"""
WRITER = """
with Store.open(place) as store:
    run = begin(store)
    for number in range(40):
        put(store, run, number)
    store.runs.end(run, RunState.FINISHED)
"""
ENDLESS = """
with Store.open(place) as store:
    run = begin(store)
    number = 0
    while True:
        put(store, run, number)
        number += 1
        print(number, flush=True)
"""
HALFWAY = """
from perfsvc.store import measurements

real = measurements.put_measurements
def stop_after_the_row(connection, run, entries, keys):
    real(connection, run, entries, keys)
    print("halfway", flush=True)
    sys.stdin.readline()

with Store.open(place) as store:
    run = begin(store)
    put(store, run, 1)
    measurements.put_measurements = stop_after_the_row
    put(store, run, 2)
"""


@pytest.fixture
def start(request):
    """Return a function that starts a script in its own process, which prints ``ready`` and waits for a line."""

    def process(script, place, name="night"):
        code = textwrap.dedent(PRELUDE + script)
        started = subprocess.Popen(
            [sys.executable, "-c", code, place, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        request.addfinalizer(lambda: end(started))
        assert started.stdout.readline() == "ready\n"
        return started

    return process


def go(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def end(process):
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_processes_open_and_fill_a_new_database_at_once(empty, start):
    writers = [start(WRITER, empty, name) for name in "abc"]
    for writer in writers:
        go(writer)
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    with Store.open(empty) as store:
        columns = store.measurements.columns()
        assert sorted(columns["label"]) == sorted("abc" * 40)
        assert len(set(columns["case"])) == 40
        assert {row.state for row in store.runs.list()} == {RunState.FINISHED}
    assert Store.check(empty).ok


@pytest.mark.slow
def test_a_killed_process_loses_only_the_row_it_had_not_committed_and_one_whose_run_is_ended_none(story, place, start):
    killed, ended = (start(HALFWAY, place) for _ in range(2))
    go(killed)
    assert killed.stdout.readline() == "halfway\n"
    end(killed)
    assert story.store.measurements.columns()["case"] == ["dot/shuffle[n=1]"]
    assert Store.check(place).ok
    go(ended)
    assert ended.stdout.readline() == "halfway\n"
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(story.store.runs.end, 2, RunState.INTERRUPTED)
        go(ended)
        ending.result(timeout=60)
        ended.wait(timeout=60)
    histories = story.store.series.histories_until(2, 9)
    assert {series.case.id: history.level.tolist() for series, history in histories.items()} == {
        "dot/shuffle[n=1]": [1.0, 1.0],
        "dot/shuffle[n=2]": [1.0],
    }


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing_that_was_stored_and_its_run_is_interrupted(story, place, start):
    writer = start(ENDLESS, place)
    go(writer)
    for _ in range(20):
        told = int(writer.stdout.readline())
    story.begin()
    assert story.store.runs.get(1).state is RunState.RUNNING
    writer.kill()
    told = int((writer.stdout.read().split() or [told])[-1])
    writer.wait()
    with Store.open(place) as store:
        assert len(store.measurements.columns()["run"]) in {told, told + 1}
    story.begin()
    states = [RunState.RUNNING, RunState.RUNNING, RunState.INTERRUPTED]
    assert [row.state for row in story.store.runs.list()] == states
    finished = story.store.runs.get(1).finished
    assert finished is not None
    assert story.store.runs.newest().id == 1
    story.store.runs.mark_interrupted(platform.node())
    assert [row.state for row in story.store.runs.list()] == states
    assert story.store.runs.get(1).finished == finished


def test_the_run_of_another_host_keeps_running_and_that_of_a_process_id_that_was_used_again_does_not(story):
    elsewhere = story.begin(host="elsewhere")
    story.execute("UPDATE runs SET pid = 99999999")
    run = story.begin()
    story.execute("UPDATE runs SET process_start = '1' WHERE id = :run", run=run)
    story.begin()
    assert story.store.runs.get(elsewhere).state is RunState.RUNNING
    assert story.store.runs.get(run).state is RunState.INTERRUPTED


def test_a_process_is_alive_until_it_ends():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = runs.start_of(child.pid)
    assert runs.alive(child.pid, start)
    assert runs.alive(child.pid, "")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not start or not runs.alive(child.pid, start)  # dead, though its parent has not waited for it
    child.communicate()
    assert not runs.alive(child.pid, start)
    assert not runs.alive(child.pid, "")


@pytest.mark.parametrize(("age", "state"), [(timedelta(hours=1), "running"), (timedelta(days=8), "interrupted")])
def test_a_run_of_another_container_is_interrupted_only_after_days(story, age, state):
    story.begin(host="box", started=datetime.now(UTC) - age)
    story.execute("UPDATE runs SET pid = 1, process_start = '7 1'")
    story.store.runs.mark_interrupted("box")
    assert story.execute("SELECT state FROM runs") == [(state,)]
