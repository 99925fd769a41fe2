"""Exclusions: bad runs and cases that people keep out of judging, and runs that people delete."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update

from perfsvc.errors import UsageError
from perfsvc.model import Case, Exclusion, FindingState, FindingUpdates, RunState
from perfsvc.store.cases import CASE_COLUMNS, case_of
from perfsvc.store.findings import excluded
from perfsvc.store.findings.excluded import Act
from perfsvc.store.findings.read import ACTIVE, lock
from perfsvc.store.levels import note_exclusions
from perfsvc.store.runs import load_exclusions, remember_removed, unknown
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.environments import remove_unused_full
from perfsvc.store.schema.judging_tables import Exclusions, Pins
from perfsvc.store.schema.tables import (
    Cases,
    Levels,
    Measurements,
    Runs,
    SeriesRows,
)


class ExclusionStore:
    """Exclusions; each method is one transaction.

    Excluded data stays in the database, but no judgement uses it: it is no candidate, no baseline, no level, no part of
    a history or a segment, and later runs are not expected to have it (``perfsvc.store.cases.judged``).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Exclusion]:
        """Return what people excluded, included again and deleted, oldest first."""
        with self._database.reading() as connection:
            return load_exclusions(connection)

    def of_runs(self, runs: Collection[int]) -> list[Exclusion]:
        """Return the exclusions of some runs that are in force, oldest first."""
        with self._database.reading() as connection:
            return load_exclusions(connection, among(Exclusions.run_id, runs), Exclusions.included_at.is_(None))

    def cases(self, run: int) -> list[Case]:
        """Return the cases that a run measured, under their present names.

        Raises ``NotMeasuredError`` if there is no such run.
        """
        with self._database.reading() as connection:
            _state(connection, run)
            return list(_measured(connection, run))

    def exclude(self, run: int, cases: Iterable[Case] | None, *, reason: str, by: str) -> FindingUpdates:
        """Keep a run, or some of its cases, out of judging until included again; return which findings this changes.

        Args:
            run: the run.
            cases: the cases, under their present names; None for the whole run.
            reason: why the data is bad.
            by: the person who excludes it.

        Raises:
            NotMeasuredError: there is no such run.
            UsageError: the run has not ended, is excluded already, or lacks one of the cases; or a person made the run
                a baseline, by a pin or by accepting a finding.
        """
        now = datetime.now(UTC)
        with self._database.writing() as connection:
            lock(connection)
            if _state(connection, run) is RunState.RUNNING:
                raise UsageError(f"run {run} has not ended", cure="wait for its end, or stop it")
            ids = None if cases is None else _ids(connection, run, cases)
            _refuse_if_excluded(connection, run, ids)
            _refuse_if_pinned(connection, run, ids)
            for finding in excluded.needing(connection, run, ids, FindingState.ACCEPTED):
                if finding.last_run_id == run:
                    raise UsageError(
                        f"finding {finding.id} accepted run {run} as the level of {finding.name}",
                        cure=f"reopen it first: perfsvc findings reopen {finding.id}",
                    )
            row = {"run_id": run, "reason": reason, "excluded_by": by, "excluded_at": now, "deleted": False}
            connection.execute(
                insert(Exclusions), [{**row, "case_id": each} for each in ([None] if ids is None else ids)]
            )
            note_exclusions(connection, run)
            return excluded.derive_again(connection, Act(run, ids, by, now, reason))

    def include(self, run: int, cases: Iterable[Case] | None, *, by: str) -> FindingUpdates:
        """Include a run, or some of its cases, in judging again; return which findings this changes.

        Args:
            run: the run.
            cases: excluded cases, under their present names; None for everything of the run that is excluded.
            by: the person who includes them.

        Raises:
            NotMeasuredError: there is no such run.
            UsageError: neither the run nor one of the cases is excluded; or cases are given, but the run is excluded as
                a whole.
        """
        now = datetime.now(UTC)
        with self._database.writing() as connection:
            lock(connection)
            _state(connection, run)
            ids = None if cases is None else _ids(connection, run, cases)
            standing = (Exclusions.run_id == run, Exclusions.included_at.is_(None))
            wanted = standing if ids is None else (*standing, among(Exclusions.case_id, ids))
            since = connection.scalar(select(func.min(Exclusions.excluded_at)).where(*wanted))
            if since is None:
                whole = ids and load_exclusions(connection, *standing, Exclusions.case_id.is_(None))
                if whole:
                    cure = f"include the run: perfsvc runs include {run}"
                    raise UsageError(f"run {run} is excluded as a whole", cure=cure)
                what = f"none of these cases is excluded in run {run}" if ids else f"nothing is excluded in run {run}"
                raise UsageError(what, cure="see what was excluded: perfsvc runs history")
            connection.execute(update(Exclusions).where(*wanted).values(included_by=by, included_at=now))
            note_exclusions(connection, run)
            return excluded.derive_again(connection, Act(run, ids, by, now, since=since))

    def delete(self, run: int, *, reason: str, by: str) -> tuple[int, ...]:
        """Delete a run with everything that belongs to it; return the findings that are deleted with it.

        Only a record of who deleted the run, when and why remains; ``ExclusionStore.all`` returns it.

        Raises:
            NotMeasuredError: there is no such run.
            UsageError: the run has not ended, or a pin or an active or accepted finding needs it.
        """
        with self._database.writing() as connection:
            lock(connection)
            if _state(connection, run) is RunState.RUNNING:
                raise UsageError(f"run {run} has not ended", cure="wait for its end, or stop it")
            _refuse_if_pinned(connection, run, None)
            for finding in excluded.needing(connection, run, None, *ACTIVE, FindingState.ACCEPTED):
                accepted = finding.state is FindingState.ACCEPTED
                first = f"perfsvc findings reopen {finding.id}, then " if accepted else ""
                raise UsageError(
                    f"finding {finding.id} ({finding.state.value}) is about run {run}: {finding.name}",
                    cure=f"{first}perfsvc runs exclude {run} --reason … takes the run out of the finding",
                )
            deleted = excluded.forget(connection, run)
            remember_removed(connection, Runs, [run])
            connection.execute(delete(Runs).where(Runs.id == run))
            connection.execute(update(Levels).where(Levels.baseline_run_id == run).values(baseline_run_id=None))
            remove_unused_full(connection)
            row = {"run_id": run, "case_id": None, "reason": reason, "excluded_by": by, "deleted": True}
            connection.execute(insert(Exclusions).values(**row, excluded_at=datetime.now(UTC)))
            return deleted


