"""Data frames for analysts: one row a measurement, or one row a case and run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from perfsvc.model import CacheState, Status, Value
from perfsvc.report.rows import SEPARATOR, Key, RunDetails

TIMESTAMPS = ("started_at", "measured_at")
FLOATS = (
    *("median_s", "low_s", "high_s", "wall_s", "bandwidth_bytes_per_s", "flops_per_s", "max_error", "mean_error"),
    *("power_limit_w", "check_s", "sampling_s", "busy_s", "sm_clock_hz", "temperature_c", "power_w"),
    *("noise_within", "noise_between", "copy_bytes_per_s", "read_bytes_per_s", "peak_share"),
    *("ratio", "ratio_low", "ratio_high"),
)
NESTED = ("axes", "metrics")
KEYS = ("run", "case", "device", "cache")
"""The columns that identify a row of the summary."""

LEVELS = ("median_s", "bandwidth_bytes_per_s", "flops_per_s", "peak_share")
"""The columns that the summary averages geometrically, as it does named metrics."""
METRIC = "metric_"
SAME_POINT = ("run", "device", "cache", "benchmark", "version", "point")
"""The columns that the variants at one point share."""


def _each_once(separator: str) -> "Callable[[pd.Series[str]], str]":
    """Return an aggregation that joins lists written as text and keeps each item once."""
    return lambda texts: separator.join(dict.fromkeys(item for text in texts for item in text.split(separator) if item))


OVER_REPLICAS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("samples", "warmup", "rejected_batches", "check_s", "sampling_s", "busy_s"), "sum"),
        **dict.fromkeys(("max_error", "mean_error", "temperature_c", "power_w"), "max"),
        **dict.fromkeys(("stopped", "note"), _each_once(SEPARATOR)),
        "slowdowns": _each_once(", "),
        "sm_clock_hz": "mean",
    }
)
"""How the summary aggregates columns that are no levels over replicas; a column not listed takes its first value."""
OF_ONE_REPLICA = ("replica", "wall_s", "measured_at", "reason", "cure", "status")
"""Columns that the summary drops or replaces, since they differ between replicas."""
CONFIDENCE = 0.95
"""The coverage of the summary's intervals."""


def frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Return the store's columns as a frame, one row a measurement.

    Times are seconds, sizes bytes, timestamps UTC. Each axis of the cases has a column of its name (``axis_<name>`` if
    another column has that name), each named metric a column ``metric_<name>``; both are empty for cases without them.
    If some case has a reference variant, ``relative_to`` names it, and ``relative_speed`` is the reference variant's
    median over the case's own median in the same replica.

    Args:
        columns: equally long columns by name. ``axes`` and ``metrics`` hold an object a row; without ``axes`` they are
            read from ``point``.
    """
    table = pd.DataFrame({name: list(values) for name, values in columns.items() if name not in NESTED})
    for name in set(TIMESTAMPS) & set(table):
        table[name] = pd.to_datetime(table[name], utc=True)
    for name in set(FLOATS) & set(table):
        table[name] = table[name].astype("float64")
    for name in {"variant_index", "baseline_run"} & set(table):
        table[name] = table[name].astype("Int64")
    axes = columns["axes"] if "axes" in columns else [parse_point(point) for point in columns.get("point", ())]
    points = {name if name not in table else f"axis_{name}": _typed(values) for name, values in _by_name(axes).items()}
    table = table.assign(**points)
    for name, values in _by_name(columns.get("metrics", ())).items():
        table[f"{METRIC}{name}"] = pd.Series(values, dtype="float64")
    table = _in_reading_order(table, list(points))
    return _with_relative_speed(table, (*SAME_POINT, "replica"))


def _in_reading_order(table: pd.DataFrame, axes: list[str]) -> pd.DataFrame:
    """Return the rows with the variants of a point one below the other; they are measured in random order."""
    order = ["run", "device", "benchmark", *axes, "variant_index", "variant", "cache", "replica"]
    present = [name for name in order if name in table or name != "variant_index"]
    return table.sort_values(present, kind="stable", ignore_index=True) if set(present) <= set(table) else table


def _with_relative_speed(table: pd.DataFrame, same: Sequence[str]) -> pd.DataFrame:
    """Return the table with ``relative_speed``, or without it if no case has a reference variant.

    Args:
        table: rows with medians.
        same: the columns that a case shares with its reference variant.
    """
    if "relative_to" not in table or not (table["relative_to"] != "").any():
        return table.drop(columns=["relative_to", "relative_speed"], errors="ignore")
    medians = table.groupby([*same, "variant"])["median_s"].first()
    references = medians.reindex(pd.MultiIndex.from_frame(table[[*same, "relative_to"]]))
    return table.assign(relative_speed=references.to_numpy() / table["median_s"])


def parse_point(text: str) -> dict[str, Value]:
    """Return a point written as in a case id, ``n=4096,dtype=f32``, by axis; numbers become numbers."""
    return {axis: _number(value) for axis, _, value in (part.partition("=") for part in text.split(",") if part)}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a case, device and cache state in each run, over its replicas.

    The times are levels, as verdicts compare them: ``median_s`` is the geometric mean of the replicas' medians,
    ``low_s`` and ``high_s`` its interval (docs/explanation/statistics.md); named metrics likewise. A case with a
    replica that is not ok has no level. ``between_cv`` is the standard deviation of the medians over their mean (empty
    for one replica), ``replicas`` the number of ok replicas. ``status``, ``reason`` and ``cure`` are those of the worst
    replica; errors are the largest.

    Args:
        table: what ``frame`` returns, or some rows of it.
    """
    keys = [name for name in KEYS if name in table]
    severity = table["status"].map({status.value: status.severity for status in Status})
    by = [table[name] for name in keys]
    worst = severity.groupby(by, sort=False, dropna=False).transform("max")
    levels = [str(name) for name in table if name in LEVELS or str(name).startswith(METRIC)]
    texts = [name for name in ("reason", "cure") if name in table]
    prepared = table.assign(
        **{name: table[name].where(worst == 0) for name in (*levels, "low_s", "high_s", "samples")},
        **{f"_{name}": table[name].where((severity == worst) & (severity > 0)) for name in texts},
        _severity=severity,
        _ok=severity == 0,
    )
    groups = prepared.groupby(keys, sort=False, dropna=False)
    columns = [name for name in table if name not in {*keys, *OF_ONE_REPLICA}]
    result = groups.agg({name: OVER_REPLICAS.get(str(name), "first") for name in columns})
    times = _levels(prepared["median_s"], by)
    for name in levels:
        result[name] = times["center"] if name == "median_s" else _levels(prepared[name], by)["center"]
    result = result.assign(
        low_s=times["low"].fillna(result["low_s"]), high_s=times["high"].fillna(result["high_s"])
    )  # a single replica has its own interval
    result["replicas"] = groups["_ok"].sum()
    result["between_cv"] = groups["median_s"].std() / groups["median_s"].mean()
    result["status"] = groups["_severity"].max().map({status.severity: status.value for status in Status})
    for name in texts:
        result[name] = groups[f"_{name}"].first().fillna("")
    return _with_relative_speed(result.reset_index(), SAME_POINT)


