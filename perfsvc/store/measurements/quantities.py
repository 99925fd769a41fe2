"""What runs measured of cases besides times: errors, work and static facts, for the history of a series."""

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import Connection, func, select

from perfsvc.model import TIME, CacheState, Case, Series, Status
from perfsvc.store.cases import PresentNames, namesakes_of, own_name
from perfsvc.store.rows import CaseQuantities
from perfsvc.store.schema.code_tables import CheckedKernels, Checks, KernelFacts
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.tables import Cases, Devices, Environments, Measurements, Runs

_Facts = tuple[int, int]
"""Registers of a thread, and bytes that are spilled."""


def load_quantities(
    connection: Connection, runs: Collection[int], cases: Collection[Case] | None
) -> dict[Series, dict[int, CaseQuantities]]:
    """Return what some runs measured of each case besides its time, by the series of its time and by run.

    A run in which a replica of the case is not ok is left out. The names of cases are the present ones.
    """
    ids = None
    if cases is not None:
        ids = {number for numbers in namesakes_of(connection, cases).values() for number in numbers}
    of_run = (
        select(
            Measurements.run_id,
            Measurements.case_id,
            Measurements.device_id,
            Measurements.cache,
            func.max(Measurements.environment_id).label("environment_id"),
            func.max(Measurements.max_error).label("max_error"),
            func.max(Measurements.read_bytes + Measurements.written_bytes).label("moved_bytes"),
            func.max(Measurements.flops).label("flops"),
            func.max(Measurements.precision).label("precision"),
            func.max(Measurements.link_bytes).label("link_bytes"),
        )
        .where(Measurements.run_id.in_(runs), *([] if ids is None else [among(connection, Measurements.case_id, ids)]))
        .group_by(Measurements.run_id, Measurements.case_id, Measurements.device_id, Measurements.cache)
        .having(func.count().filter(Measurements.status != Status.OK) == 0)
        .subquery()
    )
    query = (
        select(
            of_run,
            own_name(of_run.c.run_id).label("own_name"),
            Cases.lineage_id,
            Runs.git_commit,
            Runs.git_dirty,
            Devices.target,
            Environments.toolkit,
        )
        .join(Cases, Cases.id == of_run.c.case_id)
        .join(Runs, Runs.id == of_run.c.run_id)
        .join(Devices, Devices.id == of_run.c.device_id)
        .join(Environments, Environments.id == of_run.c.environment_id)
        .order_by(of_run.c.run_id, of_run.c.case_id)
    )
    facts = _static_facts(connection, runs)
    names = PresentNames(connection, ids)
    quantities: dict[tuple[int, int, int, CacheState], dict[int, CaseQuantities]] = defaultdict(dict)
    for row in connection.execute(query):
        built = (row.lineage_id, row.target, row.git_commit, row.toolkit)
        registers, spilled = (None, None) if row.git_dirty else facts.get(built, (None, None))
        quantities[row.lineage_id, row.own_name, row.device_id, row.cache][row.run_id] = CaseQuantities(
            row.max_error, int(row.moved_bytes), int(row.flops), row.precision, int(row.link_bytes), registers, spilled
        )
    found = {
        names.series(lineage, own, device, TIME, cache): by_run
        for (lineage, own, device, cache), by_run in quantities.items()
    }
    return {series: by_run for series, by_run in found.items() if cases is None or series.case in cases}


def _static_facts(connection: Connection, runs: Collection[int]) -> dict[tuple[int, str, str, str], _Facts]:
    """Return the static facts of cases by lineage, architecture, commit and compiler.

    The facts are those that ``perfsvc check`` stored for the commits of the runs; the newest check of a commit counts.
    """
    commits = select(Runs.git_commit).where(Runs.id.in_(runs), Runs.git_commit != "", Runs.git_dirty.is_(False))
    of_check = (
        select(
            CheckedKernels.check_id,
            Cases.lineage_id,
            CheckedKernels.architecture,
            Checks.git_commit,
            Checks.toolkit,
            func.max(KernelFacts.registers).label("registers"),
            func.sum(KernelFacts.spill_store_bytes + KernelFacts.spill_load_bytes).label("spilled"),
        )
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .join(Cases, Cases.id == CheckedKernels.case_id)
        .join(KernelFacts, KernelFacts.id == CheckedKernels.facts_id)
        .where(Checks.git_dirty.is_(False), Checks.git_commit.in_(commits), CheckedKernels.status == Status.OK)
        .group_by(
            CheckedKernels.check_id,
            Cases.lineage_id,
            CheckedKernels.architecture,
            Checks.git_commit,
            Checks.toolkit,
        )
        .order_by(CheckedKernels.check_id)
    )
    return {
        (row.lineage_id, row.architecture, row.git_commit, row.toolkit): (int(row.registers), int(row.spilled))
        for row in connection.execute(of_check)
    }
