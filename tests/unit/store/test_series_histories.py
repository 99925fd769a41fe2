"""Histories over many runs, from which the pages are built."""

from dataclasses import replace
from random import Random

import pytest

from perfsvc.model import (
    CacheState,
    Case,
    Cause,
    Environment,
    RunState,
    Status,
    Verdict,
)
from perfsvc.store import histories
from perfsvc.store.measurements import quantities
from perfsvc.store.schema import shared_reading
from perfsvc.store.schema.engine import report_damaged
from tests.unit.store.conftest import ON_BOTH


@pytest.fixture
def shared(monkeypatch):
    """Let three processes read the measurements of even a few runs; return the numbers of queries that they read."""
    monkeypatch.setattr(shared_reading, "LEAST_RUNS", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    numbers = []

    class Counted(shared_reading.SharedWork):
        def __init__(self, parts, do, **given):
            numbers.append(parts)
            super().__init__(parts, do, processes=3, **given)

    monkeypatch.setattr(shared_reading, "SharedWork", Counted)
    return numbers


@ON_BOTH
def test_a_history_has_the_replicas_of_each_run_oldest_first(story, store):
    first = story.run()
    second = story.begin()
    for replica, time in enumerate((2e-3, 4e-3)):
        story.put(
            second, story.tiled, samples=(time,), replica=replica, metrics={"steps": 3.0 + replica}, max_error=1e-7
        )
    held = store.series.histories([first, second])
    times = held[story.series(story.tiled)]
    assert [(one.run, one.values, one.low, one.high) for one in times] == [
        (first, (2e-3,), 1e-3, 3e-3),
        (second, (2e-3, 4e-3), 2e-3, 2e-3),
    ]
    (steps,) = held[story.series(story.tiled, metric="steps")]
    assert (steps.run, steps.values, steps.low) == (second, (3.0, 4.0), None)
    assert list(store.series.histories([second])[story.series(story.tiled)]) == times[1:]
    error = story.series(story.tiled, metric="max_error")
    assert error not in held
    assert store.series.histories([second], errors=True)[error][0].values == (1e-7, 1e-7)


def test_a_case_with_a_wrong_replica_has_a_reason_and_no_values(story, store):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.tiled, replica=1, status=Status.WRONG, reason="9 of 10 elements are beyond the tolerance")
    (one,) = store.series.histories([run])[story.series(story.tiled)]
    assert (one.status, one.values) == (Status.WRONG, ())
    assert one.reason == "9 of 10 elements are beyond the tolerance"
    assert store.series.samples([run]).keys() == {story.series(story.tiled)}


@ON_BOTH
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
    assert measured == store.series.histories([run]).keys()
    assert {(series.case.variant, series.metric, series.cache.value) for series in measured} == {
        ("tiled", "time", "cold"),
        ("tiled", "steps", "cold"),
        ("tiled", "time", "warm"),
        ("shared", "time", "cold"),
    }
    assert {case.variant for case in store.series.unsuccessful(run)} == {"shared", "tiled"}  # names of one lineage
    assert store.series.measured(run + 1) == store.series.unsuccessful(run + 1) == set()


def test_cases_without_a_correct_result_are_known_by_their_present_names(story, store):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.tiled, replica=1, status=Status.FAILED, reason="it crashed")
    story.put(run, story.naive)
    store.runs.end(run, RunState.FINISHED)
    assert store.series.unsuccessful(run) == {story.tiled}
    renamed = replace(story.tiled, variant="renamed", formerly=("tiled",))
    story.run(renamed)
    assert {case.variant for case in store.series.unsuccessful(run)} == {"tiled", "renamed"}


@ON_BOTH
def test_a_renamed_case_keeps_its_history_events_and_samples(story, store):
    first = story.run()
    story.judge(first, story.tiled, Verdict.REGRESSION, metric="time")
    heir = Case("transpose", "blocked", story.tiled.point, formerly=("tiled",))
    second = story.run(heir)
    series = story.series(replace(heir, formerly=()))
    assert [one.run for one in store.series.histories([first, second])[series]] == [first, second]
    assert [one.run for one in store.verdicts.events([first, second])[series]] == [first]
    assert store.series.samples([first])[series][first][0] == pytest.approx((1e-3, 2e-3, 3e-3))


