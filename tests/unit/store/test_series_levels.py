from dataclasses import replace
from math import inf, nan
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc import judge
from perfsvc.errors import DatabaseError, NotMeasuredError
from perfsvc.model import CacheState, Level, Status
from perfsvc.store.schema.samples import pack, unpack
from tests.unit.store.conftest import ON_BOTH


def plain(levels):
    """Return levels so that they can be compared."""
    return {
        series: (level.run, level.status, level.reason, tuple(level.medians), level.spread, level.step, level.further)
        for series, level in levels.items()
    }


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=200))
def test_samples_are_read_as_float32(samples):
    assert unpack(pack(samples)) == tuple(samples)


def test_a_blob_with_more_samples_than_a_worker_can_send_is_damaged(monkeypatch):
    monkeypatch.setattr("perfsvc.store.schema.samples.MOST_SAMPLES", 1000)
    assert len(unpack(pack([0.0] * 1000))) == 1000
    for blob in (pack([0.0] * 1001), pack([0.0] * 1000)[:-5]):
        with pytest.raises(ValueError, match="too many samples"):
            unpack(blob)


@ON_BOTH
def test_a_level_is_that_of_the_samples_of_each_replica_and_its_axes_keep_their_types_and_order(story):
    run = story.begin()
    story.put(run, story.tiled, replica=1, samples=(4e-3, 5e-3))
    story.put(run, story.tiled, replica=0, samples=(1e-3, 2e-3, 3e-3))
    samples = [np.asarray(samples, np.float32) for samples in ((1e-3, 2e-3, 3e-3), (4e-3, 5e-3))]
    expected = replace(judge.level_of_samples(samples, run), medians=(2e-3, median((4e-3, 5e-3))))
    assert plain(story.store.series.levels(run)) == plain({story.series(story.tiled): expected})
    case = replace(story.tiled, point=(("z", 1), ("a", 0.5), ("dtype", "ƒ32"), ("seven", "7")))
    run = story.run(case)
    assert [series.case.point for series in story.store.series.levels(run)] == [case.point]
    assert story.store.measurements.columns([run])["case"] == ["transpose/tiled[z=1,a=0.5,dtype=ƒ32,seven=7]"]


@ON_BOTH
def test_named_metrics_have_one_value_a_replica_and_errors_beyond_all_numbers_are_stored(story):
    run = story.begin()
    story.put(run, story.tiled, replica=0, samples=(), metrics={"overlap": 0.5, "hops": 3})
    story.put(run, story.tiled, replica=1, samples=(), metrics={"overlap": 0.25, "hops": nan})
    expected = {
        story.series(story.tiled, metric="overlap"): Level(run, Status.OK, medians=(0.5, 0.25)),
        story.series(story.tiled, metric="hops"): Level(run, Status.OK, medians=(3.0,)),
    }
    assert plain(story.store.series.levels(run)) == plain(expected)
    other = story.begin()
    story.put(other, story.tiled, status=Status.WRONG, max_error=inf, mean_error=nan)
    columns = story.store.measurements.columns([other])
    assert (columns["max_error"], columns["mean_error"]) == ([inf], [None])


def test_a_case_without_a_right_result_in_each_replica_has_a_reason_and_no_replicas(story):
    run, expected = story.begin(), {}
    for status in (Status.WRONG, Status.FAILED, Status.SKIPPED):
        case = replace(story.tiled, variant=status.value)
        story.put(run, case, status=status, reason="needs sm_90", metrics={"overlap": 1.0})
        expected[story.series(case)] = Level(run, status, "needs sm_90")
    for replica, status in enumerate((Status.OK, Status.FAILED, Status.WRONG, Status.OK)):
        story.put(run, story.tiled, replica=replica, status=status, reason=f"it was {status}")
    expected[story.series(story.tiled)] = Level(run, Status.WRONG, "it was wrong")
    assert plain(story.store.series.levels(run)) == plain(expected)


def test_a_wrong_cache_state_does_not_spoil_the_other(story):
    run = story.begin()
    for replica in range(2):
        story.put(run, story.tiled, replica=replica, samples=(0.5,))
        story.put(run, story.tiled, replica=replica, cache=CacheState.WARM, status=Status.WRONG, reason="off by one")
    cold, warm = (story.series(story.tiled, cache=cache) for cache in CacheState)
    expected = {cold: Level(run, Status.OK, medians=(0.5, 0.5)), warm: Level(run, Status.WRONG, "off by one")}
    assert plain(story.store.series.levels(run)) == plain(expected)
    rows = {row.cache: row for row in story.store.series.case_history(story.tiled.id)}
    assert [(rows[cache].status, rows[cache].replicas, rows[cache].median_s) for cache in CacheState] == [
        (Status.OK, 2, 0.5),
        (Status.WRONG, 0, None),
    ]
    assert story.store.runs.get(run).cases == 1


