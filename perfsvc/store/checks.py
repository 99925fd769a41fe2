"""Static checks: the facts of kernels, the verdicts on them, and the baselines of later checks."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, NamedTuple

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
from perfsvc.store.cases import CASE_COLUMNS, case_id, case_of, ids_of
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.code_tables import CheckedKernels, Checks, KernelFacts
from perfsvc.store.schema.engine import StorePart, among, insert_new, new_id
from perfsvc.store.schema.tables import Cases


class _KernelKey(NamedTuple):
    """What identifies a kernel in every check."""

    case: int
    architecture: str
    kernel: str


class CheckStore(StorePart):
    """Static checks; each method is one transaction."""

    def put(
        self,
        provenance: Provenance,
        verdicts: Sequence[CheckVerdict],
        others: Iterable[CheckedKernel] = (),
        *,
        toolkit: str,
        disassembler: str = "",
        accepted: str = "",
    ) -> int:
        """Store a check with its verdicts and return its number.

        A kernel becomes the baseline of later checks if it is new or improved, if its own baseline comes from another
        compiler, or if a person accepted it; but not if the check had uncommitted changes or if the kernel cannot run.

        Args:
            provenance: the suite, the commit, the host and the command of the check.
            verdicts: the verdicts on kernels.
            others: kernels without a verdict: they failed to compile or were skipped.
            toolkit: the compiler.
            disassembler: the program that counted instructions; empty if none did.
            accepted: why a person accepts all kernels as baselines; empty if no person does.
        """
        check = to_row(Checks, provenance) | {
            "checked_at": provenance.started,
            "toolkit": toolkit,
            "disassembler": disassembler,
            "accepted": accepted,
        }
        with self._database.writing() as connection:
            number = new_id(connection, Checks, check)
            rows = [_row(connection, number, kernel) for kernel in others]
            used = {verdict.baseline_check for verdict in verdicts}
            toolkits = dict(connection.execute(select(Checks.id, Checks.toolkit).where(Checks.id.in_(used))).all())
            for verdict in verdicts:
                other_compiler = verdict.baseline_check is not None and toolkits[verdict.baseline_check] != toolkit
                is_accepted = verdict.verdict in {Verdict.NEW, Verdict.IMPROVEMENT} or bool(accepted) or other_compiler
                rows += _verdict_rows(connection, number, verdict, is_accepted=is_accepted and not provenance.dirty)
            if rows:
                connection.execute(insert(CheckedKernels), rows)
        return number

    def baselines(self, kernels: Collection[CheckedKernel], scope: str, toolkit: str) -> list[StaticBaseline]:
        """Return the baseline of each kernel: its newest one from the compiler ``toolkit``, else from any compiler.

        The result also holds:

        - the baselines of kernels that are in the newest check of the scope but not in ``kernels``;
        - if a kernel of a case has no baseline, the baselines of the case's earlier kernels, except kernels that a
          check has reported as gone. One of these kernels may be the new kernel under a former name.

        Cases that occur in ``kernels`` have the names given there. Other cases have the names from their checks.
        """
        with self._database.reading() as connection:
            ids = ids_of(connection, [kernel.case for kernel in kernels])
            cases = {number: case for case, number in ids.items()}
            expected = _newest_check(connection, scope)
            levels = _levels(connection, {*cases, *(key.case for key in expected)})
            newest: dict[_KernelKey, Any] = {}
            # Oldest first; a level with ``toolkit`` is only replaced by a newer level with ``toolkit``.
            for row in levels:
                older = newest.get(_key(row))
                if older is None or row.toolkit == toolkit or older.toolkit != toolkit:
                    newest[_key(row)] = row
            asked = {
                _KernelKey(ids[kernel.case], kernel.architecture, kernel.kernel)
                for kernel in kernels
                if kernel.case in ids and kernel.kernel
            }
            without_level = {(key.case, key.architecture) for key in asked - newest.keys()}
            gone = _reported_gone(connection, {case for case, _ in without_level})
            registers = _registers(levels)
            return [
                StaticBaseline(
                    _checked_kernel(row, cases.get(key.case), registers[key, row.check_id]), row.toolkit, row.check_id
                )
                for key, row in newest.items()
                if key in expected
                or key in asked
                or ((key.case, key.architecture) in without_level and gone.get(key, 0) < row.check_id)
            ]

    def remove(self, host: str, command_line: str, since: datetime) -> None:
        """Remove the checks that a command stored on a host since a time: a repeated check must not see them."""
        of_command = (Checks.host == host, Checks.command_line == command_line, Checks.checked_at >= since)
        with self._database.writing() as connection:
            connection.execute(delete(Checks).where(*of_command))


def _verdict_rows(
    connection: Connection, check: int, verdict: CheckVerdict, *, is_accepted: bool
) -> list[dict[str, Any]]:
    """Return the row of a verdict; if it accepts a renamed kernel, add a row that reports the former name as gone."""
    kernel = verdict.checked
    row = _row(connection, check, kernel, gone=verdict.verdict is Verdict.MISSING) | {
        "verdict": verdict.verdict,
        "verdict_reason": verdict.reason,
        "cause": verdict.cause,
        "baseline_check_id": verdict.baseline_check,
    }
    row["level"] = is_accepted and row["facts_id"] is not None and verdict.verdict is not Verdict.BROKEN
    if not row["level"] or verdict.baseline is None or verdict.baseline.kernel == kernel.kernel:
        return [row]
    former = replace(kernel, kernel=verdict.baseline.kernel, reason=f"now called {kernel.kernel}")
    return [row, _row(connection, check, former, gone=True)]


def _row(connection: Connection, check: int, kernel: CheckedKernel, *, gone: bool = False) -> dict[str, Any]:
    """Return a kernel's row, with empty columns for the verdict. A ``gone`` kernel's row has no facts either."""
    facts, occupancy = (None, None) if gone else (kernel.facts, kernel.occupancy)
    return {
        **dict.fromkeys(("warps", "most_warps", "limiter", "verdict", "cause", "baseline_check_id")),
        **to_row(CheckedKernels, kernel, *([occupancy] if occupancy else [])),
        "check_id": check,
        "case_id": case_id(connection, kernel.case),
        "status": Status.SKIPPED if gone else kernel.status,
        "facts_id": _facts_id(connection, facts) if facts else None,
        "verdict_reason": "",
        "level": False,
    }


def _facts_id(connection: Connection, facts: StaticFacts) -> int:
    """Return the id of facts; store them if they are not stored yet."""
    instructions = None if facts.instructions is None else json.dumps(dict(facts.instructions), separators=(",", ":"))
    row = asdict(facts) | {"instructions": instructions}
    row["digest"] = digest(json.dumps(row, sort_keys=True).encode())
    query = select(KernelFacts.id).where(KernelFacts.digest == row["digest"])
    if connection.scalar(query) is None:
        insert_new(connection, KernelFacts, row)
    return connection.execute(query).scalar_one()


def _key(row: Any) -> _KernelKey:
    return _KernelKey(row.case_id, row.architecture, row.kernel)


def _registers(levels: Iterable[Any]) -> dict[tuple[_KernelKey, int], int]:
    """Return the number of registers that later kernels are compared with, by kernel and check of each level.

    An improvement may use slightly more registers than its baseline. Later kernels are still compared with the lower
    number. Otherwise two small steps could add many registers, although one large step with the same result fails.

    Args:
        levels: oldest first.
    """
    registers: dict[tuple[_KernelKey, int], int] = {}
    toolkits: dict[int, str] = {}
    for row in levels:
        keeps_lower = (
            row.verdict is Verdict.IMPROVEMENT
            and not row.accepted
            and toolkits.get(row.baseline_check_id) == row.toolkit
        )
        of_baseline = registers.get((_key(row), row.baseline_check_id), row.registers)
        registers[_key(row), row.check_id] = min(row.registers, of_baseline) if keeps_lower else row.registers
        toolkits[row.check_id] = row.toolkit
    return registers


def _reported_gone(connection: Connection, cases: Iterable[int]) -> dict[_KernelKey, int]:
    """Return the newest check that reported each kernel of some cases as gone or renamed.

    A report does not count if the same check found a new kernel of the case that is not accepted yet: this may be the
    reported kernel under a new name.
    """
    is_gone = and_(CheckedKernels.status == Status.SKIPPED, CheckedKernels.kernel != "")
    is_waiting = and_(CheckedKernels.verdict == Verdict.INCONCLUSIVE, CheckedKernels.baseline_check_id.is_(None))
    query = (
        select(
            CheckedKernels.case_id,
            CheckedKernels.architecture,
            CheckedKernels.kernel,
            CheckedKernels.check_id,
            CheckedKernels.verdict,
        )
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .where(among(CheckedKernels.case_id, set(cases)), Checks.git_dirty.is_(False), ~CheckedKernels.level)
        .where(is_gone | is_waiting)
        .order_by(CheckedKernels.check_id)
    )
    rows = connection.execute(query).all()
    waiting = {(row.case_id, row.architecture, row.check_id) for row in rows if row.verdict is Verdict.INCONCLUSIVE}
    return {_key(row): row.check_id for row in rows if (row.case_id, row.architecture, row.check_id) not in waiting}


def _newest_check(connection: Connection, scope: str) -> set[_KernelKey]:
    """Return the kernels with facts in the newest check of committed code in a scope (suite and selection)."""
    newest = select(func.max(Checks.id)).where(Checks.scope == scope, Checks.git_dirty.is_(False)).scalar_subquery()
    query = select(CheckedKernels.case_id, CheckedKernels.architecture, CheckedKernels.kernel).where(
        CheckedKernels.check_id == newest, CheckedKernels.facts_id.is_not(None)
    )
    return {_key(row) for row in connection.execute(query)}


def _levels(connection: Connection, cases: Iterable[int]) -> Sequence[Any]:
    """Return the kernels of some cases that are or were baselines, with their facts, oldest first."""
    query = (
        select(
            *CheckedKernels.__table__.columns,
            *(column for column in KernelFacts.__table__.columns if column.name not in {"id", "digest"}),
            Checks.toolkit,
            Checks.accepted,
            *CASE_COLUMNS,
        )
        .join(Checks, Checks.id == CheckedKernels.check_id)
        .join(KernelFacts, KernelFacts.id == CheckedKernels.facts_id)
        .join(Cases, Cases.id == CheckedKernels.case_id)
        .where(CheckedKernels.level, among(Cases.id, set(cases)))
        .order_by(CheckedKernels.check_id)
    )
    return connection.execute(query).all()


def _checked_kernel(row: Any, case: Case | None, registers: int) -> CheckedKernel:
    """Return the kernel of a row with ``registers`` registers; ``case`` replaces the stored case unless it is None."""
    instructions = row.instructions
    counted = None if instructions is None else tuple(json.loads(instructions).items())
    return from_row(
        CheckedKernel,
        row,
        case=case or case_of(row.benchmark, row.variant, row.point, row.version),
        facts=from_row(StaticFacts, row, registers=registers, instructions=counted),
        occupancy=None if row.warps is None else from_row(Occupancy, row),
    )
