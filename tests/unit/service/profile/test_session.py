"""A profiling session on the CPU device without a profiler: which launches run, their order, and what is left out."""

import math
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.device.find import find
from perfsvc.errors import ProfileError, SuiteError
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.profiling_folder import LaunchReport
from perfsvc.model import Array, Buffer, BufferArg, Case, Kind, Launch, ReplayRecord, Role, ScalarArg, Unit, digest
from perfsvc.process import programs
from perfsvc.service.confirm.pairs import StoredCase
from perfsvc.service.profile import session
from perfsvc.service.profile.session import InputCache, SessionCase, SessionSettings, run_session
from perfsvc.suite import isolated

COUNT = 64
SOURCE = """
extern "C" __global__ void quick(float* out, const float* a, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void slow(float* out, const float* a, int n) {
  float sum = 0;
  for (int turn = 0; turn < 4000; ++turn)
    for (int i = 0; i < n; ++i) sum += a[i] * turn;
  if (threadIdx.x == 0) out[0] = sum;
}
"""


@pytest.fixture(scope="module")
def cpu():
    (device,) = find(["cpu"])
    return device


@pytest.fixture(scope="module")
def stored(cpu, tmp_path_factory):
    """Return a function that returns a stored case with launches of some kernels; ``seed`` makes its inputs differ."""
    source = tmp_path_factory.mktemp("source") / "two.cu"
    source.write_text(SOURCE)
    unit = Unit(source, ("quick", "slow"))
    built = compile_all([unit], toolchain_for(cpu.target), Cache(tmp_path_factory.mktemp("cache")))[unit]
    assert isinstance(built, Binary), built

    def made(*kernels, seed=1, entry=""):
        arrays = {name: Array(name, "float32", (COUNT,)) for name in ("a", "out")}
        args = (BufferArg("out"), BufferArg("a"), ScalarArg("n", "int32", COUNT))
        steps = tuple(Launch(0, entry or kernel, (1, 1, 1), (COUNT, 1, 1), args) for kernel in kernels)
        buffers = (Buffer(arrays["a"], Role.INPUT), Buffer(arrays["out"], Role.OUTPUT))
        record = ReplayRecord(
            Case("two", "kernels"), Kind.KERNEL, buffers, steps, (digest(built.code),), digest(b""), seed=seed
        )
        return StoredCase(record, (built.code,), "")

    return made


@pytest.fixture
def inputs(monkeypatch):
    """The seeds of the inputs that were made; seed 0 makes none."""
    seeds = []

    def replay_inputs(bench, point, seed):
        seeds.append(seed)
        if not seed:
            raise SuiteError("inputs() failed", path=Path("bench.py"))
        return {"a": np.full(COUNT, seed, np.float32)}

    monkeypatch.setattr(isolated, "replay_inputs", replay_inputs)
    return seeds


@pytest.fixture
def launch(cpu, tmp_path, inputs):
    """Return a function that runs a session, and its outcome."""

    def launched(*cases, deadline=math.inf, after=lambda: None, **changed):
        done = []
        settings = SessionSettings(cpu, b"", 60.0, deadline, done.append)
        folder = tmp_path / "session"
        folder.mkdir()

        def run():
            ended = programs.run(profiling_folder.command(folder), folder=Path.cwd(), limit_s=60)
            after()
            if ended.code:
                raise ProfileError(f"ended with {ended.code}")

        outcome = run_session(folder, cases, replace(settings, **changed), InputCache(), run)
        assert done == list(outcome.reports)
        shutil.rmtree(folder)
        return outcome

    return launched


def reported(outcome):
    return [(report.launch, report.kernel, report.what) for report in outcome.reports.values()]


def test_cases_are_launched_in_their_order_each_its_longest_launch_and_pairs_share_inputs(launch, stored, inputs):
    kernels = [("quick", "slow"), ("slow", "quick"), ("quick",), ("quick",), ("quick",)]
    seeds = [1, 1, 2, 2, 1]
    cases = [SessionCase(stored(*names, seed=seed), "") for names, seed in zip(kernels, seeds, strict=True)]
    outcome = launch(*cases)
    assert list(outcome.reports) == cases
    assert reported(outcome) == [(1, "slow", ""), (0, "slow", ""), *[(0, "quick", "")] * 3]
    assert inputs == [1, 2, 1]
    assert (outcome.error, outcome.crashed, outcome.over, outcome.failures) == (None, False, False, {})


@pytest.mark.slow
def test_a_case_follows_the_launch_of_the_case_before_or_of_a_stored_profile(launch, stored):
    first = SessionCase(stored("quick", "slow", "quick"), "")
    same = SessionCase(stored("slow", "slow", "slow"), "", first)
    other = SessionCase(stored("slow", "quick"), "", first)
    named = SessionCase(stored("quick", "slow", "quick"), "", LaunchReport(2, "quick"))
    assert reported(launch(first, same, other, named)) == [
        (1, "slow", ""),
        (1, "slow", ""),
        (0, "slow", ""),  # it launches another kernel second, so its longest launch counts
        (2, "quick", ""),
    ]


@pytest.mark.slow
def test_a_case_that_fails_costs_itself_and_the_case_that_follows_it(launch, stored):
    missing = SessionCase(stored("quick", entry="missing"), "")
    without = SessionCase(stored("quick", seed=0), "")
    good = SessionCase(stored("quick", seed=2), "")
    followers = [SessionCase(stored("quick"), "", before) for before in (missing, without)]
    outcome = launch(missing, followers[0], without, followers[1], good)
    assert list(outcome.reports) == [missing, good]
    assert "missing" in outcome.reports[missing].what
    assert {case: error.what for case, error in outcome.failures.items()} == {without: "inputs() failed"}
    assert outcome.error is None


@pytest.mark.slow
def test_no_launch_begins_after_the_deadline(launch, stored, monkeypatch):
    looks = iter([1.0, 2.0])
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: next(looks), time=time.time))
    cases = [SessionCase(stored("quick"), "") for _ in range(4)]
    outcome = launch(*cases, deadline=1.5)
    assert list(outcome.reports) == cases[:1]
    assert (outcome.over, outcome.error, outcome.failures) == (True, None, {})


@pytest.mark.slow
def test_an_error_of_the_profiler_after_all_launches_is_no_crash(launch, stored):
    def fail():
        raise ProfileError("the sky is falling")

    outcome = launch(SessionCase(stored("quick"), ""), after=fail)
    assert (outcome.error.what, outcome.crashed) == ("the sky is falling", False)
    assert reported(outcome) == [(0, "quick", "")]
