"""Findings about cases without a correct result."""

from dataclasses import replace

import pytest

from perfsvc.errors import UsageError
from perfsvc.model import Cause, ChangeKind, Direction, EventKind, FindingState, FindingUpdates, Status
from perfsvc.service.exclusions import exclude
from perfsvc.service.findings.update import update_findings

WRONG = {"status": Status.WRONG, "reason": "wrong result: out[1] is 2"}
CRASH = {"status": Status.FAILED, "reason": "the worker process died (killed by SIGSEGV)"}
HANG = {"status": Status.FAILED, "reason": "time limit: still running after 60 s, so its worker was killed"}


@pytest.fixture
def night(story):
    """Return a function that measures, judges and updates findings; it takes what the case's measurements are."""

    def run(measured=None, *, case=story.tiled, commit="", gpus=(story.gpu.uuid,), **environment):
        here = replace(story, environment=replace(story.environment, **environment))
        number = story.begin(scope="all", commit=commit)
        for gpu in gpus:
            here.put_replicas(number, case, 1e-4, device=gpu, **(measured or {}))
        story.end_and_judge(number)
        updates = update_findings(story.store, number)
        again = update_findings(story.store, number)
        assert (again.raised, again.reopened, again.resolved) == ((), (), ())
        return updates

    return run


@pytest.mark.parametrize(
    ("measured", "cause"), [(WRONG, Cause.WRONG), (CRASH, Cause.FAILED), (HANG, Cause.HUNG)], ids=str
)
def test_a_broken_case_is_a_finding_at_once_with_its_commits_until_it_is_correct_again(story, night, measured, cause):
    night(commit="aaaaaaaaaa")
    assert night(measured, commit="bbbbbbbbbb").raised == (1,)
    (finding,) = story.store.findings.active()
    (moved,) = finding.moved
    assert (finding.cause, finding.root_cause, finding.direction) == (cause, "aaaaaaaaa..bbbbbbbbb", Direction.BROKEN)
    assert (moved.change, moved.ratio, moved.baseline_run, moved.last_run) == (ChangeKind.FAILURE, None, 1, 2)
    assert finding.evidence == f"transpose/tiled[n=4096,dtype=f32]: {measured['reason']}"
    assert night(measured, commit="cccccccccc") == FindingUpdates(seen=(1,))
    assert story.store.findings.get(1).root_cause == "aaaaaaaaa..bbbbbbbbb"
    assert night(commit="dddddddddd").resolved == (1,)
    assert story.store.findings.get(1).reason == "correct again in run 4"
    kinds = [event.kind for event in story.store.findings.events(finding=1)]
    assert kinds == [EventKind.RAISED, EventKind.RESOLVED]


def test_a_case_that_never_was_correct_is_a_finding_of_its_first_commit(story, night):
    assert night(WRONG, commit="aaaaaaaaaa").raised == (1,)
    assert story.store.findings.get(1).root_cause == "aaaaaaaaa"
    assert night(commit="bbbbbbbbbb").resolved == (1,)


def test_a_case_that_fails_in_another_way_stays_in_its_finding(story, night):
    night()
    assert night(WRONG).raised == (1,)
    assert night(CRASH) == FindingUpdates(seen=(1,))


def test_what_breaks_with_a_new_driver_names_the_driver(story, night):
    night(commit="aaaaaaaaaa")
    night(CRASH, commit="aaaaaaaaaa", driver="590.1")
    assert story.store.findings.get(1).root_cause.endswith("→ 590.1")


def test_other_commits_that_break_a_case_again_are_another_finding(story, night):
    night(commit="aaaaaaaaaa")
    night(WRONG, commit="bbbbbbbbbb")
    night(commit="cccccccccc")
    assert night(WRONG, commit="dddddddddd").raised == (2,)
    assert story.store.findings.get(2).root_cause == "ccccccccc..ddddddddd"


def test_a_case_that_breaks_on_several_gpus_is_one_finding_until_it_is_correct_on_all(story, night):
    gpus = (story.gpu.uuid, "GPU-2")
    night(gpus=gpus, commit="aaaaaaaaaa")
    assert night(WRONG, gpus=gpus, commit="bbbbbbbbbb").raised == (1,)
    assert len(story.store.findings.get(1).moved) == 2
    assert night(gpus=gpus[:1], commit="cccccccccc").resolved == ()
    assert night(gpus=gpus, commit="cccccccccc").resolved == (1,)


def test_a_person_can_ignore_and_assign_a_broken_case_but_not_accept_it(story, night):
    night()
    night(WRONG)
    findings = story.store.findings
    with pytest.raises(UsageError, match="there is no level to accept"):
        findings.set_state(1, FindingState.ACCEPTED)
    assert findings.assign(1, "grace", by="ada").owner == "grace"
    assert findings.set_state(1, FindingState.IGNORED, by="ada").state is FindingState.IGNORED
    assert night(WRONG) == FindingUpdates(seen=(1,))


def test_a_broken_night_that_is_excluded_leaves_its_finding(story, night):
    night()
    night(WRONG)
    exclude(story.store, 2, (), reason="a bad cable")
    assert story.store.findings.active() == []
    night()
    assert night(WRONG).raised == (2,)


def test_a_renamed_case_stays_in_its_finding(story, night):
    night()
    night(WRONG)
    assert night(WRONG, case=replace(story.tiled, variant="blocked", formerly=("tiled",))) == FindingUpdates(seen=(1,))
