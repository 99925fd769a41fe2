"""Frames as files: CSV, JSON, Markdown, HTML, Parquet and Excel."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from perfsvc.errors import MissingPackageError, UsageError
from perfsvc.files import write_output
from perfsvc.installation import install_command
from perfsvc.report.export.frames import summary
from perfsvc.report.export.objects import plain
from perfsvc.text import cell, json_text, prose, spreadsheet_cell, xml_text


def write(table: pd.DataFrame, fmt: str, destination: Path | None) -> None:
    """Write a frame as ``csv``, ``json``, ``markdown``, ``html``, ``parquet`` or ``xlsx``, without rounding.

    Timestamps are ISO 8601 in text formats. Excel has no time zones, so its columns of timestamps hold UTC and are
    named ``…_utc``.

    Args:
        table: a row for each measurement (``frames.frame``), or for each case and run (``frames.summary``).
        fmt: the format.
        destination: a file, which is replaced; None for standard output, which takes only text formats.

    Raises:
        UsageError: the format is unknown, the file cannot be written, or a binary format was to go to standard output.
        InfrastructureError: the disk is full.
        MissingPackageError: the format's package is not installed.
    """
    if fmt not in (*TEXT, *BINARY):
        raise UsageError(f"no format is named {fmt}", cure=f"use one of {', '.join([*TEXT, *BINARY])}")
    if destination is None:
        if fmt in BINARY:
            raise UsageError(f"{fmt} is a binary format and would garble a terminal", cure=f"--output report.{fmt}")
        sys.stdout.write(TEXT[fmt](table))
        return
    write_output(destination, content(table, fmt))


def content(table: pd.DataFrame, fmt: str) -> bytes | str:
    """Return a frame in a format, as the content of a file.

    Raises:
        MissingPackageError: the format's package is not installed.
    """
    if fmt in TEXT:
        return TEXT[fmt](table)
    package, write_binary = BINARY[fmt]
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"{fmt} needs the package {package}, which is not installed", cure=install_command("export")
        ) from error
    file = BytesIO()
    write_binary(table, file)
    return file.getvalue()


def _csv(table: pd.DataFrame) -> str:
    """Return a frame as CSV, with timestamps in ISO 8601."""
    timestamps = _timestamps(table)
    iso = table.assign(**{name: table[name].map(pd.Timestamp.isoformat, na_action="ignore") for name in timestamps})
    return _texts(iso, spreadsheet_cell).to_csv(index=False, lineterminator="\n")


def _timestamps(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table.select_dtypes("datetimetz")]


def _texts(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """Return a frame with ``change`` applied to every text and every column name."""
    changed = table.copy()
    for name in table:
        if table[name].dtype == object or pd.api.types.is_string_dtype(table[name]):
            changed[name] = table[name].map(lambda value: change(value) if isinstance(value, str) else value)
    return changed.rename(columns=lambda name: change(str(name)))


def _json(table: pd.DataFrame) -> str:
    return json_text(records(table)) + "\n"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as JSON objects; empty cells become None."""
    return [
        {str(name): None if pd.isna(value) else plain(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _markdown(table: pd.DataFrame) -> str:
    """Return a frame as a Markdown table."""
    names = [str(name) for name in table.columns]
    lines = [list(map(_cell, names)), ["---"] * len(names), *(map(_cell, row.values()) for row in records(table))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(value: Any) -> str:
    return "" if value is None else cell(prose(value)) if isinstance(value, str) else str(value)


def _html(table: pd.DataFrame) -> str:
    from perfsvc.report.pages.report import page

    return page(table if "between_cv" in table else summary(table))


def _parquet(table: pd.DataFrame, file: BytesIO) -> None:
    table.to_parquet(file, engine="pyarrow", index=False)


def _xlsx(table: pd.DataFrame, file: BytesIO) -> None:
    """Write a frame as an Excel file; Excel has no time zones, so ``measured_at`` becomes ``measured_at_utc``."""
    timestamps = _timestamps(table)
    without_zones = table.assign(**{name: table[name].dt.tz_localize(None) for name in timestamps})
    renamed = without_zones.rename(columns={name: f"{name}_utc" for name in timestamps})
    shown = _texts(renamed, xml_text)
    with pd.ExcelWriter(file, engine="openpyxl") as writer:
        shown.to_excel(writer, index=False, sheet_name="measurements", freeze_panes=(1, 0))
        for excel_cell in (each for row in writer.sheets["measurements"].iter_rows() for each in row):
            if excel_cell.data_type == "f":  # openpyxl takes each text that begins with = for a formula
                excel_cell.data_type = "s"


TEXT: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "html": _html,
}
BINARY: Mapping[str, tuple[str, Callable[[pd.DataFrame, BytesIO], None]]] = {
    "parquet": ("pyarrow", _parquet),
    "xlsx": ("openpyxl", _xlsx),
}
