"""Root causes: all series that one root cause moved are one finding, on every device and in every run."""

import subprocess
from dataclasses import replace

import pytest

from perfsvc.model import Cause, Confirmation, FindingState
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from tests.unit.store.conftest import ON_BOTH, six_cases, times

DEVICES = ("GPU-1", "GPU-2")
OTHER = "GPU-3"
A_TO_B, B_TO_C = "aaaaaaaaa..bbbbbbbbb", "bbbbbbbbb..ccccccccc"
MODELS = {OTHER: "NVIDIA A100"}


@pytest.fixture
def night(story):
    """Return a function that measures and judges a run on two devices; it takes the seconds of each case."""

    def run(seconds, commit="", *, code=None, devices=DEVICES, suite="kernels", **environment):
        number = story.begin(scope="all", commit=commit, suite=suite)
        for device in devices:
            gpu = replace(story.gpu, uuid=device, model=MODELS.get(device, story.gpu.model))
            here = replace(story, gpu=gpu, environment=replace(story.environment, **environment))
            story.store.devices.put(gpu)
            for case, value in seconds.items():
                binary = story.binary(case, (code or {}).get(case.variant, b"code"))
                here.put_replicas(number, case, value, binary=binary, device=device)
        story.end_and_judge(number)
        return number

    return run


@pytest.fixture
def confirm(story):
    """Return a function that confirms the suspects of a run, updates the findings and returns the active ones."""

    def update_findings(run, *variants, cause=Cause.KERNEL):
        for suspect in suspects_of(story.store, run):
            if not variants or suspect.series.case.variant in variants:
                ratio = {"ratio": suspect.judgement.ratio} if cause is Cause.KERNEL else {}
                answer = Confirmation(suspect, cause, "so it is", 0.01, seed=1, budget_s=9.0, **ratio)
                story.store.confirmations.put(answer)
        update.update_findings(story.store, run)
        return story.store.findings.active()

    return update_findings


def held(finding):
    return {(moved.series.case.variant, moved.series.device) for moved in finding.moved}


def variants(finding):
    return {variant for variant, _ in held(finding)}


@ON_BOTH
def test_series_that_the_same_commits_made_slower_are_one_finding_on_all_devices(story, night, confirm, cases):
    night(times(cases), "a" * 40)
    run = night(times(cases, "v0", "v1"), "b" * 40, code={"v0": b"other", "v1": b"third"})
    (finding,) = confirm(run)
    assert (finding.cause, finding.root_cause) == (Cause.KERNEL, A_TO_B)
    assert held(finding) == {(variant, device) for variant in ("v0", "v1") for device in DEVICES}
    events = story.store.findings.events()
    assert suspects_of(story.store, run) == []
    assert update.update_findings(story.store, run).seen == (1,)  # updating again changes nothing
    assert (story.store.findings.active(), story.store.findings.events()) == ([finding], events)


def test_a_series_confirmed_a_night_late_joins_the_finding_of_its_commits(night, confirm, cases):
    night(times(cases), "a" * 40)
    edited = {"v0": b"other", "v1": b"third"}
    (finding,) = confirm(night(times(cases, "v0", "v1"), "b" * 40, code=edited), "v0")
    assert variants(finding) == {"v0"}
    (finding,) = confirm(night(times(cases, "v0", "v1"), "c" * 40, code=edited), "v1")
    assert (finding.root_cause, variants(finding)) == (A_TO_B, {"v0", "v1"})


def test_commits_of_another_night_are_another_finding(night, confirm, cases):
    night(times(cases), "a" * 40)
    confirm(night(times(cases, "v0"), "b" * 40, code={"v0": b"other"}))
    later = night(times(cases, "v0", "v1"), "c" * 40, code={"v0": b"other", "v1": b"third"})
    assert [finding.root_cause for finding in confirm(later, "v1")] == [B_TO_C, A_TO_B]


def test_a_slow_drift_joins_the_finding_of_its_first_commits(night, confirm, cases):
    drifting = ("v0", "v1")
    night(times(cases), "a" * 40)
    first = night(times(cases, *drifting, by=1.02), "b" * 40, code=dict.fromkeys(drifting, b"second"))
    confirm(first, "v0")
    (finding,) = confirm(night(times(cases, *drifting, by=1.03), "c" * 40, code=dict.fromkeys(drifting, b"third")))
    assert (finding.root_cause, variants(finding)) == (A_TO_B, set(drifting))


@pytest.mark.slow
def test_a_change_mostly_due_to_later_commits_is_a_separate_finding(night, confirm, cases):
    edited = ("v0", "v1")
    night(times(cases), "a" * 40)
    first = night(times(cases, *edited, by=1.02), "b" * 40, code=dict.fromkeys(edited, b"second"))
    confirm(first, "v0")
    findings = confirm(night(times(cases, *edited, by=1.08), "c" * 40, code=dict.fromkeys(edited, b"third")))
    assert [finding.root_cause for finding in findings] == [B_TO_C, A_TO_B]


@six_cases
def test_a_driver_that_moves_two_devices_is_one_finding(night, confirm, cases):
    night(times(cases))
    slow = [case.variant for case in cases]
    (finding,) = confirm(night(times(cases, *slow), driver="590.1"))
    assert (finding.cause, finding.root_cause) == (Cause.ENVIRONMENT, "driver 580.1 → 590.1")
    assert finding.devices.keys() == set(DEVICES)


