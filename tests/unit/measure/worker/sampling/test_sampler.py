"""Sampling on the fake device: the script decides every number."""

import gc
import itertools
import json
import math
import statistics
from dataclasses import replace

import pytest

from perfsvc.device.fake import BLOCKING_LIMIT_S, FakeDevice
from perfsvc.errors import DisturbedError, LaunchError
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.worker.sampling import sampler
from perfsvc.measure.worker.sampling.batches import FELL_BEHIND, SYNCHRONISES
from perfsvc.measure.worker.sampling.sampler import UNKNOWN_CACHE_BYTES
from perfsvc.model import CacheState, Case, Kind, Launch, ReplayRecord

RECORD = ReplayRecord(Case("dot", "tree"), Kind.KERNEL, (), (), (), "", seed=0)
LAUNCH = Launch(0, "dot", (1, 1, 1), (1, 1, 1), ())
HOT = {"slowdowns": ["thermal slowdown"]}
WARMUP = 3
"""Warm-up batches if times do not change: of one sample, of five and of five."""


class Watched(FakeDevice):
    """A fake device that records its calls."""

    def __init__(self, path):
        super().__init__(path)
        self.batches, self.apart = [], []

    def batch(self, sample, count, *, clock, evict_bytes, blocked, **options):
        self.batches.append((count, clock, evict_bytes, blocked))
        return super().batch(sample, count, clock=clock, evict_bytes=evict_bytes, blocked=blocked, **options)

    def back_to_back(self, sample, count):
        self.apart.append(count)
        return super().back_to_back(sample, count)

    @property
    def counts(self):
        return [count for count, *_ in self.batches]


@pytest.fixture
def play(tmp_path):
    """Open the device with a script of one case and of the device."""

    def opened(script=(), opened_as=Watched, **case):
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"cases": {"dot": case}, **dict(script)}))
        return opened_as(path)

    return opened


USUAL = Sampling()


def take(device, sampling=USUAL, *, clock="device", cache=CacheState.COLD, operations=1, launches=1, restore=None):
    def sample():
        for _ in range(launches):
            device.launch(b"", LAUNCH, ())

    with device.measuring(RECORD, 0):
        return sampler.take_samples(
            device, sample, sampling, clock=clock, cache=cache, operations=operations, restore=restore
        )


def measured(times):
    """Return a script's times: a warm-up that ends as soon as it can, and then these."""
    return [[times[0]] * 11 + list(times)]


def spread(half, count):
    """Return distinct times spread evenly around 100 µs, from ``1 - half`` to ``1 + half``, shuffled."""
    places = sorted(range(count), key=lambda number: number * 37 % 101)
    return [1e-4 * (1 + half * (2 * place / (count - 1) - 1)) for place in places]


def counts(samples):
    return [len(batch.samples_s) for batch in samples.batches]


# --- when it stops ----------------------------------------------------------------------------------------------------


def test_sampling_stops_when_the_median_has_the_asked_precision(play):
    # The interval of 51 distinct samples reaches 7 of 25 places to either side.
    device = play(seconds=measured(spread(0.0018 * 25 / 7, 51)))
    samples = take(device, Sampling(precision=0.002, least=51), cache=CacheState.WARM)
    assert (counts(samples), samples.stopped) == ([51], "precision: the median is known within ±0.18 % (asked: ±0.2 %)")


def test_each_batch_doubles_the_number_of_samples(play):
    samples = take(play(seconds=measured(spread(0.009, 100))), Sampling(precision=0.0022, least=10))
    assert counts(samples) == [10, 10, 20, 40]
    assert samples.stopped == "precision: the median is known within ±0.22 % (asked: ±0.22 %)"


def test_sampling_stops_exactly_at_the_sample_cap(play):
    samples = take(play(seconds=measured(spread(0.3, 101) * 2)), Sampling(samples=72, least=40))
    assert (counts(samples), samples.stopped) == ([40, 32], "sample cap of 72")


def test_sampling_stops_at_the_time_cap_by_the_device_clock(play):
    device = play(seconds=[[0.3, 0.4]])
    samples = take(device, Sampling(seconds=2.0))
    assert samples.stopped == "time cap of 2 s"
    assert (samples.warmup, samples.seconds) == (2, (0.3, 0.4, 0.3, 0.4))
    assert device.now() == pytest.approx(2.1)


