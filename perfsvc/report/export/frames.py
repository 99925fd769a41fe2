"""Frames for analysts: one row a measurement, or one a case, and the files they are written to."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from perfsvc.errors import MissingPackageError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import Status, Value
from perfsvc.report.export.objects import plain
from perfsvc.report.rows import SEPARATOR, RunDetails

if TYPE_CHECKING:
    from pandas.core.groupby import SeriesGroupBy

TIMESTAMPS = ("started_at", "measured_at")
FLOATS = (
    *("median_s", "low_s", "high_s", "wall_s", "bandwidth_bytes_per_s", "flops_per_s", "max_error", "mean_error"),
    *("power_limit_w", "check_s", "sampling_s", "busy_s", "sm_clock_hz", "temperature_c", "power_w"),
    *("noise_within", "noise_between", "copy_bytes_per_s", "read_bytes_per_s", "peak_share"),
    *("ratio", "ratio_low", "ratio_high"),
)
NESTED = ("axes", "metrics")
KEYS = ("run", "case", "device", "cache")
"""What makes a row of the summary."""

LEVELS = ("median_s", "bandwidth_bytes_per_s", "flops_per_s", "peak_share")
"""What the summary takes the geometric mean of, beside the named metrics."""
METRIC = "metric_"
OF_A_LADDER = ("run", "device", "cache", "benchmark", "version", "point")
"""What a case has in common with its reference variant, and with every other variant."""


def _each_once(separator: str) -> "Callable[[pd.Series[str]], str]":
    """Makes one text of several, each of which may be a list, that has each item once."""
    return lambda texts: separator.join(dict.fromkeys(one for text in texts for one in text.split(separator) if one))


OVER_REPLICAS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("samples", "warmup", "rejected_batches", "check_s", "sampling_s", "busy_s"), "sum"),
        **dict.fromkeys(("max_error", "mean_error", "temperature_c", "power_w"), "max"),
        **dict.fromkeys(("stopped", "note"), _each_once(SEPARATOR)),
        "slowdowns": _each_once(", "),
        "sm_clock_hz": "mean",
    }
)
"""How the summary sees many replicas as one otherwise; what differs between replicas beside that is left out."""
OVER_BUDGET = ("replica", "wall_s", "measured_at", "reason", "status")
CONFIDENCE = 0.95
"""The coverage of the summary's intervals."""


def frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """The store's columns as a frame, one row a measurement.

    Times are seconds, sizes bytes, timestamps UTC. Each axis of the cases gets a column of its name (``axis_<name>``
    where a column has that name already), each named metric a column ``metric_<name>``; both are empty where a case
    does not have them. Where some case has an reference variant, ``relative_to`` names it, and ``relative_speed`` is the reference variant's median
    over the case's own, in the same replica.

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
    points = {
        name if name not in table else f"axis_{name}": _typed(values) for name, values in _spread_out(axes).items()
    }
    table = table.assign(**points)
    for name, values in _spread_out(columns.get("metrics", ())).items():
        table[f"{METRIC}{name}"] = pd.Series(values, dtype="float64")
    table = _in_reading_order(table, list(points))
    return _with_relative_speed(table, (*OF_A_LADDER, "replica"))


def _in_reading_order(table: pd.DataFrame, axes: list[str]) -> pd.DataFrame:
    """Measured in random order; read with the variants of a point one below the other."""
    order = ["run", "device", "benchmark", *axes, "variant_index", "variant", "cache", "replica"]
    known = [name for name in order if name in table or name != "variant_index"]
    return table.sort_values(known, kind="stable", ignore_index=True) if set(known) <= set(table) else table


def _with_relative_speed(table: pd.DataFrame, place: Sequence[str]) -> pd.DataFrame:
    """The table with ``relative_speed``: the median of each case's reference variant over its own; without, where it names none.

    Args:
        table: rows with medians.
        place: the columns that a case and its reference variant have in common.
    """
    if "relative_to" not in table or not (table["relative_to"] != "").any():
        return table.drop(columns=["relative_to", "relative_speed"], errors="ignore")
    medians = table.groupby([*place, "variant"])["median_s"].first()
    references = medians.reindex(pd.MultiIndex.from_frame(table[[*place, "relative_to"]]))
    return table.assign(relative_speed=references.to_numpy() / table["median_s"])


def parse_point(text: str) -> dict[str, Value]:
    """A point as a case id writes it, ``n=4096,dtype=f32``, by axis; numbers become numbers."""
    return {axis: _number(value) for axis, _, value in (part.partition("=") for part in text.split(",") if part)}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a case, device and cache state in each run, over its replicas.

    The times are levels, as verdicts compare them: ``median_s`` is the geometric mean of the replicas' medians,
    ``low_s`` and ``high_s`` its interval (docs/explanation/statistics.md), and named metrics likewise. A case of which any replica
    is not ok has none. ``between_cv`` is the standard deviation of the medians over their mean (empty for one replica),
    ``replicas`` how many are ok. ``status`` and ``reason`` are the worst replica's; errors the largest.

    Args:
        table: what ``frame`` returns, or some rows of it.
    """
    keys = [name for name in KEYS if name in table]
    severity = table["status"].map({status.value: status.severity for status in Status})
    by = [table[name] for name in keys]
    worst = severity.groupby(by, sort=False, dropna=False).transform("max")
    levels = [str(name) for name in table if name in LEVELS or str(name).startswith(METRIC)]
    prepared = table.assign(
        **{name: table[name].where(worst == 0) for name in (*levels, "low_s", "high_s", "samples")},
        _severity=severity,
        _ok=severity == 0,
        _reason=table["reason"].where((severity == worst) & (severity > 0)),
    )
    groups = prepared.groupby(keys, sort=False, dropna=False)
    plain_columns = [name for name in table if name not in {*keys, *OVER_BUDGET}]
    result = groups.agg({name: OVER_REPLICAS.get(str(name), "first") for name in plain_columns})
    for name in levels:
        result[name] = _center(prepared[name], by)
    result = result.assign(**_interval(prepared["median_s"], by, result))
    result["replicas"] = groups["_ok"].sum()
    result["between_cv"] = groups["median_s"].std() / groups["median_s"].mean()
    result["status"] = groups["_severity"].max().map({status.severity: status.value for status in Status})
    result["reason"] = groups["_reason"].first().fillna("")
    return _with_relative_speed(result.reset_index(), OF_A_LADDER)


def details(record: Mapping[Any, Any]) -> RunDetails:
    """A row of the summary as what it tells of its case beside the time."""
    known = {str(name): value for name, value in record.items() if not pd.isna(value)}
    metrics = {name.removeprefix(METRIC): known[name] for name in known if name.startswith(METRIC)}
    return RunDetails(**{one.name: known[one.name] for one in fields(RunDetails) if one.name in known}, metrics=metrics)


def _center(values: "pd.Series[Any]", by: list["pd.Series[Any]"]) -> "pd.Series[Any]":
    """The geometric mean of each group; where a value is zero or below, the arithmetic (``judge.level_of_metric``)."""
    geometric = _logarithms(values, by).mean().map(np.exp)
    groups = values.groupby(by, sort=False, dropna=False)
    return geometric.where(groups.min() > 0, groups.mean())


def _interval(
    medians: "pd.Series[Any]", by: list["pd.Series[Any]"], summed: pd.DataFrame
) -> dict[str, "pd.Series[Any]"]:
    """The interval of each level as ``judge.level_of`` has it: of one replica its own, of several Student's."""
    logarithms = _logarithms(medians, by)
    count = logarithms.count()
    quantile = stdtrit((count - 1).clip(lower=1), (1 + CONFIDENCE) / 2)
    factor = np.exp(quantile * logarithms.std() / np.sqrt(count))
    return {
        "low_s": (summed["median_s"] / factor).where(count > 1, summed["low_s"]),
        "high_s": (summed["median_s"] * factor).where(count > 1, summed["high_s"]),
    }


def _logarithms(values: "pd.Series[Any]", by: list["pd.Series[Any]"]) -> "SeriesGroupBy[Any, Any]":
    logarithms: pd.Series[Any] = values.where(values > 0).transform(np.log)
    return logarithms.groupby(by, sort=False, dropna=False)


