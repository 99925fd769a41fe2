"""Histories over many runs, from which the pages are built."""

from dataclasses import replace

import pytest

from perfsvc.model import (
    CacheState,
    Case,
    Cause,
    Environment,
    Status,
    Verdict,
)
from perfsvc.store.schema.engine import report_damaged


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


def test_errors_of_results_are_read_on_request(story, store):
    run = story.begin()
    story.put(run, story.tiled, max_error=1e-7)
    series = story.series(story.tiled, metric="max_error")
    assert series not in store.series.histories([run])
    assert store.series.histories([run], errors=True)[series][0].values == (1e-7,)


def test_a_case_with_a_wrong_replica_has_a_reason_and_no_values(story, store):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.tiled, replica=1, status=Status.WRONG, reason="9 of 10 elements are beyond the tolerance")
    (one,) = store.series.histories([run])[story.series(story.tiled)]
    assert (one.status, one.values) == (Status.WRONG, ())
    assert one.reason == "9 of 10 elements are beyond the tolerance"
    assert store.series.samples([run]).keys() == {story.series(story.tiled)}


def test_the_measured_series_of_a_run_are_those_of_its_histories(story, store):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run()
    story.run(renamed)
    run = story.begin()
    story.put(run, story.tiled, metrics={"steps": 3.0, "sm_cycles": 9.0})  # its name is now that of a new variant
    story.put(run, renamed, metrics={"steps": 3.0})
    story.put(run, renamed, replica=1, status=Status.WRONG, metrics={"steps": 3.0})
    story.put(run, story.tiled, cache=CacheState.WARM)
    measured = store.series.measured(run)
    assert measured.keys() == store.series.histories([run]).keys()
    assert {(series.case.variant, series.metric, series.cache.value): ok for series, ok in measured.items()} == {
        ("tiled", "time", "cold"): True,
        ("tiled", "steps", "cold"): True,
        ("tiled", "time", "warm"): True,
        ("shared", "time", "cold"): False,
    }
    assert store.series.measured(run + 1) == {}


def test_a_renamed_case_keeps_its_history_events_and_samples(story, store):
    first = story.run()
    story.judge(first, story.tiled, Verdict.REGRESSION, metric="time")
    heir = Case("transpose", "blocked", story.tiled.point, formerly=("tiled",))
    second = story.run(heir)
    series = story.series(replace(heir, formerly=()))
    assert [one.run for one in store.series.histories([first, second])[series]] == [first, second]
    assert [one.run for one in store.verdicts.events([first, second])[series]] == [first]
    assert store.series.samples([first])[series][first][0] == pytest.approx((1e-3, 2e-3, 3e-3))


def test_only_verdicts_that_are_events_are_read(story, store):
    runs = [story.run() for _ in range(4)]
    verdicts = Verdict.NEW, Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.BROKEN
    for run, verdict in zip(runs, verdicts, strict=True):
        story.judge(run, story.tiled, verdict)
    (told,) = store.verdicts.events(runs)[story.series(story.tiled)]
    assert (told.run, told.verdict, told.cause) == (runs[-1], Verdict.BROKEN, None)


def test_an_event_has_its_cause_and_ratio(story, store):
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


def test_a_damaged_blob_of_samples_is_left_out_and_reported_with_its_case(story, store, caplog):
    report_damaged.cache_clear()
    run = story.run(story.tiled, story.naive)
    story.execute("UPDATE measurements SET samples = :blob WHERE id = 1", blob=b"nothing")
    assert list(store.series.samples([run])) == [story.series(story.naive)]
    assert "samples of transpose/tiled[n=4096,dtype=f32] is damaged" in caplog.text
