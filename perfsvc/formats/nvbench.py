"""NVBench's JSON, version 1, with the files of samples that ``--jsonbin`` writes beside it.

Numbers are texts, because JSON would round 64-bit integers; ``inf`` and ``nan`` occur. Empty lists are null. A summary
names a file of samples by a path relative to the JSON file, such as ``out.json-bin/0.bin``.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from perfsvc import units
from perfsvc.errors import FormatError
from perfsvc.files import Folder
from perfsvc.formats.fields import (
    Record,
    benchmark_name,
    clean,
    finite,
    is_time,
    json_of,
    number_of,
    point_of,
    variant_name,
)
from perfsvc.formats.result import Result
from perfsvc.model import CacheState, DeviceInfo, Status

VARIANT = "nvbench"
VERSION = 1
COLD, CPU, BATCH = "nv/cold/time/gpu", "nv/cpu_only/time/cpu", "nv/batch/time/gpu"
"""Where the times are, the best first: each launch alone with a cold cache, by the CPU's clock, many launches."""
SAMPLES = {COLD: "nv/json/bin:nv/cold/sample_times", CPU: "nv/json/bin:nv/cpu_only/sample_times"}
CLOCKS = "nv/json/freqs-bin:nv/cold/sample_freqs"
RATES = {COLD: "nv/cold/bw/global/bytes_per_second", CPU: "nv/cpu_only/bw/global/bytes_per_second"}
CLOCK = "nv/cold/sm_clock_rate/mean"
MOST_SAMPLES = 1 << 25
"""The most samples in a file; the store does not read more."""
LARGEST_INTEGER = (1 << 31) - 1
"""The largest integer of most columns of the database."""
_FLOAT = np.dtype("<f4")

Floats = NDArray[np.float32]
Summaries = Mapping[str, Record]
"""The named values of each summary, by its tag."""


def parse(text: bytes, folder: Path | None) -> Iterator[Result]:
    """Yield a result for each state. A benchmark that is registered again under its name is another variant.

    Without ``folder``, the files of samples are not read.
    """
    file = json_of(text)
    file.require("devices", "benchmarks")
    meta = file.record("meta")
    version = meta.record("version").record("json")
    if version.integer("major", VERSION) != VERSION:
        raise FormatError(f"its version is {version.text('string')}, and perfsvc reads version {VERSION}")
    argv = meta.items("argv") or [""]
    program = clean(PurePosixPath(str(argv[0])).name)
    devices = {device.integer("id"): _device(device) for device in file.records("devices")}
    occurrences: Counter[str] = Counter()
    for benchmark in file.records("benchmarks"):
        benchmark.require("name", "states")
        name = benchmark_name(benchmark.text("name"))
        occurrences[name] += 1
        variant = VARIANT if occurrences[name] == 1 else f"{VARIANT}-{occurrences[name]}"
        for state in benchmark.records("states"):
            device = devices.get(state.integer("device", -1))
            if device is None:
                raise FormatError(f"{state.where}.device names a device that the file does not describe")
            point = point_of(map(_axis, state.records("axis_values")))
            yield _result(state, partial(Result, name, variant, point, device=device, program=program), folder)


