"""What disturbs a batch, and how long sampling waits for the device to recover."""

from perfsvc.measure.worker.sampling.batches import ClockWatch, Recovery, disturbances
from perfsvc.model import Batch, Conditions, Slowdown


def test_the_causes_of_a_disturbed_batch_are_named():
    table = {
        Conditions(): (),
        Conditions(sm_clock_hz=1e9, temperature_c=90.0, power_w=700.0): (),
        Conditions(slowdowns=(Slowdown.POWER_CAP,)): (),
        Conditions(slowdowns=(Slowdown.THERMAL,)): ("thermal slowdown",),
        Conditions(slowdowns=(Slowdown.POWER_CAP, Slowdown.HARDWARE)): ("hardware slowdown",),
        Conditions(others=(17, 4711)): ("other processes at work (17, 4711)",),
        Conditions(xids=(79,)): ("faults of the GPU (Xid 79)",),
        Conditions(ecc_errors=2): ("memory errors that could not be corrected (2)",),
        Conditions(slowdowns=(Slowdown.THERMAL, Slowdown.HARDWARE), others=(17,)): (
            "thermal slowdown",
            "hardware slowdown",
            "other processes at work (17)",
        ),
    }
    assert {conditions: disturbances(conditions) for conditions in table} == table


def at(*clocks_mhz, slowdowns=()):
    """Return a batch for each clock."""
    return [Batch((1e-3,), conditions=Conditions(clock and clock * 1e6, slowdowns=slowdowns)) for clock in clocks_mhz]


def test_a_case_that_lowers_the_clock_is_noticed():
    def lowered(usual_mhz, *cases):
        watch = ClockWatch(usual_mhz * 1e6)
        return [watch.lowered_by(batches) for batches in cases]

    assert lowered(1980, at(1980), at(1978, 1850), at(2083), at(1978)) == [False, True, False, False]
    assert lowered(1980, at(1840), at(1980), at(1840)) == [False, False, True]  # it may have been locked at 1840 MHz
    assert lowered(1980, at(1500), at(1500), at(1400)) == [False, False, True]  # it is locked at 1500 MHz
    assert lowered(1980, at(1980, slowdowns=(Slowdown.POWER_CAP,))) == [True]
    assert lowered(1980, at(1980, slowdowns=(Slowdown.THERMAL,)), at(None), []) == [False, False, False]
    assert lowered(0, at(1980), at(1000)) == [False, False]  # the usual clock is unknown


class Disturbed:
    """A device that is disturbed for a number of readings."""

    def __init__(self, *disturbed):
        self.looks = iter(disturbed)
        self.rests = []

    def rest(self, seconds):
        self.rests.append(seconds)

    def conditions(self):
        return Conditions(slowdowns=(Slowdown.THERMAL,)) if next(self.looks) else Conditions()


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
