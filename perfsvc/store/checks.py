"""Static checks: the facts of kernels, what was judged of them, and what later ones are compared with."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, select

from perfsvc.model import (
    Case,
    CheckedKernel,
    CheckVerdict,
    Occupancy,
    Provenance,
    StaticBaseline,
    StaticFacts,
    Status,
    Verdict,
    digest,
)
from perfsvc.store.cases import case_id, case_of, lineages_of
from perfsvc.store.schema.code_tables import CheckedKernels, Checks, KernelFacts
from perfsvc.store.schema.engine import Database, insert_new, new_id
from perfsvc.store.schema.tables import Cases

Place = tuple[int, str, str]
"""A lineage, an architecture and a kernel."""

_LEVELS = (Verdict.NEW, Verdict.IMPROVEMENT)
_NOW = "now called "
_SPOT = 2
"""The parts of a place that are not the kernel."""
_NEVER = 0
"""Before the first check."""


_WENT = and_(CheckedKernels.status == Status.SKIPPED, CheckedKernels.kernel != "")
_WAITS = and_(CheckedKernels.verdict == Verdict.INCONCLUSIVE, CheckedKernels.baseline_check_id.is_(None))


class CheckStore:
    """Static checks; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(
        self,
        root_cause: Provenance,
        verdicts: Sequence[CheckVerdict],
        others: Iterable[CheckedKernel] = (),
        *,
        toolkit: str,
        disassembler: str = "",
        accepted: str = "",
    ) -> int:
        """Stores a check with all its verdicts and returns its number.

        A kernel that is new or better, that another compiler made, or that a person accepted is what later ones are
        compared with, unless there were uncommitted changes.

        Args:
            root_cause: where it comes from.
            verdicts: on every kernel that there is one on.
            others: what was looked at in vain.
            toolkit: the compiler.
            disassembler: what counted instructions; empty where nothing did.
            accepted: why a person wants all of it for a baseline; empty where nobody does.
        """
        with self._database.writing() as connection:
            return _put(connection, root_cause, verdicts, others, (toolkit, disassembler, accepted))

    def baselines(self, checked: Iterable[CheckedKernel], scope: str, toolkit: str) -> list[StaticBaseline]:
        """What kernels are compared with: their newest level by a compiler, else by any.

        Also that of each kernel which the newest check of the scope had and which is not among them. And of a case
        with a kernel that has no level, those of the kernels that it had before and that no check has told to be
        gone, for one of them may be that kernel by a former name. All under the present names of their cases, those
        of ``checked`` where it has the case.
        """
        with self._database.reading() as connection:
            return _held(connection, list(checked), scope, toolkit)

    def forget(self, host: str, command_line: str, since: datetime) -> None:
        """Delete the checks that a command stored on a host since a moment: a resumed stage repeats its check."""
        own = (Checks.host == host, Checks.command_line == command_line, Checks.checked_at >= since)
        with self._database.writing() as connection:
            connection.execute(delete(Checks).where(*own))


def _put(
    connection: Connection,
    root_cause: Provenance,
    verdicts: Sequence[CheckVerdict],
    others: Iterable[CheckedKernel],
    by: tuple[str, str, str],
) -> int:
    toolkit, disassembler, accepted = by
    check = {
        "checked_at": root_cause.started,
        "suite": root_cause.suite,
        "scope": root_cause.scope,
        "command_line": root_cause.command_line,
        "git_commit": root_cause.commit,
        "git_dirty": root_cause.dirty,
        "git_branch": root_cause.branch,
        "host": root_cause.host,
        "perfsvc_version": root_cause.perfsvc_version,
        "toolkit": toolkit,
        "disassembler": disassembler,
        "accepted": accepted,
    }
    number = new_id(connection, Checks, check)
    toolkits = _toolkits(connection, verdicts)
    rows = [_row(connection, number, one) for one in others]
    for verdict in verdicts:
        other_compiler = verdict.baseline_check is not None and toolkits[verdict.baseline_check] != toolkit
        good = verdict.verdict in _LEVELS or bool(accepted) or other_compiler
        judged = {
            "verdict": verdict.verdict,
            "verdict_reason": verdict.reason,
            "cause": verdict.cause,
            "baseline_check_id": verdict.baseline_check,
        }
        row = _row(connection, number, verdict.checked, gone=verdict.verdict is Verdict.MISSING) | judged
        level = good and row["facts_id"] is not None and not root_cause.dirty and _can_run(verdict)
        rows.append(row | {"level": level})
        if level and verdict.baseline and verdict.baseline.kernel != verdict.checked.kernel:
            former = replace(verdict.checked, kernel=verdict.baseline.kernel, reason=_NOW + verdict.checked.kernel)
            rows.append(_row(connection, number, former, gone=True))
    if rows:
        connection.execute(insert(CheckedKernels), rows)
    return number