def _device(device: Record) -> DeviceInfo:
    major, minor = divmod(_small(device, "sm_version") // 10, 10)
    return DeviceInfo(
        kind="cuda",
        spec="",
        uuid=str(device.integer("id")),
        model=variant_name(device.text("name")),
        target=f"sm_{major}{minor}",
        compute_capability=f"{major}.{minor}",
        multiprocessors=_small(device, "number_of_sms"),
        clock_hz=finite({"clock": device.number("sm_default_clock_rate")}).get("clock", 0.0),
        memory_clock_hz=finite({"clock": device.number("global_memory_bus_peak_clock_rate")}).get("clock", 0.0),
        memory_bytes=device.integer("global_memory_size"),
        l2_bytes=device.integer("l2_cache_size"),
        shared_bytes_per_block=_small(device, "shared_memory_per_block"),
        registers_per_block=_small(device, "registers_per_block"),
    )


def _small(device: Record, key: str) -> int:
    value = device.integer(key)
    if not 0 <= value <= LARGEST_INTEGER:
        raise device.wrong(key, "out of range")
    return value


def _axis(axis: Record) -> tuple[str, object]:
    """Return the name and the value of an axis; numbers are texts, and a text such as ``007`` stays one."""
    axis.require("name", "value")
    if axis.text("type") == "float64":
        return axis.text("name"), axis.number("value")
    return axis.text("name"), axis.fields["value"]


# --- a state ---------------------------------------------------------------------------------------------------------


def _result(state: Record, named: Callable[..., Result], folder: Path | None) -> Result:
    """Return the result of a state; ``named`` makes a result with the names of the state and its device."""
    summaries = {
        summary.text("tag"): Record(
            {data.text("name"): data.fields.get("value") for data in summary.records("data")}, summary.where
        )
        for summary in state.records("summaries")
    }
    if state.flag("is_skipped"):
        reason = state.text("skip_reason").strip() or "NVBench skipped it without a reason"
        return named(status=Status.SKIPPED, reason=reason, cache=None)
    source = next((tag for tag in (COLD, CPU, BATCH) if _has_times(summaries, tag)), "")
    if not source:
        return named(status=Status.SKIPPED, reason="NVBench stored no time for this state", cache=None)
    mean = _value(summaries, f"{source}/mean")
    cache = CacheState.COLD if source == COLD else CacheState.WARM
    samples = _samples(summaries, SAMPLES.get(source, ""), folder)
    if samples is None:
        median = _value(summaries, f"{source}/median")
        usable = [time for time in (median, mean) if time is not None and is_time(time)][:1]
        note = "the file has no samples: one value stands for all of them"
    else:
        usable = [time for time in samples.tolist() if is_time(time)]
        left_out = samples.size - len(usable)
        note = (
            f"{left_out} of {samples.size} samples were left out, because they are not times above zero"
            if left_out
            else ""
        )
    if not usable:
        return named(status=Status.FAILED, reason="NVBench stored no time above zero", cache=cache)
    clock = _value(summaries, CLOCK)
    metrics = {
        "back_to_back_s": _value(summaries, f"{BATCH}/mean"),
        "sm_cycles": _cycles(samples, summaries, usable[0], folder) if source == COLD else None,
    }
    return named(
        samples_s=tuple(usable),
        metrics=finite(metrics),
        counters=finite({tag: _value(summaries, tag) for tag in summaries if not tag.startswith("nv/json/")}),
        note=note,
        cache=cache,
        moved_bytes=_moved_bytes(_value(summaries, RATES.get(source, "")), mean),
        clock_hz=clock if clock is not None and 0 < clock < math.inf else None,
    )


def _has_times(summaries: Summaries, source: str) -> bool:
    return any(tag in summaries for tag in (f"{source}/mean", f"{source}/median", SAMPLES.get(source, "")))


def _value(summaries: Summaries, tag: str) -> float | None:
    """Return the number of a summary; None if there is no such summary, or if its value is a text."""
    summary = summaries.get(tag)
    if summary is None or (isinstance(summary.fields.get("value"), str) and not _is_number(summary)):
        return None
    return summary.number("value")


def _is_number(summary: Record) -> bool:
    return number_of(summary.fields["value"]) is not None


def _moved_bytes(rate: float | None, mean: float | None) -> int:
    """Return the bytes that an execution moves: NVBench divides them by the mean time."""
    moved = (rate or 0.0) * (mean or 0.0)
    return round(moved) if 0 < moved < 1 << 62 else 0


def _cycles(samples: Floats | None, summaries: Summaries, time: float, folder: Path | None) -> float | None:
    """Return the median of the cycles of the samples; without samples, the cycles of one time at the mean clock."""
    clocks = _samples(summaries, CLOCKS, folder)
    if samples is not None and clocks is not None and samples.size == clocks.size:
        cycles = samples.astype(float) * clocks
        positive = cycles[np.isfinite(cycles) & (cycles > 0)]
        return float(np.median(positive)) if positive.size else None
    clock = _value(summaries, CLOCK)
    return clock * time if samples is None and clock is not None and clock > 0 else None


def _samples(summaries: Summaries, tag: str, folder: Path | None) -> Floats | None:
    """Return the numbers in the file that a summary names; None if there is no file, or no folder to look in.

    NVBench leaves out the name of the file if it could not write the file.
    """
    summary = summaries.get(tag)
    name = summary.text("filename") if summary else ""
    if summary is None or folder is None or not name:
        return None
    # The file is in a folder beside the JSON. Older versions of NVBench named it relative to the working directory.
    beside = "/".join(PurePosixPath(name.replace("\\", "/")).parts[-2:])
    size = summary.integer("size", -1)
    if not 0 <= size <= MOST_SAMPLES:
        raise summary.wrong("size", "out of range")
    try:
        with Folder.open(folder) as opened, os.fdopen(opened.open_file(beside, os.O_RDONLY), "rb") as file:
            content = file.read((size + 1) * _FLOAT.itemsize)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        cure = f"copy the folder {PurePosixPath(beside).parent} to the place of the JSON file as well"
        raise FormatError(f"its samples in {beside} cannot be read: {why}", cure=cure) from None
    if len(content) != size * _FLOAT.itemsize:
        what = f"{beside} does not have the {units.count(size, 'sample')} that {summary.where} names"
        raise FormatError(what, cure="copy the whole file again")
    return np.frombuffer(content, _FLOAT)
