"""What everything that measures a plan must do (``pool.Measure``): this host, agents in general, Ray and Slurm."""

import contextlib
import json
import os
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from perfsvc import suite
from perfsvc.config.settings import SlurmGpuSettings, SlurmSettings
from perfsvc.device.find import find
from perfsvc.errors import NoDeviceError
from perfsvc.measure.host import pool
from perfsvc.measure.host.device_queue import never
from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.plan.order import AlternatingPlan, Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Measurement, OverBudget, Status, digest
from perfsvc.service.cluster.lending import lent
from perfsvc.service.prepare.targets import arrays
from tests.benchmarks.ray_nodes import ray_nodes
from tests.cluster_here import ClusterHere
from tests.slurm_stand_in import slurm_stand_in

SUITES = Path(__file__).parents[1] / "e2e" / "suites"
CASES = [f"scale/{name}[n={n}]" for name in ("alpha", "beta", "gamma") for n in (1000,)]
DEVICES = ("FAKE-0", "FAKE-1")
SLOW_S, QUICK_S = 2e-4, 1e-4


class Bench:
    """Measures the suite ``scale`` on two fake GPUs.

    Attributes:
        measure: what is tested.
        devices: the GPUs by UUID.
    """

    def __init__(self, folder, measure, devices):
        self.folder = folder
        self.messages = []
        self.measure = measure
        self.devices = {device.uuid: device for device in devices}
        self.specs, _ = suite.discover(SUITES / "scale").resolve(suite.Selection(("*[n=1000]",)), "full")

    def task(self, uuid, spec, code=b"code"):
        modules = [digest(code)] * len(spec.units)
        return Task(
            uuid,
            spec.record(modules, digest(spec.bench_text.encode())),
            (code,) * len(modules),
            spec.cache,
            Sampling(samples=60, recovery_s=0),
            spec.tolerance,
            arrays(spec, 60.0),
        )

    def plan(self, **options):
        tasks = tuple(self.task(uuid, spec) for uuid in self.devices for spec in self.specs)
        return Plan(tasks, replicas=options.pop("replicas", 2), seed=1, limit_s=60.0, **options)

    def __call__(self, plan, stopping=never, on_loss=None):
        return self.measure(plan, self.devices, self.messages.append, None, stopping, on_loss=on_loss)


def scripts(folder):
    for number, uuid in enumerate(DEVICES):
        cases = {"*": {"seconds": QUICK_S}, "scale/beta": {"seconds": SLOW_S}}
        (folder / f"gpu{number}.json").write_text(json.dumps({"uuid": uuid, "cases": cases}))
    return [f"fake:{folder}/gpu{number}.json" for number in range(len(DEVICES))]


@contextlib.contextmanager
def here(folder):
    with worker_servers() as servers:
        yield partial(_on_this_host, servers), find(scripts(folder))


def _on_this_host(servers, plan, devices, report, _, stopping, *, on_loss=None):
    return pool.measure(plan, devices, report, servers, stopping, on_loss=on_loss)


@contextlib.contextmanager
def agents(folder):
    with (
        mock.patch("perfsvc.service.cluster.lending._connect", ClusterHere),
        lent("here", scripts(folder), print) as lends,
    ):
        yield lends.measure, lends.devices


@contextlib.contextmanager
def ray(folder):
    pytest.importorskip("ray", reason="Ray is not installed: pip install perfsvc[ray]")
    with ray_nodes(folder, (2,)) as nodes, lent(nodes.address, scripts(folder), print) as lends:
        yield lends.measure, lends.devices


@contextlib.contextmanager
def slurm(folder):
    pytest.importorskip("submitit", reason="submitit is not installed: pip install perfsvc[slurm]")
    settings = SlurmSettings(folder=folder / "shared", gpus=(SlurmGpuSettings(count=2),))
    with slurm_stand_in(folder), lent("slurm", scripts(folder), print, settings) as lends:
        yield lends.measure, lends.devices


