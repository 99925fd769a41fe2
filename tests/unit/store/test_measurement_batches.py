"""Each batch of a measurement is stored, rejected ones with their samples."""

import json
import zlib
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.model import Batch, CacheState, Conditions, Slowdown, Status
from perfsvc.store.measurements.batches import batch_summary, pack_batches, unpack_batches
from perfsvc.store.schema.column_types import report_damaged
from perfsvc.store.schema.samples import DAMAGED
from tests.unit.store.conftest import ON_BOTH

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
WORST = (90.0, 650.0, "power cap, thermal slowdown", 1)


@pytest.fixture
def stored(story):
    """Return a function that stores a measurement with batches and returns the batches that are read back."""

    def put(*batches, **given):
        samples = tuple(second for batch in batches if not batch.rejected for second in batch.samples_s)
        story.put(story.begin(), story.tiled, samples=samples, batches=batches, **given)
        ((blob,),) = story.execute("SELECT batches FROM measurements")
        return unpack_batches(blob, samples)

    return put


def summary(story):
    names = ("sm_clock_hz", "temperature_c", "power_w", "slowdowns", "rejected_batches")
    columns = story.store.measurements.columns()
    return tuple(columns[name][0] for name in names)


@ON_BOTH
def test_batches_are_stored_in_order_with_the_conditions_of_the_device(stored):
    batches = (
        Batch((1.0, 2.0), blocked=True, kept_ahead=True, busy_s=3.5, conditions=CALM),
        Batch((4.0,), blocked=True, kept_ahead=False, busy_s=4.5, rejected="thermal slowdown", conditions=HOT),
        Batch((0.5,), busy_s=0.75),
        Batch((), rejected="x"),
    )
    assert stored(*batches) == batches


def test_samples_of_a_rejected_batch_are_stored_with_the_batch(story, stored):
    batches = stored(Batch((1.0, 2.0)), Batch((4.0, 8.0), rejected="another process"), Batch((0.5,)))
    assert [batch.samples_s for batch in batches] == [(1.0, 2.0), (4.0, 8.0), (0.5,)]
    (level,) = story.store.series.levels(1).values()
    assert list(level.medians) == [1.0]


def test_the_clock_is_that_of_accepted_batches_and_other_conditions_are_the_worst_of_all(story, stored):
    slow = Conditions(sm_clock_hz=1.25e9, power_w=310.0, slowdowns=(Slowdown.POWER_CAP,))
    stored(
        Batch((1.0,), conditions=CALM),
        Batch((1.0,), conditions=slow),
        Batch((9.0,), rejected="thermal slowdown", conditions=HOT),
    )
    assert summary(story) == (1.375e9, 90.0, 650.0, "power cap, thermal slowdown", 1)


UNKNOWN = (None, None, "", 0)
WITHOUT_CLOCK = {
    "unknown conditions": (UNKNOWN, Batch((1.0,), conditions=Conditions(nan, temperature_c=nan)), Batch((1.0,))),
    "no batches": (UNKNOWN,),
    "only rejected batches": (WORST, Batch((9.0,), rejected="thermal slowdown", conditions=HOT)),
}


@pytest.mark.parametrize("name", WITHOUT_CLOCK)
def test_what_no_batch_or_only_a_rejected_batch_reports_is_no_clock(story, stored, name):
    worst, *batches = WITHOUT_CLOCK[name]
    stored(*batches, status=Status.OK if name == "unknown conditions" else Status.FAILED)
    assert summary(story) == (None, *worst)


@ON_BOTH
def test_faults_of_all_batches_are_columns_of_the_measurement(story, stored):
    again = replace(HOT, ecc_errors=1, xids=(79, 13), others=(1234, 99))
    stored(Batch((1.0,), conditions=HOT), Batch((1.0,)), Batch((1.0,), conditions=again))
    found = story.execute("SELECT ecc_errors, xids, others FROM measurements")
    assert found == [(3, "31, 79, 13", "1234, 99")]


@ON_BOTH
def test_batches_are_counted_by_reason_for_cases_with_a_rejected_batch(story, stored):
    story.put(run := story.begin(), story.naive, samples=(1.0,), batches=(Batch((1.0,)),))
    rejected = Batch((9.0,), rejected="hot")
    for replica, batches in enumerate([(Batch((1.0,)),), (rejected, Batch((1.0,)), replace(rejected, rejected="x"))]):
        story.put(run, story.tiled, replica=replica, samples=(1.0,), batches=batches)
    counts = story.store.measurements.batch_counts(run)
    assert counts == {("GPU-1", str(story.tiled), CacheState.COLD): {"": 2, "hot": 1, "x": 1}}
    assert [*counts.popitem()[1]] == ["", "hot", "x"]


