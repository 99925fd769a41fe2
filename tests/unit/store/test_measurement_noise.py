"""The noise of a run's cases and the measured peaks of its GPUs."""

from math import nan

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.model import CacheState, Noise, Peak, Status
from tests.unit.store.conftest import ON_BOTH


def place(case, device="GPU-1", cache=CacheState.COLD):
    return device, case, cache


def stored_noise(story, run):
    """Return the noise of a run's cases by device, case id and cache state."""
    table = story.store.measurements.columns([run])
    names = ("device", "case", "cache", "noise_within", "noise_between", "noise_places")
    names = (*names, "lowest_place_s", "highest_place_s")
    rows = zip(*(table[name] for name in names), strict=True)
    return {(device, case, CacheState(cache)): Noise(*levels) for device, case, cache, *levels in rows}


def by_id(noise):
    return {(device, case.id, cache): levels for (device, case, cache), levels in noise.items()}


@ON_BOTH
def test_noise_is_read_by_device_case_and_cache_state(story):
    run = story.begin()
    for device in ("GPU-1", "GPU-2"):
        story.put(run, story.tiled, device=device)
    story.put(run, story.tiled, cache=CacheState.WARM)
    story.put(run, story.naive)
    told = {
        place(story.tiled): Noise(0.01, 0.002, 0.03, 0.9, 1.1),
        place(story.tiled, cache=CacheState.WARM): Noise(0.02, None),
        place(story.tiled, device="GPU-2"): Noise(None, None),
        place(story.naive): Noise(0.0, 0.0),
    }
    story.store.measurements.put_noise(run, told)
    assert stored_noise(story, run) == by_id(told)
    assert set(stored_noise(story, story.run()).values()) == {Noise(None, None)}


def test_noise_is_stored_with_the_number_of_timed_replicas(story):
    run, other = story.begin(), story.begin()
    for replica in range(3):
        story.put(run, story.tiled, replica=replica)
    for replica in range(2):
        story.put(run, story.tiled, replica=replica, cache=CacheState.WARM)
    story.put(run, story.tiled, replica=2, cache=CacheState.WARM, status=Status.FAILED)
    story.put(other, story.tiled, replica=3)
    story.store.measurements.put_noise(run, {place(story.tiled, cache=cache): Noise(0.1, 0.1) for cache in CacheState})
    assert story.execute("SELECT cache, replicas FROM noise ORDER BY cache") == [("cold", 3), ("warm", 2)]


def test_noise_and_peaks_replace_those_stored_before(story):
    run, other = (story.run(story.tiled, story.naive) for _ in range(2))
    usual = dict.fromkeys(map(place, (story.tiled, story.naive)), Noise(0.5, 0.5))
    for number in (run, other):
        story.store.measurements.put_noise(number, usual)
        story.store.devices.put_peaks(number, {"GPU-1": Peak(2e12, 3e12)})
    story.store.measurements.put_noise(run, {place(story.tiled): Noise(0.25, nan)})
    story.store.devices.put_peaks(run, {})
    left = {place(story.tiled): Noise(0.25, None), place(story.naive): Noise(None, None)}
    assert stored_noise(story, run) == by_id(left)
    assert stored_noise(story, other) == by_id(usual)
    assert (story.store.devices.peaks(run), story.store.devices.peaks(other)) == ({}, {"GPU-1": Peak(2e12, 3e12)})


@ON_BOTH
def test_noise_peaks_and_over_budget_cases_are_deleted_with_their_run(story):
    run = story.run()
    story.store.measurements.put_noise(run, {place(story.tiled): Noise(0.5, 0.5)})
    story.store.devices.put_peaks(run, {"GPU-1": Peak(1.0, 1.0)})
    story.store.runs.put_over_budget(run, [place(story.naive)])
    story.execute("DELETE FROM runs")
    for table in ("noise", "peaks", "over_budget"):
        assert story.execute(f"SELECT * FROM {table}") == []  # noqa: S608 - names of our own


def test_an_unknown_device_is_refused(story):
    run = story.run()
    for put in (
        lambda: story.store.devices.put_peaks(run, {"GPU-9": Peak(1.0, 1.0)}),
        lambda: story.store.measurements.put_noise(run, {place(story.tiled, device="GPU-9"): Noise(0.5, 0.5)}),
        lambda: story.store.runs.put_over_budget(run, [place(story.tiled, device="GPU-9")]),
    ):
        with pytest.raises(DatabaseError, match="the device GPU-9 is not in the database"):
            put()
