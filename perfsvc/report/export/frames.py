"""Data frames for analysts: one row a measurement, or one row a case and run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from perfsvc.judge import levels_of
from perfsvc.model import CacheState, RunDetails, Status, Value
from perfsvc.report.export import schema
from perfsvc.report.rows import SEPARATOR, Key

Table = pd.DataFrame
"""A frame, for rooms that pass frames on and need not know pandas."""

NESTED = ("axes", "metrics")

LEVELS = ("median_s", "bandwidth_bytes_per_s", "flops_per_s", "bus_bytes_per_s", "peak_share")
"""The columns that the summary averages geometrically, as it does named metrics."""
METRIC = "metric_"
SAME_POINT = ("run", "device", "cache", "benchmark", "version", "point")
"""The columns that the variants at one point share."""


def _each_once(separator: str) -> "Callable[[pd.Series[str]], str]":
    """Return a function that merges lists written as text, such as ``a; b`` and ``b; c``, into one: ``a; b; c``."""
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


@dataclass(frozen=True, slots=True)
class Further:
    """The columns that follow the fixed columns of a table. If the table has parts, each part has all of them.

    Attributes:
        axes: the axes in their order, each with the dtype of its column.
        metrics: the names of the named metrics, in their order.
    """

    axes: Mapping[str, str]
    metrics: tuple[str, ...]


def further(points: Sequence[Mapping[str, Value]], metrics: Iterable[str]) -> Further:
    """Return the further columns of a table.

    Args:
        points: the axes of each case, in the order of the table's rows.
        metrics: the names of the named metrics.
    """
    axes = {name: str(_typed(values).dtype) for name, values in _columns_of(points).items()}
    return Further(axes, tuple(sorted(metrics)))


def frame(columns: dict[str, list[Any]], following: Further | None = None) -> pd.DataFrame:
    """Return the store's columns as a frame with one row for each measurement.

    Times are seconds, sizes bytes, timestamps UTC. Each axis has a column with its name, or ``axis_<name>`` if that
    name is taken. Each named metric has a column ``metric_<name>``. A case without the axis or the metric has an empty
    cell. If a case has a reference variant, ``relative_to`` names it, and ``relative_speed`` is the speed of the case
    divided by the speed of the reference variant in the same replica. ``schema.MEASUREMENTS`` lists the other columns.

    Args:
        columns: equally long columns by name. ``axes`` and ``metrics`` hold a dictionary for each row. Without ``axes``
            the axes are read from the text in ``point``. The columns are removed from this dictionary one
            by one: otherwise a large database would be in the memory twice.
        following: the columns of axes and metrics, if the rows are a part of a table; by default those of these rows.
    """
    axes = columns["axes"] if "axes" in columns else [parse_point(point) for point in columns.get("point", ())]
    dtypes = {column.name: column.dtype for column in schema.MEASUREMENTS}
    names = [name for name in columns if name not in NESTED]
    table = pd.DataFrame({name: schema.column_of(columns.pop(name), dtypes[name]) for name in names}, copy=False)
    if "relative_to" in table:
        table["relative_speed"] = np.nan  # the name is taken before an axis can have it
    metrics = columns.get("metrics", ())
    following = following or further(axes, {name for row in metrics for name in row})
    table, points = with_axes(table, axes, following.axes)
    table = with_metrics(table, metrics, following.metrics)
    columns.clear()
    table = _in_reading_order(table, points)
    return schema.in_order(_with_relative_speed(table, (*SAME_POINT, "replica")), schema.MEASUREMENTS)


def with_axes(
    table: pd.DataFrame, axes: Sequence[Mapping[str, Value]], dtypes: Mapping[str, str] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Return a frame with a column for each axis, and the names of these columns.

    A column has the name of its axis, or ``axis_<name>`` if the frame has a column of that name.

    Args:
        table: the frame.
        axes: the axes of each row.
        dtypes: the axes that shall have a column, with its dtype; by default those of the rows.
    """
    dtypes = further(axes, ()).axes if dtypes is None else dtypes
    points = {
        name if name not in table else f"axis_{name}": _as([row.get(name) for row in axes], dtype)
        for name, dtype in dtypes.items()
    }
    return table.assign(**points), list(points)


