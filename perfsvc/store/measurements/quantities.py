"""What runs measured of cases besides times: errors, work and static facts, for the history of a series."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, func, literal_column, select
from sqlalchemy import case as sql_case

from perfsvc.model import PRECISIONS, Case, Series, Status
from perfsvc.store.cases import TIME_OF_MEASUREMENT, ids_of, load_series
from perfsvc.store.levels import ROWS_AT_ONCE
from perfsvc.store.rows import CaseQuantities
from perfsvc.store.schema.code_tables import CheckedKernels, Checks, KernelFacts
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.tables import Devices, Environments, Measurements, Runs, SeriesRows

_Facts = tuple[int, int]
"""Registers of a thread, and bytes that are spilled."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def load_quantities(
    database: Database, runs: Collection[int], cases: Collection[Case] | None
) -> dict[Series, CaseQuantities]:
    """Return what some runs measured of each case besides its time, by the series of its time.

    A run in which a replica of the case is not ok is left out.
    """
    with database.reading() as connection:
        ids = None if cases is None else set(ids_of(connection, cases).values())
        query = _query(runs) if ids is None else _query(runs).where(among(Measurements.case_id, ids))
        with connection.execute(query) as result:
            # SQLAlchemy would make an object of each row, which takes longer than reading the row.
            parts = [np.empty((0, len(query.selected_columns)))]
            while rows := result.cursor.fetchmany(ROWS_AT_ONCE):
                parts.append(np.array(rows, np.float64))
        of_cases = [] if ids is None else [among(SeriesRows.case_id, ids)]
        return _by_series(connection, np.concatenate(parts).T, load_series(connection, *of_cases))


def _query(runs: Collection[int]) -> Select[Any]:
    """Return the query of what each run measured of each case on each device."""
    precision: dict[Any, ColumnElement[int]] = {name: literal_column(str(at)) for at, name in enumerate(PRECISIONS)}
    return (
        select(
            Measurements.run_id,
            Measurements.case_id,
            Measurements.device_id,
            SeriesRows.id,
            func.max(Measurements.environment_id),
            func.max(Measurements.max_error),
            func.max(Measurements.read_bytes + Measurements.written_bytes),
            func.max(Measurements.flops),
            sql_case(precision, value=func.max(Measurements.precision), else_=literal_column("-1")),
            func.max(Measurements.link_bytes),
        )
        .join(SeriesRows, TIME_OF_MEASUREMENT)
        .where(among(Measurements.run_id, runs))
        .group_by(Measurements.run_id, Measurements.case_id, Measurements.device_id, SeriesRows.id)
        .having(func.count().filter(Measurements.status != Status.OK) == 0)
    )


def _by_series(connection: Connection, columns: _Floats, series: Mapping[int, Series]) -> dict[Series, CaseQuantities]:
    """Return the quantities of each case that the columns of ``_query`` hold."""
    in_order = np.lexsort((columns[0], columns[3]))
    run, case, device, number, environment = columns[:5, in_order].astype(np.int64)
    error, moved, flops, precisions, link = columns[5:, in_order]
    facts = _facts_of_rows(connection, run, case, device, environment)
    quantities: dict[Series, CaseQuantities] = {}
    for begin, end in pairwise([*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), run.size]):
        at = slice(begin, end)
        quantities[series[int(number[begin])]] = CaseQuantities(
            run[at],
            error[at],
            moved[at],
            flops[at],
            precisions[at].astype(np.int64),
            link[at],
            facts[at, 0],
            facts[at, 1],
        )
    return quantities


def _facts_of_rows(connection: Connection, run: _Ints, cases: _Ints, devices: _Ints, environments: _Ints) -> _Floats:
    """Return the registers and the spilled bytes of each row, shape (rows, 2); NaN if unknown.

    Args:
        connection: a transaction.
        run: the run of each row, like the other columns.
        cases: its case.
        devices: its device.
        environments: its environment.
    """
    found = np.full((run.size, 2), np.nan)
    runs = np.unique(run).tolist()
    facts = _static_facts(connection, runs)
    if not facts:
        return found
    checked = {commit for _, _, commit, _ in facts}
    clean = select(Runs.id, Runs.git_commit).where(among(Runs.id, runs), Runs.git_dirty.is_(False))
    commits = {number: commit for number, commit in connection.execute(clean) if commit in checked}
    targets = dict(connection.execute(select(Devices.id, Devices.target)).all())
    toolkits = dict(connection.execute(select(Environments.id, Environments.toolkit)).all())
    for row in np.flatnonzero(np.isin(run, list(commits))).tolist():
        target, toolkit = targets.get(int(devices[row]), ""), toolkits.get(int(environments[row]), "")
        known = facts.get((int(cases[row]), target, commits[int(run[row])], toolkit))
        if known:
            found[row] = known
    return found


def _static_facts(connection: Connection, runs: Collection[int]) -> dict[tuple[int, str, str, str], _Facts]:
    """Return the static facts of cases by case, architecture, commit and compiler.

    The facts are those that ``perfsvc check`` stored for the commits of the runs; the newest check of a commit counts.
    """
    commits = select(Runs.git_commit).where(among(Runs.id, runs), Runs.git_commit != "", Runs.git_dirty.is_(False))
    of_check = (
        select(
            CheckedKernels.check_id,
            CheckedKernels.case_id,
            CheckedKernels.architecture,
            Checks.git_commit,
            Checks.toolkit,
            func.max(KernelFacts.registers).label("registers"),
            func.sum(KernelFacts.spill_store_bytes + KernelFacts.spill_load_bytes).label("spilled"),
        )
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .join(KernelFacts, KernelFacts.id == CheckedKernels.facts_id)
        .where(Checks.git_dirty.is_(False), Checks.git_commit.in_(commits), CheckedKernels.status == Status.OK)
        .group_by(
            CheckedKernels.check_id,
            CheckedKernels.case_id,
            CheckedKernels.architecture,
            Checks.git_commit,
            Checks.toolkit,
        )
        .order_by(CheckedKernels.check_id)
    )
    return {
        (row.case_id, row.architecture, row.git_commit, row.toolkit): (int(row.registers), int(row.spilled))
        for row in connection.execute(of_check)
    }
