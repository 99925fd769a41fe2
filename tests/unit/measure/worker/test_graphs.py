"""The CUDA graph of a case: captured at each place of the arrays, replayed for samples and checks, and freed."""

import gc

import numpy as np
import pytest

from perfsvc.device.host_graph import HostGraph
from perfsvc.errors import LaunchError
from perfsvc.measure.protocol.messages import CaseJob, Sampling
from perfsvc.measure.worker.main import measure
from perfsvc.measure.worker.memory import DeviceArrayCache
from perfsvc.model import (
    Array,
    Batch,
    Buffer,
    BufferArg,
    CacheState,
    Case,
    Kind,
    Launch,
    Memset,
    ReplayRecord,
    Role,
    Status,
    Tolerance,
)
from perfsvc.process.shared_memory import ArrayLayout
from tests.unit.measure.tasks import INPUTS, Given, OnHost

BUFFERS = (
    Buffer(Array("a", "float32", (4,)), Role.INPUT),
    Buffer(Array("out", "float32", (4,)), Role.OUTPUT),
    Buffer(Array("half", "float32", (4,)), Role.SCRATCH),
)
EXPECTED = {"out": 4.0 * INPUTS["a"].astype(np.float64)}
ONE = (1, 1, 1)
STEPS = (
    Memset("half"),
    Launch(0, "double", ONE, ONE, (BufferArg("half"), BufferArg("a"))),
    Launch(0, "double", ONE, ONE, (BufferArg("out"), BufferArg("half"))),
)


class OpenGraph(HostGraph):
    """A graph that its device counts as open until it is closed; each step takes a millisecond."""

    def __init__(self, device, steps, apart, evict):
        super().__init__(steps, self.timed if apart else None, evict)
        self.device, self.apart = device, apart
        device.open.append(self)

    @staticmethod
    def timed(run):
        run()
        return 1e-3

    def launch(self):
        assert self in self.device.open
        self.device.replays += 1
        super().launch()

    def close(self):
        if self in self.device.open:
            self.device.open.remove(self)


class Capturing(OnHost):
    """Doubles arrays, and captures graphs; ``wrong`` spoils all replays, and ``refused`` is a step that breaks it."""

    def __init__(self, *, wrong=False, refused=""):
        super().__init__()
        self.wrong, self.refused = wrong, refused
        self.open, self.captures, self.evictions, self.replays, self.launches = [], [], 0, 0, 0

    def launch(self, module, launch, args):
        self.launches += 1
        out, a = (self.view(int(arg), "float32", (4,)) for arg in args)
        out[...] = a * (3 if self.wrong and self.replays else 2)

    def evict(self):
        self.evictions += 1

    def capture(self, steps, *, apart=False, evict_bytes=0):
        assert not gc.isenabled()
        self.captures.append(([name for name, _ in steps], apart, evict_bytes))
        if self.refused in dict(steps):
            raise LaunchError(f"{self.refused} cannot be captured in a CUDA graph", cure="remove graph=")
        return OpenGraph(self, list(steps), apart, self.evict if evict_bytes else lambda: None)

    def now(self):
        return 0.0

    def batch(self, sample, count, *, clock, evict_bytes, blocked, before=None, restore=None, seconds=None):
        samples_s = []
        for number in range(count):
            if before:
                before(number)
            sample()
            samples_s.append(seconds() if seconds else 1e-3)
        return Batch(tuple(samples_s), blocked, blocked or None, busy_s=count * 2e-3)


def measured(device, graph, *, places=1, samples=24, energy=False):
    record = ReplayRecord(Case("quadruple", "plain"), Kind.KERNEL, BUFFERS, STEPS, ("1",), "", seed=0, graph=graph)
    sampling = Sampling(samples=samples, least=samples, places=places, energy=energy)
    job = CaseJob(record, 2, CacheState.COLD, Tolerance(1e-6, 1e-7), sampling, "quadruple", ArrayLayout())
    return measure(device, job, [b""], Given(EXPECTED), DeviceArrayCache(device, 0))


NAMES = ["step 1, the memset of 'half',", "step 2, the launch of 'double',", "step 3, the launch of 'double',"]


def test_samples_are_replays_of_one_graph_and_the_sum_of_the_steps_is_beside_them():
    device = Capturing()
    measurement = measured(device, "replay").measurement
    assert (measurement.status, measurement.reason) == (Status.OK, "")
    assert set(measurement.samples_s) == {1e-3}
    assert measurement.metrics["steps_s"] == pytest.approx(3e-3)
    assert device.captures == [(NAMES, False, 0), (NAMES, True, 0)]
    assert device.replays > 24 + 20
    assert device.launches == 2 * (device.replays + 1)  # once before the capture
    assert device.open == []
    assert gc.isenabled()


def test_cold_steps_empty_the_cache_before_each_step_and_count_only_the_steps():
    device = Capturing()
    measurement = measured(device, "cold steps").measurement
    assert measurement.samples_s == pytest.approx([3e-3] * 24)
    assert "steps_s" not in measurement.metrics
    ((_, apart, evict_bytes),) = device.captures
    assert (apart, evict_bytes) == (True, Sampling().evict * device.info.l2_bytes)
    assert device.evictions == 3 * device.replays
    assert device.open == []


def test_a_case_without_a_graph_captures_nothing():
    device = Capturing()
    assert measured(device, "").measurement.status is Status.OK
    assert (device.captures, device.replays) == ([], 0)


def test_the_steps_are_captured_anew_at_each_place_of_the_arrays():
    device = Capturing()
    measurement = measured(device, "replay", places=8).measurement
    assert measurement.status is Status.OK
    assert len(measurement.places_s) == 8
    assert len(device.captures) >= 8 + 1
    assert device.open == []


def test_the_result_of_a_replay_is_checked():
    device = Capturing(wrong=True)
    measurement = measured(device, "replay").measurement
    assert measurement.status is Status.WRONG
    assert "wrong result: out[" in measurement.reason
    assert device.open == []


def test_a_step_that_cannot_be_captured_fails_the_case_and_the_worker_lives_on():
    for refused in NAMES:
        device = Capturing(refused=refused)
        outcome = measured(device, "replay")
        assert outcome.measurement.status is Status.FAILED
        assert outcome.measurement.reason == f"{refused} cannot be captured in a CUDA graph"
        assert outcome.usable
        assert gc.isenabled()
        device.refused = ""
        assert measured(device, "replay").measurement.status is Status.OK


def test_energy_between_cold_steps_is_not_measured():
    measurement = measured(Capturing(), "cold steps", samples=10, energy=True).measurement
    assert "no energy: it would be that of the work between the steps, too" in measurement.note