def with_metrics(
    table: pd.DataFrame, metrics: Sequence[Mapping[str, float | None]], names: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return a frame with a column ``metric_<name>`` for each named metric.

    Args:
        table: the frame.
        metrics: the named metrics of each row.
        names: the metrics that shall have a column; by default those of the rows, by name.
    """
    names = sorted({name for row in metrics for name in row}) if names is None else names
    columns = {f"{METRIC}{name}": pd.Series([row.get(name) for row in metrics], dtype="float64") for name in names}
    return table.assign(**columns)


def _in_reading_order(table: pd.DataFrame, axes: list[str]) -> pd.DataFrame:
    """Return the rows sorted for a reader: by run, device and benchmark, with the variants of a point together.

    The rows stay as they are if a column of this order is missing. The store's rows are in the order of measuring,
    which is random.
    """
    order = ["run", "device", "benchmark", *axes, "variant_index", "variant", "cache", "replica"]
    present = [name for name in order if name in table or name != "variant_index"]
    return table.sort_values(present, kind="stable", ignore_index=True) if set(present) <= set(table) else table


def _with_relative_speed(table: pd.DataFrame, shared: Sequence[str]) -> pd.DataFrame:
    """Return the table with ``relative_speed``: the median of a case's reference variant over the case's own median.

    The column is empty for a case without a reference variant. A table without ``relative_to`` stays as it is.

    Args:
        table: rows with medians.
        shared: the columns in which a case and its reference variant have the same value.
    """
    if "relative_to" not in table:
        return table
    if not (table["relative_to"] != "").any():
        return table.assign(relative_speed=np.nan)
    medians = table.groupby([*shared, "variant"])["median_s"].first()
    references = medians.reindex(pd.MultiIndex.from_frame(table[[*shared, "relative_to"]]))
    return table.assign(relative_speed=references.to_numpy() / table["median_s"])


def parse_point(text: str) -> dict[str, Value]:
    """Return the value of each axis in a point's text: ``{"n": 4096, "dtype": "f32"}`` for ``n=4096,dtype=f32``.

    A text that is no list of axes, which only another tool can have stored, counts as one axis.
    """
    parts = [part.partition("=") for part in text.split(",")] if text else []
    axes = {axis: _number(value) for axis, _, value in parts}
    first, _, rest = text.partition("=")
    return axes if ",".join(f"{axis}={value}" for axis, value in axes.items()) == text else {first: rest}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run, case, device and cache state, which combines the replicas.

    ``median_s`` is the level that verdicts compare: the geometric mean of the replicas' medians. ``low_s`` and
    ``high_s`` are the level's interval (docs/explanation/statistics.md). Named metrics are averaged in the same way. A
    case with a replica that is not ok has no level. ``between_cv`` is the standard deviation of the medians over their
    mean (empty for one replica). ``replicas`` is the number of ok replicas. ``status``, ``reason`` and ``cure`` are
    those of the worst replica. ``max_error`` and ``mean_error`` are the largest of the replicas.

    Args:
        table: what ``frame`` returns, or some rows of it.
    """
    keys = [name for name in schema.KEYS if name in table]
    severity = table["status"].map({status.value: status.severity for status in Status})
    group = table.groupby(keys, sort=False, dropna=False).ngroup()  # grouping by one number is quicker than by the keys
    worst = severity.groupby(group).transform("max")
    levels = [str(name) for name in table if name in LEVELS or str(name).startswith(METRIC)]
    texts = [name for name in ("reason", "cure") if name in table]
    prepared = table.assign(
        **{name: table[name].where(worst == 0) for name in (*levels, "low_s", "high_s", "samples")},
        **{f"_{name}": table[name].where((severity == worst) & (severity > 0)) for name in texts},
        _severity=severity,
        _ok=severity == 0,
    )
    if "peak" in prepared:  # replicas may come nearest to different peaks, if a case has about the same share of both
        first = prepared["peak"].groupby(group).transform("first")
        prepared["peak_share"] = prepared["peak_share"].where(prepared["peak"] == first)
    groups = prepared.groupby(group)
    columns = [*keys, *(name for name in table if name not in {*keys, *schema.OF_ONE_REPLICA})]
    rules = {name: OVER_REPLICAS.get(str(name), "first") for name in columns}
    # Merging texts takes a call for each case. Most runs have no notes and no slowdowns, so there is nothing to merge.
    empty = {name: "first" for name, rule in rules.items() if callable(rule) and (table[name] == "").all()}
    result = groups.agg({**rules, **empty})
    times = _levels(prepared["median_s"], group)
    for name in levels:
        result[name] = times["center"] if name == "median_s" else _levels(prepared[name], group)["center"]
    result = result.assign(
        low_s=times["low"].fillna(result["low_s"]), high_s=times["high"].fillna(result["high_s"])
    )  # the interval of a single replica's samples
    result["replicas"] = groups["_ok"].sum()
    result["between_cv"] = groups["median_s"].std() / groups["median_s"].mean()
    result["status"] = groups["_severity"].max().map({status.severity: status.value for status in Status})
    for name in texts:
        result[name] = groups[f"_{name}"].first().fillna("")
    return schema.in_order(_with_relative_speed(result.reset_index(drop=True), SAME_POINT), schema.SUMMARY)


def metric_intervals(table: pd.DataFrame) -> dict[tuple[Key, str], tuple[float, float]]:
    """Return the interval of each named metric's level, by case and metric.

    A metric is included if its case has several replicas and all of them are ok.

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


def _levels(values: "pd.Series[Any]", by: "pd.Series[Any] | list[pd.Series[Any]]") -> pd.DataFrame:
    """Return a frame with a row for each group: its level as ``center``, and the level's interval as ``low``, ``high``.

    A group with a single value has no interval.

    Args:
        values: the values of all groups.
        by: the column, or the columns, whose values identify the group of each value.
    """
    groups = values.groupby(by, sort=False, dropna=False)
    group, place = groups.ngroup().to_numpy(), groups.cumcount().to_numpy()
    table = np.full((groups.ngroups, int(place.max(initial=0)) + 1), np.nan)
    table[group, place] = values.to_numpy(np.float64)
    ends = dict(zip(("center", "low", "high"), levels_of(table), strict=True))
    return pd.DataFrame(ends, index=groups.size().index)


def _columns_of(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the rows' dictionaries as columns: each name with its value in every row, None where a row has no value.

    The columns are in the order in which their names first appear.
    """
    names = dict.fromkeys(name for row in objects for name in row)
    return {name: [row.get(name) for row in objects] for name in names}


def _typed(values: Sequence[Value | None]) -> "pd.Series[Any]":
    """Return a column of one type: integers if all values are integers, floats if all are numbers, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int}:
        return pd.Series(values, dtype="Int64" if None in values else "int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    return _as(values, "str")


def _as(values: Sequence[Value | None], dtype: str) -> "pd.Series[Any]":
    """Return the values of an axis as a column; as text if the dtype is no number."""
    if dtype in {"int64", "Int64", "float64"}:
        return pd.Series(values, dtype=dtype)
    return pd.Series([None if value is None else str(value) for value in values], dtype="str")


def _number(text: str) -> Value:
    """Return the text as an integer or a float if it is a number, else unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
