"""Measuring one case: check, sample, check again."""

import statistics
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from perfsvc.device.cpu import CpuDevice
from perfsvc.errors import LaunchError
from perfsvc.measure.protocol.messages import CaseJob, CheckedResult, Sampling
from perfsvc.measure.worker import main as measuring
from perfsvc.measure.worker.main import measure
from perfsvc.measure.worker.memory import DeviceArrayCache
from perfsvc.measure.worker.sampling import auxiliary
from perfsvc.model import (
    Array,
    Batch,
    Buffer,
    BufferArg,
    CacheState,
    Call,
    Case,
    Conditions,
    Error,
    HostFinish,
    HostMetric,
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

BUFFERS = (Buffer(Array("a", "float32", (4,)), Role.INPUT), Buffer(Array("out", "float32", (4,)), Role.OUTPUT))
EXPECTED = {"out": 2.0 * INPUTS["a"].astype(np.float64)}
DOUBLE = Launch(0, "double", (1, 1, 1), (32, 1, 1), (BufferArg("out"), BufferArg("a")))


class Doubling(OnHost):
    """Doubles ``a`` into ``out``; from launch ``spoiled`` on it does something else or raises an error."""

    def __init__(self, spoiled=10**9, does=None):
        super().__init__()
        self.spoiled, self.does = spoiled, does
        self.launches, self.downloads, self.timed = 0, 0, []

    def launch(self, module, launch, args):
        self.launches += 1
        out, a = (self.view(int(arg), "float32", (4,)) for arg in args)
        if self.launches >= self.spoiled:
            self.does(out)
        else:
            out[...] = 2 * a

    def download(self, address, out):
        self.downloads += 1
        super().download(address, out)

    def uses_other_streams(self, sample, seconds, watched):
        self.patience_s = seconds
        return False

    def now(self):
        return 1e-3 * sum(count for *_, count in self.timed)

    def batch(self, sample, count, *, clock, evict_bytes, blocked, before=None, restore=None, seconds=None):
        downloads = self.downloads
        sample()
        self.timed.append((clock, blocked, evict_bytes, self.downloads - downloads, count))
        taken = sum(count for *_, count in self.timed)
        samples_s = tuple(1e-3 * (1 + 1e-3 * (number % 7) ** 2) for number in range(taken - count, taken))
        return Batch(samples_s, blocked, blocked or None, busy_s=count * 2e-3, conditions=Conditions(sm_clock_hz=1e9))


def job(*steps, kind=Kind.KERNEL, cache=CacheState.COLD, bench="", buffers=BUFFERS, checked=None):
    record = ReplayRecord(Case("double", "plain"), kind, buffers, steps or (DOUBLE,), ("1",), "", seed=0)
    sampling = Sampling(samples=20, least=10, precision=1e-9)
    return CaseJob(
        record, 2, cache, Tolerance(1e-6, 1e-7), sampling, "double", ArrayLayout(), bench=bench, checked=checked
    )


def measured(device, case_job, expected=EXPECTED):
    return measure(device, case_job, [b""], Given(expected), DeviceArrayCache(device, 0))


def test_a_right_case_has_samples_by_the_clock_of_its_kind_in_its_cache_state():
    table = {
        (Kind.KERNEL, CacheState.COLD): ("device", True, 200),
        (Kind.KERNEL, CacheState.WARM): ("device", True, 0),
        (Kind.PIPELINE, CacheState.COLD): ("host", False, 200),
        (Kind.PIPELINE, CacheState.WARM): ("host", False, 0),
    }
    for (kind, cache), timed in table.items():
        device = Doubling()
        result = measured(device, job(kind=kind, cache=cache))
        measurement = result.measurement
        assert result.usable
        assert (measurement.status, measurement.cache) == (Status.OK, cache)
        assert (measurement.replica, measurement.device) == (2, "FAKE-1")
        assert (measurement.max_error, measurement.mean_error) == (0, 0)
        assert {tuple(each[:3]) for each in device.timed} == {timed}


def test_the_measurement_has_everything_that_sampling_returns():
    device = Doubling()
    result = measured(device, job()).measurement
    taken = sum(count for *_, count in device.timed)
    assert result.stopped == "sample cap of 20"
    assert len(result.samples_s) == 20
    assert result.samples_s == tuple(seconds for batch in result.batches for seconds in batch.samples_s)
    assert result.warmup == taken - 20 > 0
    assert result.busy_s == pytest.approx(2e-3 * taken)
    assert result.metrics == {"sm_cycles": pytest.approx(1e9 * statistics.median(result.samples_s))}


def test_the_times_of_a_case_its_checks_and_its_sampling_are_separate(monkeypatch):
    class Ticking(Doubling):
        passed = 0.0

        def launch(self, module, launch, args):
            self.passed += 1.0
            super().launch(module, launch, args)

        def load(self, code):
            self.passed += 0.25
            return code

    device = Ticking()
    monkeypatch.setattr(measuring.time, "monotonic", lambda: device.passed)
    result = measured(device, job()).measurement
    assert result.check_s == 2.0
    assert result.sampling_s == len(device.timed)
    assert result.wall_s == 0.25 + result.check_s + result.sampling_s


def test_a_pipeline_is_timed_with_its_host_steps_and_a_kernel_without():
    total = Buffer(Array("total", "float32", (1,)), Role.OUTPUT)
    steps = (DOUBLE, HostFinish("sum", "out", "total"))
    downloads = {}
    for kind in (Kind.KERNEL, Kind.PIPELINE):
        device = Doubling()
        case_job = job(*steps, kind=kind, buffers=(*BUFFERS, total))
        result = measured(device, case_job, {**EXPECTED, "total": np.array([20.0])})
        assert (result.measurement.status, result.measurement.reason) == (Status.OK, "")
        (downloads[kind],) = {each[3] for each in device.timed}
    assert downloads == {Kind.KERNEL: 0, Kind.PIPELINE: 1}


@pytest.mark.parametrize("kind", [Kind.KERNEL, Kind.PIPELINE])
def test_a_metric_is_read_once_after_the_last_sample(kind):
    class Counting(Doubling):
        def launch(self, module, launch, args):
            super().launch(module, launch, args[:2])
            self.view(int(args[2]), "int64", (2,))[...] = 0, self.launches

    count = Buffer(Array("count", "int64", (2,)), Role.SCRATCH)
    launch = replace(DOUBLE, args=(*DOUBLE.args, BufferArg("count")))
    device, steps = Counting(), (launch, HostMetric("launches", "sum", "count"))
    case_job = job(*steps, kind=kind, buffers=(*BUFFERS, count))
    result = measured(device, case_job).measurement
    assert (result.status, result.reason) == (Status.OK, "")
    assert result.metrics["launches"] == device.launches - 1  # all but the check after timing
    assert {each[3] for each in device.timed} == {0}
    assert set(result.metrics) == {"launches", "sm_cycles"}


class Adding(CpuDevice):
    """Adds 1 to ``a`` in place, and keeps what each launch found there."""

    def __init__(self):
        super().__init__()
        self.found = []

    def load(self, code):
        return code

    def launch(self, module, launch, args):
        a = self.view(int(args[0]), "float32", (4,))
        self.found.append(a.tolist())
        a += 1
        sum(range(1000))


@pytest.mark.parametrize(
    ("kind", "graph"),
    [(Kind.KERNEL, ""), (Kind.KERNEL, "replay"), (Kind.KERNEL, "cold steps"), (Kind.PIPELINE, "")],
)
def test_each_sample_finds_the_arrays_that_the_case_changes_in_place_as_they_were(monkeypatch, kind, graph):
    steps = (Launch(0, "add", (1, 1, 1), (1, 1, 1), (BufferArg("a"),)), Call("add"))
    found_by_steps = [[1, 2, 3, 4], [2, 3, 4, 5]]

    def add(arrays, stream):
        device.launch(b"", None, [arrays["a"].ctypes.data])

    monkeypatch.setattr(measuring, "functions_of", lambda *_: {(None, "add"): add})
    monkeypatch.setattr(measuring, "_python_code", lambda *_: (None, {}, ""))
    for cache, places in ((CacheState.COLD, 1), (CacheState.WARM, 8)):
        device = Adding()
        asked = job(*steps, kind=kind, cache=cache, buffers=(Buffer(BUFFERS[0].array, Role.INOUT),))
        record = replace(asked.record, graph=graph)
        asked = replace(asked, record=record, sampling=replace(asked.sampling, places=places, energy=True))
        measurement = measured(device, asked, {"a": INPUTS["a"].astype(np.float64) + 2}).measurement
        device.close()
        assert (measurement.status, measurement.reason) == (Status.OK, "")
        assert len(measurement.samples_s) == 20
        assert len(device.found) > 2 * 20
        assert device.found == found_by_steps * (len(device.found) // 2)


def test_a_checked_result_is_returned_and_accepted_again():
    checked = measured(Doubling(), job()).checked
    assert checked.error == Error(0, 0)
    device = Doubling()
    again = measured(device, job(checked=CheckedResult(checked.digests, Error(1e-7, 1e-8)))).measurement
    assert (again.max_error, again.mean_error, device.downloads) == (1e-7, 1e-8, 0)


def zero(out):
    out[...] = 0


def refuse(out):
    raise LaunchError("refused", cure="use fewer threads")


def lose(out):
    raise LaunchError("illegal address", fatal=True)


def test_an_error_before_or_after_timing_becomes_the_measurement():
    right = Doubling()
    measured(right, job())
    table = [
        (zero, Status.WRONG, "wrong result: out[2] is 0, the reference says 6", True),
        (lambda out: None, Status.WRONG, "wrong result: out[0] is nan", True),
        (refuse, Status.FAILED, "refused", True),
        (lose, Status.FAILED, "illegal address", False),
    ]
    for (does, status, reason, usable), launch in product(table, (1, right.launches)):  # the first and the last
        result = measured(Doubling(launch, does), job())
        assert (result.measurement.status, result.usable) == (status, usable)
        assert reason in result.measurement.reason
        assert result.measurement.samples_s == ()


BENCH = """
def report(arrays, stream):
    arrays["out"][...] = 2 * arrays["a"]
    return {value}
"""


def reported(value):
    case_job = job(Call("report"), kind=Kind.HOST, bench=BENCH.format(value=value))
    return measured(Doubling(), case_job).measurement


def test_a_host_variant_has_metrics_and_no_samples():
    result = reported('{"latency_s": 2, "overlap": 0.5}')
    assert (result.status, result.samples_s, result.max_error) == (Status.OK, (), 0)
    assert result.metrics == {"latency_s": 2.0, "overlap": 0.5}


def test_a_host_variant_has_returned_metrics_and_metrics_read_from_its_buffers():
    steps = (Call("report"), HostMetric("largest", "max", "out"))
    result = measured(Doubling(), job(*steps, kind=Kind.HOST, bench=BENCH.format(value='{"latency_s": 2}'))).measurement
    assert result.metrics == {"latency_s": 2.0, "largest": 8.0}


def test_metrics_that_are_not_finite_numbers_fail_the_case():
    for value in ("None", "{}", "3", '{"a": float("nan")}', '{"a": "quick"}', '{"a": None}'):
        result = reported(value)
        assert result.status is Status.FAILED
        assert "returned no usable metrics" in result.reason
        assert result.cure


def test_a_metric_that_cannot_have_its_name_fails_the_case():
    for name in ("", "a\\0b", "\\x1b[31m", "x" * 201, "time", "energy_j", "max_error"):
        result = reported(f'{{"{name}": 1.0}}')
        assert result.status is Status.FAILED
        assert "a host variant returned an unusable metric: the metric" in result.reason
        assert result.cure == "rename the metric"


def test_a_benchmark_file_that_cannot_be_read_fails_the_case_and_keeps_the_device():
    table = {"": "no function 'report'", "1 / 0": "raised ZeroDivisionError", "import no_such": "no module 'no_such'"}
    for bench, reason in table.items():
        result = measured(Doubling(), job(Memset("out"), Call("report"), bench=bench))
        assert (result.measurement.status, result.usable) == (Status.FAILED, True)
        assert reason in result.measurement.reason
        assert result.measurement.cure


def test_the_registers_metric_is_the_largest_of_all_kernels(monkeypatch):
    monkeypatch.setattr(auxiliary.elf, "kernel_registers", lambda code: {"double": 16, "other": 40, "idle": 64})
    record = ReplayRecord(Case("double", "naive"), Kind.KERNEL, (), (DOUBLE, replace(DOUBLE, entry="other")), (), "", 0)
    assert auxiliary.registers(record, [b"cubin"]) == {"registers": 40}
    assert auxiliary.registers(replace(record, steps=(replace(DOUBLE, entry="unknown"),)), [b"cubin"]) == {}
    monkeypatch.undo()
    assert auxiliary.registers(record, [b"no cubin"]) == {}


# --- places ----------------------------------------------------------------------------------------------------------


class Shifting(Doubling):
    """Takes twice the time if the distance of its two arrays is not that of the first launch."""

    first = None
    factor = 1.0
    distances = ()

    def launch(self, module, launch, args):
        distance = int(args[0]) - int(args[1])
        self.first = self.first or distance
        self.factor = 1.0 if distance == self.first else 2.0
        self.distances = (*self.distances, distance)
        super().launch(module, launch, args)

    def batch(self, sample, count, *, clock, evict_bytes, blocked, before=None, restore=None, seconds=None):
        samples_s = []
        for number in range(count):
            if before:
                before(number)
            sample()
            samples_s.append(1e-3 * self.factor)
        return Batch(tuple(samples_s), blocked, blocked or None, busy_s=count * 2e-3)

    def now(self):
        return 0.0


def spread_over(places, *steps, **options):
    asked = job(*steps, **options)
    return replace(asked, sampling=replace(asked.sampling, samples=64, least=64, places=places))


def test_the_level_of_a_case_is_the_mean_over_eight_places_of_its_arrays():
    device = Shifting()
    measurement = measured(device, spread_over(8)).measurement
    assert measurement.status is Status.OK
    assert measurement.places_s == pytest.approx([1e-3, *[2e-3] * 7])
    assert statistics.median(measurement.samples_s) == pytest.approx(statistics.mean(measurement.places_s))
    assert len(measurement.samples_s) == 64
    assert len(set(device.distances)) == 8


def test_with_one_place_the_arrays_stay_where_they_are():
    device = Shifting()
    measurement = measured(device, spread_over(1)).measurement
    assert measurement.places_s == pytest.approx([1e-3])
    assert len(set(device.distances)) == 1
    assert not measurement.note


def test_a_wrong_result_at_the_last_place_is_found():
    device = Shifting(spoiled=2 + 11 + 64, does=lambda out: out.fill(0))
    assert measured(device, spread_over(8)).measurement.status is Status.WRONG


@pytest.mark.parametrize(("places", "named"), [(8, True), (1, False)])
def test_a_function_that_keeps_the_first_addresses_is_named_as_the_likely_cause(monkeypatch, places, named):
    calls = []

    def keeping(arrays, stream):
        calls.append(arrays)
        if places > 1 or len(calls) < 64:
            calls[0]["out"][...] = 2 * calls[0]["a"]

    monkeypatch.setattr(measuring, "functions_of", lambda *_: {(None, "keeping"): keeping})
    measurement = measured(Shifting(), spread_over(places, Call("keeping"))).measurement
    assert measurement.status is Status.WRONG
    assert ("the result was right before its arrays moved" in measurement.reason) is named
    assert ("or measure at one place with --places 1" in measurement.cure) is named


def test_arrays_stay_at_one_place_if_a_function_that_is_not_timed_may_keep_their_addresses(monkeypatch):
    monkeypatch.setattr(measuring, "functions_of", lambda *_: {(None, "prepare"): lambda *_: None})
    asked = spread_over(8, Call("prepare", timed=False), DOUBLE)
    measurement = measured(Shifting(), asked).measurement
    assert measurement.status is Status.OK
    assert len(measurement.places_s) == 1
    note = "its arrays stayed at one place: a Python function that is called before timing may keep their addresses"
    assert note in measurement.note


def test_arrays_stay_at_one_place_if_the_device_cannot_keep_a_copy_of_the_inputs():
    device = Shifting()
    device.queue_depth = 1000
    measurement = measured(device, spread_over(8)).measurement
    assert (measurement.status, len(measurement.places_s)) == (Status.OK, 1)
    assert "the device keeps no copy of 16 bytes of inputs" in measurement.note
