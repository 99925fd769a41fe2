import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfsvc.errors import DatabaseError
from perfsvc.model import CacheState, Case, Cause, Noise, Peak, Status, Verdict
from perfsvc.store import Store
from tests.unit.store.conftest import ON_BOTH, counted


@ON_BOTH
def test_each_row_has_the_verdict_on_its_time_if_there_is_one(story):
    run = story.begin()
    for case in (story.tiled, story.naive):
        story.put(run, case)
    on_time = replace(
        story.judgement(story.tiled, Verdict.REGRESSION), ratio=1.2, low=1.1, high=1.3, cause=Cause.KERNEL
    )
    story.store.verdicts.put(run, [on_time, story.judgement(story.tiled, Verdict.NEW, metric="max_error")])
    held = story.store.measurements.columns([run])
    names = "verdict", "ratio", "ratio_low", "ratio_high", "cause", "baseline_run"
    rows = dict(zip(held["variant"], zip(*(held[name] for name in names), strict=True), strict=True))
    assert rows == {"tiled": ("regression", 1.2, 1.1, 1.3, "kernel", None), "naive": (None,) * 6}


@ON_BOTH
def test_a_measurement_is_one_row_with_everything_about_it(story):
    run = story.begin(label="nightly", commit="abc", branch="main", host="box")
    told = {"warmup": 7, "note": "a sentence", "wall_s": 4.0, "check_s": 0.5, "sampling_s": 3.0, "busy_s": 2.5}
    told |= {"max_error": 1e-6, "stopped": "enough", "metrics": {"overlap": 0.5}}
    story.put(run, story.tiled, samples=(1.0, 2.0, 6.0), **told)
    row = {name: values[0] for name, values in story.store.measurements.columns([run]).items()}
    expected = {
        **told,
        "run": run,
        "label": "nightly",
        "commit": "abc",
        "branch": "main",
        "host": "box",
        "device": "GPU-1",
        "device_kind": "cuda",
        "device_model": "NVIDIA H100",
        "case": "transpose/tiled[n=4096,dtype=f32]",
        "benchmark": "transpose",
        "variant": "tiled",
        "point": "n=4096,dtype=f32",
        "axes": {"n": 4096, "dtype": "f32"},
        "version": 1,
        "cache": "cold",
        "replica": 0,
        "status": "ok",
        "median_s": 2.0,
        "low_s": 1.0,
        "high_s": 6.0,
        "samples": 3,
        "bandwidth_bytes_per_s": 3000.0,
        "flops_per_s": 5.0,
        "driver": "580.1",
        "toolkit": "nvcc 13.0.88",
        "power_limit_w": 700.0,
    }
    assert {name: row[name] for name in expected} == expected
    assert type(row["status"]) is type(row["cache"]) is str


@ON_BOTH
def test_a_row_has_the_nearest_peak_of_its_driver_and_power_limit(story):
    gpu = replace(story.gpu, driver="580.1", power_limit_w=700.0, l2_bytes=20_000)
    story = replace(story, gpu=gpu)
    run = story.begin()
    for cache in CacheState:
        story.put(run, story.tiled, samples=(2.0,), cache=cache)  # 3000 B/s and 5 FLOP/s
    devices = story.store.devices
    devices.put_peaks(run, {"GPU-1": Peak(4000.0, 6000.0)})
    devices.put_gpu_peak(replace(gpu, driver="590.0"), "fp32", 5.0, version=1)
    devices.put_gpu_peak(replace(gpu, power_limit_w=350.0), "fp32", 5.0, version=1)

    def nearest():
        columns = story.store.measurements.columns()
        return list(zip(columns["peak"], columns["peak_share"], strict=True))

    assert nearest() == [("memory", 0.5), (None, None)]  # the warm case is in the L2 cache, whose peak is unknown
    devices.put_gpu_peak(gpu, "l2", 12_000.0, version=1)
    devices.put_gpu_peak(gpu, "fp32", 25.0, version=1)
    assert nearest() == [("memory", 0.5), ("l2", 0.25)]
    devices.put_gpu_peak(gpu, "fp32", 6.25, version=2)  # measured again
    assert nearest() == [("fp32", 0.8), ("fp32", 0.8)]
    assert devices.gpu_peaks_of(run) == {"GPU-1": {"fp32": 6.25, "l2": 12_000.0}}
    assert devices.gpu_peaks(gpu, version=2) == {"fp32": 6.25}
    assert devices.rates(run, "GPU-1") == {"memory": 6000.0, "fp32": 6.25, "l2": 12_000.0}
    assert devices.rates(run, "GPU-9") == {}
    devices.doubt_gpu_peaks(gpu, ["fp32"])
    assert nearest() == [("fp32", 0.8), ("fp32", 0.8)]
    assert devices.gpu_peaks(gpu, version=2) == {}
    devices.forget_gpu_peaks(gpu, except_version=1)
    assert nearest() == [("memory", 0.5), ("l2", 0.25)]


