"""Frames as files: CSV, JSON, Markdown, HTML, Parquet and Excel.

A large table comes in parts, and CSV, JSON and Parquet files are written part by part.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from perfsvc.errors import MissingPackageError, UsageError
from perfsvc.files import write_output
from perfsvc.installation import install_command
from perfsvc.report.export.frames import summary
from perfsvc.report.export.objects import plain
from perfsvc.text import cell, json_text, prose, spreadsheet_cell, xml_text


def write(parts: Callable[[], Iterable[pd.DataFrame]], fmt: str, destination: Path | None) -> None:
    """Write a table as ``csv``, ``json``, ``markdown``, ``html``, ``parquet`` or ``xlsx``, without rounding.

    Timestamps are ISO 8601 in text formats. Excel has no time zones, so its columns of timestamps hold UTC and are
    named ``…_utc``. Only one part of a CSV, JSON or Parquet file is in the memory at a time.

    Args:
        parts: returns the parts of the table, at least one. All have the same columns with the same dtypes: a row for
            each measurement (``frames.frame``), or for each case and run (``frames.summary``).
        fmt: the format.
        destination: a file, which is replaced; None for standard output, which takes only text formats.

    Raises:
        UsageError: the format is unknown, the file cannot be written, or a binary format was to go to standard output.
        InfrastructureError: the disk is full.
        MissingPackageError: the format's package is not installed.
    """
    if fmt not in (*TEXT, *BINARY):
        raise UsageError(f"no format is named {fmt}", cure=f"use one of {', '.join([*TEXT, *BINARY])}")
    if destination is not None:
        if fmt in BINARY:
            _require(fmt)
        write_output(destination, lambda file: _fill(file, parts(), fmt))
    elif fmt in BINARY:
        raise UsageError(f"{fmt} is a binary format and would garble a terminal", cure=f"--output report.{fmt}")
    else:
        for text in TEXT[fmt](parts()):
            sys.stdout.write(text)


def content(table: pd.DataFrame, fmt: str) -> bytes:
    """Return a frame in a format, as the content of a file.

    Raises:
        MissingPackageError: the format's package is not installed.
    """
    if fmt in BINARY:
        _require(fmt)
    file = BytesIO()
    _fill(file, [table], fmt)
    return file.getvalue()


def _require(fmt: str) -> None:
    """Raise ``MissingPackageError`` if the package of a binary format is not installed."""
    package, _ = BINARY[fmt]
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"{fmt} needs the package {package}, which is not installed", cure=install_command("export")
        ) from error


def _fill(file: BinaryIO, parts: Iterable[pd.DataFrame], fmt: str) -> None:
    """Write the parts of a table into an open file."""
    if fmt in BINARY:
        _, write_binary = BINARY[fmt]
        write_binary(parts, file)
        return
    file.writelines(text.encode(errors="backslashreplace") for text in TEXT[fmt](parts))


def _whole(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return a table that was in parts as one frame, for formats that are read as a whole."""
    first, *others = parts
    return pd.concat([first, *others], ignore_index=True) if others else first


def _csv(parts: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield a table as CSV, with timestamps in ISO 8601."""
    header = True
    for part in parts:
        timestamps = _timestamps(part)
        iso = part.assign(**{name: part[name].map(pd.Timestamp.isoformat, na_action="ignore") for name in timestamps})
        yield _texts(iso, spreadsheet_cell).to_csv(index=False, lineterminator="\n", header=header)
        header = False


def _timestamps(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table.select_dtypes("datetimetz")]


def _texts(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """Return a frame with ``change`` applied to every text and every column name."""
    changed = table.copy()
    for name in table:
        if table[name].dtype == object or pd.api.types.is_string_dtype(table[name]):
            changed[name] = table[name].map(lambda value: change(value) if isinstance(value, str) else value)
    return changed.rename(columns=lambda name: change(str(name)))


def _json(parts: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield a table as a JSON list with an object for each row, as ``json_text`` writes a list."""
    begun = False
    for part in parts:
        rows = records(part)
        if rows:
            yield ("," if begun else "[") + json_text(rows).removeprefix("[").removesuffix("\n]")
            begun = True
    yield "\n]\n" if begun else "[]\n"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as JSON objects; empty cells become None."""
    return [
        {str(name): None if pd.isna(value) else plain(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _markdown(parts: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield a table as a Markdown table."""
    table = _whole(parts)
    names = [str(name) for name in table.columns]
    lines = [list(map(_cell, names)), ["---"] * len(names), *(map(_cell, row.values()) for row in records(table))]
    return (f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(value: Any) -> str:
    return "" if value is None else cell(prose(value)) if isinstance(value, str) else str(value)


def _html(parts: Iterable[pd.DataFrame]) -> Iterator[str]:
    from perfsvc.report.export.page import page

    table = _whole(parts)
    yield page(table if "between_cv" in table else summary(table))


def _parquet(parts: Iterable[pd.DataFrame], file: BinaryIO) -> None:
    """Write a table as Parquet, with a row group for each part."""
    import pyarrow as pa
    from pyarrow import parquet

    frames = iter(parts)
    first = next(frames)
    guessed = pa.Schema.from_pandas(first, preserve_index=False)
    # A column without any value in the first part has no type there: only texts are without a dtype (pandas 2).
    fields = [pa.field(field.name, pa.string()) if pa.types.is_null(field.type) else field for field in guessed]
    with parquet.ParquetWriter(file, pa.schema(fields, guessed.metadata)) as writer:
        for part in chain([first], frames):
            writer.write_table(pa.Table.from_pandas(part, schema=writer.schema, preserve_index=False))


def _xlsx(parts: Iterable[pd.DataFrame], file: BinaryIO) -> None:
    """Write a table as an Excel file; Excel has no time zones, so ``measured_at`` becomes ``measured_at_utc``."""
    table = _whole(parts)
    timestamps = _timestamps(table)
    without_zones = table.assign(**{name: table[name].dt.tz_localize(None) for name in timestamps})
    renamed = without_zones.rename(columns={name: f"{name}_utc" for name in timestamps})
    shown = _texts(renamed, xml_text)
    archive = BytesIO()  # a full disk would leave the archive open, which Python reports much later
    with pd.ExcelWriter(archive, engine="openpyxl") as writer:
        shown.to_excel(writer, index=False, sheet_name="measurements", freeze_panes=(1, 0))
        for excel_cell in (each for row in writer.sheets["measurements"].iter_rows() for each in row):
            if excel_cell.data_type == "f":  # openpyxl takes each text that begins with = for a formula
                excel_cell.data_type = "s"
    file.write(archive.getvalue())


TEXT: Mapping[str, Callable[[Iterable[pd.DataFrame]], Iterator[str]]] = {
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "html": _html,
}
BINARY: Mapping[str, tuple[str, Callable[[Iterable[pd.DataFrame], BinaryIO], None]]] = {
    "parquet": ("pyarrow", _parquet),
    "xlsx": ("openpyxl", _xlsx),
}
