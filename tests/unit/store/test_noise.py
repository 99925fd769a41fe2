"""The noise of a run's cases and the measured peaks of its GPUs."""

from dataclasses import replace
from math import nan

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.model import CacheState, Noise, Peak, Status


def place(case, device="GPU-1", cache=CacheState.COLD):
    return device, case, cache


def test_noise_comes_back_by_device_case_and_mode(story):
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


def test_noise_is_stored_with_the_replicas_that_were_timed(story):
    run, other = story.begin(), story.begin()
    for replica in range(3):
        story.put(run, story.tiled, replica=replica)
    for replica in range(2):
        story.put(run, story.tiled, replica=replica, cache=CacheState.WARM)
    story.put(run, story.tiled, replica=2, cache=CacheState.WARM, status=Status.FAILED)
    story.put(other, story.tiled, replica=3)
    story.store.measurements.put_noise(run, {place(story.tiled, cache=cache): Noise(0.1, 0.1) for cache in CacheState})
    assert story.execute("SELECT cache, replicas FROM noise ORDER BY cache") == [("cold", 3), ("warm", 2)]


def test_what_is_put_again_takes_the_place_of_what_was_there(story):
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


def test_noise_bears_the_present_name_of_its_case(story):
    run = story.run()
    story.store.measurements.put_noise(run, {place(story.tiled): Noise(0.5, 0.25)})
    shared = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run(shared)
    assert story.store.measurements.noise(run) == {place(shared): Noise(0.5, 0.25)}


def test_roofs_are_of_a_run_and_its_boards(story):
    first, second = story.run(), story.run()
    story.store.devices.put(replace(story.gpu, uuid="GPU-2"))
    told = {"GPU-1": Peak(2.5e12, 2.75e12), "GPU-2": Peak(2.5e12, 2.25e12)}
    story.store.devices.put_peaks(first, told)
    assert story.store.devices.peaks(first) == told
    assert story.store.devices.peaks(second) == {}


def test_all_of_a_run_is_deleted_with_it(story):
    run = story.run()
    story.store.measurements.put_noise(run, {place(story.tiled): Noise(0.5, 0.5)})
    story.store.devices.put_peaks(run, {"GPU-1": Peak(1.0, 1.0)})
    story.store.runs.put_over_budget(run, [place(story.naive)])
    story.execute("DELETE FROM runs")
    for table in ("noise", "peaks", "over_budget"):
        assert story.execute(f"SELECT * FROM {table}") == []  # noqa: S608 - names of our own


def test_an_unknown_device_has_neither(story):
    run = story.run()
    for put in (
        lambda: story.store.devices.put_peaks(run, {"GPU-9": Peak(1.0, 1.0)}),
        lambda: story.store.measurements.put_noise(run, {place(story.tiled, device="GPU-9"): Noise(0.5, 0.5)}),
        lambda: story.store.runs.put_over_budget(run, [place(story.tiled, device="GPU-9")]),
    ):
        with pytest.raises(DatabaseError, match="the device GPU-9 is not in the database"):
            put()