def _can_run(verdict: CheckVerdict) -> bool:
    return verdict.verdict is not Verdict.BROKEN


def _toolkits(connection: Connection, verdicts: Iterable[CheckVerdict]) -> dict[int, str]:
    wanted = {verdict.baseline_check for verdict in verdicts} - {None}
    query = select(Checks.id, Checks.toolkit).where(Checks.id.in_(wanted))
    return {row.id: row.toolkit for row in connection.execute(query)}


def _row(connection: Connection, check: int, checked: CheckedKernel, *, gone: bool = False) -> dict[str, Any]:
    """A row without a verdict; of a kernel that is gone without its facts, too."""
    facts, occupancy = (None, None) if gone else (checked.facts, checked.occupancy)
    return {
        "check_id": check,
        "case_id": case_id(connection, checked.case),
        "architecture": checked.architecture,
        "kernel": checked.kernel,
        "status": Status.SKIPPED if gone else checked.status,
        "reason": checked.reason,
        "facts_id": _facts_id(connection, facts) if facts else None,
        "threads": checked.threads,
        "dynamic_shared_bytes": checked.dynamic_shared_bytes,
        "warps": occupancy.warps if occupancy else None,
        "most_warps": occupancy.most_warps if occupancy else None,
        "limiter": occupancy.limiter if occupancy else None,
        "source": checked.source,
        "verdict": None,
        "verdict_reason": "",
        "cause": None,
        "baseline_check_id": None,
        "level": False,
    }


def _facts_id(connection: Connection, facts: StaticFacts) -> int:
    instructions = None if facts.instructions is None else json.dumps(dict(facts.instructions), separators=(",", ":"))
    row = asdict(facts) | {"instructions": instructions}
    known = digest(json.dumps(row, sort_keys=True).encode())
    query = select(KernelFacts.id).where(KernelFacts.digest == known)
    found = connection.scalar(query)
    if found is None:
        insert_new(connection, KernelFacts, row | {"digest": known})
        found = connection.execute(query).scalar_one()
    return found


def _held(connection: Connection, checked: Sequence[CheckedKernel], scope: str, toolkit: str) -> list[StaticBaseline]:
    lineages = lineages_of(connection, [one.case for one in checked])
    present = {lineage: case for case, lineage in lineages.items()}
    expected = _of_previous(connection, scope)
    found: dict[Place, Any] = {}
    rows = _levels(connection, {*present, *(lineage for lineage, _, _ in expected)})
    for row in rows:
        place = (row.lineage_id, row.architecture, row.kernel)
        before = found.get(place)
        if before is None or row.toolkit == toolkit or before.toolkit != toolkit:
            found[place] = row
    named = {
        (lineages[one.case], one.architecture, one.kernel) for one in checked if one.case in lineages and one.kernel
    }
    unknown = {(lineage, architecture) for lineage, architecture, _ in named - found.keys()}
    gone = _gone(connection, {lineage for lineage, _ in unknown})
    registers = _registers(rows)
    return [
        StaticBaseline(
            _checked(row, present.get(row.lineage_id), registers[place, row.check_id]), row.toolkit, row.check_id
        )
        for place, row in found.items()
        if place in expected or place in named or (place[:_SPOT] in unknown and gone.get(place, _NEVER) < row.check_id)
    ]


