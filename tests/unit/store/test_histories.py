"""Many runs read at once: what the pages of a year are made of."""

from dataclasses import replace

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.model import (
    Batch,
    Case,
    Cause,
    Conditions,
    Environment,
    Peak,
    Slowdown,
    Status,
    Verdict,
)


def test_a_history_has_the_replicas_of_each_run_oldest_first(story, store):
    first = story.run()
    second = story.begin()
    for replica, time in enumerate((2e-3, 4e-3)):
        story.put(second, story.tiled, samples=(time,), replica=replica, metrics={"steps": 3.0 + replica})
    held = store.series.histories([first, second])
    times = held[story.series(story.tiled)]
    assert [(one.run, one.values, one.low, one.high) for one in times] == [
        (first, (2e-3,), 1e-3, 3e-3),
        (second, (2e-3, 4e-3), 2e-3, 2e-3),
    ]
    (steps,) = held[story.series(story.tiled, metric="steps")]
    assert (steps.run, steps.values, steps.low) == (second, (3.0, 4.0), None)
    assert list(store.series.histories([second])[story.series(story.tiled)]) == times[1:]


def test_the_errors_of_results_come_where_somebody_asks(story, store):
    run = story.begin()
    story.put(run, story.tiled, max_error=1e-7)
    series = story.series(story.tiled, metric="max_error")
    assert series not in store.series.histories([run])
    assert store.series.histories([run], errors=True)[series][0].values == (1e-7,)


def test_a_case_that_any_replica_got_wrong_says_why_and_has_no_values(story, store):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.tiled, replica=1, status=Status.WRONG, reason="9 of 10 elements are beyond the tolerance")
    (one,) = store.series.histories([run])[story.series(story.tiled)]
    assert (one.status, one.values) == (Status.WRONG, ())
    assert one.reason == "9 of 10 elements are beyond the tolerance"
    assert store.series.samples([run]).keys() == {story.series(story.tiled)}


def test_a_renamed_case_keeps_its_history_events_and_samples(story, store):
    first = story.run()
    story.judge(first, story.tiled, Verdict.REGRESSION, metric="time")
    heir = Case("transpose", "blocked", story.tiled.point, formerly=("tiled",))
    second = story.run(heir)
    series = story.series(replace(heir, formerly=()))
    assert [one.run for one in store.series.histories([first, second])[series]] == [first, second]
    assert [one.run for one in store.verdicts.events([first, second])[series]] == [first]
    assert store.series.samples([first])[series][first][0] == pytest.approx((1e-3, 2e-3, 3e-3))


def test_only_verdicts_that_tell_of_an_event_are_told(story, store):
    runs = [story.run() for _ in range(4)]
    verdicts = Verdict.NEW, Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.BROKEN
    for run, verdict in zip(runs, verdicts, strict=True):
        story.judge(run, story.tiled, verdict)
    (told,) = store.verdicts.events(runs)[story.series(story.tiled)]
    assert (told.run, told.verdict, told.cause) == (runs[-1], Verdict.BROKEN, None)


def test_the_cause_and_the_ratio_of_an_event_are_told(story, store):
    run = story.run()
    judged = replace(story.judgement(story.tiled, Verdict.REGRESSION), ratio=1.25, cause=Cause.KERNEL)
    store.verdicts.put(run, [judged])
    assert [(one.ratio, one.cause) for one in store.verdicts.events([run])[story.series(story.tiled)]] == [
        (1.25, Cause.KERNEL)
    ]


def test_segments_are_environments(story, store):
    old = story.run()
    new = replace(story, environment=Environment("590.0", "nvcc 13.1", 700.0)).run()
    segments = [one.segment for one in store.series.histories([old, new])[story.series(story.tiled)]]
    assert [store.devices.environments()[segment].driver for segment in segments] == ["580.1", "590.0"]


def test_a_damaged_blob_of_samples_is_said_with_its_case(story, store):
    run = story.run()
    story.execute("UPDATE measurements SET samples = :blob", blob=b"nothing")
    with pytest.raises(DatabaseError, match=r"samples of transpose/tiled\[n=4096,dtype=f32\] is damaged"):
        store.series.samples([run])


def test_a_board_tells_of_its_worst_moments_and_troubles(story, store):
    run = story.begin()
    hot = Conditions(1.7e9, temperature_c=81.0, power_w=690.0, slowdowns=(Slowdown.THERMAL,), xids=(79,), others=(12,))
    well = Conditions(1.9e9, temperature_c=55.0, power_w=400.0, ecc_errors=2)
    story.put(
        run, story.tiled, batches=(Batch((1e-3,), conditions=well), Batch((1e-3,), rejected="hot", conditions=hot))
    )
    story.put(run, story.naive, status=Status.FAILED)
    (board,) = store.devices.conditions(run)
    assert (board.device_model, board.measured, board.failed) == ("NVIDIA H100", 2, 1)
    assert (board.rejected_batches, board.slowdowns, board.ecc_errors) == (1, ("thermal slowdown",), 2)
    assert (board.xids, board.others) == (("79",), ("12",))
    assert board.temperature_c is not None
    assert store.devices.conditions(run + 1) == []


def test_what_a_board_skipped_was_not_measured_on_it(story, store):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.naive, status=Status.SKIPPED)
    (board,) = store.devices.conditions(run)
    assert (board.measured, board.failed) == (1, 0)


def test_roofs_come_by_board_and_run(story, store):
    runs = [story.run(), story.run()]
    for run in runs:
        store.devices.put_peaks(run, {"GPU-1": Peak(2e12 + run, 3e12)})
    found = store.devices.peaks_of(runs)
    assert list(found["GPU-1"]) == runs
    assert found["GPU-1"][runs[0]] == Peak(2e12 + runs[0], 3e12)