def test_a_case_slower_than_the_cap_is_sampled_once(play):
    samples = take(play(seconds=30.0), Sampling(seconds=1.0))
    assert (samples.warmup, samples.seconds, samples.stopped) == (1, (30.0,), "time cap of 1 s")


# --- warm-up ----------------------------------------------------------------------------------------------------------


def test_steady_times_need_little_warm_up(play):
    device = play(seconds=1e-4)
    samples = take(device)
    assert (device.counts, samples.warmup) == ([1, 5, 5, 50], 11)
    assert samples.warmup_busy_s == pytest.approx(11e-4)
    assert samples.busy_s == pytest.approx(61e-4)
    assert samples.busy_s == pytest.approx(device.now())


def test_warm_up_waits_for_falling_times(play):
    falling = [9.0] + [5.0] * 5 + [3.0] * 5 + [2.0] * 5 + [2.01] * 55
    samples = take(play(seconds=[[1e-4 * time for time in falling]]))
    assert samples.warmup == 21  # until the medians agree within 1 %
    assert set(samples.seconds) == {1e-4 * 2.01}


def test_scattered_times_are_stable_if_they_agree_within_their_scatter(play):
    around_1, around_105 = [0.90, 0.95, 1.00, 1.05, 1.10], [0.95, 1.00, 1.05, 1.10, 1.15]
    times = [[1e-4 * time for time in [9.0, *around_1, *around_105, *around_1 * 20]]]
    assert take(play(seconds=times)).warmup == 11


def test_times_that_never_settle_are_sampled_after_a_quarter_of_the_time_cap(play):
    times = [[1e-3] + [1e-3 * 1.02**step for step in range(100) for _ in range(5)]]
    samples = take(play(seconds=times), Sampling(seconds=0.4))
    taken = sum(times[0][: samples.warmup])
    assert taken >= 0.1
    assert taken - sum(times[0][: samples.warmup][-5:]) < 0.1


# --- how large a batch is ---------------------------------------------------------------------------------------------


def test_a_batch_lasts_no_longer_than_50_ms(play):
    device = play(seconds=0.004)
    take(device, Sampling(samples=30, least=30))
    assert device.counts == [1, 5, 5, 12, 12, 6]


def test_a_batch_fits_the_queue(play):
    table = {
        (CacheState.COLD, 1): (100 - 8) // 4,  # a launch, two events, and the eviction
        (CacheState.COLD, 6): (100 - 8) // 9,
        (CacheState.WARM, 2): (100 - 8 - 2) // 4,  # one more sample comes first
        (CacheState.COLD, None): (100 - 8) // 11,  # assumed to be eight
        (CacheState.COLD, 80): 1,
    }
    largest = {}
    for cache, operations in table:
        device = play({"queue_depth": 100})
        take(device, Sampling(samples=100, least=100), cache=cache, operations=operations)
        largest[cache, operations] = max(device.counts)
    assert largest == table


def test_an_unknown_number_of_operations_is_tried_behind_the_blocking_kernel(play):
    device = play({"queue_depth": 10})
    samples = take(device, operations=None)
    assert {(count, blocked) for count, _, _, blocked in device.batches} == {(1, True)}
    assert samples.note == ""


def test_a_device_that_queues_nothing_takes_any_number(play):
    device = play(seconds=1e-6)
    take(device, Sampling(samples=5000, least=5000), operations=1000)
    assert 5000 in device.counts


def test_a_sample_larger_than_the_queue_is_timed_without_the_blocking_kernel(play):
    device = play({"queue_depth": 100})
    samples = take(device, operations=100)
    assert {blocked for *_, blocked in device.batches} == {False}
    assert (
        samples.note
        == "timed without the blocking kernel, since a sample queues 100 operations and the device takes 100"
    )


# --- clocks and caches ------------------------------------------------------------------------------------------------


def test_a_cold_sample_is_preceded_by_a_multiple_of_the_cache(play):
    cold, warm = CacheState.COLD, CacheState.WARM
    for cache, l2_bytes, evicted in ((cold, 1000, 2500), (warm, 1000, 0), (cold, 0, int(2.5 * UNKNOWN_CACHE_BYTES))):
        device = play({"l2_bytes": l2_bytes})
        take(device, Sampling(evict=2.5), cache=cache)
        assert {evict_bytes for _, _, evict_bytes, _ in device.batches} == {evicted}


