"""A case of an earlier run runs again from the database alone."""

import shutil
from dataclasses import replace

import pytest

from perfsvc.device.find import find
from perfsvc.measure.host import pool
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Status, Tolerance
from perfsvc.process.shared_memory import share
from perfsvc.store import Store
from perfsvc.suite.arrays import replay_arrays
from perfsvc.suite.benchfile import load_text

CASES = ("kinds/steps[n=1000]", "kinds/python[n=1000]", "kinds/reports[n=1000]")
SELECTED = ("--select", "kinds/steps", "--select", "kinds/python", "--select", "kinds/reports", "--replicas", "1")


@pytest.fixture(scope="module")
def database(new_workplace):
    """A database in which run 1 saw a suite, run 2 its bench.py after a bad change; the suite is there no more."""
    workplace = new_workplace()
    folder = workplace.folder / "suite"
    shutil.copytree(workplace.suites / "kinds", folder)
    workplace.cpu(*SELECTED, suite=folder, code=0)
    bench = folder / "kinds" / "bench.py"
    text = bench.read_text()
    bench.write_text(text.replace(".sum(dtype=np.float64)", ".mean(dtype=np.float64)"))
    workplace.cpu(*SELECTED, suite=folder, code=4)
    shutil.rmtree(folder)
    return workplace.database


def replayed(database, case_id, run):
    """What measuring the case as it was in that run gives tonight."""
    with Store.open(database) as store:
        record, modules, bench = store.binaries.replay(case_id, run)
    file = load_text(bench.decode(), record.case.benchmark)
    inputs, expected = replay_arrays(file, record.case.point, record.seed, record.case.variant)
    (cpu,) = find(["cpu"])
    task = Task(
        device=cpu.uuid,
        record=record,
        modules=tuple(modules[digest] for digest in record.modules),
        cache=CacheState.COLD,
        sampling=Sampling(samples=5, seconds=60.0),
        tolerance=Tolerance(max=1e-5, mean=1e-5),
        arrays=Recipe(case_id, lambda: share(inputs, expected)),
        bench=bench.decode(),
    )
    (measurement,) = pool.measure(Plan((task,), replicas=1, seed=0, limit_s=60), {cpu.uuid: cpu})
    return measurement


@pytest.mark.parametrize("case_id", CASES)
def test_a_case_runs_again_without_its_suite(database, case_id):
    measurement = replayed(database, case_id, run=1)
    assert (measurement.status, measurement.reason) == (Status.OK, "")
    assert measurement.case.id == case_id
    assert len(measurement.samples_s) == (0 if "reports" in case_id else 5)


def test_a_python_step_runs_again_as_it_was_in_its_run(database):
    assert replayed(database, CASES[1], run=1).status is Status.OK
    changed = replayed(database, CASES[1], run=2)
    assert changed.status is Status.WRONG
    assert "total[0] is" in changed.reason


def test_records_of_an_unchanged_case_differ_only_in_the_benchmark_file(database):
    with Store.open(database) as store:
        first, second = (store.binaries.replay(CASES[0], run)[0] for run in (1, 2))
    assert first.bench != second.bench
    assert replace(first, bench=second.bench) == second
