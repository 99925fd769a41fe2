"""Dataclasses as rows of tables, and back, by the names of their fields.

A field has the column of its name, or the one that also ends with ``_id`` or ``_at``, or begins with ``git_``.
"""

from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar, cast

from perfsvc.store.schema.base import Base
from perfsvc.store.schema.column_types import number

T = TypeVar("T")


def from_row(kind: type[T], row: Any, **others: Any) -> T:
    """Return a dataclass from a row; ``others`` are the fields without a column, and those that have another value."""
    return kind(**{name: row[place] for name, place in _places(cast("Any", kind), row._fields)} | others)


def to_row(table: type[Base], *values: Any) -> dict[str, Any]:
    """Return the columns of a table for which dataclasses have fields, without ``id``; NaN becomes None."""
    columns = tuple(name for name in table.__table__.columns.keys() if name != "id")  # noqa: SIM118
    found = {
        columns[at]: getattr(each, name) for each in values for name, at in _places(cast("Any", type(each)), columns)
    }
    return {name: number(value) if isinstance(value, float) else value for name, value in found.items()}


@lru_cache(maxsize=256)
def _places(kind: Any, columns: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return the fields of a dataclass that have a column, each with the place of the column."""
    found = []
    for name in (field.name for field in fields(kind)):
        column = next((each for each in (name, f"{name}_id", f"{name}_at", f"git_{name}") if each in columns), None)
        if column is not None:
            found.append((name, columns.index(column)))
    return found
