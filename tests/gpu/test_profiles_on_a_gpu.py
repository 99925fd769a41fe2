"""Nsight Compute on a real GPU: what it counts of a case, and why a planted regression is slower."""

import json
import shutil
from pathlib import Path

import pytest

from perfsvc.errors import MissingPackageError, NoProfilerError, PerfsvcError
from perfsvc.model import Case, Profile, ProfileResult
from perfsvc.profile import reports
from perfsvc.profile.commands import NcuProfiler, find_program
from perfsvc.profile.explain import explain
from perfsvc.service.profile.case_profiler import CaseProfiler, ProfilerSettings, ProfilingTask, subject_of
from perfsvc.store import Store
from tests.gpu import commands

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TRANSPOSE = "transpose/tiled-TILE32-PAD1[n=4096]"
TWO_KERNELS = "dot/two_kernels[n=1048576]"
LETHAL = Path(__file__).parent / "suites" / "lethal"
NOT_COUNTED = {f"{name}_peak_flops_per_s" for name in ("fp64_tensor", "tf32", "bf16", "fp16", "fp8")}
"""The metrics that the sections of perfsvc do not count, because no reason reads them."""
SLOWER = {"H100": (1.5, 2.3), "H200": (1.9, 3.1)}
"""How many times slower the transpose is without padding, by model: the more, the faster the memory is."""
SLEEPER = """
extern "C" __global__ void sleeper(float* out, const float* a, int n) {
    unsigned long long now, begin;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < 30000000000ull);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i];
}
"""
"""A kernel that takes half a minute: it hangs for a profiler that waits for ten seconds."""


@pytest.fixture(scope="module")
def ncu():
    try:
        return NcuProfiler()
    except (NoProfilerError, MissingPackageError) as error:
        pytest.skip(error.what)


@pytest.fixture
def suite(tmp_path):
    """Two benchmarks in a folder of the test, outside any checkout."""
    for name in ("transpose", "dot"):
        shutil.copytree(ROOT / "kernels" / name, tmp_path / "suite" / name)
    return tmp_path / "suite"


@pytest.fixture
def perfsvc(gpus, tmp_path):
    """Types a command on the first GPU; gives the exit code and what it printed."""

    def typed(*arguments):
        done = commands.perfsvc(tmp_path, *arguments, "--device", gpus[0].spec, COLUMNS="200")
        if any(sign in done.stderr for sign in ("ERR_NVGPUCTRPERM", "holds the GPU's counters")):
            pytest.skip(done.stderr)
        return done

    return typed


def measured(perfsvc, suite, case, *arguments):
    return perfsvc("run", "--suite", suite, "--select", case, "--replicas", "3", "--format", "json", *arguments)


def test_a_planted_regression_is_explained_in_the_command_that_finds_it(ncu, gpus, perfsvc, suite, tmp_path):
    assert measured(perfsvc, suite, TRANSPOSE).returncode == 0
    source = suite / "transpose" / "tiled.cu"
    source.write_text(source.read_text().replace("[TILE + PAD]", "[TILE]"))
    ended = measured(perfsvc, suite, TRANSPOSE, "--confirm", "--profile")
    assert ended.returncode == 1, ended.stderr
    (why,) = json.loads(ended.stdout)["explained"]
    assert why["reason"] == ""
    factor, reason = why["sentence"].split(" × slower: ")
    assert reason.startswith("shared-memory bank conflicts"), why["sentence"]
    least, most = next(bounds for model, bounds in SLOWER.items() if model in gpus[0].model)
    assert least <= float(factor) <= most, why["sentence"]
    assert None not in why["profiles"]

    # Both sides are in one report, each in a range of its own.
    assert perfsvc("profile", TRANSPOSE, "--stored", "--output", tmp_path / "night.ncu-rep").returncode == 0
    ranges = [f"{TRANSPOSE} of run {run}" for run in (1, 2)]
    assert reports.outline(tmp_path / "night.ncu-rep").launches == 2
    found = reports.read_ranges_isolated(tmp_path / "night.ncu-rep", dict.fromkeys(ranges, "transpose_tiled"))
    before, after = (found[name] for name in ranges)
    assert isinstance(before, Profile), before
    assert isinstance(after, Profile), after
    assert {
        name for profile in (before, after) for name, value in profile.metrics.items() if value is None
    } == NOT_COUNTED
    # The report names no source line; the stored binary does, and the stored sources show the change.
    assert why["sentence"].startswith(explain(before, after).sentence.removesuffix("."))
    assert "Changed: tiled.cu:" in why["sentence"], why["sentence"]