def metric_intervals(table: pd.DataFrame) -> dict[tuple[Key, str], tuple[float, float]]:
    """Return the interval of the level of each named metric with several replicas, all of them ok.

    Args:
        table: the measurements of one run, as ``frame`` returns them.
    """
    by = [table[name] for name in ("device", "case", "cache")]
    ok = (table["status"] == Status.OK.value).groupby(by).transform("all")
    names = [str(name) for name in table if str(name).startswith(METRIC)]
    return {
        ((device, case, CacheState(cache)), name.removeprefix(METRIC)): (low, high)
        for name in names
        for (device, case, cache), _, low, high in _levels(table[name].where(ok), by).dropna().itertuples()
    }


def details(record: Mapping[Any, Any]) -> RunDetails:
    """Return the details of a case from its row of the summary."""
    known = {str(name): value for name, value in record.items() if not pd.isna(value)}
    metrics = {name.removeprefix(METRIC): known[name] for name in known if name.startswith(METRIC)}
    values = {field.name: known[field.name] for field in fields(RunDetails) if field.name in known}
    return RunDetails(**values, metrics=metrics)


def _levels(values: "pd.Series[Any]", by: list["pd.Series[Any]"]) -> pd.DataFrame:
    """Return the level of each group as ``center``, and ``low`` and ``high`` for groups of several values.

    The level is defined like ``judge.levels_of``: the geometric mean with Student's interval, or the arithmetic
    mean if a value is zero or below.
    """
    groups = values.groupby(by, sort=False, dropna=False)
    logarithmic = groups.transform("min") > 0
    scaled = np.log(values.where(logarithmic)).where(logarithmic, values)
    scaled_groups = scaled.groupby(by, sort=False, dropna=False)
    mean, count = scaled_groups.mean(), scaled_groups.count()
    quantile = stdtrit((count - 1).clip(lower=1), (1 + CONFIDENCE) / 2)
    half = quantile * scaled_groups.std() / np.sqrt(count)
    ends = pd.DataFrame({"center": mean, "low": mean - half, "high": mean + half})
    levels = ends.apply(np.exp).where(groups.min() > 0, ends, axis=0)
    equal = groups.min() == groups.max()  # equal values are their own level, to the last digit
    return levels.assign(center=levels["center"].where(~equal, groups.min()))


def _by_name(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return objects, one a row, as columns in the order in which their names first appear; None for absent values."""
    names = dict.fromkeys(name for values in objects for name in values)
    return {name: [values.get(name) for values in objects] for name in names}


def _typed(values: Sequence[Value | None]) -> "pd.Series[Any]":
    """Return a column of one type: integers if all values are, else floats, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int}:
        return pd.Series(values, dtype="Int64" if None in values else "int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series([None if value is None else str(value) for value in values], dtype="str")


def _number(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