def test_a_warm_case_that_is_partly_in_the_cache_has_no_share_of_a_bandwidth(story):
    story = replace(story, gpu=replace(story.gpu, l2_bytes=6000))
    run = story.begin()
    for cache in CacheState:
        story.put(run, story.tiled, samples=(2.0,), cache=cache)
    story.store.devices.put_peaks(run, {"GPU-1": Peak(4000.0, 6000.0)})
    columns = story.store.measurements.columns()
    assert list(zip(columns["cache"], columns["peak"], strict=True)) == [("cold", "memory"), ("warm", None)]


def test_rates_that_another_program_wrote_are_not_taken_for_peaks(story):
    gpu = replace(story.gpu, driver="580.1", power_limit_w=700.0)
    run = story.run()
    story.store.devices.put_peaks(run, {"GPU-1": Peak(4000.0, 6000.0)})
    for name, rate in (("", 1.0), ("memory", 1.0), ("<b>", 1.0), ("fp32", -1.0), ("l2", float("inf"))):
        story.store.devices.put_gpu_peak(gpu, name, rate, version=1)
    assert story.store.devices.rates(run, "GPU-1") == {"memory": 6000.0}
    assert story.store.measurements.columns()["peak"] == ["memory"]
    story.store.devices.put_peaks(run, {"GPU-1": Peak(float("inf"), 6000.0)})
    assert story.store.devices.rates(run, "GPU-1") == {}
    assert story.store.measurements.columns()["peak"] == [None]


def test_a_run_with_two_drivers_has_the_peaks_of_none(story):
    run = story.begin()
    gpu = replace(story.gpu, driver="580.1", power_limit_w=700.0)
    for replica, driver in enumerate(("580.1", "590.0")):
        replace(story, environment=replace(story.environment, driver=driver)).put(run, story.tiled, replica=replica)
        story.store.devices.put_gpu_peak(replace(gpu, driver=driver), "fp32", 25.0, version=1)
    assert story.store.devices.gpu_peaks_of(run) == {}


@ON_BOTH
def test_a_row_has_the_noise_and_the_peak_of_its_run_device_and_cache_state(story):
    first, second = story.begin(), story.begin()
    for run in (first, second):
        for device in ("GPU-1", "GPU-2"):
            for cache in CacheState:
                story.put(run, story.tiled, samples=(2.0,), device=device, cache=cache)
    story.set_noise(first, story.tiled, Noise(0.5, 0.25, 0.03, 0.9, 1.1))
    story.set_noise(first, story.tiled, Noise(0.125, None), "GPU-2", CacheState.WARM)
    story.store.devices.put_peaks(first, {"GPU-1": Peak(4000.0, 6000.0), "GPU-2": Peak(12000.0, 6000.0)})
    columns = story.store.measurements.columns()
    names = ("noise_within", "noise_between", "noise_places", "lowest_place_s", "highest_place_s")
    found = zip(*(columns[name] for name in ("run", "device", "cache", *names)), strict=True)
    assert [row for row in found if row[3] is not None] == [
        (first, "GPU-1", "cold", 0.5, 0.25, 0.03, 0.9, 1.1),
        (first, "GPU-2", "warm", 0.125, None, None, None, None),
    ]
    assert columns["bandwidth_bytes_per_s"] == [3000.0] * 8
    assert columns["peak_share"] == [0.5, 0.5, 0.25, 0.25] + [None] * 4
    assert columns["read_bytes_per_s"] == [6000.0] * 4 + [None] * 4


ASKED = {
    "levels": (9, lambda story, run, _: story.store.series.levels(run)),
    "levels of series": (7, lambda story, run, series: story.store.series.levels_of(dict.fromkeys(series, run))),
    "columns": (5, lambda story, *_: story.store.measurements.columns()),
    "runs": (6, lambda story, *_: story.store.runs.list()),
    "history": (8, lambda story, *_: story.store.series.case_history(story.tiled.id)),
    "baselines": (10, lambda story, run, series: story.store.baselines.get(series, run)),
    "verdicts": (3, lambda story, run, _: story.store.verdicts.of_run(run)),
    "expected": (14, lambda story, run, _: story.store.baselines.expected(run)),
    "costs": (5, lambda story, *_: story.store.measurements.costs([story.tiled, story.naive], ["GPU-1", "GPU-2"])),
    "over budget": (2, lambda story, run, _: story.store.runs.over_budget(run)),
}
"""Questions, with the most statements that each takes."""


