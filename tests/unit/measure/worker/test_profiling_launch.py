"""The profiling launch: it reads a folder and launches a case once inside the profiler's range."""

import contextlib
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.device.find import find
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
  for (int turn = 0; turn < 20000; ++turn)
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
def write(tmp_path, record, code):
    """Write the folder of a profiling launch on the CPU device."""
    (cpu,) = find(["cpu"])

    def written(**changed):
        given = {"launch": changed.pop("launch", None)}
        inputs = {"a": np.arange(COUNT, dtype=np.float32)}
        profiling_folder.write(
            tmp_path, replace(record, **changed), cpu, modules=[code], helper_kernels=b"", inputs=inputs, **given
        )
        return tmp_path

    return written


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


def test_only_the_longest_launch_is_inside_the_range(write, ranged):
    folder = write()
    assert profiling_launch.main(folder) == 0
    assert ranged == [("measure", "perfsvc"), "slow"]
    assert profiling_folder.read_report(folder) == profiling_folder.LaunchReport(launch=1, kernel="slow")


def test_only_the_requested_launch_is_inside_the_range(write, ranged):
    folder = write(launch=2)
    assert profiling_launch.main(folder) == 0
    assert ranged == [("measure", "perfsvc"), "quick"]
    assert profiling_folder.read_report(folder) == profiling_folder.LaunchReport(launch=2, kernel="quick")


def test_every_run_begins_from_the_inputs(write, monkeypatch, code):
    folder = write(launch=0)
    results = []
    within = profiling_launch._Steps.run_in_range

    def then_read(self, chosen):
        self.longest_launch()
        within(self, chosen)
        results.append(self._memory.read("out"))

    monkeypatch.setattr(profiling_launch._Steps, "run_in_range", then_read)
    assert profiling_launch.main(folder) == 0
    assert results[0][1:].tolist() == (2 * np.arange(COUNT))[1:].tolist()


def test_the_process_needs_only_the_folder(write):
    folder = write()
    environment = {
        name: value for name, value in profiling_folder.environment().items() if name != "CUDA_VISIBLE_DEVICES"
    }
    ended = subprocess.run(
        profiling_folder.command(folder), env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert profiling_folder.read_report(folder).kernel == "slow"
    assert Path(profiling_folder.command(folder)[0]).is_absolute()


def test_steps_that_are_no_part_of_a_sample_are_omitted(write, record):
    folder = write(steps=(*record.steps, Call("look", timed=False), HostMetric("cost", "sum", "out")))
    assert profiling_folder.read(folder).launch.record.steps == record.steps


def test_a_case_without_inputs_has_none(tmp_path, record, code):
    (cpu,) = find(["cpu"])
    profiling_folder.write(tmp_path, record, cpu, modules=[code], helper_kernels=b"ours", inputs={})
    loaded = profiling_folder.read(tmp_path)
    assert (loaded.inputs, loaded.helper_kernels, loaded.modules) == ({}, b"ours", (code,))


def test_the_process_sees_only_its_gpu(tmp_path, record, code):
    (cpu,) = find(["cpu"])
    gpu = replace(cpu, kind="cuda", uuid="GPU-1", spec="cuda:GPU-1")
    profiling_folder.write(tmp_path, record, gpu, modules=[code], helper_kernels=b"", inputs={})
    assert (profiling_folder.read(tmp_path).launch.visible, profiling_folder.read(tmp_path).launch.device) == (
        "GPU-1",
        "cuda:GPU-1",
    )


def test_a_case_without_launches_is_reported(write):
    folder = write(steps=(Memset("out"),))
    assert profiling_launch.main(folder) == 4
    assert profiling_folder.read_report(folder).what == "two/kernels launches no kernel"


def test_an_error_of_the_device_is_reported_with_its_cure(write, record):
    entry = replace(record.steps[1], entry="missing")
    folder = write(steps=(entry,))
    assert profiling_launch.main(folder) != 0
    report = profiling_folder.read_report(folder)
    assert "missing" in report.what
    assert report.launch is None


def test_a_process_that_ended_early_has_no_report(tmp_path):
    assert profiling_folder.read_report(tmp_path) is None
