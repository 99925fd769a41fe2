"""Devices, their measured peaks and their conditions."""

from dataclasses import replace

from perfsvc.model import Batch, Conditions, Peak, Slowdown, Status
from tests.unit.store.conftest import ON_BOTH


@ON_BOTH
def test_a_device_is_stored_as_it_last_described_itself(story):
    story.store.devices.put(story.gpu)
    story.store.devices.put(replace(story.gpu, clock_hz=1.2e9, driver="580.1"))
    assert story.store.devices.all() == {"GPU-1": replace(story.gpu, clock_hz=1.2e9)}


def test_peaks_belong_to_a_run_and_its_devices(story):
    first, second = story.run(), story.run()
    story.store.devices.put(replace(story.gpu, uuid="GPU-2"))
    told = {"GPU-1": Peak(2.5e12, 2.75e12), "GPU-2": Peak(2.5e12, 2.25e12)}
    story.store.devices.put_peaks(first, told)
    assert story.store.devices.peaks(first) == told
    assert story.store.devices.peaks(second) == {}
    assert story.store.devices.peaks_of([first, second]) == {device: {first: peak} for device, peak in told.items()}


def test_the_conditions_of_a_device_are_its_worst(story, store):
    run = story.begin()
    hot = Conditions(1.7e9, temperature_c=81.0, power_w=690.0, slowdowns=(Slowdown.THERMAL,), xids=(79,), others=(12,))
    well = Conditions(1.9e9, temperature_c=55.0, power_w=400.0, ecc_errors=2)
    story.put(
        run, story.tiled, batches=(Batch((1e-3,), conditions=well), Batch((1e-3,), rejected="hot", conditions=hot))
    )
    story.put(run, story.naive, status=Status.FAILED)
    story.put(run, story.naive, replica=1, status=Status.SKIPPED)  # does not count
    (device,) = store.devices.conditions(run)
    assert (device.device_model, device.measured, device.failed) == ("NVIDIA H100", 2, 1)
    assert (device.rejected_batches, device.slowdowns, device.ecc_errors) == (1, ("thermal slowdown",), 2)
    assert (device.xids, device.others) == (("79",), ("12",))
    assert device.temperature_c is not None
    assert store.devices.conditions(run + 1) == []


@ON_BOTH
def test_the_conditions_of_several_runs_are_those_of_each_run(story, store):
    runs = []
    for number in range(3):
        run = story.begin()
        hot = Conditions(1.7e9 + number, temperature_c=60.0 + number, slowdowns=(Slowdown.THERMAL,), ecc_errors=number)
        story.put(run, story.tiled, batches=(Batch((1e-3,), conditions=hot),))
        story.put(run, story.tiled, device="GPU-2", batches=(Batch((1e-3,), conditions=Conditions(others=(number,))),))
        runs.append(run)
    together = store.devices.conditions_of([*runs, 99])
    assert together == {run: store.devices.conditions(run) for run in runs}
    assert [(row.device, row.ecc_errors, row.others) for row in together[runs[2]]] == [
        ("GPU-1", 2, ()),
        ("GPU-2", 0, ("2",)),
    ]