def test_each_case_device_and_cache_state_and_a_reused_former_name_has_its_own_level(story):
    shared = replace(story.tiled, variant="shared", formerly=("tiled",))
    run = story.run(shared, story.tiled)
    story.put(run, story.tiled, device="GPU-2")
    story.put(run, story.tiled, cache=CacheState.WARM)
    assert set(story.store.series.levels(run)) == {
        story.series(story.tiled),
        story.series(shared),
        story.series(story.tiled, device="GPU-2"),
        story.series(story.tiled, cache=CacheState.WARM),
    }
    assert {case.variant for _, case, _ in story.store.binaries.of_run(run)} == {"tiled", "shared"}


@ON_BOTH
def test_each_series_has_the_level_of_its_own_run(story):
    shared = replace(story.tiled, variant="shared", formerly=("tiled",))
    first = story.run(story.tiled, story.naive)
    second = story.run(shared, story.tiled)
    third = story.begin()
    story.put(third, shared, metrics={"overlap": 0.5}, max_error=1e-6)
    story.put(third, story.naive, status=Status.WRONG, reason="off by one")
    for one in (first, second, third):
        held = story.store.series.levels(one)
        assert plain(story.store.series.levels_of(dict.fromkeys(held, one))) == plain(held)
    heir, anew, naive = map(story.series, (shared, story.tiled, story.naive))
    overlap = story.series(shared, metric="overlap")
    asked = {overlap: third, naive: first, heir: first, anew: second}
    expected = {one: story.store.series.levels(run)[one] for one, run in asked.items()}
    assert list(plain(story.store.series.levels_of(asked)).items()) == list(plain(expected).items())
    assert (
        story.store.series.levels_of({anew: first, naive: second, story.series(replace(shared, benchmark="none")): 1})
        == {}
    )


@ON_BOTH
def test_a_measurement_is_stored_once_and_needs_its_run_and_its_device(story):
    run = story.run()
    with pytest.raises(DatabaseError, match="refused a row"):
        story.put(run, story.tiled)
    assert len(story.store.measurements.columns()["run"]) == 1
    with pytest.raises(DatabaseError, match="refused a row"):
        story.put(99, story.tiled)
    for table in ("levels", "run_devices", "series", "measurements", "devices"):
        story.execute(f"DELETE FROM {table}")  # noqa: S608 - our own
    with pytest.raises(DatabaseError, match="the device GPU-1 is not in the database"):
        story.store.verdicts.put(1, [story.judgement(story.tiled)])


@ON_BOTH
def test_a_case_history_has_a_row_for_each_run_device_and_cache_state(story):
    first = story.begin(commit="abc", label="a", dirty=True)
    for replica, samples in enumerate([(1.0, 2.0, 3.0), (2.0, 4.0, 9.0), (0.5, 3.0, 4.0)]):
        story.put(first, story.tiled, replica=replica, samples=samples)
    second = story.begin()
    story.put(second, story.tiled, status=Status.WRONG, reason="off by one")
    story.put(second, story.tiled, device="GPU-2")
    rows = story.store.series.case_history(story.tiled.id)
    assert [(row.run, row.device, row.status) for row in rows] == [
        (first, "GPU-1", Status.OK),
        (second, "GPU-1", Status.WRONG),
        (second, "GPU-2", Status.OK),
    ]
    row = rows[0]
    assert row.median_s == pytest.approx((2.0 * 4.0 * 3.0) ** (1 / 3))
    assert row.low_s < row.median_s < row.high_s
    assert (rows[2].low_s, rows[2].high_s) == (1e-3, 3e-3)
    assert row.replicas == 3
    assert (row.commit, row.dirty, row.label, row.case) == ("abc", True, "a", story.tiled.id)
    assert (rows[1].median_s, rows[1].reason, rows[1].replicas) == (None, "off by one", 0)
    assert [row.run for row in story.store.series.case_history(story.tiled.id, "GPU-2")] == [second]


@ON_BOTH
def test_a_case_history_may_be_that_of_the_newest_runs(story):
    first = story.begin()
    story.put(first, story.tiled, device="GPU-2")
    second, third = story.run(), story.run()
    story.run(story.naive)

    def runs(last, device=None):
        return [row.run for row in story.store.series.case_history(story.tiled.id, device, last)]

    assert [runs(last) for last in (1, 2, 3)] == [[third], [second, third], [first, second, third]]
    assert runs(4) == runs(3)
    assert runs(1, "GPU-2") == [first]
    counts = [story.store.series.count_runs(story.tiled.id, device) for device in (None, "GPU-2", "GPU-3")]
    assert counts == [3, 1, 0]


def test_a_case_history_is_that_of_the_newest_version_and_an_unknown_case_names_the_nearest(story):
    story.run()
    with pytest.raises(NotMeasuredError, match="was never measured") as error:
        story.store.series.case_history("transpose/tilted[n=4096,dtype=f32]")
    assert error.value.cure == f"did you mean {story.tiled.id}?"
    second = story.run(replace(story.tiled, version=2))
    assert [row.run for row in story.store.series.case_history(story.tiled.id)] == [second]
