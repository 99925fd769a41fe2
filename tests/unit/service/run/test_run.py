"""The exit code of a run whose suspects were measured again, its sampling and its sources."""

from pathlib import Path

from perfsvc import build
from perfsvc.build import Cache, compile_all
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    Confirmation,
    DeviceInfo,
    Direction,
    Environment,
    Judgement,
    Measurement,
    Series,
    Status,
    Suspect,
    Verdict,
)
from perfsvc.service.prepare.targets import CPU_SAMPLING, GPU_SAMPLING, Target
from perfsvc.service.run.measure import environment, sampling
from perfsvc.service.run.record import _sources
from perfsvc.service.run.request import RunRequest
from perfsvc.service.run.run import RunOutcome
from perfsvc.suite import Selection, discover

CASE = Case("dot", "tree")
SERIES = Series(CASE, "GPU-1", "NVIDIA H100")


def outcome(night, cause, found, status=Status.OK):
    """A run with a single case, its verdict and the confirmation of it."""
    judged = Judgement(SERIES, night, ratio=1.05, baseline_run=1, candidate_run=2)
    suspect = Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER)
    again = Confirmation(suspect, cause, "", threshold=0.03, seed=1, budget_s=20.0, verdict=found)
    none = dict.fromkeys(("over_budget", "doubts", "problems", "warnings"), ())
    bad = (Measurement(CASE, "GPU-1", 0, status),) if status is not Status.OK else ()
    return RunOutcome(run=2, judgements=(judged,), confirmations=(again,) if cause else (), bad=bad, **none)


EXIT_CODES = {
    (Verdict.REGRESSION, None, None): 1,
    (Verdict.REGRESSION, Cause.KERNEL, Verdict.REGRESSION): 1,
    (Verdict.REGRESSION, Cause.UNCONFIRMED, None): 1,
    (Verdict.REGRESSION, Cause.NOISE, Verdict.UNCHANGED): 0,
    (Verdict.REGRESSION, Cause.ENVIRONMENT, Verdict.UNCHANGED): 0,
    (Verdict.UNCHANGED, Cause.KERNEL, Verdict.REGRESSION): 1,  # an alert of its history
    (Verdict.UNCHANGED, Cause.KERNEL, Verdict.IMPROVEMENT): 0,
    (Verdict.UNCHANGED, Cause.NOISE, Verdict.UNCHANGED): 0,
    (Verdict.REGRESSION, Cause.KERNEL, Verdict.REGRESSION, Status.FAILED): 4,
}


def test_a_confirmed_suspect_counts_a_cleared_one_does_not_and_a_failure_comes_first():
    assert {given: outcome(*given).exit_code(strict=False) for given in EXIT_CODES} == EXIT_CODES


GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90")
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64")


def asked(**options: object) -> RunRequest:
    return RunRequest("perfsvc.db", Path("kernels"), **options)  # type: ignore[arg-type]


def test_default_sampling_depends_on_the_kind_of_device() -> None:
    assert sampling(asked(), GPU) == GPU_SAMPLING
    assert (GPU_SAMPLING.precision, GPU_SAMPLING.samples, GPU_SAMPLING.seconds) == (0.002, 1000, 2.0)
    assert sampling(asked(), CPU) == CPU_SAMPLING
    assert (CPU_SAMPLING.samples, CPU_SAMPLING.seconds) == (20, 0.15)
    assert CPU_SAMPLING.least >= CPU_SAMPLING.samples
    assert sampling(asked(), FAKE) == Sampling()


def test_requested_options_apply_to_every_device_and_places_are_part_of_the_environment() -> None:
    for device in (GPU, CPU):
        found = sampling(asked(precision=0.01, samples=7, seconds=0.5, energy=True), device)
        assert (found.precision, found.samples, found.seconds, found.energy) == (0.01, 7, 0.5, True)
    target = Target(FAKE, (), build.toolchain_for(FAKE.target))
    assert environment(asked(), target) == Environment("", target.toolchain.version, 0.0, 1)
    assert environment(asked(places=3), target) == Environment("", target.toolchain.version, 0.0, 3)


def test_a_short_time_limit_also_bounds_the_wait_for_a_disturbed_gpu() -> None:
    assert sampling(asked(limit_s=4.0), GPU).recovery_s == 2.0
    assert sampling(asked(limit_s=600.0), GPU).recovery_s == Sampling().recovery_s


BENCH = """
from perfsvc.suite import *
benchmark = Benchmark(
    axes={"n": (8,)}, smoke={"n": 8},
    outputs={"y": output("float32", 1)}, reference=lambda: 1.0, tolerance=Tolerance(0, 0),
    variants=[Variant("v", steps=[
        launch(source="one/k.cu", entry="k", grid=1, block=1, args=["y"]),
        launch(source="two/k.cu", entry="k", grid=1, block=1, args=["y"]),
    ])])
"""


def test_sources_of_one_name_in_two_folders_are_both_kept_with_their_headers(tmp_path):
    (tmp_path / "bench.py").write_text(BENCH)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(f'#include "../h.cuh"\nint {folder};\n')
    (tmp_path / "h.cuh").write_text("int shared;\n")
    (spec,) = discover(tmp_path).resolve(Selection(), "smoke")[0]
    modules = compile_all(spec.units, FakeToolchain(), Cache(tmp_path / "cache"))
    for path in tmp_path.rglob("*.cu*"):
        path.write_text("edited while the run was measuring\n")
    kept = _sources(spec, tuple(modules.values()))
    assert {name: text.decode() for name, text in kept.items()} == {
        "one/k.cu": '#include "../h.cuh"\nint one;\n',
        "two/k.cu": '#include "../h.cuh"\nint two;\n',
        "h.cuh": "int shared;\n",
    }
