"""CSV with named columns, for tools that perfsvc does not know.

``benchmark`` and one of ``time_s``, ``time_ms``, ``time_us`` and ``time_ns`` are needed. All columns that perfsvc does
not know are axes. The rows of one case and replica are the samples of one process.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfsvc.errors import FormatError
from perfsvc.formats.fields import benchmark_name, finite, is_time, moment, number_of, point_of, variant_name
from perfsvc.formats.result import Result
from perfsvc.model import CacheState, DeviceInfo, Status

TIMES = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9}
NAMES = ("benchmark", "variant", "replica", "cache", "device", "commit", "host", "at", "reason")
METRIC = "metric:"
VARIANT = "csv"
MOST_REPLICAS = 100_000

Row = Mapping[str, str]


def parse(text: bytes, _folder: Path | None) -> Iterator[Result]:
    """Yield a result for each case and replica, in the order of their first rows."""
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"byte {error.start} is no UTF-8") from None
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in _rows(decoded):
        device = result.device.model if result.device else ""
        where = (device, result.host, result.commit, result.cache, result.replica)
        groups.setdefault((result.benchmark, result.variant, result.point, *where), []).append(result)
    if not groups:
        raise FormatError("it has no rows")
    for results in groups.values():
        yield _joined(results)


def _rows(text: str) -> Iterator[Result]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        time = _time_column(columns)
        for cells in reader:
            if len(cells) not in {0, len(columns)}:
                raise FormatError(f"line {reader.line_num} has {len(cells)} cells, and line 1 has {len(columns)}")
            if cells:
                row = dict(zip(columns, map(str.strip, cells), strict=True))
                yield _result(row, time, f"line {reader.line_num}")
    except csv.Error as error:
        raise FormatError(f"line {reader.line_num}: {error}") from None


def _time_column(columns: list[str]) -> str:
    """Return the name of the column with the times; raises ``FormatError`` if the columns are not as they must be."""
    cure = f"name the columns in the first line: benchmark, one of {', '.join(TIMES)}, and axes"
    if len(set(columns)) != len(columns) or "" in columns:
        raise FormatError("a column has no name, or two columns have the same name", cure=cure)
    if not columns:
        raise FormatError("its first line is empty", cure=cure)
    if "benchmark" not in columns:
        raise FormatError("it has no column benchmark", cure=cure)
    times = [name for name in columns if name in TIMES]
    if len(times) != 1:
        raise FormatError(f"it has {len(times) or 'no'} columns of times", cure=cure)
    return times[0]


def _result(row: Row, time: str, where: str) -> Result:
    """Return one row as a result with one sample."""
    axes = [(name, value) for name, value in row.items() if not _is_known(name) and value]
    cache = row.get("cache") or CacheState.WARM.value
    if cache not in set(CacheState):
        raise FormatError(f"{where}: the cache is {cache!r}, and must be {' or '.join(CacheState)}")
    replica = row.get("replica") or "0"
    if not (replica.isascii() and replica.isdigit()) or len(replica) > len(str(MOST_REPLICAS)):
        raise FormatError(f"{where}: the replica is {replica!r}, and must be a number from 0")
    if not row["benchmark"]:
        raise FormatError(f"{where} names no benchmark")
    named: dict[str, Any] = {
        "benchmark": benchmark_name(row["benchmark"]),
        "variant": variant_name(row.get("variant") or VARIANT),
        "point": point_of(axes),
        "replica": int(replica),
        "cache": CacheState(cache),
        "device": DeviceInfo("host", "", "0", variant_name(row.get("device") or "CPU"), ""),
        "commit": row.get("commit", ""),
        "host": row.get("host", ""),
        "started": moment(row.get("at", ""), f"{where}: at"),
    }
    if row.get("reason"):
        return Result(**named, status=Status.FAILED, reason=row["reason"])
    seconds = number_of(row[time])
    if seconds is None or not is_time(seconds := seconds * TIMES[time]):
        raise FormatError(f"{where}: {time} is no time above zero: {row[time][:100]!r}")
    metrics = {name.removeprefix(METRIC): number_of(value) for name, value in row.items() if name.startswith(METRIC)}
    return Result(**named, samples_s=(seconds,), counters=finite(metrics))


def _is_known(name: str) -> bool:
    return name in NAMES or name in TIMES or name.startswith(METRIC)


def _joined(results: list[Result]) -> Result:
    """Return the rows of one case and replica as one result; a row with a reason decides."""
    failed = [result for result in results if result.reason]
    samples = tuple(sample for result in results for sample in result.samples_s)
    return failed[0] if failed else replace(results[-1], samples_s=samples, started=results[0].started)
