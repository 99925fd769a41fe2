"""Copying rows from one database to another: the numbers by which rows refer to other rows are translated.

A row is recognized in the other database by its identity (``tables.IDENTITY``), never by its number.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, insert, select

from perfsvc.store.cases import CASE_COLUMNS, case_ids, case_of, former_variants
from perfsvc.store.keeping.tables import IDENTITY, NOT_REFERRED, PARTS, SHARED, Table
from perfsvc.store.schema.all_tables import all_tables
from perfsvc.store.schema.code_tables import Profiles
from perfsvc.store.schema.engine import insert_new
from perfsvc.store.schema.tables import Cases, Runs

ROWS = 1_000
"""The rows that are in memory at a time; the samples of a large run would fill it."""

Numbers = defaultdict[Table, dict[Any, Any]]
"""The number in the target of each row of the source that is known to be there, by table."""

Row = dict[str, Any]
StoredRow = RowMapping | Row
_Key = tuple[tuple[Any, ...], int]


class NotCopiedError(Exception):
    """A row refers to a row that the target does not have, so that the row cannot be copied yet."""


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies rows within one transaction of each database.

    Attributes:
        source: the transaction from which rows are read.
        target: the transaction in which rows are stored.
        numbers: the numbers found so far. They are only valid if ``target`` is committed.
    """

    source: Connection
    target: Connection
    numbers: Numbers

    def number(self, table: Table, number: Any) -> Any:
        """Return the number in the target of a row of the source; None if the target does not have the row.

        Cases and rows that several runs share are copied if they are missing.
        """
        known = self.numbers[table]
        if number in known:
            return known[number]
        if table in SHARED:
            known[number] = self._shared(table, number)
        elif table is Cases:
            self._copy_cases()
        elif table is Profiles:
            self._find_profiles(number)
        elif IDENTITY.get(table) == ("uid",):
            uid = self.source.scalar(select(_column(table, "uid")).where(_column(table, "id") == number))
            in_target = self.target.scalar(select(_column(table, "id")).where(_column(table, "uid") == uid))
            known |= {} if in_target is None else {number: in_target}  # a later transaction may copy the row
        return known.get(number)

    def translated(self, table: Table, row: StoredRow) -> Row:
        """Return a row of the source as the target stores it, without its own number.

        A reference to a row that the target does not have becomes NULL, as if that row had been deleted there. Raises
        ``NotCopiedError`` if the reference may not be NULL.
        """
        values: Row = {}
        for name, referred, nullable in _references(table):
            value = row[name]
            if value is not None:
                value = self.number(referred, value)
                if value is None and not nullable:
                    raise NotCopiedError(f"{table.__tablename__}.{name} refers to {row[name]!r}, which is not copied")
            values[name] = value
        for name in _plain(table):
            values[name] = row[name]
        return values

    def put(self, table: Table, row: StoredRow) -> int:
        """Store a row of the source as a new row, and return its number in the target."""
        result = self.target.execute(insert(table), self.translated(table, row))
        key = result.inserted_primary_key
        assert key is not None  # noqa: S101 - for mypy: only an insert of several rows has none
        self.numbers[table][row["id"]] = int(key[0])
        return int(key[0])

    def put_all(self, table: Table, rows: Iterator[Row]) -> None:
        """Store translated rows."""
        while part := list(islice(rows, ROWS)):
            self.target.execute(insert(table), part)

    def row(self, table: Table, number: int) -> StoredRow:
        """Return a row of the source by its number; raises ``NotCopiedError`` if it was deleted meanwhile."""
        for row in self.rows(table, _column(table, "id") == number):
            return row
        raise NotCopiedError("the row was deleted while the databases were compared")

    def rows(self, table: Table, *where: ColumnElement[bool]) -> Iterator[StoredRow]:
        """Yield the rows of the source that meet some conditions, in the order of their primary key."""
        yield from self._stream(select(table).where(*where).order_by(*table.__table__.primary_key))

    def _stream(self, query: Select[Any]) -> Iterator[StoredRow]:
        with self.source.execute(query, execution_options={"yield_per": ROWS}) as result:
            yield from result.mappings()

    def add_missing(self, table: Table, column: str, owner: int, owner_in_target: int) -> int:
        """Copy the rows of an owner, such as a run, that the target does not have; return how many there were.

        Args:
            table: the table of the rows.
            column: the column that refers to the owner.
            owner: the number of the owner in the source.
            owner_in_target: its number in the target.
        """
        stored = self._stored(table, column, owner_in_target)
        new: dict[_Key, Any] = {}

        def missing() -> Iterator[Row]:
            for key, row, values in self._identified(table, column, owner):
                if key not in stored:
                    new[key] = row["id"] if table in PARTS else None
                    yield values

        self.put_all(table, missing())
        if new and table in PARTS:
            stored = self._stored(table, column, owner_in_target)
            numbers = {number: stored[key] for key, number in new.items()}
            self.numbers[table] = dict(numbers)
            for part, refers in PARTS[table].items():
                query = select(part).join(table, _column(table, "id") == _column(part, refers))
                rows = self._stream(query.where(_column(table, column) == owner))
                self.put_all(part, (self.translated(part, row) for row in rows if row[refers] in numbers))
            del self.numbers[table]
        return len(new)

    def _identified(self, table: Table, column: str, owner: int) -> Iterator[tuple[_Key, StoredRow, Row]]:
        """Yield the rows of an owner in the source, each after its identity in the target and before its translation.

        Two equal rows of the source are two rows of the target.
        """
        seen: Counter[tuple[Any, ...]] = Counter()
        for row in self.rows(table, _column(table, column) == owner):
            values = self.translated(table, row)
            own = tuple(values[name] for name in _identity(table))
            yield (own, seen[own]), row, values
            seen[own] += 1

    def _stored(self, table: Table, column: str, owner: int) -> dict[_Key, Any]:
        """Return the rows of an owner in the target: the number of each row by its identity."""
        columns = [_column(table, name) for name in _identity(table)]
        key = _column(table, "id") if "id" in table.__table__.columns else columns[0]
        query = select(key, *columns).where(_column(table, column) == owner).order_by(*table.__table__.primary_key)
        stored: dict[_Key, Any] = {}
        seen: Counter[tuple[Any, ...]] = Counter()
        for number, *own in self.target.execute(query):
            stored[tuple(own), seen[tuple(own)]] = number
            seen[tuple(own)] += 1
        return stored

    # --- rows that are copied when a row refers to them --------------------------------------------------------------

    def _shared(self, table: Table, number: Any) -> Any:
        """Return the number in the target of a row that several runs share, after copying it if it is missing."""
        (key,) = table.__table__.primary_key
        row = self.source.execute(select(table).where(key == number)).mappings().first()
        if row is None:
            return None
        values = self.translated(table, row)
        query = select(key).where(*(_column(table, name) == values[name] for name in IDENTITY[table]))
        stored = self.target.scalar(query)
        if stored is None:
            insert_new(self.target, table, values)
            stored = self.target.execute(query).scalar_one()
            for part, refers in PARTS.get(table, {}).items():
                self.numbers[table][number] = stored
                rows = self.rows(part, _column(part, refers) == number)
                for part_row in rows:
                    insert_new(self.target, part, self.translated(part, part_row))
        return stored

    def _copy_cases(self) -> None:
        """Find or store all cases with their former names, and note their numbers.

        They are stored together, so that a new variant with the former name of another one is no renamed case.
        """
        former = former_variants(self.source)
        stored = self.source.execute(select(Cases.id, *CASE_COLUMNS)).all()
        cases = {number: replace(case_of(*name), formerly=former.get(number, ())) for number, *name in stored}
        ids = case_ids(self.target, cases.values())
        self.numbers[Cases] |= {number: ids[case] for number, case in cases.items()}

    def _find_profiles(self, number: int) -> None:
        """Note the number of each profile of the run to which a profile belongs, if the target has the run."""
        run = self.source.execute(select(Profiles.run_id).where(Profiles.id == number)).scalar_one()
        run_in_target = self.number(Runs, run)
        if run_in_target is None:
            return
        stored = self._stored(Profiles, "run_id", run_in_target)
        for key, row, _ in self._identified(Profiles, "run_id", run):
            self.numbers[Profiles][row["id"]] = stored.get(key)


def _column(table: Table, name: str) -> Any:
    return table.__table__.columns[name]


@cache
def _identity(table: Table) -> tuple[str, ...]:
    return IDENTITY.get(table) or tuple(column.name for column in table.__table__.primary_key)


@cache
def _references(table: Table) -> Sequence[tuple[str, Table, bool]]:
    """Return the columns of a table that refer to a row: the name, the table of the row, and whether it may be NULL."""
    tables = {each.__tablename__: each for each in all_tables()}
    references: list[tuple[str, Table, bool]] = []
    for column in table.__table__.columns:
        referred = [tables[key.column.table.name] for key in column.foreign_keys]
        if (table, column.name) in NOT_REFERRED:
            referred = [NOT_REFERRED[table, column.name]]
        if referred:
            references.append((column.name, referred[0], bool(column.nullable)))
    return references


@cache
def _plain(table: Table) -> Sequence[str]:
    """Return the columns that are copied as they are; the ``id`` is only a number in this database."""
    other = {name for name, *_ in _references(table)} | ({"id"} if table in IDENTITY else set())
    return [column.name for column in table.__table__.columns if column.name not in other]
