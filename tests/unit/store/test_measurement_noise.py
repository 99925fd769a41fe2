"""The noise of a run's cases and the measured peaks of its GPUs."""

from dataclasses import replace
from math import nan

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.model import CacheState, Noise, Peak, Status


def place(case, device="GPU-1", cache=CacheState.COLD):
    return device, case, cache


def test_noise_is_read_by_device_case_and_cache_state(story):
    run = story.begin()
    for device in ("GPU-1", "GPU-2"):
        story.put(run, story.tiled, device=device)
    told = {
        place(story.tiled): Noise(0.01, 0.002),
        place(story.tiled, cache=CacheState.WARM): Noise(0.02, None),
        place(story.tiled, device="GPU-2"): Noise(None, None),
        place(story.naive): Noise(0.0, 0.0),
    }
    story.store.measurements.put_noise(run, told)
    assert story.store.measurements.noise(run) == told
    assert story.store.measurements.noise(story.begin()) == {}


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
    run, other = story.run(), story.run()
    for number in (run, other):
        story.store.measurements.put_noise(
            number, {place(story.tiled): Noise(0.5, 0.5), place(story.naive): Noise(0.5, 0.5)}
        )
        story.store.devices.put_peaks(number, {"GPU-1": Peak(2e12, 3e12)})
    story.store.measurements.put_noise(run, {place(story.tiled): Noise(0.25, nan)})
    story.store.devices.put_peaks(run, {})
    assert story.store.measurements.noise(run) == {place(story.tiled): Noise(0.25, None)}
    assert story.store.devices.peaks(run) == {}
    assert len(story.store.measurements.noise(other)) == 2
    assert story.store.devices.peaks(other) == {"GPU-1": Peak(2e12, 3e12)}


def test_noise_has_the_present_name_of_its_case(story):
    run = story.run()
    story.store.measurements.put_noise(run, {place(story.tiled): Noise(0.5, 0.25)})
    shared = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run(shared)
    assert story.store.measurements.noise(run) == {place(shared): Noise(0.5, 0.25)}


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
