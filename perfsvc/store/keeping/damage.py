"""Finding rows that perfsvc cannot read, with what each costs.

The database checks types and references itself. A disk or a program may still change the content of texts and blobs.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import JSON, ColumnElement, Connection, String, cast, exists, func, select, type_coerce

from perfsvc.model import (
    DEVICE_KINDS,
    FullEnvironment,
    Instruction,
    ProfiledKernel,
    PythonCode,
    Reason,
    ReplayRecord,
    Status,
    digest,
)
from perfsvc.model.codec import decode
from perfsvc.store.keeping.tables import Table
from perfsvc.store.measurements.batches import unpack_batches
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.all_tables import all_tables
from perfsvc.store.schema.code_tables import Explanations, KernelFacts, Profiles
from perfsvc.store.schema.column_types import Utc, Word
from perfsvc.store.schema.engine import SQLITE
from perfsvc.store.schema.judging_tables import ConfirmationRuns
from perfsvc.store.schema.samples import DAMAGED, unpack_array
from perfsvc.store.schema.tables import (
    Artifacts,
    Binaries,
    Cases,
    Devices,
    Environments,
    FullEnvironments,
    Levels,
    Measurements,
    PythonCodes,
    RunDevices,
    Runs,
)

ROWS = 1_000
"""The rows whose blobs are in memory at a time."""


def _as_kind(text: str) -> None:
    if text not in DEVICE_KINDS:
        raise ValueError(f"no device is of kind {text!r}")


def _as_counts(text: str) -> None:
    for name in decode(dict[str, int], text):
        Status(name)


def _as(kind: Any, *, compressed: bool = False) -> Callable[[Any], object]:
    """Return a function that decodes a value, and raises ``ValueError`` or ``zlib.error`` if it is damaged."""
    return lambda value: decode(kind, zlib.decompress(value) if compressed else value)


_CONTENT: Final[dict[Table, dict[str, Callable[[Any], object]]]] = {
    Measurements: {"samples": unpack_array, "place_medians": unpack_array, "batches": unpack_batches},
    Levels: {"medians": lambda blob: np.frombuffer(blob, np.float64)},
    RunDevices: {"statuses": _as_counts},
    ConfirmationRuns: {"samples": unpack_array},
    Profiles: {
        "instructions": _as(tuple[Instruction, ...], compressed=True),
        "kernels": _as(tuple[ProfiledKernel, ...], compressed=True),
    },
    Explanations: {"reasons": _as(tuple[Reason, ...])},
    Cases: {"point": _as(dict[str, Any])},
    Devices: {"kind": _as_kind},
    Environments: {"parts": _as(dict[str, str])},
    FullEnvironments: {"parts": _as(FullEnvironment)},
    Binaries: {"record": _as(ReplayRecord)},
    PythonCodes: {"record": _as(PythonCode)},
    KernelFacts: {"instructions": _as(dict[str, Any])},
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
    "levels": "the comparisons with it; perfsvc db rebuild computes it anew",
    "run_devices": "the list of runs; perfsvc db rebuild computes it anew",
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


def damaged_rows(connection: Connection) -> list[str]:
    """Return a text for each damaged value of a database whose schema revision is that of this perfsvc.

    A text names the row and the column, what is wrong, and what perfsvc cannot show or do because of it.
    """
    found: list[str] = []
    for table in all_tables():
        name = table.__tablename__
        keys = [column.name for column in table.__table__.primary_key]
        cost = _COSTS.get(name, "what this row describes")
        for key, column, reason in (*_wrong_words(connection, table), *_wrong_content(connection, table)):
            row = ", ".join(f"{of} {value}" for of, value in zip(keys, key, strict=True))
            found.append(f"{name}.{column} of {row}: {reason}; this costs {cost}")
    measured, has_levels = (exists().where(table.run_id == Runs.id) for table in (Measurements, Levels))
    lacking = select(Runs.id).where(Runs.state.in_(ENDED), measured, ~has_levels).order_by(Runs.id)
    found += [f"run {run} has no levels; perfsvc db rebuild computes them" for run in connection.scalars(lacking)]
    return found


_Fault = tuple[Sequence[Any], str, str]
"""The primary key of a row, its damaged column, and what is wrong."""


def _wrong_words(connection: Connection, table: Table) -> Iterator[_Fault]:
    """Yield the words, the dates and the JSON that cannot be read; SQLite refuses other types than a column's."""
    keys = list(table.__table__.primary_key)
    for column in table.__table__.columns:
        text = type_coerce(column, String)
        is_wrong: ColumnElement[bool]
        if isinstance(column.type, Word):
            is_wrong = text.not_in([word.value for word in column.type.kind])
        elif connection.dialect.name != SQLITE or not isinstance(column.type, Utc | JSON):
            continue
        else:
            is_wrong = func.julianday(text).is_(None) if isinstance(column.type, Utc) else func.json_valid(text) == 0
        for *key, value in connection.execute(select(*keys, text).where(text.is_not(None), is_wrong)):
            yield key, column.name, f"{str(value)[:40]!r} is no value of this column"


def _wrong_content(connection: Connection, table: Table) -> Iterator[_Fault]:
    """Yield the texts and blobs of a table that cannot be decoded, or that differ from their digest."""
    readers, digests = _CONTENT.get(table, {}), _DIGESTS.get(table)
    if not readers and not digests:
        return
    columns = table.__table__.columns
    keys = [column.name for column in table.__table__.primary_key]
    named = [columns[name] for name in dict.fromkeys((*keys, *readers, *(digests or ())))]
    wanted = [cast(each, String).label(each.name) if isinstance(each.type, JSON) else each for each in named]
    query = select(*wanted).execution_options(yield_per=ROWS)
    for row in connection.execute(query).mappings():
        for name, reason in _faults(row, readers, digests):
            yield [row[key] for key in keys], name, reason


def _faults(
    row: Any, readers: dict[str, Callable[[Any], object]], digests: tuple[str, str] | None
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