def _state(connection: Connection, run: int) -> RunState:
    """Return the state of a run; raises ``NotMeasuredError`` if it does not exist."""
    state = connection.scalar(select(Runs.state).where(Runs.id == run))
    if state is None:
        raise unknown(run)
    return state


def _measured(connection: Connection, run: int) -> dict[Case, int]:
    """Return the cases that a run measured, under their present names, each with its id."""
    measured = exists().where(Measurements.case_id == Cases.id, Measurements.run_id == run)
    query = select(Cases.id, *CASE_COLUMNS).where(measured).order_by(Cases.id)
    return {case_of(*name): number for number, *name in connection.execute(query)}


def _ids(connection: Connection, run: int, cases: Iterable[Case]) -> list[int]:
    """Return the ids of cases in a run; raises ``UsageError`` if the run did not measure one of them."""
    measured = _measured(connection, run)
    wanted = list(dict.fromkeys(cases))
    missing = [case.id for case in wanted if case not in measured]
    if missing or not wanted:
        raise UsageError(f"run {run} did not measure {', '.join(missing) or 'such a case'}", cure="perfsvc report")
    return [measured[case] for case in wanted]


def _refuse_if_excluded(connection: Connection, run: int, cases: Sequence[int] | None) -> None:
    """Raise ``UsageError`` if the whole run is excluded, or one of the given cases in it."""
    standing = (Exclusions.run_id == run, Exclusions.included_at.is_(None))
    covered = or_(Exclusions.case_id.is_(None), among(Exclusions.case_id, cases or ()))
    for exclusion in load_exclusions(connection, *standing, covered):
        what = f"{exclusion.case} of run {run}" if exclusion.case else f"run {run}"
        raise UsageError(
            f"{what} is excluded already, by {exclusion.by}: {exclusion.reason}",
            cure=f"to judge it again: perfsvc runs include {run}",
        )


def _refuse_if_pinned(connection: Connection, run: int, cases: Sequence[int] | None) -> None:
    """Raise ``UsageError`` if a pin makes a run the baseline of one of the cases."""
    query = select(Cases.name).join(SeriesRows, SeriesRows.case_id == Cases.id)
    query = query.join(Pins, Pins.series_id == SeriesRows.id).where(Pins.run_id == run).order_by(Cases.id)
    if cases is not None:
        query = query.where(among(Cases.id, cases))
    pinned = list(dict.fromkeys(connection.scalars(query)))
    if pinned:
        more = f" and {len(pinned) - 1} more" if len(pinned) > 1 else ""
        select_it = f" --select '{pinned[0]}'" if len(pinned) == 1 else ""
        raise UsageError(
            f"a pin makes run {run} the baseline of {pinned[0]}{more}",
            cure=f"remove the pin, or pin another run: perfsvc baseline clear{select_it}",
        )
