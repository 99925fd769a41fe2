"""Finding rows that perfsvc cannot read, with what each costs.

SQLite stores any value in any column, and a disk or a program may change a blob. PostgreSQL checks the types itself, so
that only the content of texts and blobs is left to check.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    DateTime,
    Numeric,
    String,
    delete,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from perfsvc.model import (
    DEVICE_KINDS,
    FullEnvironment,
    Instruction,
    ProfiledKernel,
    PythonCode,
    Reason,
    ReplayRecord,
    digest,
)
from perfsvc.model.codec import decode
from perfsvc.store.keeping.tables import Table
from perfsvc.store.measurements.batches import unpack_batches
from perfsvc.store.schema.all_tables import all_tables, metadata
from perfsvc.store.schema.code_tables import Explanations, KernelFacts, Profiles
from perfsvc.store.schema.column_types import Word
from perfsvc.store.schema.engine import SQLITE, Database
from perfsvc.store.schema.judging_tables import ConfirmationRuns
from perfsvc.store.schema.samples import DAMAGED, unpack_array
from perfsvc.store.schema.tables import (
    Artifacts,
    Binaries,
    Cases,
    Devices,
    Environments,
    FullEnvironments,
    Measurements,
    PythonCodes,
)

ROWS = 1_000
"""The rows whose blobs are in memory at a time."""


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row that perfsvc cannot read.

    Attributes:
        table: its table.
        key: its primary key, such as ``id 17``.
        column: the damaged column.
        reason: what is wrong with the value.
        cost: what perfsvc cannot show or do because of it.
    """

    table: str
    key: str
    column: str
    reason: str
    cost: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} of {self.key}: {self.reason}; this costs {self.cost}"


def _as_samples(blob: bytes) -> None:
    unpack_array(blob)


def _as_batches(blob: bytes) -> None:
    unpack_batches(blob)


def _as_json_object(text: str) -> None:
    decode(dict[str, Any], text)


def _as_kind(text: str) -> None:
    if text not in DEVICE_KINDS:
        raise ValueError(f"no device is of kind {text!r}")


def _as(kind: Any, *, compressed: bool = False) -> Callable[[Any], None]:
    """Return a function that decodes a value, and raises ``ValueError`` or ``zlib.error`` if it is damaged."""

    def read(value: Any) -> None:
        decode(kind, zlib.decompress(value) if compressed else value)

    return read


_CONTENT: Final[dict[Table, dict[str, Callable[[Any], None]]]] = {
    Measurements: {"samples": _as_samples, "place_medians": _as_samples, "batches": _as_batches},
    ConfirmationRuns: {"samples": _as_samples},
    Profiles: {
        "instructions": _as(tuple[Instruction, ...], compressed=True),
        "kernels": _as(tuple[ProfiledKernel, ...], compressed=True),
    },
    Explanations: {"reasons": _as(tuple[Reason, ...])},
    Cases: {"point": _as_json_object},
    Devices: {"kind": _as_kind},
    Environments: {"parts": _as(dict[str, str])},
    FullEnvironments: {"parts": _as(FullEnvironment)},
    Binaries: {"record": _as(ReplayRecord)},
    PythonCodes: {"record": _as(PythonCode)},
    KernelFacts: {"instructions": _as_json_object},
}
"""How the content of a column is read, for columns whose type does not say it."""

_DIGESTS: Final[dict[Table, tuple[str, str]]] = {
    Artifacts: ("sha256", "content"),
    Binaries: ("digest", "record"),
    PythonCodes: ("digest", "record"),
    FullEnvironments: ("digest", "parts"),
}
"""The columns that hold the SHA-256 of another column."""

_COSTS: Final = {
    "measurements": "the samples of the measurement, or the measurement; its run has the others",
    "metrics": "the metric of one measurement",
    "cases": "the results of the case",
    "devices": "the threshold of its kind: the threshold of GPUs is used",
    "environments": "the further parts of the environment; its results stay",
    "full_environments": "the environment of its runs; their times stay",
    "artifacts": "the binaries and reports that consist of it: they cannot be run or read again",
    "binaries": "the binary: suspects against it are compared without being measured again",
    "python_codes": "what the measurement's Python code was",
    "profiles": "the instructions of the profile; its counters stay",
    "explanations": "the explanation",
    "confirmation_runs": "the confirmation",
    "facts": "the static facts of the checks that refer to them",
}


def damaged_rows(connection: Connection) -> list[DamagedRow]:
    """Return all damaged rows of a database whose schema revision is that of this perfsvc."""
    found: list[DamagedRow] = []
    for table in all_tables():
        found += _wrong_types(connection, table)
        found += _wrong_content(connection, table)
    return found


def unreadable_rows(database: Database) -> dict[str, int]:
    """Return how many rows of each table perfsvc cannot use; a table without such rows is absent.

    perfsvc has no safe value for a damaged word in these rows, or they belong to a row that does not exist.
    """
    with database.reading() as connection:
        counts = {
            table.name: connection.scalar(select(func.count()).select_from(table).where(condition)) or 0
            for table, condition in _unreadable()
        }
    return {table: rows for table, rows in counts.items() if rows}


