"""The columns of every data frame: their names, dtypes and units, in order.

Exports (``perfsvc report``) and the Python API share these definitions. docs/reference/python-api.md explains each
column, and a test compares the page with this module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

TEXT: Final = "str"  # pandas 2 has no dtype for text, and shows it as object
INTEGER: Final = "int64"
NUMBER_OR_MISSING: Final = "Int64"
FLOAT: Final = "float64"
FLAG: Final = "bool"
MOMENT: Final = "datetime64[us, UTC]"
CATEGORY: Final = "category"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data frame; the unit is empty for text and for numbers without a unit."""

    name: str
    dtype: str
    unit: str = ""


def _columns(dtype: str, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, dtype) for name in names)


def _seconds(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, FLOAT, "s") for name in names)


MEASUREMENTS: Final = (
    Column("run", INTEGER),
    *_columns(TEXT, "label", "commit"),
    Column("dirty", FLAG),
    Column("branch", TEXT),
    Column("started_at", MOMENT),
    *_columns(TEXT, "host", "perfsvc_version", "device", "device_kind", "device_model"),
    *_columns(TEXT, "interconnect", "case", "benchmark", "variant", "point"),
    Column("version", INTEGER),
    Column("cache", TEXT),
    Column("replica", INTEGER),
    *_columns(TEXT, "status", "reason", "cure"),
    *_seconds("median_s", "low_s", "high_s"),
    Column("samples", INTEGER),
    *_columns(FLOAT, "max_error", "mean_error"),
    Column("read_bytes", INTEGER, "B"),
    Column("written_bytes", INTEGER, "B"),
    Column("flops", INTEGER, "FLOP"),
    Column("precision", TEXT),
    Column("link_bytes", INTEGER, "B"),
    Column("stopped", TEXT),
    *_seconds("wall_s"),
    Column("measured_at", MOMENT),
    *_columns(TEXT, "driver", "toolkit"),
    Column("power_limit_w", FLOAT, "W"),
    Column("warmup", NUMBER_OR_MISSING),
    Column("note", TEXT),
    *_seconds("check_s", "sampling_s", "busy_s"),
    Column("sm_clock_hz", FLOAT, "Hz"),
    Column("temperature_c", FLOAT, "°C"),
    Column("power_w", FLOAT, "W"),
    Column("slowdowns", TEXT),
    Column("rejected_batches", INTEGER),
    Column("variant_index", NUMBER_OR_MISSING),
    Column("relative_to", TEXT),
    *_columns(FLOAT, "noise_within", "noise_between", "noise_places"),
    *_seconds("lowest_place_s", "highest_place_s"),
    Column("copy_bytes_per_s", FLOAT, "B/s"),
    Column("read_bytes_per_s", FLOAT, "B/s"),
    *_columns(TEXT, "verdict", "verdict_reason"),
    *_columns(FLOAT, "ratio", "ratio_low", "ratio_high"),
    *_columns(NUMBER_OR_MISSING, "baseline_run", "baseline_runs"),
    Column("noise_between_nights", FLOAT),
    Column("cause", TEXT),
    Column("bandwidth_bytes_per_s", FLOAT, "B/s"),
    Column("flops_per_s", FLOAT, "FLOP/s"),
    Column("bus_bytes_per_s", FLOAT, "B/s"),
    Column("peak", TEXT),
    Column("peak_share", FLOAT),
    Column("excluded", TEXT),
    Column("relative_speed", FLOAT),
)
"""A row for each measurement. Axes and named metrics follow, each in a column of its own."""

KEYS: Final = ("run", "case", "device", "cache")
"""The columns that identify a row of the summary."""

OF_ONE_REPLICA: Final = ("replica", "wall_s", "measured_at", "reason", "cure", "status")
"""Columns that the summary drops or replaces, since they differ between replicas."""

_OF_MEASUREMENTS = {column.name: column for column in MEASUREMENTS}


def _shared(*names: str) -> tuple[Column, ...]:
    """Return columns that another frame has in common with the measurements."""
    return tuple(_OF_MEASUREMENTS[name] for name in names)


SUMMARY: Final = (
    *_shared(*KEYS),
    *(column for column in MEASUREMENTS if column.name not in {*KEYS, *OF_ONE_REPLICA}),
    Column("replicas", INTEGER),
    Column("between_cv", FLOAT),
    *_shared("status", "reason", "cure"),
)
"""A row for each run, case, device and cache state. Axes and named metrics follow."""

