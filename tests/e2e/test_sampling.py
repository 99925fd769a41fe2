"""Disturbed GPUs and work that evades the clock, from the command line to the database, on the fake device."""

import re

import pytest

from perfsvc.store.measurements.batches import unpack_batches

HOT = {"slowdowns": ["thermal slowdown"], "temperature_c": 92}
WARMUP = 3
"""Warm-up batches if times do not change."""
OF_BETA = "from measurements m join cases c on c.id = m.case_id where variant like 'beta%'"


def unwrapped(text):
    """Return the printed text without its line breaks."""
    return re.sub(r"\s+", " ", text)


def batches_of(perfsvc, variant):
    """Return the batches of a variant of the benchmark ``scale``."""
    query = f"select m.batches {OF_BETA} and c.benchmark = 'scale'".replace("beta", variant)
    return [batch for (blob,) in perfsvc.rows(query) for batch in unpack_batches(blob)]


@pytest.fixture
def run(perfsvc):
    """Measure the three variants in one replica each; ``beta`` has its own script."""

    def run(*arguments, code=0, **beta):
        perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"seconds": 1e-4, **beta}})
        return perfsvc.fake("--replicas", "1", *arguments, code=code)

    return run


def test_the_wait_for_a_gpu_to_recover_is_noted(perfsvc, run):
    out = run(conditions=[{}] * WARMUP + [HOT] * 4 + [{}]).out
    assert perfsvc.rows(f"select sample_count, rejected_batches {OF_BETA}") == [(50, 3)]
    assert "waited 1.5 s for the GPU to recover from thermal slowdown" in unwrapped(out)


def test_a_gpu_at_its_power_limit_is_recorded_and_rejects_nothing(perfsvc, run):
    run(conditions=[{"slowdowns": ["power cap"], "power_w": 700}])
    query = f"select sample_count, rejected_batches, slowdowns, power_w {OF_BETA}"
    assert perfsvc.rows(query) == [(50, 0, "power cap", 700.0)]


def test_work_that_waits_for_the_device_is_timed_without_the_blocking_kernel_and_noted(perfsvc, run):
    out = run(fault="synchronises").out
    assert "timed without the blocking kernel, since the work synchronises with the host" in unwrapped(out)
    found = {
        (variant, batch.blocked, batch.kept_ahead)
        for variant in ("alpha", "beta", "gamma")
        for batch in batches_of(perfsvc, variant)
    }
    assert found == {("alpha", True, True), ("beta", False, False), ("gamma", True, True)}


@pytest.mark.parametrize(
    ("fault", "code", "status", "reason"),
    [(None, 0, "ok", ""), ("elsewhere", 4, "wrong", "works on another stream than the one it was given")],
)
def test_a_function_that_works_on_another_stream_fails(perfsvc, fault, code, status, reason):
    perfsvc.play({"*": {"seconds": 1e-4}, "kinds/python": {"fault": fault}})
    ended = perfsvc.fake("--select", "kinds/python", "--format", "json", suite="kinds", code=code)
    (row,) = ended.json["results"]
    assert row["status"] == status
    assert reason in row["reason"]


def test_a_slow_case_is_stopped_by_its_time_cap(perfsvc, run):
    run("--seconds", "0.5", seconds=30.0)
    assert perfsvc.rows(f"select sample_count, warmup, stopped {OF_BETA}") == [(1, 1, "time cap of 0.5 s")]


def test_another_number_of_places_is_reported_before_it_is_measured(perfsvc):
    suite = perfsvc.own("scale")
    perfsvc.play({"*": {"seconds": 1e-4}})
    assert "has changed since" not in perfsvc.fake(suite=suite, code=0).err
    ended = perfsvc.fake("--places", "3", suite=suite)
    message = "has changed since run 1: places of arrays 1 → 3; perfsvc compares later runs only with run 2"
    assert message in unwrapped(ended.err)
