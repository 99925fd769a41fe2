"""What runs measured of cases besides times: errors, work and static facts, for the history of a series."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, func, literal_column, select
from sqlalchemy import case as sql_case

from perfsvc.model import PRECISIONS, TIME, CacheState, Case, Series, Status
from perfsvc.store.cases import Names, ids_of
from perfsvc.store.histories import changes, of_stored_cases
from perfsvc.store.rows import CaseQuantities
from perfsvc.store.schema.code_tables import CheckedKernels, Checks, KernelFacts
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.kept_columns import Reading, by_run, columns_by_run, joined
from perfsvc.store.schema.shared_reading import Columns, read_columns, read_together, shares
from perfsvc.store.schema.tables import Cases, Devices, Environments, Measurements, Runs

_Facts = tuple[int, int]
"""Registers of a thread, and bytes that are spilled."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

_STATES = tuple(CacheState)


def load_quantities(
    database: Database, runs: Collection[int], cases: Collection[Case] | None
) -> dict[Series, CaseQuantities]:
    """Return what some runs measured of each case besides its time, by the series of its time.

    A run in which a replica of the case is not ok is left out. Several processes read what many runs measured of all
    cases, and what runs measured that have ended is kept in files.
    """
    if cases is None:
        columns = joined(columns_by_run(database, sorted(runs), _reading(database)))
        if not columns:
            return {}
        with database.reading() as connection:
            return _by_series(connection, of_stored_cases(connection, columns, 1), Names(connection))
    with database.reading() as connection:
        ids = set(ids_of(connection, cases).values())
        query = _query(runs).where(among(Measurements.case_id, ids))
        return _by_series(connection, _read(connection, query), Names(connection, ids))


def _reading(database: Database) -> Reading:
    """Return how the quantities of runs are read."""

    def read(runs: Sequence[int]) -> dict[int, Columns]:
        columns = joined(read_together(database, [_query(part) for part in shares(runs)], _read))
        return by_run(columns, columns[0])

    return Reading("quantities", (_query([0]),), {1: Cases, 2: Devices, 4: Environments}, read)


def _query(runs: Collection[int]) -> Select[Any]:
    """Return the query of what each run measured of each case on each device."""
    state: dict[Any, ColumnElement[int]] = {state: literal_column(str(at)) for at, state in enumerate(_STATES)}
    precision: dict[Any, ColumnElement[int]] = {name: literal_column(str(at)) for at, name in enumerate(PRECISIONS)}
    return (
        select(
            Measurements.run_id,
            Measurements.case_id,
            Measurements.device_id,
            sql_case(state, value=Measurements.cache),
            func.max(Measurements.environment_id),
            func.max(Measurements.max_error),
            func.max(Measurements.read_bytes + Measurements.written_bytes),
            func.max(Measurements.flops),
            sql_case(precision, value=func.max(Measurements.precision), else_=literal_column("-1")),
            func.max(Measurements.link_bytes),
            func.count().filter(Measurements.status != Status.OK),
        )
        .where(among(Measurements.run_id, runs))
        .group_by(Measurements.run_id, Measurements.case_id, Measurements.device_id, Measurements.cache)
    )


def _read(connection: Connection, query: Select[Any]) -> Columns:
    return read_columns(connection, query, "iiiiifffiii")


def _by_series(connection: Connection, columns: Columns, names: Names) -> dict[Series, CaseQuantities]:
    """Return the quantities of each case that the columns of ``_query`` hold."""
    in_order = np.lexsort((columns[0], columns[3], columns[2], columns[1]))
    in_order = in_order[columns[10][in_order] == 0]
    run, case, device, cache, environment, error, moved, flops, precisions, link, _ = (
        column[in_order] for column in columns
    )
    facts = _facts_of_rows(connection, run, case, device, environment)
    begins = np.flatnonzero(changes(case, device, cache)) if run.size else np.empty(0, np.int64)
    quantities: dict[Series, CaseQuantities] = {}
    for begin, end in pairwise([*begins.tolist(), run.size]):
        series = names.series(int(case[begin]), int(device[begin]), TIME, _STATES[cache[begin]])
        at = slice(begin, end)
        if series:
            quantities[series] = CaseQuantities(
                run[at], error[at], moved[at], flops[at], precisions[at], link[at], facts[at, 0], facts[at, 1]
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