def test_samples_timed_by_the_device_go_behind_the_blocking_kernel(play):
    for clock, blocked in (("device", True), ("host", False)):
        device = play() if blocked else play(fault="synchronises")
        assert take(device, clock=clock).note == ""
        assert {(asked, behind) for _, asked, _, behind in device.batches} == {(clock, blocked)}


# --- the blocking kernel ends by itself -------------------------------------------------------------------------------


def test_batches_are_halved_after_the_blocking_kernel_opened_by_itself(play):
    # Unknown operations are assumed to be 8, so a queue of 200 holds 16 samples; the true number is 22.
    device = play({"queue_depth": 200}, seconds=1e-4)
    samples = take(device, Sampling(samples=20, least=20), operations=None, launches=20)
    assert [(len(batch.samples_s), batch.rejected) for batch in samples.batches] == [
        (17, FELL_BEHIND),
        (8, ""),
        (8, ""),
        (4, ""),
    ]
    assert (len(samples.seconds), samples.stopped) == (
        20,
        "precision: all 20 samples are equal, as finely as the clock resolves",
    )
    assert samples.note == ""


def test_rejected_batches_do_not_count_for_the_warm_up(play):
    device = play({"queue_depth": 60}, seconds=1e-4)
    samples = take(device, operations=None, launches=20)
    assert device.counts[:4] == [1, 4, 2, 2]  # the batch of four was rejected; two and two agree
    assert samples.warmup == 9


def test_work_that_synchronises_is_timed_without_the_blocking_kernel_after_two_single_samples(play):
    device = play(fault="synchronises", seconds=1e-4)
    samples = take(device)
    assert device.batches[:3] == [(1, "device", 2 * UNKNOWN_CACHE_BYTES, True)] * 2 + [
        (5, "device", 2 * UNKNOWN_CACHE_BYTES, False)
    ]
    assert [(batch.blocked, batch.kept_ahead, batch.rejected) for batch in samples.batches] == [(False, False, "")]
    assert (len(samples.seconds), samples.note) == (50, SYNCHRONISES)


class Cutting(Watched):
    """Ends its fourth batch, the first to count, at its third sample, as if the host had stalled."""

    def batch(self, sample, count, **options):
        batch = super().batch(sample, count, **options)
        return replace(batch, samples_s=batch.samples_s[:3], kept_ahead=False) if len(self.batches) == 4 else batch


def test_a_batch_that_was_cut_short_halves_the_next_ones_from_its_intended_size(play):
    samples = take(play(opened_as=Cutting, seconds=1e-4))
    assert [(len(batch.samples_s), batch.rejected) for batch in samples.batches] == [
        (3, FELL_BEHIND),
        (25, ""),
        (25, ""),
    ]


def test_time_lost_with_the_blocking_kernel_does_not_count_against_the_time_cap(play):
    device = play(fault="synchronises", seconds=0.1)
    samples = take(device, Sampling(seconds=1.0, precision=0.0))
    assert samples.stopped == "time cap of 1 s"
    assert device.now() == pytest.approx(2 * (BLOCKING_LIMIT_S + 0.1) + 1.0)


# --- disturbances -----------------------------------------------------------------------------------------------------


def test_a_disturbed_batch_is_rejected_and_kept_with_its_reason(play):
    readings = {
        "thermal slowdown": HOT,
        "hardware slowdown": {"slowdowns": ["hardware slowdown"]},
        "other processes at work (17)": {"others": [17]},
        "faults of the GPU (Xid 31)": {"xids": [31]},
        "memory errors that could not be corrected (1)": {"ecc_errors": 1},
    }
    times = measured([7e-4] * 50 + [1e-4] * 50)
    for reason, reading in readings.items():
        samples = take(play(seconds=times, conditions=[{}] * WARMUP + [reading, {}]))
        rejected, right = samples.batches
        assert (rejected.samples_s, rejected.rejected) == ((7e-4,) * 50, reason)
        assert (right.samples_s, right.rejected) == ((1e-4,) * 50, "")
        assert samples.seconds == (1e-4,) * 50
        assert rejected.conditions != right.conditions
        assert samples.busy_s == pytest.approx(11 * 7e-4 + 50 * 7e-4 + 50 * 1e-4)
        assert samples.note == ""