def test_metrics_and_report_are_of_the_profiled_launch(ncu, perfsvc, suite, tmp_path):
    assert measured(perfsvc, suite, TRANSPOSE).returncode == 0
    ended = perfsvc("profile", TRANSPOSE, "--output", tmp_path / "kept.ncu-rep", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    metrics = found["profile"]["metrics"]
    assert (found["launch"], found["profile"]["kernel"]) == (0, "transpose_tiled")
    assert 20e-6 < metrics["duration_s"] < 500e-6
    assert metrics["dram_read_bytes"] == pytest.approx(4 * 4096**2, rel=0.2)
    assert reports.read_isolated(tmp_path / "kept.ncu-rep", kernel="transpose_tiled").metrics == metrics


def test_the_longer_of_two_kernels_is_profiled(ncu, perfsvc, suite):
    assert measured(perfsvc, suite, TWO_KERNELS).returncode == 0
    ended = perfsvc("profile", TWO_KERNELS, "--set", "basic", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["profile"]["kernel"] == "dot_partials"


@pytest.fixture
def profile_all(ncu, gpus, helper_kernels, perfsvc, tmp_path, monkeypatch):  # noqa: PLR0917 - fixtures have names
    """Return a function that profiles variants of the benchmark ``lethal`` in sessions, and the number of sessions.

    Its suite has a variant ``sleeper`` in addition.
    """
    folder = tmp_path / "lethal"
    shutil.copytree(LETHAL / "lethal", folder / "lethal")
    source, bench = folder / "lethal" / "lethal.cu", folder / "lethal" / "bench.py"
    source.write_text(source.read_text() + SLEEPER)
    bench.write_text(bench.read_text().replace("variants=[", 'variants=[variant("sleeper", "sleeper"),'))
    device = gpus[0]
    sessions = []
    run = NcuProfiler.run

    def counted(self, program, report, **given):
        sessions.append(report)
        try:
            run(self, program, report, **given)
        finally:
            launches = reports.outline(report).launches if report.is_file() else "no report, so no"
            print(f"session {len(sessions)}: {launches} launches")  # noqa: T201 - pytest -rP shows what ncu wrote

    monkeypatch.setattr(NcuProfiler, "run", counted)

    def profiled(*variants, **settings):
        names = ",".join(variants)
        selected = [option for name in variants for option in ("--select", f"lethal/{name}")]
        ended = perfsvc("run", "--suite", folder, *selected, "--replicas", "1", "--samples", "1", "--limit", "10")
        assert ended.returncode in {0, 4}, f"{names}: {ended.stderr}"
        with Store.open(str(tmp_path / "perfsvc.db")) as store:
            here = {device.uuid: device}
            tasks = [
                ProfilingTask(subject_of(store, Case("lethal", name, (("n", 1000),)).id, 1, here)) for name in variants
            ]
            profiler = CaseProfiler(store, ProfilerSettings(here, {device.uuid: helper_kernels}, **settings))
            answers = profiler.profile_all(tasks)
        found = {task.subject.case.variant: answers[task] for task in tasks}
        for name, answer in found.items():
            print(f"{name}: {answer if isinstance(answer, PerfsvcError) else answer.profile.kernel}")  # noqa: T201 - as above
        return found, len(sessions)

    return profiled


def test_several_cases_are_profiled_in_one_session(profile_all):
    found, sessions = profile_all("good", "also_good")
    assert sessions == 1
    assert {name: answer.profile.kernel for name, answer in found.items()} == {"good": "copy", "also_good": "copy"}


@pytest.mark.parametrize("fault", ["stray", "trap", "crowded"])
def test_a_launch_that_fails_costs_its_case_only(profile_all, fault):
    found, sessions = profile_all("good", fault, "also_good")
    assert [name for name, answer in found.items() if isinstance(answer, ProfileResult)] == ["good", "also_good"]
    assert isinstance(found[fault], PerfsvcError)
    assert sessions <= 2  # the driver refuses the launch of crowded, which need not end the session


def test_a_launch_that_hangs_costs_its_case_only(profile_all):
    found, sessions = profile_all("good", "sleeper", "also_good", limit_s=10.0)
    assert [name for name, answer in found.items() if isinstance(answer, ProfileResult)] == ["good", "also_good"]
    assert "time limit" in found["sleeper"].what
    assert sessions == 2


@pytest.mark.skipif(find_program("nsys", "nsight-systems") is None, reason="there is no nsys here")
def test_a_timeline_is_written(perfsvc, suite, tmp_path):
    assert measured(perfsvc, suite, TRANSPOSE).returncode == 0
    ended = perfsvc("profile", TRANSPOSE, "--tool", "nsys", "--output", tmp_path / "kept.nsys-rep")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "kept.nsys-rep").stat().st_size
