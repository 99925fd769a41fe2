"""What is needed of earlier runs: by verdicts to come, by people, and by whoever goes on with a night."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from perfsvc.model import FindingState
from perfsvc.store.baselines import every_level
from perfsvc.store.expected import newest_clean, owed
from perfsvc.store.finding_tables import FindingCases, Findings
from perfsvc.store.lookup import ENDED
from perfsvc.store.night_tables import Nights
from perfsvc.store.rows import State
from perfsvc.store.tables import Cases, Measurements, Runs


@dataclass(frozen=True, slots=True)
class Needed:
    """What must stay as it is.

    Attributes:
        runs: all of these.
        levels: of these runs what they measured of a lineage.
    """

    runs: frozenset[int]
    levels: frozenset[tuple[int, int]]

    def holds(self, run: int, lineage: int) -> bool:
        """Whether what a run measured of a lineage is needed."""
        return run in self.runs or (run, lineage) in self.levels


NOTHING = Needed(frozenset(), frozenset())
"""Where nothing is old, nothing need be asked for."""


def needed(connection: Connection, keep: Collection[int]) -> Needed:
    """What anybody may still ask for, and the runs of ``keep`` whole.

    Levels that runs to come may be compared with (``baselines.every_level``); both sides of every finding that is not
    resolved; the last run of each scope on each device, by which the next one sees what is missing; what that one left
    out, from where it was measured last; runs that have not ended, and that of the last night of each host, which may
    be gone on with.
    """
    last, missed = _expected(connection)
    return Needed(
        frozenset({*keep, *last, *_unfinished(connection)}),
        frozenset(every_level(connection) | missed | _found(connection)),
    )


def _found(connection: Connection) -> set[tuple[int, int]]:
    """Both sides of every finding that is not resolved; what was accepted may be opened again."""
    query = (
        select(Findings.first_run_id, FindingCases.last_run_id, FindingCases.baseline_run_id, Cases.lineage_id)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(Findings.state != FindingState.RESOLVED)
    )
    return {(run, lineage) for *runs, lineage in connection.execute(query) for run in runs if run is not None}


def _expected(connection: Connection) -> tuple[set[int], set[tuple[int, int]]]:
    """The runs that the next one of each scope has to measure up to, and what they owe, with its lineage."""
    query = (
        select(Runs.scope, Measurements.device_id, newest_clean())
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Runs.state == State.FINISHED)
        .group_by(Runs.scope, Measurements.device_id)
    )
    last: dict[str, dict[int, int]] = {}
    for scope, device, run in connection.execute(query):
        last.setdefault(scope, {})[device] = run
    missed = {(run, lineage) for of_scope in last.values() for (lineage, *_), run in owed(connection, of_scope).items()}
    return {run for of_scope in last.values() for run in of_scope.values()}, missed


def _unfinished(connection: Connection) -> set[int]:
    """Runs that have not ended, and those of each host's last night."""
    running = set(connection.scalars(select(Runs.id).where(Runs.state.not_in(ENDED))))
    newest = select(func.max(Nights.id)).group_by(Nights.host)
    nights = select(Nights.run_id).where(Nights.id.in_(newest), Nights.run_id.is_not(None))
    return running | {run for run in connection.scalars(nights) if run is not None}
