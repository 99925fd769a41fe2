"""Make a database of many nights quickly: two nights are measured on the fake device, the others are copies of them."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from simulated.life import request
from simulated.planted import Plan
from simulated.workplace import BETWEEN, Workplace
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)
from workbench import Silent

from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import TIME
from perfsvc.service.run.run import run
from perfsvc.store import Store
from perfsvc.store.schema.base import Base
from perfsvc.store.schema.engine import POSTGRESQL
from perfsvc.store.schema.tables import Levels, Measurements, Metrics, RunDevices, Runs, SeriesRows

VARIANTS = 100
"""How many cases a benchmark has."""
MEASURED = 2
"""How many nights are measured. The others are copies of the second, which has verdicts against the first."""
RANDOM = {"sqlite": "(random() / 18446744073709551616.0)", POSTGRESQL: "(random() - 0.5)"}
"""A random number between -0.5 and 0.5, by database."""
NIGHTS_A_TRANSACTION = 50


def workplace(folder: Path, cases: int, replicas: int) -> Workplace:
    """Return a suite with so many cases, at least one benchmark."""
    variants = min(VARIANTS, cases)
    return Workplace(folder, Plan(MEASURED, max(1, cases // variants), variants, (), replicas), seed=1)


def measure(place: Workplace, database: str) -> list[float]:
    """Measure the first nights, and return the seconds that each took."""
    seconds = []
    with worker_servers() as servers:
        for night in range(1, MEASURED + 1):
            place.play(night, "measuring")
            began = time.perf_counter()
            run(replace(request(place, night), database=database, confirm=False), Silent(), servers)
            seconds.append(time.perf_counter() - began)
    return seconds


def grow(database: str, nights: int, limit_s: float = math.inf) -> int:
    """Copy the newest night until there are so many nights, or the time is up; return how many there are then.

    There is a night for each day, and the last one begins today: pruning finds most nights to be old.
    """
    end = time.perf_counter() + limit_s
    with Store.open(database) as store:
        with store.database.reading() as connection:
            there = source = connection.scalar(select(func.max(Runs.id))) or 0
        if there < nights:
            with store.database.writing() as connection:
                _move_back(connection, to_come=nights - there)
        while there < nights and time.perf_counter() < end:
            with store.database.writing() as connection:
                for _ in range(min(NIGHTS_A_TRANSACTION, nights - there)):
                    there += 1
                    copy_night(connection, source, there)
        if store.database.engine.dialect.name == POSTGRESQL:
            with store.database.writing() as connection:
                _set_sequences(connection)
                connection.execute(text("ANALYZE"))  # PostgreSQL does so itself after some minutes
    return there


def _move_back(connection: Connection, to_come: int) -> None:
    """Make all nights older by as many days as the last of the nights ``to_come`` would begin after today."""
    nights = connection.execute(select(Runs.id, Runs.started_at, Runs.finished_at).order_by(Runs.id)).all()
    ahead = nights[-1].started_at + timedelta(days=to_come) - datetime.now(UTC)
    moved = timedelta(days=max(0, math.ceil(ahead / timedelta(days=1))))
    for night in nights if moved else ():
        began = night.started_at - moved
        times = {"started_at": began, "finished_at": night.finished_at - moved}
        connection.execute(update(Runs).where(Runs.id == night.id).values(times))
        connection.execute(update(Measurements).where(Measurements.run_id == night.id).values(measured_at=began))


def noise(connection: Connection, width: float) -> ColumnElement[float]:
    """Return a random factor about 1, another one in each row, of a uniform distribution so wide on each side."""
    random: ColumnElement[float] = literal_column(f"(1 + {2 * width} * {RANDOM[connection.dialect.name]})")
    return random


def copy_night(
    connection: Connection, source: int, run: int, changed: Mapping[type[Base], Mapping[str, Any]] | None = None
) -> None:
    """Copy all rows of the run ``source`` to a new run, with later times.

    ``changed`` has the new values of further columns, by table; without it, the copy has other medians.
    """
    of_source = Measurements.run_id == source
    first = connection.scalar(select(func.min(Measurements.id)).where(of_source)) or 0
    shift = (connection.scalar(select(func.max(Measurements.id))) or 0) + 1 - first
    started = connection.scalars(select(Runs.started_at).where(Runs.id == source)).one()
    began = started + timedelta(days=run - source)
    times = {"started_at": began, "finished_at": began + timedelta(hours=1)}
    at = {name: literal(time, Runs.started_at.type) for name, time in times.items()}
    of_run: dict[str, Any] = {"run_id": literal(run)}
    measured = {"id": Measurements.id + shift, **of_run, "measured_at": at["started_at"]}
    if not changed:
        measured["median_s"] = Measurements.median_s * noise(connection, BETWEEN)
    of_metrics = Metrics.measurement_id.in_(select(Measurements.id).where(of_source))
    for table, where, values in (
        (Runs, Runs.id == source, {"id": literal(run), "uid": literal(uuid4().hex), **at}),
        (Measurements, of_source, measured),
        (Metrics, of_metrics, {"measurement_id": Metrics.measurement_id + shift}),
        *((table, table.run_id == source, of_run) for table in (Levels, RunDevices)),
    ):
        columns, given = table.__table__.columns, {**values, **(changed or {}).get(table, {})}
        in_order = table.__table__.primary_key  # in another order, pages would be half empty
        query = select(*(given.get(column.name, column) for column in columns)).where(where).order_by(*in_order)
        connection.execute(insert(table).from_select([column.name for column in columns], query))
    _level_medians(connection, run)


def _level_medians(connection: Connection, run: int) -> None:
    """Give the levels of a copied run the medians of its measurements, which differ from those of its source."""
    same = (getattr(SeriesRows, name) == getattr(Measurements, name) for name in ("case_id", "device_id", "cache"))
    query = (
        select(SeriesRows.id, Measurements.median_s)
        .join(Measurements, and_(SeriesRows.metric == TIME, *same))
        .where(Measurements.run_id == run, Measurements.median_s.is_not(None))
        .order_by(SeriesRows.id, Measurements.replica)
    )
    rows = [
        {"of": number, "medians": np.array([median_s for _, median_s in group], "<f8").tobytes()}
        for number, group in groupby(connection.execute(query).all(), lambda row: row[0])
    ]
    of_level = (Levels.run_id == run, Levels.series_id == bindparam("of"), Levels.medians.is_not(None))
    connection.execute(update(Levels).where(*of_level), rows)


def _set_sequences(connection: Connection) -> None:
    """Let PostgreSQL give later rows ids above those of the copies."""
    for table in (Runs, Measurements):
        sequence = func.pg_get_serial_sequence(table.__tablename__, "id")
        connection.execute(select(func.setval(sequence, select(func.max(table.id)).scalar_subquery())))
