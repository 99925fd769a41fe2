import pytest

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Judgement, Mode, Status, Verdict
from perfsvc.store import State


@pytest.fixture
def tiled(story):
    return story.series(story.tiled)


def test_verdicts_come_back_as_they_were_judged(story, tiled):
    baseline, run = story.run(), story.run()
    judged = [
        Judgement(tiled, Verdict.REGRESSION, "slower", 1.05, 1.04, 1.06, baseline, run, 1e-3, 1.05e-3),
        Judgement(story.series(story.naive), Verdict.MISSING, "not measured", baseline_run=baseline, candidate_run=run),
    ]
    story.store.put_verdicts(run, judged)
    assert story.store.verdicts(run) == judged
    story.store.put_verdicts(run, judged[:1])
    assert story.store.verdicts(run) == judged[:1]


def test_without_verdicts_the_first_right_result_is_the_level(story, tiled):
    wrong = story.begin()
    story.put(wrong, story.tiled, replica=0)
    story.put(wrong, story.tiled, replica=1, status=Status.WRONG)
    story.store.end_run(wrong, State.FINISHED)
    story.run(state=State.FAILED)
    first = story.run()
    story.run()
    assert story.store.accepted_levels([tiled], before_run=99) == {tiled: first}


def test_a_series_without_an_earlier_result_has_no_level(story, tiled):
    run = story.run()
    assert story.store.accepted_levels([tiled, story.series(story.naive)], before_run=run) == {}
    assert story.store.accepted_levels([], before_run=run) == {}


def test_only_what_is_new_or_faster_moves_the_level(story, tiled):
    moves = [
        (Verdict.NEW, 1),
        (Verdict.UNCHANGED, 1),
        (Verdict.INCONCLUSIVE, 1),
        (Verdict.REGRESSION, 1),
        (Verdict.BROKEN, 1),
        (Verdict.IMPROVEMENT, 6),
        (Verdict.UNCHANGED, 6),
    ]
    for verdict, level in moves:
        run = story.run()
        story.judge(run, story.tiled, verdict)
        assert story.store.accepted_levels([tiled], before_run=run + 1) == {tiled: level}
    assert story.store.accepted_levels([tiled], before_run=6) == {tiled: 1}


def test_levels_of_metrics_and_modes_are_apart(story, tiled):
    overlap, warm = story.series(story.tiled, metric="overlap"), story.series(story.tiled, mode=Mode.WARM)
    first = story.run()
    second = story.begin()
    story.put(second, story.tiled, metrics={"overlap": 0.5})
    story.put(second, story.tiled, mode=Mode.WARM)
    story.store.end_run(second, State.FINISHED)
    story.judge(second, story.tiled, Verdict.IMPROVEMENT, mode=Mode.WARM)
    levels = story.store.accepted_levels([tiled, overlap, warm], before_run=3)
    assert levels == {tiled: first, overlap: second, warm: second}


def test_a_pin_comes_before_the_accepted_level(story, tiled):
    first, second, third = story.run(), story.run(), story.run()
    story.store.pin(second, [tiled], by="ann", comment="release 1")
    assert story.store.baselines([tiled], before_run=third) == {tiled: second}
    assert story.store.accepted_levels([tiled], before_run=third) == {tiled: first}
    (pin,) = story.store.pins()
    assert (pin.series, pin.run, pin.set_by, pin.comment) == (tiled, second, "ann", "release 1")
    assert story.store.unpin([tiled]) == 1
    assert story.store.baselines([tiled], before_run=third) == {tiled: first}
    assert story.store.unpin([tiled]) == 0


def test_a_series_has_one_pin(story, tiled):
    first, second = story.run(), story.run()
    story.store.pin(first, [tiled])
    story.store.pin(second, [tiled, tiled])
    assert [pin.run for pin in story.store.pins()] == [second]


def test_all_pins_go_at_once(story, tiled):
    run = story.run(story.tiled, story.naive)
    story.store.pin(run, [tiled, story.series(story.naive)])
    assert story.store.unpin() == 2
    assert story.store.pins() == []


def test_a_run_is_pinned_only_for_what_it_got_right(story, tiled):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.naive, status=Status.WRONG)
    with pytest.raises(NotMeasuredError, match="holds no right result of transpose/naive"):
        story.store.pin(run, [tiled, story.series(story.naive)])
    assert story.store.pins() == []


def test_a_case_that_was_never_stored_cannot_be_pinned(story, tiled):
    run = story.run(story.naive)
    with pytest.raises(NotMeasuredError, match="holds no right result of transpose/tiled"):
        story.store.pin(run, [tiled])
