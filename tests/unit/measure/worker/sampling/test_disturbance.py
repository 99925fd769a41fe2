"""What disturbs a batch, and how long sampling waits for the device to recover."""

import pytest

from perfsvc.measure.worker.sampling.batches import Recovery, disturbances
from perfsvc.model import Conditions, Slowdown


@pytest.mark.parametrize(
    ("conditions", "causes"),
    [
        (Conditions(), ()),
        (Conditions(sm_clock_hz=1e9, temperature_c=90.0, power_w=700.0), ()),
        (Conditions(slowdowns=(Slowdown.POWER_CAP,)), ()),
        (Conditions(slowdowns=(Slowdown.THERMAL,)), ("thermal slowdown",)),
        (Conditions(slowdowns=(Slowdown.POWER_CAP, Slowdown.HARDWARE)), ("hardware slowdown",)),
        (Conditions(others=(17, 4711)), ("other processes at work (17, 4711)",)),
        (Conditions(xids=(79,)), ("faults of the GPU (Xid 79)",)),
        (Conditions(ecc_errors=2), ("memory errors that could not be corrected (2)",)),
        (
            Conditions(slowdowns=(Slowdown.THERMAL, Slowdown.HARDWARE), others=(17,)),
            ("thermal slowdown", "hardware slowdown", "other processes at work (17)"),
        ),
    ],
)
def test_the_causes_of_a_disturbed_batch_are_named(conditions, causes):
    assert disturbances(conditions) == causes


class Disturbed:
    """A device that is disturbed for a number of readings."""

    def __init__(self, *disturbed):
        self.looks = iter(disturbed)
        self.rests = []

    def rest(self, seconds):
        self.rests.append(seconds)

    def conditions(self):
        return Conditions(slowdowns=(Slowdown.THERMAL,)) if next(self.looks) else Conditions()


def test_rests_grow_until_the_device_has_recovered():
    device = Disturbed(True, True, True, False)
    recovery = Recovery(device, 30.0)
    assert recovery.wait(["thermal slowdown"])
    assert device.rests == [0.5, 1.0, 2.0, 4.0]
    assert recovery.waited_s == 7.5
    assert recovery.note == "waited 7.5 s for the GPU to recover from thermal slowdown"


def test_waiting_has_a_limit():
    device = Disturbed(*[True] * 9)
    recovery = Recovery(device, 30.0)
    assert not recovery.wait(["thermal slowdown"])
    assert device.rests == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 6.5]
    assert recovery.waited_s == 30
    assert recovery.failure == "the GPU did not recover from thermal slowdown within 30 s"


def test_rests_grow_and_the_limit_counts_over_all_waits_of_a_case():
    device = Disturbed(False, False, True)
    recovery = Recovery(device, 3.0)
    assert recovery.wait(["thermal slowdown", "thermal slowdown"])
    assert recovery.wait(["other processes at work (17)"])
    assert not recovery.wait(["thermal slowdown"])
    assert device.rests == [0.5, 1.0, 1.5]
    assert recovery.note == ("waited 3 s for the GPU to recover from thermal slowdown and other processes at work (17)")


def test_a_cause_is_named_once_with_its_latest_numbers():
    recovery = Recovery(Disturbed(False, False), 30.0)
    recovery.wait(["other processes at work (17)", "thermal slowdown", "other processes at work (17, 18)"])
    recovery.wait(["thermal slowdown", "other processes at work (18)"])
    assert recovery.note == (
        "waited 1.5 s for the GPU to recover from other processes at work (18) and thermal slowdown"
    )


def test_a_limit_of_zero_means_no_waiting():
    recovery = Recovery(Disturbed(), 0.0)
    assert not recovery.wait(["thermal slowdown"])
    assert (recovery.waited_s, recovery.note) == (0, "")
