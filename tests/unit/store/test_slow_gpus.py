"""A GPU that is slower than the others of its model, with the same binaries, is one finding about this GPU."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.model import (
    Batch,
    Case,
    Cause,
    ChangeKind,
    Conditions,
    Direction,
    Estimate,
    EventKind,
    FindingState,
    Judgement,
    Kind,
    Measurement,
    ReplayRecord,
    RootCause,
    Slowdown,
    Status,
    Suspect,
    Verdict,
    Work,
    digest,
)
from perfsvc.service.findings.update import update_findings
from perfsvc.service.siblings import FEWEST_CASES, update_slow_gpus
from perfsvc.store import MeasurementEntry, RunState

BEGUN = datetime(2026, 3, 1, 2, tzinfo=UTC)
HOSTS = {"GPU-1": "alpha", "GPU-2": "beta", "GPU-3": "gamma"}
CASES = [Case("copy", f"v{number}") for number in range(FEWEST_CASES + 2)]
SLOW = 1.06


@pytest.fixture
def binaries(story):
    """Return the binaries of each case: that of the usual code, and another one."""

    def put(case, text):
        record = ReplayRecord(case, Kind.KERNEL, (), (), (digest(text),), digest(b"# bench.py"), seed=7)
        return story.put_binary(record, {digest(text): text}, b"# bench.py", {"a.cu": text})

    return {case: [put(case, text) for text in (b"code", b"other")] for case in CASES}


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
            time_s = 1e-4 * factor
            entries = [
                MeasurementEntry(
                    Measurement(case, gpu, 0, Status.OK, samples_s=(time_s,) * 5, batches=batches),
                    story.environment,
                    Work(read_bytes=4000, written_bytes=2000, flops=10, precision="fp32"),
                    Estimate(time_s, time_s, time_s, 5),
                    binaries[case][(code or {}).get(gpu, 0)],
                )
                for case in cases
            ]
            story.store.measurements.put(run, entries)
            story.store.runs.end(run, RunState.FINISHED)
            update(story.store, run)

    return live


def about_gpus(story):
    return [finding for finding in story.store.findings.all() if finding.cause is Cause.SLOW_GPU]


def test_a_slow_gpu_is_raised_once_with_how_slow_it_is_and_resolved_when_it_is_as_fast_again(story, day):
    for number in range(5):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    (finding,) = about_gpus(story)
    assert (finding.state, finding.moved) == (FindingState.OPEN, ())
    assert finding.root_cause == "GPU-2 (NVIDIA H100) on host beta"
    assert finding.evidence == (
        "+6.0 % against 2 other GPUs of its model (interval +6.0 % to +6.0 %), over 7 cases with the same binaries, "
        "in runs 2, 5 and 8"
    )
    assert (finding.first_run, finding.last_run) == (8, 14)
    for number in range(5, 8):  # nights without this GPU change nothing
        day(number, GPU_1=1.0, GPU_3=1.0)
    assert about_gpus(story) == [finding]
    day(8, GPU_1=1.0, GPU_2=1.0, GPU_3=1.0)
    assert about_gpus(story) == [finding]
    day(9, GPU_1=1.0, GPU_2=1.0, GPU_3=1.0)
    (resolved,) = about_gpus(story)
    assert resolved.state is FindingState.RESOLVED
    assert resolved.reason.startswith("as fast as the other GPUs of its model in runs ")
    events = story.store.findings.events(finding=finding.id)
    assert [event.kind for event in events] == [EventKind.RAISED, EventKind.RESOLVED]


def test_a_gpu_that_becomes_slow_again_reopens_its_finding(story, day):
    for number in range(4):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    for number in range(4, 9):
        day(number, GPU_1=1.0, GPU_2=1.0, GPU_3=1.0)
    for number in range(9, 13):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    (finding,) = about_gpus(story)
    assert finding.state is FindingState.OPEN
    kinds = [event.kind for event in story.store.findings.events(finding=finding.id)]
    assert kinds == [EventKind.RAISED, EventKind.RESOLVED, EventKind.REOPENED]


def test_an_accepted_slow_gpu_is_not_raised_again_until_it_was_fast(story, day):
    for number in range(4):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    (finding,) = about_gpus(story)
    story.store.findings.set_state(finding.id, FindingState.ACCEPTED, reason="an old cooler", by="ada")
    for number in range(4, 8):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    assert [finding.state for finding in about_gpus(story)] == [FindingState.ACCEPTED]
    for number in range(8, 11):
        day(number, GPU_1=1.0, GPU_2=1.0, GPU_3=1.0)
    for number in range(11, 15):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    assert [finding.state for finding in about_gpus(story)] == [FindingState.OPEN]


def test_the_update_of_findings_after_a_run_raises_it_and_no_run_resolves_it_as_if_its_cases_were_back(story, day):
    for number in range(4):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0, update=update_findings)
    assert [finding.state for finding in about_gpus(story)] == [FindingState.OPEN]


@pytest.mark.parametrize(
    "options",
    [
        {"code": {"GPU-2": 1}},
        {"model": {"GPU-2": "NVIDIA A100"}},
        {"cases": CASES[: FEWEST_CASES - 1]},
    ],
    ids=["other binaries", "another model", "too few cases"],
)
def test_only_many_cases_with_the_same_binaries_on_the_same_model_are_compared(story, day, options):
    for number in range(4):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0, **options)
    assert about_gpus(story) == []


def test_a_gpu_whose_slowness_a_finding_about_its_environment_names_raises_none(story, day):
    day(0, GPU_1=1.0, GPU_2=1.0, GPU_3=1.0)
    judged = [
        Judgement(
            story.series(case, device="GPU-2"),
            Verdict.REGRESSION,
            ratio=SLOW,
            baseline_run=2,
            candidate_run=2,
            cause=Cause.ENVIRONMENT,
        )
        for case in CASES
    ]
    suspects = tuple(Suspect(judgement, ChangeKind.REGRESSION, Direction.SLOWER, "slow") for judgement in judged)
    story.store.findings.update(2, [], [RootCause("power limit 700 W → 500 W", "slow", suspects)])
    (known,) = story.store.findings.active()
    for number in range(1, 5):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    assert about_gpus(story) == []
    story.store.findings.set_state(known.id, FindingState.ACCEPTED, reason="it saves power", by="ada")
    day(5, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    assert [finding.root_cause for finding in about_gpus(story)] == ["GPU-2 (NVIDIA H100) on host beta"]


def test_the_finding_says_why_the_clock_of_the_gpu_was_lowered(story, day):
    hot = Conditions(slowdowns=(Slowdown.THERMAL,))
    for number in range(4):
        day(number, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0, conditions=hot)
    (finding,) = about_gpus(story)
    assert finding.evidence.endswith(f"; its clock was lowered: {Slowdown.THERMAL.value}")


def test_several_runs_within_hours_are_one_night(story, day):
    for number in range(4):
        day(number / 24, GPU_1=1.0, GPU_2=SLOW, GPU_3=1.0)
    assert about_gpus(story) == []