def _registers(levels: Iterable[Any]) -> dict[tuple[Place, int], int]:
    """The registers that later kernels are held against, of each level, the oldest first, by its place and its check.

    An improvement may take some registers more, too few to count. They are not forgiven with it: a trade in two steps
    would else pass where the same in one would not.
    """
    found: dict[tuple[Place, int], int] = {}
    toolkits: dict[int, str] = {}
    for row in levels:
        place, number = (row.lineage_id, row.architecture, row.kernel), row.registers
        before = found.get((place, row.baseline_check_id), number)
        same_compiler = toolkits.get(row.baseline_check_id) == row.toolkit
        forgiven = row.verdict is not Verdict.IMPROVEMENT or row.accepted or not same_compiler
        found[place, row.check_id] = number if forgiven else min(number, before)
        toolkits[row.check_id] = row.toolkit
    return found


def _gone(connection: Connection, lineages: Iterable[int]) -> dict[Place, int]:
    """The newest check that told a kernel of some lineages to be gone, or to have another name.

    It tells so in vain where another kernel of the case waits to be accepted, for that may be the one.
    """
    newer = (Cases.lineage_id, CheckedKernels.architecture, CheckedKernels.kernel, CheckedKernels.check_id)
    query = (
        select(*newer, CheckedKernels.verdict)
        .join(Cases, Cases.id == CheckedKernels.case_id)
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .where(Cases.lineage_id.in_(set(lineages)), Checks.git_dirty.is_(False), ~CheckedKernels.level)
        .where(_WENT | _WAITS)
        .order_by(CheckedKernels.check_id)
    )
    rows = connection.execute(query).all()
    waiting = {(row.lineage_id, row.architecture, row.check_id) for row in rows if row.verdict is Verdict.INCONCLUSIVE}
    return {
        (row.lineage_id, row.architecture, row.kernel): row.check_id
        for row in rows
        if (row.lineage_id, row.architecture, row.check_id) not in waiting
    }


def _of_previous(connection: Connection, scope: str) -> set[Place]:
    """What the newest check of a scope had, one without uncommitted changes."""
    clean = select(func.max(Checks.id)).where(Checks.scope == scope, Checks.git_dirty.is_(False))
    query = (
        select(Cases.lineage_id, CheckedKernels.architecture, CheckedKernels.kernel)
        .join(Cases, Cases.id == CheckedKernels.case_id)
        .where(CheckedKernels.check_id == clean.scalar_subquery(), CheckedKernels.facts_id.is_not(None))
    )
    return {(lineage, architecture, kernel) for lineage, architecture, kernel in connection.execute(query)}


def _levels(connection: Connection, lineages: Iterable[int]) -> Sequence[Any]:
    """The kernels of some lineages that later ones are compared with, the oldest first, as columns."""
    query = (
        select(
            *(column for column in CheckedKernels.__table__.columns),
            *(column for column in KernelFacts.__table__.columns if column.name not in {"id", "digest"}),
            Checks.toolkit,
            Checks.accepted,
            Cases.lineage_id,
            Cases.benchmark,
            Cases.variant,
            Cases.point,
            Cases.version,
        )
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .join(KernelFacts, KernelFacts.id == CheckedKernels.facts_id)
        .join(Cases, Cases.id == CheckedKernels.case_id)
        .where(CheckedKernels.level, Cases.lineage_id.in_(set(lineages)))
        .order_by(CheckedKernels.check_id)
    )
    return connection.execute(query).all()


def _checked(row: Any, present: Case | None, registers: int) -> CheckedKernel:
    return CheckedKernel(
        present or case_of(row.benchmark, row.variant, row.point, row.version),
        row.architecture,
        row.kernel,
        row.status,
        row.reason,
        replace(_facts(row._mapping), registers=registers),  # noqa: SLF001 - SQLAlchemy's name for a row as a mapping
        None if row.warps is None else Occupancy(row.warps, row.most_warps, row.limiter),
        row.threads,
        row.dynamic_shared_bytes,
        row.source,
    )


def _facts(row: Mapping[Any, Any]) -> StaticFacts:
    instructions = row["instructions"]
    return StaticFacts(
        row["registers"],
        row["stack_bytes"],
        row["spill_store_bytes"],
        row["spill_load_bytes"],
        row["shared_bytes"],
        row["barriers"],
        None if instructions is None else tuple(json.loads(instructions).items()),
        row["sass"],
    )