def test_a_batch_that_is_disturbed_and_fell_behind_has_both_reasons(play):
    device = play({"queue_depth": 200}, conditions=[{}] * WARMUP + [HOT, {}])
    samples = take(device, operations=None, launches=20)
    assert samples.batches[0].rejected == f"{FELL_BEHIND}; thermal slowdown"


def test_sampling_waits_for_a_throttling_gpu_after_three_batches_in_a_row(play):
    device = play(seconds=1e-4, conditions=[{}] * WARMUP + [HOT] * 5 + [{}])  # three batches and two readings
    samples = take(device)
    assert [batch.rejected for batch in samples.batches] == ["thermal slowdown"] * 3 + [""]
    assert len(samples.seconds) == 50
    assert samples.note == "waited 3.5 s for the GPU to recover from thermal slowdown"
    assert samples.stopped.startswith("precision")
    assert device.counts == [1, 5, 5, 50, 50, 50, 5, 5, 50]  # it was idle, and warms up again
    assert samples.warmup == 21
    assert device.now() == pytest.approx(221e-4 + 3.5)


def test_waiting_for_recovery_does_not_count_against_the_time_cap(play):
    device = play(seconds=measured(spread(0.3, 101) * 5), conditions=[{}] * WARMUP + [HOT] * 5 + [{}])
    samples = take(device, Sampling(samples=60, least=30, seconds=0.05))
    assert (len(samples.seconds), samples.stopped) == (60, "sample cap of 60")
    assert device.now() > 3.5


def test_disturbances_with_good_batches_between_cause_no_wait(play):
    device = play(seconds=measured(spread(0.3, 101) * 5), conditions=[{}] * WARMUP + [HOT, HOT, {}] * 3)
    samples = take(device, Sampling(samples=120, least=30))
    assert [batch.rejected for batch in samples.batches] == ["thermal slowdown", "thermal slowdown", ""] * 3
    assert (len(samples.seconds), samples.note) == (120, "")


def test_a_gpu_that_never_recovers_fails_the_case_with_a_cure(play):
    device = play(seconds=1e-4, conditions=[HOT])
    with pytest.raises(DisturbedError) as error:
        take(device, Sampling(recovery_s=10.0))
    assert error.value.what == (
        "the GPU did not recover from thermal slowdown within 10 s, and every batch was disturbed"
    )
    assert "nvidia-smi" in error.value.cure
    assert device.now() == pytest.approx(10 + 161e-4)


def test_good_samples_taken_before_the_disturbances_are_kept(play):
    device = play(seconds=measured(spread(0.3, 101) * 2), conditions=[{}] * (WARMUP + 1) + [HOT])
    samples = take(device, Sampling(least=40, recovery_s=10.0))
    assert (len(samples.seconds), [batch.rejected for batch in samples.batches]) == (
        40,
        ["", "thermal slowdown", "thermal slowdown", "thermal slowdown"],
    )
    assert samples.stopped == "the GPU did not recover from thermal slowdown within 10 s"
    assert samples.note == "waited 10 s for the GPU to recover from thermal slowdown"


def test_the_time_cap_counts_rejected_batches_once_there_is_a_good_one(play):
    # Three warm-up samples, then seven batches, two of them good.
    device = play(seconds=0.1, conditions=[{}] * (WARMUP + 1) + [HOT, HOT, {}, HOT, HOT, HOT])
    samples = take(device, Sampling(seconds=0.95, recovery_s=0.0))
    assert (len(samples.seconds), samples.stopped) == (2, "time cap of 0.95 s")
    assert device.now() == pytest.approx(1.0)


def test_a_power_cap_from_the_case_itself_is_recorded_and_rejects_nothing(play):
    samples = take(play(conditions=[{"slowdowns": ["power cap"], "power_w": 700}]))
    assert (len(samples.seconds), samples.note) == (50, "")
    assert samples.batches[0].conditions.slowdowns == ("power cap",)


# --- auxiliary metrics ------------------------------------------------------------------------------------------------