@six_cases
def test_each_slow_device_is_a_separate_finding(night, confirm, cases):
    night(times(cases))
    slow = [case.variant for case in cases]
    findings = confirm(night(times(cases, *slow)))
    assert {finding.root_cause for finding in findings} == {f"GPU {device}" for device in DEVICES}


def test_the_root_cause_of_a_new_compiler_names_both_versions(night, confirm, cases):
    night(times(cases))
    run = night(times(cases, "v0"), code={"v0": b"other"}, toolkit="nvcc 14.0")
    (finding,) = confirm(run, cause=Cause.TOOLCHAIN)
    assert (finding.cause, finding.root_cause) == (Cause.TOOLCHAIN, "nvcc 13.0.88 → nvcc 14.0")


def test_an_ignored_series_is_no_suspect(story, night, confirm, cases):
    night(times(cases), "a" * 40)
    confirm(night(times(cases, "v0"), "b" * 40, code={"v0": b"other"}))
    story.store.findings.set_state(1, FindingState.IGNORED)
    later = night(times(cases, "v0", "v1"), "c" * 40, code={"v0": b"other", "v1": b"third"})
    assert {suspect.series.case.variant for suspect in suspects_of(story.store, later)} == {"v1"}


# --- hosts that measure at different times ---------------------------------------------------------------------------

ONE, TWO = DEVICES[:1], (OTHER,)
ON_BOTH_MODELS = {("v0", "GPU-1"), ("v0", OTHER)}


@pytest.fixture
def measure(night, cases):
    """Return a function that measures a commit, a letter, on one device; from ``slow_since`` on, v0 is slower."""

    def run(devices, commit, slow_since="b", **options):
        is_slow = commit >= slow_since
        name = (commit * 40)[:40]
        code = {"v0": b"other"} if is_slow else None
        return night(times(cases, *(["v0"] if is_slow else [])), name, code=code, devices=devices, **options)

    return run


@pytest.fixture
def both_fast(measure):
    """Two hosts, each with another model, have measured the first commit."""
    for devices in (ONE, TWO):
        measure(devices, "a")


def test_a_host_that_skipped_the_slow_commit_joins_the_finding_of_the_other_model(measure, confirm, both_fast):
    confirm(measure(ONE, "b"))
    (finding,) = confirm(measure(TWO, "c"))
    assert (finding.root_cause, held(finding)) == (A_TO_B, ON_BOTH_MODELS)
    assert {moved.root_cause for moved in finding.moved} == {A_TO_B, "aaaaaaaaa..ccccccccc"}
    assert set(finding.devices.values()) == {"NVIDIA H100", "NVIDIA A100"}


@pytest.mark.slow
def test_a_host_that_lags_behind_joins_the_finding_of_the_other_model(measure, confirm, both_fast):
    confirm(measure(ONE, "b"))
    measure(ONE, "c")
    (finding,) = confirm(measure(TWO, "b"))
    assert (finding.root_cause, held(finding)) == (A_TO_B, ON_BOTH_MODELS)


def test_the_range_of_a_host_that_skipped_commits_begins_with_its_own_last_run(measure, confirm):
    measure(ONE, "a", slow_since="c")
    measure(TWO, "a", slow_since="c")
    measure(ONE, "b", slow_since="c")
    (finding,) = confirm(measure(TWO, "c", slow_since="c"))
    assert finding.root_cause == "aaaaaaaaa..ccccccccc"


@pytest.mark.slow
def test_a_later_slowdown_of_the_same_case_on_another_model_is_another_finding(measure, confirm, both_fast):
    confirm(measure(ONE, "b"))
    measure(TWO, "b", slow_since="c")
    findings = confirm(measure(TWO, "c", slow_since="c"))
    assert [finding.root_cause for finding in findings] == [B_TO_C, A_TO_B]


@pytest.mark.slow
def test_an_unconfirmed_finding_takes_the_cause_that_another_model_confirms(measure, confirm, both_fast):
    confirm(measure(ONE, "b"), cause=Cause.UNCONFIRMED)
    (unconfirmed,) = confirm(measure(ONE, "b"), cause=Cause.UNCONFIRMED)
    assert unconfirmed.cause is Cause.UNCONFIRMED
    (finding,) = confirm(measure(TWO, "c"))
    assert (finding.id, finding.cause) == (unconfirmed.id, Cause.KERNEL)
    assert held(finding) == ON_BOTH_MODELS


def test_outside_git_the_same_change_on_two_models_is_one_finding(night, confirm, cases):
    edited = {"v0": b"other"}
    for devices in (ONE, TWO):
        night(times(cases), devices=devices)
    confirm(night(times(cases, "v0"), code=edited, devices=ONE))
    (finding,) = confirm(night(times(cases, "v0"), code=edited, devices=TWO))
    assert held(finding) == ON_BOTH_MODELS


@pytest.mark.slow
def test_git_says_which_commits_of_hosts_without_a_common_commit_overlap(measure, confirm, tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    for _ in range(5):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "so"], check=True)
    listed = subprocess.run([*git, "rev-list", "--reverse", "HEAD"], check=True, capture_output=True, text=True)
    commits = listed.stdout.split()

    def at(devices, place, *, slow):
        return measure(devices, commits[place], slow_since="" if slow else "g", suite=str(tmp_path))

    at(ONE, 0, slow=False)
    at(TWO, 0, slow=False)
    confirm(at(ONE, 4, slow=True))  # the slow commit is the third
    at(TWO, 1, slow=False)
    (finding,) = confirm(at(TWO, 2, slow=True))
    assert held(finding) == ON_BOTH_MODELS
