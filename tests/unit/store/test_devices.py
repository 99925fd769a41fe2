"""Devices, their measured peaks and their conditions."""

from dataclasses import replace

import pytest

from perfsvc.errors import DamagedError, DatabaseError
from perfsvc.model import Batch, CacheState, Conditions, FullEnvironment, Peak, Slowdown, Status
from perfsvc.store.schema import environments
from tests.unit.store.conftest import ON_BOTH

pytestmark = ON_BOTH


def test_a_device_is_stored_as_it_last_described_itself(story):
    story.store.devices.put(story.gpu)
    story.store.devices.put(replace(story.gpu, clock_hz=1.2e9, driver="580.1"))
    assert story.store.devices.all() == {"GPU-1": replace(story.gpu, clock_hz=1.2e9)}


def test_the_conditions_of_a_device_are_its_worst(story, store):
    run = story.begin()
    hot = Conditions(1.7e9, temperature_c=81.0, power_w=690.0, slowdowns=(Slowdown.THERMAL,), xids=(79,), others=(12,))
    well = Conditions(1.9e9, temperature_c=55.0, power_w=400.0, ecc_errors=2)
    story.put(
        run, story.tiled, batches=(Batch((1e-3,), conditions=well), Batch((1e-3,), rejected="hot", conditions=hot))
    )
    story.put(run, story.naive, status=Status.FAILED)
    story.put(run, story.naive, replica=1, status=Status.SKIPPED)  # does not count
    (device,) = store.devices.in_run(run)
    assert (device.device_model, device.measured, device.failed) == ("NVIDIA H100", 2, 1)
    assert (device.rejected_batches, device.slowdowns, device.ecc_errors) == (1, ("thermal slowdown",), 2)
    assert (device.xids, device.others) == (("79",), ("12",))
    assert device.temperature_c is not None
    assert store.devices.in_run(run + 1) == []


def test_the_conditions_of_several_runs_are_those_of_each_run(story, store):
    runs = []
    for number in range(3):
        run = story.begin()
        hot = Conditions(1.7e9 + number, temperature_c=60.0 + number, slowdowns=(Slowdown.THERMAL,), ecc_errors=number)
        story.put(run, story.tiled, batches=(Batch((1e-3,), conditions=hot),))
        story.put(run, story.tiled, device="GPU-2", batches=(Batch((1e-3,), conditions=Conditions(others=(number,))),))
        runs.append(run)
    together = store.devices.in_runs([*runs, 99])
    assert together == {run: store.devices.in_run(run) for run in runs}
    assert [(row.device, row.ecc_errors, row.others) for row in together[runs[2]]] == [
        ("GPU-1", 2, ()),
        ("GPU-2", 0, ("2",)),
    ]


# --- environments ----------------------------------------------------------------------------------------------------


FULL = FullEnvironment({"host.kernel": "6.1", "variable.CUDA_X": ""}, {"GPU-1": {"gpu.ecc": "on"}})
ODD = "nul\0 ' \" \u202e 🙂 \n" + "x" * 5000


def test_a_run_has_the_full_environment_that_was_stored_last(story, store):
    first, second, third = story.run(), story.run(), story.run()
    store.devices.put_full_environment(first, FULL)
    store.devices.put_full_environment(second, FullEnvironment())
    store.devices.put_full_environment(second, FULL)
    assert store.devices.full_environments([first, second, third]) == {first: FULL, second: FULL}
    assert store.devices.full_environments([]) == {}


def test_runs_with_the_same_environment_share_a_row_which_is_deleted_with_the_last_of_them(story, store):
    first, second, other = (story.run() for _ in range(3))
    for run in (first, second):
        store.devices.put_full_environment(run, FULL)
    store.devices.put_full_environment(other, replace(FULL, common={"host.kernel": "6.2"}))
    assert story.execute("SELECT count(*) FROM full_environments") == [(2,)]
    store.exclusions.delete(first, reason="", by="ann")
    assert store.devices.full_environments([second]) == {second: FULL}
    store.exclusions.delete(second, reason="", by="ann")
    assert story.execute("SELECT count(*) FROM full_environments") == [(1,)]


