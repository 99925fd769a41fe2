"""What runs measured of cases besides times: errors, work and static facts, for the history of a series."""

from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from perfsvc.model import PRECISIONS, Case, Series, Status
from perfsvc.store.cases import TIME_OF_MEASUREMENT, ids_of, load_series
from perfsvc.store.rows import CaseQuantities
from perfsvc.store.schema.code_tables import CheckedKernels, Checks, KernelFacts
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.tables import Devices, Environments, Measurements, Runs, SeriesRows

_UNKNOWN = np.nan, np.nan


def load_quantities(
    connection: Connection, runs: Collection[int], cases: Collection[Case] | None
) -> dict[Series, CaseQuantities]:
    """Return what some runs measured of each case besides its time, by the series of its time.

    A run in which a replica of the case is not ok is left out.
    """
    of_cases = [] if cases is None else [among(SeriesRows.case_id, set(ids_of(connection, cases).values()))]
    series = load_series(connection, *of_cases)
    facts = _static_facts(connection, runs)
    toolkits = dict(connection.execute(select(Environments.id, Environments.toolkit)).all())
    own = SeriesRows.id, SeriesRows.case_id, Devices.target, Measurements.run_id, Runs.git_commit, Runs.git_dirty
    query = (
        select(
            *own,
            func.max(Measurements.environment_id),
            func.max(Measurements.max_error),
            func.max(Measurements.read_bytes + Measurements.written_bytes),
            func.max(Measurements.flops),
            func.max(Measurements.link_bytes),
            func.max(Measurements.precision),
        )
        .join(SeriesRows, TIME_OF_MEASUREMENT)
        .join(Devices, Devices.id == Measurements.device_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(among(Measurements.run_id, runs), *of_cases)
        .group_by(*own)
        .having(func.count().filter(Measurements.status != Status.OK) == 0)
        .order_by(SeriesRows.id, Measurements.run_id)
    )
    places = {name: place for place, name in enumerate(PRECISIONS)}
    rows: Any = map(tuple, connection.execute(query))
    quantities: dict[Series, CaseQuantities] = {}
    for number, of_series in groupby(rows, key=itemgetter(0)):
        found = []
        for _, case, target, run, commit, dirty, environment, *work, precision in of_series:
            kernels = (case, target, None if dirty else commit, toolkits.get(environment))
            found.append((run, *work, places.get(precision, -1), *facts.get(kernels, _UNKNOWN)))
        run, error, moved, flops, link, precision, registers, spilled = np.array(found, np.float64).T
        in_runs, precisions = run.astype(np.int64), precision.astype(np.int64)
        quantities[series[number]] = CaseQuantities(in_runs, error, moved, flops, precisions, link, registers, spilled)
    return quantities


def _static_facts(connection: Connection, runs: Collection[int]) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return the registers of a thread, and the bytes that are spilled, of the kernels of cases.

    The key is the case, the architecture, the commit and the compiler. The facts are those that ``perfsvc check``
    stored for the commits of the runs; the newest check of a commit counts.
    """
    commits = select(Runs.git_commit).where(among(Runs.id, runs), Runs.git_commit != "", Runs.git_dirty.is_(False))
    kernels = CheckedKernels.case_id, CheckedKernels.architecture, Checks.git_commit, Checks.toolkit
    of_check = (
        select(
            *kernels,
            func.max(KernelFacts.registers),
            func.sum(KernelFacts.spill_store_bytes + KernelFacts.spill_load_bytes),
        )
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .join(KernelFacts, KernelFacts.id == CheckedKernels.facts_id)
        .where(Checks.git_dirty.is_(False), Checks.git_commit.in_(commits), CheckedKernels.status == Status.OK)
        .group_by(CheckedKernels.check_id, *kernels)
        .order_by(CheckedKernels.check_id)
    )
    rows: Any = connection.execute(of_check)
    return {tuple(of_case): (float(registers), float(spilled)) for *of_case, registers, spilled in rows}
