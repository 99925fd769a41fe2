"""One case on one device: check, sample, check again."""

from contextlib import nullcontext

import numpy as np
import pytest

from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError
from perfsvc.measure.case import measure
from perfsvc.measure.job import Job
from perfsvc.measure.sampler import Sampling
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    Call,
    Case,
    DeviceInfo,
    HostFinish,
    Kind,
    Launch,
    Memset,
    Mode,
    ReplayRecord,
    Role,
    Status,
    Tolerance,
)

BUFFERS = (Buffer(Array("a", "float32", (4,)), Role.INPUT), Buffer(Array("out", "float32", (4,)), Role.OUTPUT))
INPUTS = {"a": np.array([1, 2, 3, 4], np.float32)}
EXPECTED = {"out": 2.0 * INPUTS["a"].astype(np.float64)}
DOUBLE = Launch(0, "double", (1, 1, 1), (32, 1, 1), (BufferArg("out"), BufferArg("a")))


class Doubling(HostMemory):
    """Doubles ``a`` into ``out``; from launch ``spoiled`` on it does something else, or raises it."""

    stream = 0
    info = DeviceInfo("fake", "fake:", "FAKE-1", "Fake GPU", "fake")

    def __init__(self, spoiled=10**9, does=None):
        super().__init__()
        self.spoiled, self.does = spoiled, does
        self.launches, self.timed = 0, []

    def measuring(self, record, replica, expected):
        return nullcontext()

    def load(self, code):
        return code

    def launch(self, module, launch, args):
        self.launches += 1
        out, a = (self.view(int(arg), "float32", (4,)) for arg in args)
        if self.launches >= self.spoiled:
            self.does(out)
        else:
            out[...] = 2 * a

    def synchronize(self):
        pass

    def time(self, sample, count, *, clock, cold):
        sample()
        self.timed += [(clock, cold)] * count
        return [1e-3] * count


def job(*steps, kind=Kind.KERNEL, mode=Mode.COLD, bench="", buffers=BUFFERS):
    record = ReplayRecord(Case("double", "plain"), kind, buffers, steps or (DOUBLE,), ("1",), "", seed=0)
    return Job(record, 2, mode, Tolerance(1e-6, 1e-7), Sampling(1, 5, 1.0), (), (), bench)


def measured(device, one, expected=EXPECTED):
    return measure(device, one, [b""], INPUTS, expected)


@pytest.mark.parametrize(
    ("kind", "mode", "clock", "cold"),
    [
        (Kind.KERNEL, Mode.COLD, "device", True),
        (Kind.KERNEL, Mode.WARM, "device", False),
        (Kind.PIPELINE, Mode.COLD, "host", True),
    ],
)
def test_a_right_case_has_samples_on_the_clock_of_its_kind(kind, mode, clock, cold):
    device = Doubling()
    found = measured(device, job(kind=kind, mode=mode))
    measurement = found.measurement
    assert found.usable
    assert (measurement.status, measurement.replica, measurement.device) == (Status.OK, 2, "FAKE-1")
    assert measurement.samples_s == (1e-3,) * 5
    assert measurement.stopped == "sample cap of 5"
    assert (measurement.max_error, measurement.mean_error) == (0, 0)
    assert set(device.timed) == {(clock, cold)}


def test_a_pipeline_is_timed_with_its_host_steps_and_a_kernel_without():
    total = Buffer(Array("total", "float32", (1,)), Role.OUTPUT)
    steps = (DOUBLE, HostFinish("sum", "out", "total"))
    seen = {}

    class Watching(Doubling):
        def time(self, sample, count, *, clock, cold):
            before = self.downloads
            times = super().time(sample, count, clock=clock, cold=cold)
            seen[clock] = self.downloads - before
            return times

        downloads = 0

        def download(self, address, out):
            self.downloads += 1
            super().download(address, out)

    for kind in (Kind.KERNEL, Kind.PIPELINE):
        one = job(*steps, kind=kind, buffers=(*BUFFERS, total))
        found = measured(Watching(), one, {**EXPECTED, "total": np.array([20.0])})
        assert (found.measurement.status, found.measurement.reason) == (Status.OK, "")
    assert seen == {"device": 0, "host": 1}


def zero(out):
    out[...] = 0


def refuse(out):
    raise LaunchError("refused", cure="use fewer threads")


def lose(out):
    raise LaunchError("illegal address", fatal=True)


@pytest.mark.parametrize(
    ("does", "status", "reason", "usable"),
    [
        (zero, Status.WRONG, "wrong result: out[2] is 0, the reference says 6", True),
        (lambda out: None, Status.WRONG, "wrong result: out[0] is nan", True),
        (refuse, Status.FAILED, "refused", True),
        (lose, Status.FAILED, "illegal address", False),
    ],
)
@pytest.mark.parametrize("launch", ["the first", "the last"])
def test_what_goes_wrong_before_or_after_timing_becomes_the_measurement(does, status, reason, usable, launch):
    right = Doubling()
    measured(right, job())
    found = measured(Doubling(1 if launch == "the first" else right.launches, does), job())
    assert (found.measurement.status, found.usable) == (status, usable)
    assert reason in found.measurement.reason
    assert found.measurement.samples_s == ()


def test_a_case_without_a_reference_is_timed_and_not_judged_by_its_result():
    found = measured(Doubling(1, zero), job(), {}).measurement
    assert (found.status, found.max_error, len(found.samples_s)) == (Status.OK, None, 5)


BENCH = """
def report(arrays, stream):
    arrays["out"][...] = 2 * arrays["a"]
    return {value}
"""


def reported(value):
    one = job(Call("report"), kind=Kind.HOST, bench=BENCH.format(value=value))
    return measured(Doubling(), one).measurement


def test_a_host_variant_has_metrics_and_no_samples():
    found = reported('{"latency_s": 2, "overlap": 0.5}')
    assert (found.status, found.samples_s, found.max_error) == (Status.OK, (), 0)
    assert found.metrics == {"latency_s": 2.0, "overlap": 0.5}


@pytest.mark.parametrize("value", ["None", "{}", "3", '{"a": float("nan")}', '{"a": "quick"}', '{"a": None}'])
def test_metrics_that_are_no_finite_numbers_fail_the_case(value):
    found = reported(value)
    assert found.status is Status.FAILED
    assert "returned no usable metrics" in found.reason
    assert found.cure


@pytest.mark.parametrize(
    ("bench", "reason"),
    [("", "no function 'report'"), ("1 / 0", "raised ZeroDivisionError"), ("import no_such", "no module 'no_such'")],
)
def test_a_benchmark_file_that_cannot_be_read_fails_the_case_and_keeps_the_device(bench, reason):
    found = measured(Doubling(), job(Memset("out"), Call("report"), bench=bench))
    assert (found.measurement.status, found.usable) == (Status.FAILED, True)
    assert reason in found.measurement.reason
    assert found.measurement.cure
