"""Each batch of a measurement is stored, rejected ones with their samples."""

from math import nan

import pytest

from perfsvc.model import Batch, Conditions, Slowdown, Status
from perfsvc.store.schema.samples import unpack

CALM = Conditions(sm_clock_hz=1.5e9, memory_clock_hz=2.5e9, temperature_c=40.0, power_w=300.0)
HOT = Conditions(
    sm_clock_hz=1.0e9,
    memory_clock_hz=2.5e9,
    temperature_c=90.0,
    power_w=650.0,
    slowdowns=(Slowdown.THERMAL, Slowdown.POWER_CAP),
    ecc_errors=2,
    xids=(31, 79),
    others=(1234,),
)


@pytest.fixture
def rows(story):
    """Return a function that stores a measurement with batches and returns the rows of the batches."""

    def put(*batches, **given):
        samples = tuple(second for batch in batches if not batch.rejected for second in batch.samples_s)
        story.put(story.begin(), story.tiled, samples=samples, batches=batches, **given)
        return story.execute("SELECT * FROM batches ORDER BY measurement_id, number")

    return put


def summary(story):
    names = ("sm_clock_hz", "temperature_c", "power_w", "slowdowns", "rejected_batches")
    columns = story.store.measurements.columns()
    return tuple(columns[name][0] for name in names)


def test_batches_are_stored_in_order_with_the_conditions_of_the_device(rows):
    first, second, third = rows(
        Batch((1.0, 2.0), blocked=True, kept_ahead=True, busy_s=3.5, conditions=CALM),
        Batch((4.0,), blocked=True, kept_ahead=False, busy_s=4.5, rejected="thermal slowdown", conditions=HOT),
        Batch((0.5,), busy_s=0.75),
    )
    assert (first.number, second.number, third.number) == (0, 1, 2)
    assert (first.blocked, first.kept_ahead, first.busy_s, first.sample_count, first.rejected) == (1, 1, 3.5, 2, "")
    assert (first.sm_clock_hz, first.memory_clock_hz) == (1.5e9, 2.5e9)
    assert (first.temperature_c, first.power_w) == (40.0, 300.0)
    assert (first.slowdowns, first.ecc_errors, first.xids, first.others) == ("", 0, "", "")
    assert (second.kept_ahead, second.busy_s, second.rejected) == (0, 4.5, "thermal slowdown")
    assert (second.slowdowns, second.ecc_errors, second.xids) == ("thermal slowdown, power cap", 2, "31, 79")
    assert second.others == "1234"
    assert (third.blocked, third.kept_ahead, third.sm_clock_hz, third.power_w) == (0, None, None, None)


def test_samples_of_a_rejected_batch_are_stored_with_the_batch(story, rows):
    batches = rows(
        Batch((1.0, 2.0)), Batch((4.0, 8.0), rejected="another process"), Batch((0.5,)), Batch((), rejected="x")
    )
    assert [row.samples and unpack(row.samples) for row in batches] == [None, (4.0, 8.0), None, None]
    assert [row.sample_count for row in batches] == [2, 2, 1, 0]
    (level,) = story.store.series.levels(1).values()
    assert [*map(tuple, level.replicas)] == [(1.0, 2.0, 0.5)]


def test_the_clock_is_that_of_accepted_batches_and_other_conditions_are_the_worst_of_all(story, rows):
    slow = Conditions(sm_clock_hz=1.25e9, power_w=310.0, slowdowns=(Slowdown.POWER_CAP,))
    rows(
        Batch((1.0,), conditions=CALM),
        Batch((1.0,), conditions=slow),
        Batch((9.0,), rejected="thermal slowdown", conditions=HOT),
    )
    assert summary(story) == (1.375e9, 90.0, 650.0, "power cap, thermal slowdown", 1)


def test_conditions_that_no_batch_reports_are_unknown(story, rows):
    rows(Batch((1.0,), conditions=Conditions(sm_clock_hz=nan, temperature_c=nan)), Batch((1.0,)))
    assert summary(story) == (None, None, None, "", 0)


def test_a_measurement_without_batches_has_an_empty_summary(story, rows):
    assert rows(status=Status.FAILED) == []
    assert summary(story) == (None, None, None, "", 0)


def test_if_all_batches_are_rejected_there_is_no_clock(story, rows):
    rows(Batch((9.0,), rejected="thermal slowdown", conditions=HOT), status=Status.FAILED)
    assert summary(story) == (None, 90.0, 650.0, "power cap, thermal slowdown", 1)


def test_batches_are_deleted_with_their_measurement(story, rows):
    assert len(rows(Batch((1.0,)))) == 1
    story.execute("DELETE FROM runs")
    assert story.execute("SELECT * FROM batches") == []