def test_the_number_of_statements_does_not_grow_with_the_rows(story):
    def grow(times):
        for size in range(times):
            cases = [replace(story.tiled, point=(("n", n),)) for n in range(size + 1)]
            run = story.run(story.tiled, *cases, scope="all")
            story.store.runs.put_over_budget(run, [("GPU-1", case, CacheState.WARM) for case in cases])
            story.store.verdicts.put(run, [story.judgement(case, verdict=Verdict.UNCHANGED) for case in cases])
        return run

    taken = {name: [] for name in ASKED}
    for times in (2, 5):
        run = grow(times)
        series = list(story.store.series.levels(run))
        for name, (_, ask) in ASKED.items():
            with counted(story.store) as statements:
                ask(story, run, series)
            taken[name].append(len(statements))
    growing = {name: counts for name, counts in taken.items() if not 0 < counts[0] == counts[1] <= ASKED[name][0]}
    assert growing == {}


@ON_BOTH
def test_later_measurements_than_until_are_left_out(story):
    run = story.begin()
    story.put(run, story.tiled)
    until = story.store.measurements.newest_id()
    story.put(run, Case("transpose", "odd", (("rows", "many"),)), metrics={"steps": 1.0})
    assert story.store.measurements.columns([run], until=until)["variant"] == [story.tiled.variant]
    points, metrics = story.store.measurements.further([run], until=until)
    assert (points, metrics) == ([dict(story.tiled.point)], set())
    assert len(story.store.measurements.columns([run])["variant"]) == 2


@pytest.mark.parametrize("damaged", [2**62 - 1, 2**62 + 3, 2**63 - 1])
def test_runs_are_stored_beside_a_measurement_with_a_damaged_id(story, damaged):
    story.put(story.begin(), story.tiled, metrics={"energy_j": 1.0})
    with closing(sqlite3.connect(story.store.database.engine.url.database)) as raw, raw:
        raw.execute("UPDATE measurements SET id = ?", (damaged,))
    for _ in range(2):
        story.put(story.begin(), story.naive)
    # The metric of the damaged row still has its number; no other case gets it.
    assert [row.metrics for row in story.store.series.case_history(story.naive.id)] == [{}, {}]


# --- what analysts read ----------------------------------------------------------------------------------------------


OTHER = "GPU-2"


def measured(story: Any) -> tuple[int, int]:
    """Two runs: two cases on one device, then one case on two devices, warm on the second."""
    first = story.run(story.tiled, story.naive)
    second = story.begin()
    story.put(second, story.tiled, samples=(4e-3, 5e-3))
    story.put(second, story.tiled, samples=(6e-3,), device=OTHER, cache=CacheState.WARM)
    story.put(second, story.naive, status=Status.FAILED, reason="crashed")
    return first, second


def keys(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(columns["run"], columns["variant"], columns["device"], strict=True))


@ON_BOTH
def test_columns_are_of_the_chosen_runs_cases_and_devices(
    store: Store, story: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = measured(story)
    read = store.measurements.columns
    everything = keys(read())
    assert len(everything) == 5
    assert keys(read([first])) == [row for row in everything if row[0] == first]
    assert keys(read(None, {story.tiled.id})) == [row for row in everything if row[1] == "tiled"]
    assert keys(read(None, None, {OTHER})) == [(second, "tiled", OTHER)]
    assert len(read(None, None, {story.gpu.model})["run"]) == 5
    assert keys(read([first], {story.naive.id}, {OTHER})) == []
    assert read([])["run"] == []
    at_once = store.measurements.columns()
    monkeypatch.setattr("perfsvc.store.measurements.columns.PART", 2)
    assert store.measurements.columns() == at_once


@ON_BOTH
def test_samples_are_of_the_chosen_cases_and_devices(store: Store, story: Any) -> None:
    first, second = measured(story)
    assert [len(stored.times_s) for stored in store.measurements.samples(first)] == [3, 3]
    (tiled, warm) = store.measurements.samples(second)
    assert (tiled.case, tiled.device, tiled.cache) == (story.tiled.id, story.gpu.uuid, CacheState.COLD)
    assert tiled.times_s.tolist() == np.array([4e-3, 5e-3], np.float32).tolist()
    assert (warm.device, warm.cache, warm.replica) == (OTHER, CacheState.WARM, 0)
    assert store.measurements.samples(second, devices={OTHER})[0].device == OTHER
    assert store.measurements.samples(second, cases={story.naive.id}) == []


@ON_BOTH
def test_a_database_that_is_opened_to_read_refuses_changes(store: Store, story: Any, place: str) -> None:
    run = story.run(story.tiled)
    with Store.open(place, create=False, read_only=True) as reader:
        assert reader.runs.get(run).id == run
        with pytest.raises(DatabaseError, match=r"read-?only"):
            reader.devices.put(replace(story.gpu, uuid=OTHER))
        assert reader.devices.all().keys() == {story.gpu.uuid}
