"""What a message adds to a finding: the commits behind it, and the recent levels of its worst series."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

from perfsvc import judge
from perfsvc.model import Commit, Finding, Series
from perfsvc.service.git import newest_commits
from perfsvc.store import NightRow, SeriesInRun, Store

COMMITS = 5
"""The most commits that are named."""

NIGHTS = 20
"""The most nights whose levels are drawn."""

_COMMITS = re.compile(r"(?:([0-9a-f]{7,40})\.\.)?([0-9a-f]{7,40})")
"""A root cause that names commits."""


@dataclass(frozen=True, slots=True)
class Background:
    """What is behind a finding.

    Attributes:
        commits: the newest commits of its root cause; none if it names none, or if they are not here.
        commit_count: how many commits there are.
        series: the series of the levels.
        levels: its level in each recent night, oldest first; None if the night has no correct result.
    """

    commits: tuple[Commit, ...] = ()
    commit_count: int = 0
    series: Series | None = None
    levels: tuple[float | None, ...] = ()


def background(store: Store, finding: Finding, night: NightRow) -> Background:
    """Return the background of a finding, as a night of its suite knows it."""
    commits, count = _commits(Path(night.suite), finding.root_cause)
    series = finding.worst.series if finding.worst else None
    return Background(commits, count, series, _levels(store, series, night) if series else ())


def _commits(suite: Path, root_cause: str) -> tuple[tuple[Commit, ...], int]:
    named = _COMMITS.fullmatch(root_cause)
    return newest_commits(suite, named[1] or "", named[2], COMMITS) if named else ((), 0)


def _levels(store: Store, series: Series, night: NightRow) -> tuple[float | None, ...]:
    """Return the levels of a series in the newest clean nights of the suite that measured it."""
    nights = {
        other.run
        for other in store.nights.list()
        if other.run is not None and other.suite == night.suite and not other.dirty and other.id <= night.id
    }
    history = store.series.case_history(series.case.id, series.device)
    measured = sorted({in_run.run for in_run in history if in_run.run in nights})[-NIGHTS:]
    return tuple(map(_level, _history(store, series, measured)))


def _history(store: Store, series: Series, runs: Collection[int]) -> list[SeriesInRun]:
    return store.series.histories(runs, errors=True).get(series, []) if runs else []


def _level(in_run: SeriesInRun) -> float | None:
    ((center,), _, _) = judge.levels_of(np.array([in_run.values or (np.nan,)]))
    return float(center) if isfinite(center) else None
