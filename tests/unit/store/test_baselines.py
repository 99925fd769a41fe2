"""Baselines: accepted levels, pins, cross-device baselines and segments."""

from dataclasses import replace

import pytest

from perfsvc.errors import NotMeasuredError
from perfsvc.model import CacheState, Judgement, Status, Verdict
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH


@ON_BOTH
def test_verdicts_are_read_as_they_were_stored(story, tiled, naive):
    baseline, run = story.run(), story.run()
    judged = [
        Judgement(
            tiled, Verdict.REGRESSION, "slower", 1.05, 1.04, 1.06, baseline, run, 1e-3, 2e-3, candidate_replicas=1
        ),
        Judgement(naive, Verdict.MISSING, "not measured", baseline_run=baseline, candidate_run=run),
    ]
    story.store.verdicts.put(run, judged)
    assert story.store.verdicts.of_run(run) == judged
    story.store.verdicts.put(run, judged[:1])
    assert story.store.verdicts.of_run(run) == judged[:1]


def test_without_verdicts_the_first_correct_result_is_the_level(story, tiled, naive):
    wrong = story.begin()
    story.put(wrong, story.tiled, replica=0)
    story.put(wrong, story.tiled, replica=1, status=Status.WRONG)
    story.store.runs.end(wrong, RunState.FINISHED)
    first = story.run(state=RunState.FAILED)
    assert story.store.baselines.get([tiled, naive], before_run=first) == {}
    assert story.store.baselines.get([], before_run=first) == {}
    story.run()
    assert story.store.baselines.get([tiled], before_run=99) == {tiled: first}


@ON_BOTH
def test_only_new_and_improvement_move_the_level(story, tiled):
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
        assert story.store.baselines.get([tiled], before_run=run + 1) == {tiled: level}
    assert story.store.baselines.get([tiled], before_run=6) == {tiled: 1}


def test_uncommitted_changes_give_a_level_only_until_a_run_without_any(story, tiled):
    dirty = story.run(dirty=True)
    story.judge(dirty, story.tiled, Verdict.NEW)
    again = story.run(dirty=True)
    assert story.store.baselines.get([tiled], before_run=again + 1) == {tiled: dirty}
    clean = story.run()
    story.judge(clean, story.tiled, Verdict.UNCHANGED)
    assert story.store.baselines.get([tiled], before_run=clean + 1) == {tiled: clean}
    for verdict in (Verdict.IMPROVEMENT, Verdict.NEW):
        dirty = story.run(dirty=True)
        story.judge(dirty, story.tiled, verdict)
    assert story.store.baselines.get([tiled], before_run=dirty + 1) == {tiled: clean}


@ON_BOTH
def test_a_new_device_gets_the_levels_of_other_devices_of_its_model_and_their_pins(story, tiled):
    there, new = (story.series(story.tiled, device=name) for name in ("GPU-2", "GPU-3"))
    story.run()
    second = story.begin()
    story.put(second, story.tiled, device="GPU-2")
    story.store.runs.end(second, RunState.FINISHED)
    other = story.begin()
    story.store.devices.put(replace(story.gpu, uuid="GPU-4", model="NVIDIA H200"))
    story.store.devices.put(replace(story.gpu, uuid="GPU-3"))
    other_model = story.series(story.tiled, device="GPU-4", device_model="NVIDIA H200")
    assert story.store.baselines.get([new, other_model], before_run=other) == {tiled: 1, there: second}
    assert story.store.baselines.get([tiled, new], before_run=other) == {tiled: 1, there: second}
    third = story.run()
    story.store.baselines.pin(third, [tiled])
    assert story.store.baselines.get([new], before_run=9) == {tiled: third, there: second}


def test_metrics_and_cache_states_have_separate_levels_verdicts_and_pins(story, tiled):
    overlap, warm = story.series(story.tiled, metric="overlap"), story.series(story.tiled, cache=CacheState.WARM)
    first, second = story.begin(), story.begin()
    for run, status, metrics in ((first, Status.WRONG, {}), (second, Status.OK, {"overlap": 0.5})):
        story.put(run, story.tiled, metrics=metrics)
        story.put(run, story.tiled, cache=CacheState.WARM, status=status)
        story.store.runs.end(run, RunState.FINISHED)
    levels = {tiled: first, overlap: second, warm: second}
    assert story.store.baselines.get([tiled, overlap, warm], before_run=9) == levels
    judged = [Judgement(tiled, Verdict.UNCHANGED), Judgement(warm, Verdict.IMPROVEMENT)]
    story.store.verdicts.put(second, judged)
    found = {judgement.series: judgement.verdict for judgement in story.store.verdicts.of_run(second)}
    assert found == {tiled: Verdict.UNCHANGED, warm: Verdict.IMPROVEMENT}
    assert story.store.baselines.get([tiled, overlap, warm], before_run=9) == levels
    story.store.baselines.pin(second, [tiled])
    assert [pin.series for pin in story.store.baselines.pins()] == [tiled]
    with pytest.raises(NotMeasuredError, match="has no correct result of transpose/tiled"):
        story.store.baselines.pin(first, [warm])


