"""The JSON of Google Benchmark (``--benchmark_out=FILE --benchmark_out_format=json``).

All repetitions of a benchmark ran in one process, so they are the samples of one replica. With
``--benchmark_report_aggregates_only`` the file has only statistics, and the median stands for the samples.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from perfsvc.errors import FormatError
from perfsvc.formats.fields import Record, benchmark_name, finite, is_time, json_of, moment, point_of, variant_name
from perfsvc.formats.result import Result
from perfsvc.model import DeviceInfo, Status

VARIANT = "google-benchmark"
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ARGUMENT = re.compile(r"-?[0-9]+", re.ASCII)
_NAMED_ARGUMENT = re.compile(r"(?P<axis>[A-Za-z_]\w*):(?P<value>[^:/]+)")
_OWN = {
    *("name", "run_name", "run_type", "family_index", "per_family_instance_index", "repetitions", "repetition_index"),
    *("threads", "iterations", "real_time", "cpu_time", "time_unit", "aggregate_name", "aggregate_unit", "label"),
    *("error_occurred", "error_message", "skipped", "skip_message"),
}
"""The fields that are no counters of the user."""


def parse(text: bytes, _folder: Path | None) -> Iterator[Result]:
    """Yield a result for each benchmark with its arguments."""
    file = json_of(text)
    file.require("context", "benchmarks")
    context = file.record("context")
    host = context.text("host_name")
    processors = context.integer("num_cpus")
    origin = {
        "device": DeviceInfo("host", "", "0", f"CPU with {processors} threads" if processors else "CPU", ""),
        "program": PurePosixPath(context.text("executable")).name,
        "host": host,
        "started": moment(context.text("date"), "context.date"),
    }
    for (_, name, *_), rows in _by_benchmark(file).items():
        yield _result(str(name), rows, origin)


def _by_benchmark(file: Record) -> dict[tuple[object, ...], list[Record]]:
    """Return the rows of each benchmark: its repetitions, else its aggregates."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    aggregates: dict[tuple[object, ...], list[Record]] = {}
    for row in file.records("benchmarks"):
        row.require("name")
        is_aggregate = row.text("run_type") == "aggregate"
        name = row.text("run_name") or row.text("name")
        family = row.integer("family_index", -1), row.integer("per_family_instance_index", -1)
        (aggregates if is_aggregate else groups).setdefault((family, name), []).append(row)
    for key, rows in aggregates.items():
        named = {row.text("aggregate_name"): row for row in rows}
        if key not in groups and (center := named.get("median") or named.get("mean")):
            groups[key] = [center]
    return groups


def _result(name: str, rows: list[Record], origin: dict[str, Any]) -> Result:
    """Return the result of a benchmark from its rows."""
    benchmark, variant, axes = _split(name)
    named: dict[str, Any] = {"benchmark": benchmark, "variant": variant, "point": point_of(axes), **origin}
    for row in rows:
        if row.fields.get("error_occurred") or row.fields.get("skipped"):
            status = Status.FAILED if row.fields.get("error_occurred") else Status.SKIPPED
            reason = row.text("error_message") or row.text("skip_message") or "Google Benchmark gave no reason"
            return Result(**named, status=status, reason=reason.strip() or "no reason")
    times = [_seconds(row, "real_time") for row in rows]
    usable = tuple(time for time in times if is_time(time))
    if not usable:
        return Result(**named, status=Status.FAILED, reason="Google Benchmark stored no time above zero")
    left_out = len(times) - len(usable)
    last = rows[-1]
    counters = {key: last.number(key) for key in last.fields if key not in _OWN and _is_number(last.fields[key])}
    cpu_s = _seconds(last, "cpu_time") if "cpu_time" in last.fields else None
    only_aggregates = last.text("run_type") == "aggregate"
    note = "the file has no repetitions: one value stands for all of them" if only_aggregates else ""
    note = (
        f"{left_out} of {len(times)} repetitions were left out, because they have no time above zero"
        if left_out
        else note
    )
    return Result(**named, samples_s=usable, counters=finite({"cpu_s": cpu_s, **counters}), note=note)


def _seconds(row: Record, key: str) -> float:
    row.require(key)
    unit = row.text("time_unit", "ns")
    time = row.number(key)
    if unit not in UNITS:
        raise FormatError(f"{row.where}.time_unit is not one of {', '.join(UNITS)}")
    return 0.0 if time is None else time * UNITS[unit]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _split(name: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return benchmark, variant and axes of a name such as ``BM_Sort<int>/n:1000/8/real_time``.

    Numbers, and values with a name, are arguments. The first other part is the benchmark, and the rest is the variant,
    such as the method of a fixture, or ``real_time``.
    """
    depth, parts = 0, [""]
    for letter in name:  # the arguments of a template may hold a slash
        depth += (letter == "<") - (letter == ">")
        if letter == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    words, axes = [parts[0]], list[tuple[str, str]]()
    for part in parts[1:]:
        if _ARGUMENT.fullmatch(part):
            axes.append((f"arg{len(axes)}", part))
        elif argument := _NAMED_ARGUMENT.fullmatch(part):
            axes.append((argument["axis"], argument["value"]))
        else:
            words.append(part)
    return benchmark_name(words[0]), variant_name("/".join(words[1:]) or VARIANT), axes
