"""Shared by tests of frames: measurements as the store returns them, a list of values for each column."""

from datetime import UTC, datetime

RUN = {"run": 1, "label": "night", "commit": "0123456789abcdef"}
RUN["started_at"] = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
DEVICE = {"device": "GPU-1", "device_kind": "cuda", "device_model": "NVIDIA H100", "driver": "580.1", "toolkit": "13.0"}
CASE = {"case": "dot/tree[n=4096]", "benchmark": "dot", "variant": "tree", "point": "n=4096", "cache": "cold"}
TIMES = {"replica": 0, "status": "ok", "reason": "", "median_s": 1e-5, "low_s": 1e-5, "high_s": 4e-5, "samples": 100}
WORK = {"bandwidth_bytes_per_s": None, "flops_per_s": None, "max_error": 1e-7, "mean_error": 1e-8}
SAMPLING = {"warmup": 11, "note": "", "stopped": "precision", "slowdowns": "", "rejected_batches": 0}
STATE = {"sm_clock_hz": 1.98e9, "temperature_c": 54.0, "power_w": 412.0}
NOISE = {"noise_within": 0.004, "noise_between": 0.001, "noise_places": 0.002}
PLACES = {"lowest_place_s": 1e-5, "highest_place_s": 1.1e-5}
PEAKS = {"copy_bytes_per_s": 4e12, "read_bytes_per_s": 3e12, "peak": "memory", "peak_share": 0.75}
ONE = {**RUN, **DEVICE, **CASE, **TIMES, **WORK, **SAMPLING, **STATE, **NOISE, **PLACES, **PEAKS}
"""A correct measurement of a replica."""


def columns(count, **changed):
    """Return a number of measurements that differ in the columns that are given as lists."""
    return {name: [value] * count for name, value in ONE.items()} | changed
