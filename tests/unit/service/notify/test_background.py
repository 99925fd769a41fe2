"""The commits behind a finding, and the levels of its worst series in recent nights."""

from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.model import (
    Case,
    Cause,
    DeviceInfo,
    Environment,
    Estimate,
    Finding,
    FindingState,
    Measurement,
    MovedSeries,
    Provenance,
    RunState,
    Series,
    Status,
    Work,
)
from perfsvc.service.notify.background import COMMITS, NIGHTS, Backgrounds
from perfsvc.store import MeasurementEntry, Store
from tests.e2e.history import git

STARTED = datetime(2026, 1, 1, 2, tzinfo=UTC)
GPU = DeviceInfo("cuda", "cuda:0", "GPU-1", "NVIDIA H100", "sm_90")
CASE, OTHER = (Case("scale", variant, (("n", 100),)) for variant in ("beta", "alpha"))
TIME = Series(CASE, GPU.uuid, GPU.model)
CYCLES = Series(CASE, GPU.uuid, GPU.model, "cycles")
ENVIRONMENT = Environment("580.1", "nvcc 13.0", 700.0)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as opened:
        opened.devices.put(GPU)
        yield opened


def night(store, seconds, *, suite="kernels", dirty=False, case=CASE):
    """Store a night that measured a case, which failed if there is no time; return the night."""
    day = STARTED + timedelta(days=len(store.nights.list()))
    number = store.nights.begin(host="host", started=day, suite=suite, command_line="", settings={})
    store.nights.put_revision(number, commit="abc", dirty=dirty, digest="")
    run = store.runs.begin(Provenance(started=day, command_line="", suite=suite), night=number)
    for replica in range(2):
        status = Status.OK if seconds else Status.FAILED
        samples = (seconds,) * 3 if seconds else ()
        metrics = {"cycles": seconds * 1e9} if seconds else {}
        result = Measurement(case, GPU.uuid, replica, status, samples_s=samples, metrics=metrics)
        estimate = Estimate(seconds, seconds, seconds, 3) if seconds else None
        store.measurements.put(run, [MeasurementEntry(result, ENVIRONMENT, Work(), estimate)])
    store.runs.end(run, RunState.FINISHED)
    return store.nights.get(number)


def finding(series=TIME, root_cause=""):
    moved = (MovedSeries(series, 1.1, None, None, 1, 1e-4, 1e-4, 2),) if series else ()
    return Finding(1, Cause.KERNEL, root_cause, 1, 1, FindingState.OPEN, "", "", "", STARTED, moved)


def test_the_levels_are_those_of_the_clean_nights_of_the_suite_with_gaps_for_failures(store):
    for seconds in (1e-4, 2e-4, None):
        night(store, seconds)
    night(store, 7e-4, dirty=True)
    night(store, 8e-4, suite="others")
    night(store, 9e-4, case=OTHER)
    last = night(store, 3e-4)
    later = night(store, 5e-4)
    levels = Backgrounds(store, last).of(finding()).levels
    assert levels == (pytest.approx(1e-4), pytest.approx(2e-4), None, pytest.approx(3e-4))
    assert len(Backgrounds(store, later).of(finding()).levels) == 5


def test_an_excluded_night_is_no_level_and_any_metric_has_levels(store):
    for seconds in (1e-4, 9e-4, 2e-4):
        last = night(store, seconds)
    store.exclusions.exclude(2, None, reason="the GPU was shared", by="jane")
    assert Backgrounds(store, last).of(finding()).levels == (pytest.approx(1e-4), pytest.approx(2e-4))
    behind = Backgrounds(store, last).of(finding(CYCLES))
    assert (behind.series, behind.levels) == (CYCLES, (pytest.approx(1e5), pytest.approx(2e5)))


def test_no_more_than_the_newest_nights_are_drawn(store):
    for number in range(NIGHTS + 3):
        last = night(store, (1 + number) * 1e-4)
    levels = Backgrounds(store, last).of(finding()).levels
    assert len(levels) == NIGHTS
    assert levels[-1] == pytest.approx((NIGHTS + 3) * 1e-4)


def test_a_finding_about_something_missing_has_no_levels(store):
    behind = Backgrounds(store, night(store, 1e-4)).of(finding(None, "GPU-1 on host a"))
    assert (behind.series, behind.levels, behind.commits) == (None, (), ())


@pytest.fixture
def repository(tmp_path):
    """A repository of seven commits: its folder and their hashes, oldest first."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(7):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    return folder, git(folder, "log", "--reverse", "--format=%h", "--abbrev=9").split()


def test_the_commits_are_those_that_the_root_cause_names_the_newest_first(store, repository):
    folder, hashes = repository
    last = night(store, 1e-4, suite=str(folder))

    def behind(root_cause):
        found = Backgrounds(store, last).of(finding(root_cause=root_cause))
        return [commit.subject for commit in found.commits], found.commit_count

    assert behind(f"{hashes[0]}..{hashes[6]}") == ([f"commit {number}" for number in (6, 5, 4, 3, 2)], 6)
    assert behind(hashes[3]) == (["commit 3"], 1)
    steps = f"{hashes[0]}..{hashes[2]}, {hashes[4]}..{hashes[6]}"
    assert behind(steps) == ([f"commit {number}" for number in (6, 5, 2, 1)], 4)
    nowhere = ["the code of run 7", "nvcc 13.0.88 → nvcc 14.0", "GPU GPU-1", "--output=x", "0000000..1111111", "HEAD"]
    assert [behind(root_cause) for root_cause in ("", *nowhere)] == [([], 0)] * 7
    assert COMMITS == 5


def test_a_suite_that_is_not_here_has_no_commits(store, tmp_path):
    last = night(store, 1e-4, suite=str(tmp_path / "gone"))
    assert Backgrounds(store, last).of(finding(root_cause="0123456..1234567")).commits == ()