def remove_unreadable(database: Database) -> dict[str, int]:
    """Remove the rows that ``unreadable_rows`` counts, and what belongs to them; return their number by table."""
    with database.writing() as connection:
        counts = {
            table.name: connection.execute(delete(table).where(condition)).rowcount
            for table, condition in _unreadable()
        }
    return {table: rows for table, rows in counts.items() if rows}


def _unreadable() -> Iterator[tuple[Any, ColumnElement[bool]]]:
    """Yield each table with rows that nothing can stand for, and the condition that a row is such a row.

    A word that is needed is damaged in the row, or the row is a part of a row that does not exist. Parts are rows of
    tables that SQLite stores in the order of their primary key, whose first column names the whole.
    """
    for table in metadata().sorted_tables:
        damaged = [
            type_coerce(column, String).not_in(kind.words)
            for column in table.columns
            if isinstance(kind := column.type, Word) and kind.needed
        ]
        if table.dialect_options["sqlite"]["with_rowid"] is False:
            part = next(iter(table.primary_key))
            (key,) = part.foreign_keys
            damaged.append(part.not_in(select(key.column)))
        if damaged:
            yield table, or_(*damaged)


def _wrong_types(connection: Connection, table: Table) -> Iterator[DamagedRow]:
    """Yield the values that the type of their column cannot hold: the database itself looks for them."""
    is_sqlite = connection.dialect.name == SQLITE
    checks = {
        column.name: condition
        for column in table.__table__.columns
        if (condition := _condition(column.name, column.type, is_sqlite=is_sqlite))
    }
    if not checks:
        return
    keys = [column.name for column in table.__table__.primary_key]
    quoted = ", ".join(f'"{name}"' for name in (*keys, *checks))
    flags = ", ".join(checks.values())
    name = table.__tablename__
    statement = f'SELECT {quoted}, {flags} FROM "{name}" WHERE {" OR ".join(checks.values())}'  # noqa: S608 - no input
    for row in connection.exec_driver_sql(statement):
        key = _key(keys, row[: len(keys)])
        values, wrong = row[len(keys) : len(keys) + len(checks)], row[len(keys) + len(checks) :]
        for column, value, is_wrong in zip(checks, values, wrong, strict=True):
            if is_wrong:
                reason = f"{str(value)[:40]!r} is no value of this column"
                yield DamagedRow(name, key, column, reason, _cost(name))


def _condition(name: str, kind: TypeEngine[Any], *, is_sqlite: bool) -> str:
    """Return the SQL condition that a value has the wrong type; empty if the database refuses such values."""
    column = f'"{name}"'
    inner = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    if isinstance(kind, Word):
        words = ", ".join(f"'{word}'" for word in kind.words)
        return f"({column} IS NOT NULL AND {column} NOT IN ({words}))"
    if not is_sqlite:
        is_float = isinstance(inner, Numeric)
        return f"({column} IS NOT NULL AND {column} = 'NaN')" if is_float else ""
    if isinstance(inner, JSON | DateTime):
        readable = f"json_valid({column})" if isinstance(inner, JSON) else f"julianday({column}) IS NOT NULL"
        return f"({column} IS NOT NULL AND NOT {readable})"
    types = "'text'" if isinstance(inner, String) else "'integer', 'real'"
    checked = isinstance(inner, String) or inner.python_type in {int, float, bool}
    return f"typeof({column}) NOT IN ({types}, 'null')" if checked else ""


def _wrong_content(connection: Connection, table: Table) -> Iterator[DamagedRow]:
    """Yield the texts and blobs of a table that cannot be decoded, or that differ from their digest."""
    readers, digests = _CONTENT.get(table, {}), _DIGESTS.get(table)
    if not readers and not digests:
        return
    columns = table.__table__.columns
    keys = [column.name for column in table.__table__.primary_key]
    wanted = [columns[name] for name in dict.fromkeys((*keys, *readers, *(digests or ())))]
    query = select(*wanted).execution_options(yield_per=ROWS)
    for row in connection.execute(query).mappings():
        for name, reason in _faults(row, readers, digests):
            key = _key(keys, [row[key] for key in keys])
            yield DamagedRow(table.__tablename__, key, name, reason, _cost(table.__tablename__))


def _faults(
    row: Any, readers: dict[str, Callable[[Any], None]], digests: tuple[str, str] | None
) -> Iterator[tuple[str, str]]:
    """Yield each damaged column of a row and what is wrong with it."""
    for name, read in readers.items():
        if row[name] is not None:
            try:
                read(row[name])
            except DAMAGED as error:
                yield name, f"it cannot be read ({' '.join(str(error).split())[:80]})"
    if digests:
        of, content = digests
        try:
            whole = zlib.decompress(row[content]) if content == "content" else row[content].encode()
        except (zlib.error, AttributeError, TypeError) as error:
            yield content, f"it cannot be read ({error})"
        else:
            if digest(whole) != row[of]:
                yield content, f"it differs from its digest {str(row[of])[:12]}"


def _key(names: list[str], values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))


def _cost(table: str) -> str:
    return _COSTS.get(table, "what this row describes")