def test_only_verdicts_that_are_events_are_read_with_their_cause_and_ratio(story, store):
    runs = [story.run() for _ in range(4)]
    verdicts = Verdict.NEW, Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.BROKEN
    for run, verdict in zip(runs, verdicts, strict=True):
        story.judge(run, story.tiled, verdict)
    (told,) = store.verdicts.events(runs)[story.series(story.tiled)]
    assert (told.run, told.verdict, told.cause) == (runs[-1], Verdict.BROKEN, None)
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


def plain(read):
    """Return histories or quantities as values that can be compared."""
    return {
        series: {
            name: value.tolist() if hasattr(value := getattr(of_series, name), "tolist") else value
            for name in of_series.__slots__
        }
        for series, of_series in read.items()
    }


@ON_BOTH
def test_several_processes_read_the_same_as_one(story, store, shared):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    runs = [story.run(), story.run(story.tiled, story.naive), story.run(renamed)]
    for replica in range(2):
        run = story.begin()
        runs.append(run)
        story.put(run, story.tiled, replica=replica, metrics={"steps": 3.0, f"of {run}": 1.0}, max_error=1e-7)
        story.put(run, story.naive, cache=CacheState.WARM, metrics={"steps": 4.0 + replica})
        story.put(run, renamed, status=Status.WRONG, reason="a difference", metrics={"steps": 9.0})
    store.exclusions.exclude(runs[1], None, by="me", reason="a hot GPU")
    cases = {series.case for series in store.series.histories(runs, errors=True)}
    assert shared == [3, 3]  # the measurements and the named metrics
    for errors in (False, True):
        together = store.series.histories(runs, errors=errors)
        assert repr(plain(together)) == repr(plain(store.series.histories(runs, errors=errors, cases=cases)))
        assert {series.metric for series in together} >= {"time", "steps", f"of {runs[-1]}"}
    assert repr(plain(store.measurements.quantities(runs))) == repr(plain(store.measurements.quantities(runs, cases)))
    assert len(shared) == 7
    assert store.series.histories([]) == store.measurements.quantities([]) == {}


def test_a_process_with_an_open_transaction_reads_alone(story, store, shared):
    runs = [story.run(), story.run(story.naive)]
    with store.database.reading():
        assert len(store.series.histories(runs)) == len(store.measurements.quantities(runs)) == 2
    assert shared == []


@pytest.mark.parametrize("module", [histories, quantities])
def test_a_case_that_was_deleted_while_it_was_read_is_left_out(story, store, module, monkeypatch):
    runs = [story.run(story.tiled, story.naive)]

    def read(*given):
        columns = shared_reading.read_together(*given)
        story.execute("DELETE FROM measurements WHERE case_id = (SELECT id FROM cases WHERE variant = 'naive')")
        story.execute("DELETE FROM cases WHERE variant = 'naive'")
        return columns

    monkeypatch.setattr(module, "read_together", read)
    of_runs = store.series.histories if module is histories else store.measurements.quantities
    assert {series.case for series in of_runs(runs)} == {story.tiled}


@pytest.mark.parametrize("seed", range(2))
def test_the_newest_points_of_each_series_are_those_of_whole_histories(story, store, seed):
    random = Random(seed)
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    runs = []
    for _ in range(14):
        run = story.begin()
        runs.append(run)
        for case in random.sample([story.tiled, story.naive, renamed], random.randint(0, 3)):
            for replica in range(random.choice((1, 3))):
                status = random.choice([Status.OK] * 9 + [Status.WRONG])
                metrics = {name: random.random() for name in ("steps", "joules") if random.random() < 0.6}
                samples = (random.random(),) if random.random() < 0.8 else ()
                error = random.choice((None, 1e-7))
                story.put(run, case, replica=replica, status=status, metrics=metrics, samples=samples, max_error=error)
        store.runs.end(run, RunState.FINISHED)
    store.exclusions.exclude(runs[2], None, by="me", reason="a hot GPU")
    for most in (1, 2, 5, 100):
        whole = store.series.histories(runs, errors=True)
        newest = store.series.newest_histories(runs, most, errors=True)
        assert list(map(str, sorted(newest, key=str))) == list(map(str, sorted(whole, key=str)))
        for series, history in whole.items():
            assert list(newest[series])[-most:] == list(history)[-most:]
        assert most > 5 or sum(map(len, newest.values())) < sum(map(len, whole.values()))
