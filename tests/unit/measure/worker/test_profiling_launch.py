"""The process of a profiling session: it launches each case of a folder once inside the profiler's range."""

import contextlib
import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.device.find import find
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.worker import profiling_launch
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    Call,
    Case,
    HostMetric,
    Kind,
    Launch,
    Memset,
    ReplayRecord,
    Role,
    ScalarArg,
    Unit,
    digest,
)

SOURCE = """
extern "C" __global__ void quick(float* out, const float* a, int n) {
  if (threadIdx.x < n) out[threadIdx.x] += a[threadIdx.x];
}
extern "C" __global__ void slow(float* out, const float* a, int n) {
  float sum = 0;
  for (int turn = 0; turn < 4000; ++turn)
    for (int i = 0; i < n; ++i) sum += a[i] * turn;
  if (threadIdx.x == 0) out[0] = sum;
}
"""
COUNT = 64


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A binary of the CPU device with two kernels, one of which takes much longer."""
    (cpu,) = find(["cpu"])
    source = tmp_path_factory.mktemp("source") / "two.cu"
    source.write_text(SOURCE)
    unit = Unit(source, ("quick", "slow"))
    built = compile_all([unit], toolchain_for(cpu.target), Cache(tmp_path_factory.mktemp("cache")))[unit]
    assert isinstance(built, Binary), built
    return built.code


@pytest.fixture
def record(code):
    floats = {name: Array(name, "float32", (COUNT,)) for name in ("a", "out")}
    args = (BufferArg("out"), BufferArg("a"), ScalarArg("n", "int32", COUNT))
    launches = [Launch(0, entry, (1, 1, 1), (COUNT, 1, 1), args) for entry in ("quick", "slow", "quick")]
    return ReplayRecord(
        Case("two", "kernels"),
        Kind.KERNEL,
        (Buffer(floats["a"], Role.INPUT), Buffer(floats["out"], Role.OUTPUT)),
        (Memset("out"), *launches),
        (digest(code),),
        "",
        seed=1,
    )


@pytest.fixture
def session(tmp_path, record, code):
    """Return a function that writes the folder of a session on the CPU device: a launch for each set of changes."""
    (cpu,) = find(["cpu"])

    def written(*launches, limit_s=60.0):
        profiling_folder.begin(tmp_path, cpu, b"", limit_s)
        for number, changed in enumerate(launches):
            launch = changed.pop("launch", None)
            add(tmp_path, number, replace(record, **changed), code, launch)
        profiling_folder.end(tmp_path)
        return tmp_path

    return written


def add(folder, number, record, code, launch=None):
    locations = profiling_folder.prepare(folder, [code], {"a": np.arange(COUNT, dtype=np.float32)})
    request = profiling_folder.ProfilingLaunch(record, f"launch {number}", locations, launch)
    profiling_folder.add(folder, number, request)


def reported(folder, number=0):
    """Return the launch that a report names, and its kernel."""
    report = profiling_folder.read_report(folder, number)
    assert report.what == ""
    return report.launch, report.kernel


@pytest.fixture
def ranged(monkeypatch):
    """Record what happens inside the NVTX range: its name and domain, then the launches."""
    seen, inside = [], []

    @contextlib.contextmanager
    def annotate(name, domain):
        seen.append((name, domain))
        inside.append(True)
        yield
        inside.pop()

    launch = profiling_launch.open_device

    def opened(*given):
        device = launch(*given)
        launches = device.launch

        def spied(module, step, args):
            if inside:
                seen.append(step.entry)
            launches(module, step, args)

        device.launch = spied
        return device

    monkeypatch.setattr(profiling_launch.nvtx, "annotate", annotate)
    monkeypatch.setattr(profiling_launch, "open_device", opened)
    return seen


IN_RANGE = [("measure", "perfsvc"), ("launch 0", "perfsvc")]


def test_an_only_launch_runs_once(session, ranged, record, monkeypatch):
    monkeypatch.setattr(profiling_launch._Steps, "longest_launch", None)
    folder = session({"steps": (record.steps[2],)})
    assert profiling_launch.main(folder) == 0
    assert ranged == [*IN_RANGE, "slow"]


def test_each_launch_of_a_session_has_a_range_of_its_own_with_the_requested_kernel_or_else_the_longest(session, ranged):
    folder = session({"launch": 0}, {"launch": 2}, {})
    assert profiling_launch.main(folder) == 0
    kernels = ["quick", "quick", "slow"]
    names = [(IN_RANGE[0], (f"launch {number}", "perfsvc")) for number in range(3)]
    assert ranged == [each for range_, kernel in zip(names, kernels, strict=True) for each in (*range_, kernel)]
    assert [reported(folder, number) for number in range(3)] == [(0, "quick"), (2, "quick"), (1, "slow")]
    assert profiling_folder.read_report(folder, 2).wall_s > 0


def test_all_launches_of_a_graph_are_inside_the_ranges_once(session, ranged):
    folder = session({"graph": "replay"}, {"graph": "cold steps", "launch": 1})
    assert profiling_launch.main(folder) == 0
    second = [IN_RANGE[0], ("launch 1", "perfsvc")]
    assert ranged == [*IN_RANGE, "quick", "slow", "quick", *second, "quick", "slow", "quick"]
    assert [reported(folder, number) for number in range(2)] == [(0, ""), (0, "")]


def test_every_run_begins_from_the_inputs(session, monkeypatch):
    folder = session({"launch": 0})
    results = []
    within = profiling_launch._Steps.run_in_range

    def then_read(self, chosen):
        self.longest_launch()
        within(self, chosen)
        results.append(self._memory.read("out"))

    monkeypatch.setattr(profiling_launch._Steps, "run_in_range", then_read)
    assert profiling_launch.main(folder) == 0
    assert results[0][1:].tolist() == (2 * np.arange(COUNT))[1:].tolist()


def started(folder):
    environment = {
        name: value for name, value in profiling_folder.environment().items() if name != "CUDA_VISIBLE_DEVICES"
    }
    return subprocess.Popen(
        profiling_folder.command(folder), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_launches_are_added_while_the_process_runs(tmp_path, record, code):
    (cpu,) = find(["cpu"])
    profiling_folder.begin(tmp_path, cpu, b"", 60.0)
    with started(tmp_path) as process:
        for number in range(2):
            assert profiling_folder.started(tmp_path, number) is None
            add(tmp_path, number, record, code)
            until = time.monotonic() + 60
            while profiling_folder.read_report(tmp_path, number) is None and time.monotonic() < until:
                time.sleep(0.01)
            assert reported(tmp_path, number) == (1, "slow")
            assert time.time() - 60 < profiling_folder.started(tmp_path, number) <= time.time()
        assert process.poll() is None
        profiling_folder.end(tmp_path)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    assert Path(profiling_folder.command(tmp_path)[0]).is_absolute()


def test_the_process_ends_when_its_parent_is_gone(tmp_path):
    (cpu,) = find(["cpu"])
    with subprocess.Popen(["true"]) as gone:
        pass
    with mock.patch("os.getpid", return_value=gone.pid):
        profiling_folder.begin(tmp_path, cpu, b"", 60.0)
    with started(tmp_path) as process:
        assert process.wait(timeout=60) == 0


@pytest.mark.slow
def test_a_launch_past_its_time_limit_ends_the_process_without_a_report(tmp_path, record):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"cases": {"*": {"fault": "hang"}}}))
    (fake,) = find([f"fake:{script}"])
    folder = tmp_path / "session"
    folder.mkdir()
    profiling_folder.begin(folder, fake, b"", 0.3)
    add(folder, 0, record, b"")
    began = time.monotonic()
    with started(folder) as process:
        assert process.wait(timeout=60) == 1
    assert time.monotonic() - began < 30
    assert profiling_folder.started(folder, 0) is not None
    assert profiling_folder.read_report(folder, 0) is None


def test_steps_that_are_no_part_of_a_sample_are_omitted(session, record):
    folder = session({"steps": (*record.steps, Call("look", timed=False), HostMetric("cost", "sum", "out"))})
    assert profiling_folder.read(folder / "0").launch.record.steps == record.steps


def test_a_case_without_inputs_has_none(tmp_path, record, code):
    (cpu,) = find(["cpu"])
    profiling_folder.begin(tmp_path, cpu, b"ours", 60.0)
    locations = profiling_folder.prepare(tmp_path, [code], {})
    profiling_folder.add(tmp_path, 0, profiling_folder.ProfilingLaunch(record, "launch", locations))
    loaded = profiling_folder.read(tmp_path / "0")
    assert (loaded.inputs, loaded.modules) == ({}, (code,))
    assert profiling_folder.read_session(tmp_path)[1] == b"ours"


def test_inputs_of_a_launch_that_has_ended_are_deleted(session):
    folder = session({}, {})
    profiling_folder.drop_inputs(folder, 0)
    profiling_folder.drop_inputs(folder, 0)
    assert [(folder / number / profiling_folder.ARRAYS).exists() for number in ("0", "1")] == [False, True]


def test_the_process_sees_only_its_gpu(tmp_path):
    (cpu,) = find(["cpu"])
    gpu = replace(cpu, kind="cuda", uuid="GPU-1", spec="cuda:GPU-1")
    profiling_folder.begin(tmp_path, gpu, b"", 60.0)
    session, _ = profiling_folder.read_session(tmp_path)
    assert (session.visible, session.device) == ("GPU-1", "cuda:GPU-1")


def test_a_case_that_fails_costs_only_its_own_report(session, record):
    missing = replace(record.steps[1], entry="missing")
    folder = session({"steps": (Memset("out"),)}, {"steps": (missing,)}, {})
    assert profiling_launch.main(folder) == 0
    assert profiling_folder.read_report(folder, 0).what == "two/kernels launches no kernel"
    failed = profiling_folder.read_report(folder, 1)
    assert "missing" in failed.what
    assert failed.launch is None
    assert reported(folder, 2) == (1, "slow")


def test_an_error_that_ends_the_context_ends_the_session(session, monkeypatch):
    folder = session({}, {})

    def lost(*_):
        raise LaunchError("illegal address", cure="sanitize", fatal=True)

    monkeypatch.setattr(profiling_launch, "_launch", lost)
    assert profiling_launch.main(folder) == LaunchError.exit_code
    assert profiling_folder.read_report(folder, 0).what == "illegal address"
    assert profiling_folder.read_report(folder, 1) is None


def test_a_device_that_cannot_be_opened_is_reported_for_the_whole_session(session, monkeypatch):
    folder = session({})

    def missing(*_):
        raise NoDeviceError("the GPU is gone", cure="look")

    monkeypatch.setattr(profiling_launch, "open_device", missing)
    assert profiling_launch.main(folder) == NoDeviceError.exit_code
    report = profiling_folder.read_report(folder)
    assert (report.what, report.cure) == ("the GPU is gone", "look")


def test_a_process_that_ended_early_has_no_report(tmp_path):
    assert profiling_folder.read_report(tmp_path) is None
    assert profiling_folder.read_report(tmp_path, 0) is None