RUNS: Final = (
    Column("run", INTEGER),
    Column("state", TEXT),
    *_columns(MOMENT, "started_at", "finished_at"),
    *_shared("label"),
    Column("suite", TEXT),
    *_shared("commit", "dirty", "branch", "host"),
    Column("cpu", TEXT),
    *_shared("perfsvc_version"),
    *_columns(TEXT, "python_version", "command_line"),
    *_columns(INTEGER, "seed", "replicas", "cases", "measurements", "ok", "wrong", "failed", "skipped"),
    Column("devices", TEXT),
    *_shared("excluded"),
)
"""A row for each run."""

SAMPLES: Final = (
    Column("run", INTEGER),
    *_columns(CATEGORY, "case", "device", "cache"),
    *_columns(INTEGER, "replica", "sample"),
    *_seconds("time_s"),
)
"""A row for each sample."""

_SERIES = (*_shared("case", "benchmark", "variant", "point", "device", "device_model"), Column("metric", TEXT))
"""The columns that identify a series, with the cache state."""

VERDICTS: Final = (
    *_shared("run"),
    *_SERIES,
    *_shared("cache", "verdict", "verdict_reason", "cause", "ratio", "ratio_low", "ratio_high"),
    Column("smallest", FLOAT),
    *_columns(FLOAT, "baseline_value", "candidate_value"),
    *_shared("baseline_run", "baseline_runs"),
    *_columns(NUMBER_OR_MISSING, "baseline_replicas", "candidate_replicas"),
    *_shared("noise_between_nights"),
)
"""A row for each verdict of a run, and for each row of a comparison. Axes follow."""

FINDINGS: Final = (
    Column("finding", INTEGER),
    *_columns(TEXT, "state", "cause", "root_cause"),
    *_columns(NUMBER_OR_MISSING, "first_run", "last_run"),
    Column("direction", TEXT),
    Column("series", INTEGER),
    *_columns(TEXT, "worst_case", "worst_device"),
    Column("worst_ratio", FLOAT),
    *_columns(TEXT, "evidence", "why", "reason", "by", "owner"),
    *_columns(MOMENT, "at", "ignored_until"),
)
"""A row for each finding."""

FINDING_SERIES: Final = (
    Column("finding", INTEGER),
    *_SERIES,
    *_shared("cache"),
    Column("step", INTEGER),
    *_columns(TEXT, "change", "direction", "root_cause"),
    *_shared("ratio", "ratio_low", "ratio_high"),
    *_columns(FLOAT, "baseline_value", "candidate_value"),
    *_columns(NUMBER_OR_MISSING, "baseline_run", "first_run", "last_run", "recovered_run"),
    Column("why", TEXT),
)
"""A row for each step of a series of a finding. Axes follow."""

HISTORY: Final = (
    *_shared("run", "started_at", "commit", "dirty", "label", "case", "device", "device_model", "cache", "status"),
    *_shared("reason", "median_s", "low_s", "high_s"),
    Column("replicas", INTEGER),
    *_shared("excluded"),
    Column("why", TEXT),
)
"""A row for each run, device and cache state of a case. Named metrics follow."""


def column_of(values: Sequence[Any], dtype: str) -> "pd.Series[Any]":
    """Return values as a column; None becomes the missing value of the dtype."""
    if dtype == MOMENT:
        return pd.to_datetime(pd.Series(values, dtype=object), utc=True).astype(MOMENT)
    return pd.Series(values, dtype=dtype)


def frame_of(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a frame with these columns; each row has a value for each column, and maybe others."""
    return pd.DataFrame(
        {column.name: column_of([row[column.name] for row in rows], column.dtype) for column in columns}
    )


def in_order(table: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Return a frame with its columns in this order and with these dtypes; further columns follow."""
    dtypes = {column.name: column.dtype for column in columns if column.name in table}
    ordered = table[[*dtypes, *(name for name in table if name not in dtypes)]]
    # An empty column shows what pandas makes of a dtype: pandas 2 makes object of text, where a cast of a missing text
    # would write "None".
    made = {dtype: pd.Series([], dtype=dtype).dtype for dtype in set(dtypes.values())}
    return ordered.astype({name: dtype for name, dtype in dtypes.items() if table[name].dtype != made[dtype]})
