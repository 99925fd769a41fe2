"""Environments, which form the segments of series, and the full environments of runs. Both are interned.

All functions are safe between processes.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, delete, exists, select, update

from perfsvc.model import Environment, FullEnvironment, digest
from perfsvc.store.schema.column_types import stored_json
from perfsvc.store.schema.engine import among, insert_new
from perfsvc.store.schema.tables import Environments, FullEnvironments, Runs

ENVIRONMENT: Final = (
    Environments.driver,
    Environments.toolkit,
    Environments.power_limit_w,
    Environments.places,
    Environments.parts,
)
"""The columns from which ``environment_of`` makes an environment."""


def environment_id(connection: Connection, environment: Environment) -> int:
    """Return the id of an environment; store it if it is new."""
    parts = json.dumps(dict(environment.parts), sort_keys=True)
    row = {
        "driver": environment.driver,
        "toolkit": environment.toolkit,
        "power_limit_w": environment.power_limit_w,
        "places": environment.places,
        "parts_digest": digest(parts.encode()) if environment.parts else "",
    }
    query = select(Environments.id).filter_by(**row)
    stored = connection.scalar(query)
    if stored is None:
        insert_new(connection, Environments, {**row, "parts": parts})
        stored = connection.execute(query).scalar_one()
    return stored


def environment_of(row: Any) -> Environment:
    """Return the environment in a row with the columns ``ENVIRONMENT``."""
    return Environment(row.driver, row.toolkit, row.power_limit_w, row.places, _pairs(row.parts))


@lru_cache(maxsize=256)
def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(stored_json(text).items()))


# --- full environments -----------------------------------------------------------------------------------------------


def put_full(connection: Connection, run: int, full: FullEnvironment) -> None:
    """Store the full environment of a run; it replaces the one that the run had."""
    parts = json.dumps({"common": dict(full.common), "devices": dict(full.devices)}, sort_keys=True)
    row = {"digest": digest(parts.encode()), "parts": parts}
    query = select(FullEnvironments.id).filter_by(digest=row["digest"])
    # Update the row instead of only reading it, so that no other process removes it before this run refers to it.
    if connection.execute(update(FullEnvironments).filter_by(digest=row["digest"]).values(row)).rowcount == 0:
        insert_new(connection, FullEnvironments, row)
    number = connection.execute(query).scalar_one()
    connection.execute(update(Runs).where(Runs.id == run).values(full_environment_id=number))


def load_full(connection: Connection, runs: Collection[int]) -> dict[int, FullEnvironment]:
    """Return the full environments of some runs; an earlier version of perfsvc stored none for its runs."""
    query = (
        select(Runs.id, FullEnvironments.parts)
        .join(FullEnvironments, FullEnvironments.id == Runs.full_environment_id)
        .where(among(Runs.id, runs))
    )
    return {run: _full(text) for run, text in connection.execute(query)}


def remove_unused_full(connection: Connection) -> None:
    """Remove the full environments that no run has any more."""
    connection.execute(delete(FullEnvironments).where(~exists().where(Runs.full_environment_id == FullEnvironments.id)))


@lru_cache(maxsize=64)
def _full(text: str) -> FullEnvironment:
    return FullEnvironment(**stored_json(text))