def test_a_damaged_blob_costs_only_its_own_batches(story, stored, caplog):
    stored(Batch((9.0,), rejected="hot"), status=Status.FAILED)
    for blob in (b"", b"x", zlib.compress(b"[[1,"), zlib.compress(b"[" * 100_000)):
        report_damaged.cache_clear()
        caplog.clear()
        story.execute("UPDATE measurements SET batches = :blob", blob=blob)
        assert story.store.measurements.batch_counts(1) == {}
        assert f"a blob of batches of {story.tiled} is damaged" in caplog.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=14) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=30)
@given(json_values)
def test_hostile_content_is_damage_or_batches(content):
    try:
        batches = unpack_batches(zlib.compress(json.dumps(content).encode()), (1.0, 2.0))
    except DAMAGED:
        return
    assert pack_batches(batches) is not None or not content


readings = st.none() | st.floats(0, 2**40, width=32)
whole_numbers = st.tuples() | st.tuples(st.integers(0, 2**40))
conditions = st.builds(
    Conditions,
    readings,
    readings,
    readings,
    readings,
    st.sets(st.sampled_from(Slowdown)).map(tuple),
    st.integers(0, 2**40),
    whole_numbers,
    whole_numbers,
)
batches = st.builds(
    Batch,
    st.lists(st.floats(2**-60, 2**20, width=32), max_size=5).map(tuple),
    st.booleans(),
    st.none() | st.booleans(),
    st.floats(0, 2**20, width=32),
    st.sampled_from(["", "thermal slowdown", "in use by 7, 8"]),
    conditions,
)


@settings(max_examples=20)
@given(st.lists(batches, max_size=5))
def test_all_batches_are_read_back_with_seven_digits(given_batches):
    samples = tuple(second for batch in given_batches if not batch.rejected for second in batch.samples_s)
    found = unpack_batches(pack_batches(given_batches), samples)
    assert len(found) == len(given_batches)
    for before, after in zip(given_batches, found, strict=True):
        assert tuple(map(np.float32, before.samples_s)) == tuple(map(np.float32, after.samples_s))
        assert after.busy_s == pytest.approx(before.busy_s, rel=1e-6)
        rounded = {}
        for name in ("sm_clock_hz", "memory_clock_hz", "temperature_c", "power_w"):
            value, rounded[name] = getattr(before.conditions, name), getattr(after.conditions, name)
            assert rounded[name] == (None if value is None else pytest.approx(value, rel=1e-6))
        expected = replace(before.conditions, **rounded)
        assert after == replace(before, samples_s=after.samples_s, busy_s=after.busy_s, conditions=expected)


def test_batches_that_are_packed_again_and_their_summary_stay_the_same():
    batch = Batch((1e-6,), busy_s=1 / 3, rejected="hot", conditions=Conditions(1.99373e9 / 7, power_w=inf))
    blob = pack_batches([batch])
    assert pack_batches(unpack_batches(blob)) == blob
    reading = Conditions(sm_clock_hz=1981234567.8, temperature_c=61.123456789, power_w=651.12345678)
    batches = (Batch((1.0,), conditions=reading), Batch((1.0,), conditions=replace(reading, sm_clock_hz=1.9e9 / 7)))
    assert batch_summary(unpack_batches(pack_batches(batches), (1.0, 1.0))) == batch_summary(batches)


@ON_BOTH
def test_more_memory_errors_than_the_column_holds_are_stored_as_the_most(story, stored):
    many = Conditions(ecc_errors=2**31 - 1)
    (first, second) = stored(Batch((1.0,), conditions=many), Batch((1.0,), conditions=many))
    assert (first.conditions, second.conditions) == (many, many)
    assert story.execute("SELECT ecc_errors FROM measurements") == [(2**31 - 1,)]


def test_odd_values_of_a_batch_are_stored_so_that_they_can_be_read():
    (found,) = unpack_batches(pack_batches([Batch((1.0,), busy_s=nan, rejected="\udcff\0")]))
    assert (found.busy_s, found.rejected) == (0.0, "\\udcff\N{REPLACEMENT CHARACTER}")
