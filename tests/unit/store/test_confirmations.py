"""Stored confirmations."""

from dataclasses import replace

import pytest

from perfsvc.model import (
    Batch,
    Cause,
    ChangeKind,
    Conditions,
    Confirmation,
    Direction,
    Judgement,
    Measurement,
    Slowdown,
    Status,
    Suspect,
    Verdict,
)


@pytest.fixture
def confirmation(story):
    """A suspect of the second night, measured again in two pairs."""
    story.run(story.tiled)
    story.run(story.tiled)
    judged = Judgement(story.series(story.tiled), Verdict.REGRESSION, ratio=1.25, baseline_run=1, candidate_run=2)

    def side_run(number, *samples):
        return Measurement(story.tiled, story.gpu.uuid, number, Status.OK, samples_s=samples, wall_s=0.5)

    return Confirmation(
        Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER),
        Cause.KERNEL,
        "the old one is faster",
        threshold=0.03,
        seed=2**32 - 1,
        budget_s=20.0,
        verdict=Verdict.REGRESSION,
        ratio=1.25,
        low=1.2,
        high=1.3,
        looks=1,
        drift=1.0,
        same_code=False,
        wall_s=2.5,
        baseline=(side_run(0, 0.5, 0.25), side_run(3, 0.5)),
        candidate=(side_run(1, 0.75), side_run(2, 1.0, 0.75)),
    )


def test_a_confirmation_is_read_as_it_was_stored(story, confirmation):
    story.store.confirmations.put(confirmation)
    assert story.store.confirmations.of_run(2) == [confirmation]
    assert story.store.confirmations.of_run(1) == []


def test_a_suspect_that_could_not_be_measured_is_stored(story, confirmation):
    unmeasured = replace(
        confirmation,
        cause=Cause.UNCONFIRMED,
        reason="it runs Python",
        **dict.fromkeys(("verdict", "ratio", "low", "high", "drift", "same_code")),
        baseline=(),
        candidate=(),
    )
    story.store.confirmations.put(unmeasured)
    assert story.store.confirmations.of_run(2) == [unmeasured]


def test_a_second_confirmation_keeps_the_first(story, confirmation):
    cleared = replace(confirmation, cause=Cause.NOISE)
    for decision in (confirmation, cleared):
        story.store.confirmations.put(decision)
    assert [confirmation.cause for confirmation in story.store.confirmations.of_run(2)] == [Cause.KERNEL, Cause.NOISE]


def test_a_side_run_without_a_result_has_a_reason(story, confirmation):
    crashed = Measurement(story.tiled, story.gpu.uuid, 0, Status.FAILED, reason="its worker died")
    story.store.confirmations.put(replace(confirmation, baseline=(crashed,), candidate=()))
    (stored,) = story.store.confirmations.of_run(2)
    assert stored.baseline == (crashed,)
    assert stored.failed


def test_the_state_of_the_device_is_stored_for_each_side_run(story, confirmation):
    hot = Conditions(sm_clock_hz=1.5e9, temperature_c=80.0, slowdowns=(Slowdown.POWER_CAP,))
    hot_run = replace(confirmation.baseline[0], batches=(Batch((0.5, 0.25), conditions=hot),))
    story.store.confirmations.put(replace(confirmation, baseline=(hot_run,)))
    rows = story.execute("SELECT sm_clock_hz, temperature_c, slowdowns FROM confirmation_runs WHERE side = 'baseline'")
    assert [tuple(row) for row in rows] == [(1.5e9, 80.0, "power cap")]


def test_confirmations_are_deleted_with_their_run(story, confirmation):
    story.store.confirmations.put(confirmation)
    story.execute("DELETE FROM runs WHERE id = 2")
    assert story.execute("SELECT * FROM confirmation_runs") == []


def test_the_confirmations_of_a_series_come_from_all_runs_and_without_their_measurements(story, confirmation):
    story.store.confirmations.put(confirmation)
    story.run(story.tiled)
    later = replace(confirmation.suspect.judgement, candidate_run=3)
    story.store.confirmations.put(replace(confirmation, suspect=replace(confirmation.suspect, judgement=later)))
    tiled, naive = story.series(story.tiled), story.series(story.naive)
    found = story.store.confirmations.of_series([tiled, naive])
    assert [answer.suspect.judgement.candidate_run for answer in found] == [2, 3]
    assert {(answer.reason, answer.baseline) for answer in found} == {("the old one is faster", ())}
    assert story.store.confirmations.of_series([naive]) == story.store.confirmations.of_series([]) == []
