"""The base of all tables: each class below it declares one table. Also dataclasses as rows of tables, and back.

The classes look like those of SQLAlchemy's ORM. perfsvc needs nothing else of the ORM, and importing it and mapping all
classes took a quarter of the time of ``perfsvc runs``. So the base makes a plain ``Table`` from each class.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_args, get_origin
from uuid import uuid4

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, text

from perfsvc.model import (
    CacheState,
    Cause,
    ChangeKind,
    Direction,
    EventKind,
    ExpectedKind,
    FindingState,
    Limiter,
    RunState,
    StageState,
    Status,
    Verdict,
)
from perfsvc.store.schema.column_types import FreeText, Utc, Word, number

CONSTRAINT_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Every constraint has a name, because Alembic's batch mode for SQLite can alter only named constraints."""

TYPES: Mapping[Any, Any] = {
    bool: Boolean,
    int: Integer,
    str: FreeText,
    float: Double,
    bytes: LargeBinary,
    datetime: Utc,
    dict[str, Any]: JSON,
    Cause: Word(Cause),
    Direction: Word(Direction),
    EventKind: Word(EventKind),
    ExpectedKind: Word(ExpectedKind),
    FindingState: Word(FindingState),
    Limiter: Word(Limiter),
    CacheState: Word(CacheState),
    ChangeKind: Word(ChangeKind),
    RunState: Word(RunState),
    StageState: Word(StageState),
    Status: Word(Status),
    Verdict: Word(Verdict),
}
"""The type of a column in the database by its type in Python."""


def column(*parts: Any, **options: Any) -> Any:
    """Return what SQLAlchemy's ``Column`` gets besides name and type, such as a ``ForeignKey`` or ``index=True``."""
    return parts, options


Key = Annotated[int, column(primary_key=True)]
Big = Annotated[int, column(type_=BigInteger())]
Uid = Annotated[str, column(unique=True, default=lambda: uuid4().hex)]
"""An identity that is the same in every database to which ``perfsvc sync`` copies the row; ids are not."""


METADATA = MetaData(naming_convention=CONSTRAINT_NAMES)
"""The tables whose modules were imported so far; ``all_tables.metadata`` returns all."""


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows that meet a condition in SQL.

    ``all_tables.metadata`` passes the condition on to SQLAlchemy, which would import its code for PostgreSQL now.
    """
    return Index(name, *columns, unique=unique, info={"where": text(where)})


class TableClass(type):
    """The class of the table classes: SQLAlchemy takes such a class where it takes a ``Table``."""

    __table__: Table

    def __clause_element__(cls) -> Table:
        """Return the table, for SQLAlchemy."""
        return cls.__table__


class Base(metaclass=TableClass):
    """A table: its name, its constraints and options, and a column for each annotation."""

    __tablename__: ClassVar[str]
    __table_args__: ClassVar[tuple[Any, ...]] = ()
    """Constraints, indexes, and dictionaries of the table's options."""

    def __init_subclass__(cls) -> None:
        """Make the table, and set each annotated attribute to its column."""
        declared = {name: vars(cls).get(name) for name in cls.__annotations__}
        columns = [_column(name, get_args(cls.__annotations__[name])[0], more) for name, more in declared.items()]
        constraints = [part for part in cls.__table_args__ if not isinstance(part, dict)]
        options = {name: value for part in cls.__table_args__ if isinstance(part, dict) for name, value in part.items()}
        options["sqlite_strict"] = True
        cls.__table__ = Table(cls.__tablename__, METADATA, *columns, *constraints, **options)
        for each in columns:
            setattr(cls, each.name, each)


def _column(name: str, annotation: Any, more: tuple[tuple[Any, ...], dict[str, Any]] | None) -> Column[Any]:
    """Return a column.

    Args:
        name: its name.
        annotation: its type in Python, such as ``int``, ``float | None`` or ``Key``.
        more: what ``column`` returned for it; None if its type says everything.
    """
    kind = get_args(annotation)[0] if isinstance(annotation, UnionType) else annotation
    options: dict[str, Any] = {"nullable": kind is not annotation}
    if get_origin(kind) is Annotated:
        kind, (_, always) = get_args(kind)
        options |= always
    parts, own = more or ((), {})
    options.setdefault("type_", TYPES[kind])
    return Column(name, *parts, **options | own)


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