RAY = pytest.param(
    ray, marks=[pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::ResourceWarning")]
)
SLURM = pytest.param(slurm, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[here, agents, RAY, SLURM])
def measuring(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("measuring")
    with (
        mock.patch.dict(os.environ, {"PERFSVC_LOCKS": str(folder / "locks")}),
        request.param(folder) as (measure, devices),
    ):
        yield folder, measure, devices


@pytest.fixture
def bench(measuring):
    return Bench(*measuring)


def test_each_case_is_measured_once_on_each_device_in_each_replica(bench):
    measured = list(bench(bench.plan()))
    counted = Counter((each.device, each.case.id, each.replica) for each in measured)
    assert counted == Counter((uuid, case, replica) for uuid in DEVICES for case in CASES for replica in (0, 1))
    assert {each.status for each in measured} == {Status.OK}
    assert {each.samples_s[0] for each in measured if "beta" in each.case.id} == {SLOW_S}


def test_a_resumed_plan_skips_what_is_measured(bench):
    spec = bench.specs[0]
    done = frozenset((uuid, spec.case, spec.cache, replica) for uuid in DEVICES for replica in (0, 1))
    measured = list(bench(bench.plan(measured=done)))
    assert {each.case.id for each in measured} == set(CASES) - {spec.case.id}


def test_a_used_up_budget_leaves_cases_over(bench):
    over = list(bench(bench.plan(budget_s=0.0)))
    assert all(isinstance(each, OverBudget) for each in over)
    assert len(over) == len(DEVICES) * len(CASES)


def test_the_opening_tasks_come_first(bench):
    first = tuple(replace(bench.task(uuid, bench.specs[-1]), replicas=1) for uuid in DEVICES)
    tasks = tuple(bench.task(uuid, bench.specs[0]) for uuid in DEVICES)
    plan = Plan(tasks, replicas=1, seed=1, limit_s=60.0, first=first)
    measured = list(bench(plan))
    for uuid in DEVICES:
        cases = [each.case for each in measured if each.device == uuid]
        assert cases == [bench.specs[-1].case, bench.specs[0].case]


def test_decided_suspects_are_not_measured_again(bench):
    old, new = (bench.task(DEVICES[0], bench.specs[0], code) for code in (b"old", b"new"))
    results: list[Measurement] = []
    plan = AlternatingPlan(
        (old, new), replicas=20, seed=1, limit_s=60.0, first_pairs=2, is_decided=lambda _: len(results) >= 4
    )
    for measurement in bench(plan):
        results.append(measurement)
        if len(results) <= 4:
            time.sleep(0.05)
    assert 4 <= len(results) < 40
    assert [each.replica for each in results] == list(range(len(results)))


def test_a_stopped_plan_ends_without_failures(bench):
    measured: list[Measurement] = []
    results = bench(bench.plan(replicas=9), stopping=lambda: len(measured) >= 3)
    for measurement in results:
        measured.append(measurement)  # noqa: PERF402 - the plan looks at it while it is measured
    assert 3 <= len(measured) < 9 * len(DEVICES) * len(CASES)
    assert {each.status for each in measured} == {Status.OK}


def test_the_cases_of_a_lost_gpu_fail_or_are_reported(bench):
    lost = bench.folder / "gpu0.json.lost"
    lost.touch()
    try:
        measured = list(bench(bench.plan()))
        losses = []
        quiet = list(bench(bench.plan(), on_loss=lambda device, error: losses.append((device.uuid, type(error)))))
    finally:
        lost.unlink()
    failed = [each for each in measured if each.status is Status.FAILED]
    assert Counter(each.case.id for each in failed) == dict.fromkeys(CASES, 1)
    assert {each.device for each in failed} == {DEVICES[0]}
    right = Counter((each.device, each.status) for each in measured if each not in failed)
    assert right == {(DEVICES[1], Status.OK): 2 * len(CASES)}
    assert losses == [(DEVICES[0], NoDeviceError)]
    assert {each.device for each in quiet} == {DEVICES[1]}


def test_another_gpu_of_the_model_measures_the_cases_of_a_lost_one(bench):
    lost = bench.folder / "gpu0.json.lost"
    lost.touch()
    try:
        tasks = tuple(bench.task(DEVICES[0], spec) for spec in bench.specs)
        other = replace(bench.task(DEVICES[1], bench.specs[0], b"other"), bench="")
        plan = Plan((*tasks[1:], other), replicas=2, seed=1, limit_s=60.0, spread="each-model")
        measured = list(bench(plan))
    finally:
        lost.unlink()
    counted = Counter((each.device, each.case.id, each.replica) for each in measured)
    assert counted == Counter((DEVICES[1], case, replica) for case in CASES for replica in (0, 1))
    assert any("is lost" in message for message in bench.messages)