def _spread_out(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Objects, one a row, as columns by key in the order they first appear; None where a row lacks the key."""
    names = dict.fromkeys(name for one in objects for name in one)
    return {name: [one.get(name) for one in objects] for name in names}


def _typed(values: Sequence[Value | None]) -> "pd.Series[Any]":
    """A column of one type: integers where all are, else floats, else text."""
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


# --- files -----------------------------------------------------------------------------------------------------------


def write(table: pd.DataFrame, fmt: str, destination: Path | None) -> None:
    """Writes a frame as ``csv``, ``json``, ``markdown``, ``html``, ``parquet`` or ``xlsx``, at full precision.

    Timestamps are ISO 8601 in text. Excel keeps 16 digits of a number and knows no time zones: it gets UTC timestamps
    in columns named ``…_utc``.

    Args:
        table: what ``frame`` or ``summary`` returns.
        fmt: the format.
        destination: a file, which is replaced; None for standard output, which takes the formats that are text.

    Raises:
        UsageError: no such format, a binary format to standard output, or a file that cannot be written.
        MissingPackageError: the format's package is not installed.
    """
    try:
        if fmt in TEXT:
            _put(TEXT[fmt](table), destination)
        elif fmt in BINARY:
            _put_binary(table, fmt, destination)
        else:
            raise UsageError(f"no format is named {fmt}", cure=f"use one of {', '.join([*TEXT, *BINARY])}")
    except OSError as error:
        if destination is None:  # a reader that is gone, or a disk that is full: no fault of the arguments
            raise
        raise UsageError(
            f"{destination} cannot be written: {error.strerror or error}",
            cure="name a file in a folder that exists and may be written",
        ) from error


def _put(text: str, destination: Path | None) -> None:
    if destination is None:
        sys.stdout.write(text)
    else:
        destination.write_text(text, encoding="utf-8")


def _put_binary(table: pd.DataFrame, fmt: str, destination: Path | None) -> None:
    package, writer = BINARY[fmt]
    if destination is None:
        raise UsageError(f"{fmt} is a binary format and would garble a terminal", cure=f"--output report.{fmt}")
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"{fmt} needs the package {package}, which is not installed", cure=install_command("export")
        ) from error
    writer(table, destination)


def _csv(table: pd.DataFrame) -> str:
    return _with_iso_times(table).to_csv(index=False, lineterminator="\n")


def _json(table: pd.DataFrame) -> str:
    return json.dumps(_records(table), indent=2, ensure_ascii=False) + "\n"


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(name): None if pd.isna(value) else plain(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _markdown(table: pd.DataFrame) -> str:
    names = [str(name) for name in table.columns]
    lines = [names, ["---"] * len(names), *(map(_cell, row.values()) for row in _records(table))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def _html(table: pd.DataFrame) -> str:
    from perfsvc.report.pages.report import page

    return page(table if "between_cv" in table else summary(table))


def _parquet(table: pd.DataFrame, destination: Path) -> None:
    table.to_parquet(destination, engine="pyarrow", index=False)


def _xlsx(table: pd.DataFrame, destination: Path) -> None:
    zoned = set(TIMESTAMPS) & set(table)
    plain_times = table.assign(**{name: table[name].dt.tz_localize(None) for name in zoned})
    renamed = plain_times.rename(columns={name: f"{name}_utc" for name in zoned})
    renamed.to_excel(destination, index=False, sheet_name="measurements", freeze_panes=(1, 0), engine="openpyxl")


def _with_iso_times(table: pd.DataFrame) -> pd.DataFrame:
    zoned = set(TIMESTAMPS) & set(table)
    return table.assign(**{name: table[name].map(pd.Timestamp.isoformat, na_action="ignore") for name in zoned})


TEXT: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "html": _html,
}
BINARY: Mapping[str, tuple[str, Callable[[pd.DataFrame, Path], None]]] = {
    "parquet": ("pyarrow", _parquet),
    "xlsx": ("openpyxl", _xlsx),
}
FORMATS = (*TEXT, *BINARY)