def test_a_damaged_environment_is_an_error(story, store):
    run = story.run()
    store.devices.put_full_environment(run, FULL)
    story.execute("UPDATE full_environments SET parts = '{'")
    environments._full.cache_clear()
    with pytest.raises(DamagedError, match="is damaged in the database") as error:
        store.devices.full_environments([run])
    assert "perfsvc db check" in error.value.cure


def test_other_parts_are_another_segment(story, store):
    measured = {}
    for value in ("on", "off", "on"):
        run = replace(story, environment=replace(story.environment, parts=(("gpu.ecc", value),))).run()
        (history,) = store.series.histories([run]).values()
        measured[run] = int(history.segments[0])
    first, second, third = measured.values()
    assert first == third != second
    environments = store.devices.environments()
    assert environments[first].changes_to(environments[second]) == ("gpu.ecc on → off",)


def test_each_device_has_its_newest_environment_in_each_run(story, store):
    first = story.run()
    older = story.environment
    second = story.begin()
    story.put(second, story.tiled)
    newer = replace(story, environment=replace(older, driver="999.9"))
    newer.put(second, story.naive)
    newer.put(second, story.naive, device="GPU-2")
    environments = store.devices.environments()
    measured = store.devices.in_runs([first, second, 99])
    assert {(run, row.device): environments[row.environment_id] for run, rows in measured.items() for row in rows} == {
        (first, "GPU-1"): older,
        (second, "GPU-1"): newer.environment,
        (second, "GPU-2"): newer.environment,
    }


def test_a_part_may_hold_any_text_of_any_length(story, store):
    parts = tuple((f"variable.{number:03}", ODD) for number in range(200))
    story = replace(story, environment=replace(story.environment, parts=parts))
    run = story.run()
    assert store.devices.environment_before(run + 1, "GPU-1", {story.tiled}) == (run, story.environment)
    store.devices.put_full_environment(run, FullEnvironment({"variable.X": ODD}, {"GPU-1": {ODD: ODD}}))
    assert store.devices.full_environments([run])[run].devices == {"GPU-1": {ODD: ODD}}
    assert story.execute("SELECT count(*) FROM environments") == [(1,)]


# --- noise and peaks -------------------------------------------------------------------------------------------------


def place(case, device="GPU-1", cache=CacheState.COLD):
    return device, case, cache


def test_peaks_replace_those_stored_before(story):
    run, other = (story.run(story.tiled, story.naive) for _ in range(2))
    for number in (run, other):
        story.store.devices.put_peaks(number, {"GPU-1": Peak(2e12, 3e12)})
    assert story.store.devices.peaks_of([run, other]) == {"GPU-1": dict.fromkeys((run, other), Peak(2e12, 3e12))}
    story.store.devices.put_peaks(run, {})
    assert (story.store.devices.peaks(run), story.store.devices.peaks(other)) == ({}, {"GPU-1": Peak(2e12, 3e12)})


def test_levels_peaks_and_over_budget_cases_are_deleted_with_their_run(story):
    run = story.run()
    story.store.devices.put_peaks(run, {"GPU-1": Peak(1.0, 1.0)})
    story.store.runs.put_over_budget(run, [place(story.naive)])
    story.execute("DELETE FROM runs")
    for table in ("levels", "run_devices", "over_budget"):
        assert story.execute(f"SELECT * FROM {table}") == []  # noqa: S608 - names of our own


def test_an_unknown_device_is_refused(story):
    run = story.run()
    for put in (
        lambda: story.store.devices.put_peaks(run, {"GPU-9": Peak(1.0, 1.0)}),
        lambda: story.store.runs.put_over_budget(run, [place(story.tiled, device="GPU-9")]),
    ):
        with pytest.raises(DatabaseError, match="the device GPU-9 is not in the database"):
            put()