def test_cycles_use_the_clocks_of_the_batches_that_count(play):
    seen = [{"sm_clock_hz": 5e9, "others": [17]}, {"sm_clock_hz": 1.5e9}, {}, {"sm_clock_hz": 2.5e9}]
    device = play(seconds=measured(spread(0.3, 40)), conditions=[{"sm_clock_hz": 9e9}] * WARMUP + seen)
    samples = take(device, Sampling(samples=40, least=10))
    assert counts(samples) == [10, 10, 10, 20]
    assert samples.metrics == {"sm_cycles": pytest.approx(2e9 * statistics.median(samples.seconds))}


def test_a_short_kernel_has_its_back_to_back_time_and_the_timer_overhead(play):
    device = play(seconds=measured([9e-6] * 50 + [3e-6] * 200), timer_overhead_s=1e-6)
    samples = take(device)
    assert samples.metrics == {"back_to_back_s": pytest.approx(3e-6), "timer_overhead_s": pytest.approx(1e-6)}
    assert (device.counts, device.apart) == ([1, 5, 5, 50, 200], [200])
    assert samples.note == ""  # the overhead is a ninth of it
    assert len({evict_bytes for _, _, evict_bytes, _ in device.batches}) == 1


def test_a_large_share_of_timer_overhead_is_noted(play):
    samples = take(play(seconds=4e-6, timer_overhead_s=1.25e-6))
    assert samples.note == "a large share of the time is the timer's own overhead (timer_overhead_s, back_to_back_s)"


def test_the_timer_overhead_is_measured_within_the_queue(play):
    device = play({"queue_depth": 100}, seconds=4e-6)
    take(device)
    assert (device.counts[-1], device.apart) == (23, [23])


def test_only_short_samples_behind_the_blocking_kernel_have_a_timer_overhead(play):
    for seconds, clock, fault in ((1e-5, "device", None), (4e-6, "host", None), (4e-6, "device", "synchronises")):
        device = play(seconds=seconds, fault=fault)
        assert (take(device, clock=clock).metrics, device.apart) == ({}, [])


def test_energy_is_measured_on_request(play):
    device = play(energy_j=0.25)
    assert take(device).metrics == {}
    before = device.now()
    samples = take(device, Sampling(energy=True))
    assert (samples.metrics, samples.note) == ({"energy_j": 0.25}, "")
    assert device.now() - before == pytest.approx(1.0 + 61e-4)


def test_what_a_sample_changes_is_restored_for_the_timer_overhead_and_not_between_launches_in_a_row(play):
    restored = []
    device = play(seconds=4e-6, timer_overhead_s=1e-6, energy_j=0.25)
    samples = take(device, Sampling(energy=True), restore=lambda: restored.append(len(device.batches)))
    assert samples.metrics == {"timer_overhead_s": pytest.approx(1e-6)}
    assert "no energy: it would be that of restoring the arrays that the case changes in place" in samples.note
    assert device.apart == []
    assert restored == [1, 2, 3, 4, 5]  # the fake device runs one sample of each batch


def test_missing_energy_is_noted(play):
    samples = take(play(), Sampling(energy=True))
    assert (samples.metrics, samples.note) == ({}, "this device does not count energy")
    samples = take(play(energy_j=0.25, fault="synchronises"), Sampling(energy=True))
    assert samples.metrics == {}
    assert samples.note == f"{SYNCHRONISES}; no energy: it is measured only for samples behind the blocking kernel"


# --- other ------------------------------------------------------------------------------------------------------------


def test_an_impossible_time_fails_the_case(play, monkeypatch):
    for place, seconds in itertools.product((0, 3, 30), (0.0, -1e-6, math.inf, math.nan)):
        times = (*[1e-4] * place, seconds, *[1e-4] * 100)
        monkeypatch.setattr("perfsvc.device.fake.ScriptedCase.samples", lambda *_, times=times: times)
        with pytest.raises(LaunchError, match=f"the clock gave {seconds:g} s for a sample"):
            take(play())


def test_no_garbage_is_collected_between_samples(play):
    device, states = play(), []
    with device.measuring(RECORD, 0):
        sampler.take_samples(
            device,
            lambda: states.append(gc.isenabled()),
            Sampling(),
            clock="device",
            cache=CacheState.COLD,
            operations=None,
        )
    assert states
    assert not any(states)
    assert gc.isenabled()
