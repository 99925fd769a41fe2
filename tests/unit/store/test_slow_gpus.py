"""A GPU that is slower than the others of its model, with the same binaries, is one finding about this GPU."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.model import Batch, Case, Cause, Conditions, EventKind, FindingState, RootCause, Slowdown
from perfsvc.service.findings.update import update_findings
from perfsvc.service.siblings import FEWEST_CASES, update_slow_gpus
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH, suspect

BEGUN = datetime(2026, 3, 1, 2, tzinfo=UTC)
HOSTS = {"GPU-1": "alpha", "GPU-2": "beta", "GPU-3": "gamma"}
CASES = [Case("copy", f"v{number}") for number in range(FEWEST_CASES + 2)]
SLOW = 1.06


@pytest.fixture
def binaries(story):
    """Return the binaries of each case: that of the usual code, and another one."""

    return {case: [story.binary(case, text) for text in (b"code", b"other")] for case in CASES}


@pytest.fixture
def day(story, binaries):
    """Return a function that runs a night of each host on a day, and updates findings after each.

    It takes by how much each GPU is slower than usual; GPUs that it does not name are not measured.
    """

    def live(number, *, code=None, model=None, cases=CASES, conditions=None, update=update_slow_gpus, **slower):
        for place, (gpu, host) in enumerate(HOSTS.items()):
            if (factor := slower.get(gpu.replace("-", "_"))) is None:
                continue
            own = replace(story.gpu, uuid=gpu, spec=f"cuda:{gpu}", model=(model or {}).get(gpu, story.gpu.model))
            story.store.devices.put(own)
            run = story.begin(
                scope="all", commit="a" * 40, host=host, started=BEGUN + timedelta(days=number, hours=place)
            )
            batches = (Batch((1e-4,), conditions=conditions),) if conditions and factor > 1 else ()
            given = {"device": gpu, "samples": (1e-4 * factor,) * 5, "batches": batches}
            built = {case: binaries[case][(code or {}).get(gpu, 0)] for case in cases}
            story.store.measurements.put(run, [story.entry(case, binary=built[case], **given) for case in cases])
            story.store.runs.end(run, RunState.FINISHED)
            update(story.store, run)

    return live


@pytest.fixture
def days(day):
    """Return a function that runs nights of three GPUs, of which the second is slower by a factor."""

    def live(numbers, slower=SLOW, **options):
        for number in numbers:
            day(number, GPU_1=1.0, GPU_2=slower, GPU_3=1.0, **options)

    return live


def about_gpus(story):
    return [finding for finding in story.store.findings.all() if finding.cause is Cause.SLOW_GPU]


@ON_BOTH
def test_a_slow_gpu_is_raised_once_with_how_slow_it_is_and_resolved_when_it_is_as_fast_again(story, days):
    days(range(5))
    (finding,) = about_gpus(story)
    assert (finding.state, finding.moved) == (FindingState.OPEN, ())
    assert finding.root_cause == "GPU-2 (NVIDIA H100) on host beta"
    assert finding.evidence == (
        "+6.0 % against 2 other GPUs of its model (interval +6.0 % to +6.0 %), over 7 cases with the same binaries, "
        "in runs 2, 5 and 8"
    )
    assert (finding.first_run, finding.last_run) == (8, 14)
    days(range(5, 8), None)  # nights without this GPU change nothing
    assert about_gpus(story) == [finding]
    days([8], 1.0)
    assert about_gpus(story) == [finding]
    days([9], 1.0)
    (resolved,) = about_gpus(story)
    assert resolved.state is FindingState.RESOLVED
    assert resolved.reason.startswith("as fast as the other GPUs of its model in runs ")
    events = story.store.findings.events(finding=finding.id)
    assert [event.kind for event in events] == [EventKind.RAISED, EventKind.RESOLVED]


@pytest.mark.slow
def test_a_gpu_that_becomes_slow_again_reopens_its_finding(story, days):
    days(range(4))
    days(range(4, 9), 1.0)
    days(range(9, 13))
    (finding,) = about_gpus(story)
    assert finding.state is FindingState.OPEN
    kinds = [event.kind for event in story.store.findings.events(finding=finding.id)]
    assert kinds == [EventKind.RAISED, EventKind.RESOLVED, EventKind.REOPENED]


@pytest.mark.slow
def test_an_accepted_slow_gpu_is_not_raised_again_until_it_was_fast(story, days):
    days(range(4))
    (finding,) = about_gpus(story)
    story.store.findings.set_state(finding.id, FindingState.ACCEPTED, reason="an old cooler", by="ada")
    days(range(4, 8))
    assert [finding.state for finding in about_gpus(story)] == [FindingState.ACCEPTED]
    days(range(8, 11), 1.0)
    days(range(11, 15))
    assert [finding.state for finding in about_gpus(story)] == [FindingState.OPEN]


UNLIKE = {
    "other binaries": {"code": {"GPU-2": 1}},
    "another model": {"model": {"GPU-2": "NVIDIA A100"}},
    "too few cases": {"cases": CASES[: FEWEST_CASES - 1]},
}


@pytest.mark.parametrize("options", UNLIKE)
def test_only_many_cases_with_the_same_binaries_on_the_same_model_are_compared(story, days, options):
    days(range(4), **UNLIKE[options])
    assert about_gpus(story) == []


def test_a_gpu_whose_slowness_a_finding_about_its_environment_names_raises_none(story, days):
    days([0], 1.0)
    series = [story.series(case, device="GPU-2") for case in CASES]
    suspects = tuple(suspect(each, SLOW, cause=Cause.ENVIRONMENT, baseline=2, run=2) for each in series)
    story.store.findings.update(2, [], [RootCause("power limit 700 W → 500 W", "slow", suspects)])
    (known,) = story.store.findings.active()
    days(range(1, 5))
    assert about_gpus(story) == []
    story.store.findings.set_state(known.id, FindingState.ACCEPTED, reason="it saves power", by="ada")
    days([5])
    assert [finding.root_cause for finding in about_gpus(story)] == ["GPU-2 (NVIDIA H100) on host beta"]


@pytest.mark.slow
def test_the_update_of_findings_after_a_run_raises_it_and_says_why_the_clock_of_the_gpu_was_lowered(story, days):
    hot = Conditions(slowdowns=(Slowdown.THERMAL,))
    days(range(4), conditions=hot, update=update_findings)
    (finding,) = about_gpus(story)
    assert finding.state is FindingState.OPEN
    assert finding.evidence.endswith(f"; its clock was lowered: {Slowdown.THERMAL.value}")


def test_several_runs_within_hours_are_one_night(story, days):
    days([number / 24 for number in range(4)])
    assert about_gpus(story) == []
