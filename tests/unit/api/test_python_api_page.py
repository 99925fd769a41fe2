"""docs/reference/python-api.md has every function with its arguments, and every column with its dtype and unit."""

import inspect
import re
from pathlib import Path

import perfsvc
from perfsvc.api import StoredResults, open_results
from perfsvc.report.export import schema

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")
MEASURED = {column.name for column in schema.MEASUREMENTS} - {"status", "reason", "cure"}
TABLES = {
    "Runs": schema.RUNS,
    "Measurements": schema.MEASUREMENTS,
    "Summary": tuple(column for column in schema.SUMMARY if column.name not in MEASURED),
    "Samples": schema.SAMPLES,
    "Verdicts": schema.VERDICTS,
    "Findings": schema.FINDINGS,
    "Series of findings": schema.FINDING_SERIES,
    "History": schema.HISTORY,
}


def section(title: str) -> str:
    """Return the text below a heading of the page."""
    (text,) = re.findall(rf"^#+ {title}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_a_table_has_the_columns_of_its_frame_in_order_with_dtype_and_unit() -> None:
    row = re.compile(r"^\| `(\w+)` \| `([^`]+)` \| ([^|]*)\| \S.* \|$", re.MULTILINE)
    shown = {
        title: [(name, dtype, unit.strip()) for name, dtype, unit in row.findall(section(title))] for title in TABLES
    }
    assert shown == {
        title: [(column.name, column.dtype, column.unit) for column in columns] for title, columns in TABLES.items()
    }


def test_the_summary_has_the_columns_that_its_section_describes() -> None:
    dropped = {column.name for column in schema.MEASUREMENTS} - {column.name for column in schema.SUMMARY}
    sentence = section("Summary").partition("except")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == dropped
    assert [column.name for column in schema.SUMMARY][:4] == list(schema.KEYS)


def signature(name: str, function: object) -> str:
    """Return a function as the page writes it: names and defaults, without types and ``self``."""
    assert callable(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return f"{name}{inspect.Signature(parameters)}"


def test_the_page_lists_every_function_with_its_arguments_and_defaults() -> None:
    functions = {
        signature(name, function)
        for name, function in inspect.getmembers(StoredResults, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    }
    assert set(re.findall(r"^\| `(\w+\(.*?\))` \|", section("Functions"), re.MULTILINE)) == functions


def test_the_page_opens_a_database_with_the_arguments_of_the_function() -> None:
    assert f"`{signature('perfsvc.open', perfsvc.open)}`" in PAGE
    assert signature("open", open_results) == signature("open", perfsvc.open)
