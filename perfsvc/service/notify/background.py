"""What a message adds to a finding: the commits behind it, and the recent levels of its worst series."""

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path

from perfsvc.model import MAX_ERROR, Commit, Finding, Series
from perfsvc.service.findings.actions import on_other_models
from perfsvc.service.git import commit_ranges, newest_commits
from perfsvc.store import NightRow, Store

COMMITS = 5
"""The most commits that are named."""

NIGHTS = 20
"""The most nights whose levels are drawn."""


@dataclass(frozen=True, slots=True)
class Background:
    """What is behind a finding.

    Attributes:
        commits: the newest commits of the root cause; none if the root cause names none or the repository lacks them.
        commit_count: how many commits the root cause has in all.
        series: the worst series of the finding.
        levels: the level of this series in each recent night, oldest first; None if the night has no correct result.
        other_models: how the cases do on models that the finding does not name; empty if no other model measured them.
    """

    commits: tuple[Commit, ...] = ()
    commit_count: int = 0
    series: Series | None = None
    levels: tuple[float | None, ...] = ()
    other_models: str = ""


class Backgrounds:
    """Looks up the background of findings for the message of a night; what is read is kept for further findings.

    Args:
        store: the database.
        night: the night whose message names the findings.
    """

    def __init__(self, store: Store, night: NightRow) -> None:
        self._store, self._night = store, night

    def of(self, finding: Finding) -> Background:
        """Return the commits that a finding names, and the recent levels of its worst series."""
        commits, count = self._commits(finding.root_cause)
        series = finding.worst.series if finding.worst else None
        other_models = on_other_models(self._store, [finding]).get(finding.id, "")
        return Background(commits, count, series, self._levels(series) if series else (), other_models)

    def _commits(self, root_cause: str) -> tuple[tuple[Commit, ...], int]:
        """Return the newest commits of a root cause, at most ``COMMITS``, and how many there are in all."""
        commits: list[Commit] = []
        count = 0
        for after, last in reversed(list(commit_ranges(root_cause))):
            newest, of_range = newest_commits(Path(self._night.suite), after, last, COMMITS)
            commits, count = [*commits, *newest], count + of_range
        return tuple(commits[:COMMITS]), count

    def _levels(self, series: Series) -> tuple[float | None, ...]:
        """Return the levels of a series in the suite's newest nights, without excluded runs and cases."""
        errors = (series,) if series.metric == MAX_ERROR else ()
        history = self._store.series.histories(self._runs, errors=errors, cases=[series.case]).get(series)
        levels = history.level.tolist() if history else []
        judged = [level for at, level in enumerate(levels) if history and at not in history.excluded]
        return tuple(level if isfinite(level) else None for level in judged[-NIGHTS:])

    @cached_property
    def _runs(self) -> set[int]:
        """The runs of the suite's nights without uncommitted changes, up to this night."""
        return {
            other.run
            for other in self._store.nights.list()
            if other.run is not None
            and other.suite == self._night.suite
            and not other.dirty
            and other.id <= self._night.id
        }