@ON_BOTH
def test_a_pin_overrides_the_accepted_level_until_it_is_removed(story, tiled, naive):
    first, second, third = (story.run(story.tiled, story.naive) for _ in range(3))
    story.store.baselines.pin(first, [tiled])
    story.store.baselines.pin(second, [tiled, tiled], by="ann", comment="release 1")
    assert story.store.baselines.get([tiled], before_run=third) == {tiled: second}
    (pin,) = story.store.baselines.pins()
    assert (pin.series, pin.run, pin.set_by, pin.comment) == (tiled, second, "ann", "release 1")
    assert story.store.baselines.unpin([tiled]) == 1
    assert story.store.baselines.get([tiled], before_run=third) == {tiled: first}
    assert story.store.baselines.unpin([tiled]) == 0
    story.store.baselines.pin(third, [tiled, naive])
    assert story.store.baselines.unpin() == 2
    assert story.store.baselines.pins() == []


def test_a_run_is_pinned_only_for_its_correct_results(story, tiled, naive):
    run, other = story.begin(), story.begin()
    story.put(run, story.tiled)
    for each in (run, other):
        story.put(each, story.naive, status=Status.WRONG)
    with pytest.raises(NotMeasuredError, match="has no correct result of transpose/naive"):
        story.store.baselines.pin(run, [tiled, naive])
    with pytest.raises(NotMeasuredError, match="has no correct result of transpose/tiled"):
        story.store.baselines.pin(other, [tiled])
    with pytest.raises(NotMeasuredError, match="has no correct result of transpose/never stored"):
        story.store.baselines.pin(run, [story.series(replace(story.tiled, variant="never stored"))])
    assert story.store.baselines.pins() == []


def test_the_first_level_is_found_in_later_runs_too(story, tiled, naive):
    on_other_device = story.series(story.naive, device="GPU-2")
    experiment = story.run(story.tiled, story.naive, dirty=True)
    for _ in range(6):
        story.run(state=RunState.RUNNING)
    first = story.run()
    for _ in range(6):
        story.run()
    story.put(story.run(), story.naive, device="GPU-2")
    last = story.run(story.naive)
    levels = {tiled: first, naive: experiment, on_other_device: last - 1}
    assert story.store.baselines.get(levels, before_run=last) == levels
    assert story.store.baselines.get(levels, before_run=first) == {tiled: experiment, naive: experiment}


# --- segments --------------------------------------------------------------------------------------------------------


def test_a_segment_has_its_own_level_after_its_first_correct_run(story, tiled):
    new = replace(story, environment=replace(story.environment, driver="590.1"))
    first = story.run()
    story.judge(first, story.tiled, Verdict.NEW)
    wrong = new.begin()
    new.put(wrong, story.tiled, status=Status.WRONG)
    story.store.runs.end(wrong, RunState.FINISHED)
    begins, after, last = new.run(), new.run(), new.run()
    assert story.store.baselines.get([tiled], begins) == {tiled: first}
    assert story.store.baselines.get([tiled], after) == {tiled: begins}
    story.judge(after, story.tiled, Verdict.IMPROVEMENT)
    assert story.store.baselines.get([tiled], last) == {tiled: after}


def test_a_run_with_uncommitted_changes_neither_ends_a_segment_nor_is_its_level(story, tiled):
    tried, new = (
        replace(story, environment=replace(story.environment, driver=driver)) for driver in ("590.1", "600.1")
    )
    first = story.run()
    story.run(dirty=True)
    tried.run(dirty=True)
    assert story.store.baselines.get([tiled], tried.run()) == {tiled: first}
    tried.run(dirty=True)
    assert story.store.baselines.get([tiled], new.run(dirty=True)) == {tiled: first}
    assert story.store.baselines.get([tiled], new.run()) == {tiled: first}


def test_an_experiment_in_another_environment_ends_no_segment(story, tiled):
    first = story.run()
    replace(story, environment=replace(story.environment, toolkit="nvcc 14.0")).run(dirty=True)
    assert story.store.baselines.get([tiled], story.run()) == {tiled: first}
