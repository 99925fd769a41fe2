"""The filters of the Python API: what a caller writes, as what the store reads."""

from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Case, RunRow
from perfsvc.selection import Selection
from perfsvc.service.revisions import choose
from perfsvc.store import Store

Names = str | Iterable[str]
"""A text, or several."""

Run = int | str
"""A run's number, or its name as in ``perfsvc report``: a label, ``latest``, ``latest~1`` or a git revision."""

Runs = Run | Iterable[Run]
"""A run, or several."""

Since = str | date | datetime
"""A day or a moment; UTC if it has no time zone."""


def listed(names: Names) -> tuple[str, ...]:
    """Return a text as a list of one text; other lists stay as they are."""
    return (names,) if isinstance(names, str) else tuple(names)


def chosen_runs(store: Store, runs: Runs | None, since: Since | None, folder: Path) -> list[RunRow]:
    """Return the runs that a caller names, or all runs, oldest first.

    Args:
        store: the database.
        runs: the runs; None for all runs.
        since: only runs that started then or later; None for runs of any time.
        folder: where git revisions are looked up.

    Raises:
        NotMeasuredError: there is no such run.
        UsageError: the name of a run or ``since`` is not valid.
    """
    if runs is None:
        rows = store.runs.list()
    else:
        named = (runs,) if isinstance(runs, int | str) else runs
        rows = list({row.id: row for row in (_run(store, run, folder) for run in named)}.values())
    start = None if since is None else _moment(since)
    return sorted((row for row in rows if start is None or row.provenance.started >= start), key=lambda row: row.id)


def _run(store: Store, run: Run, folder: Path) -> RunRow:
    return store.runs.get(int(run)) if not isinstance(run, str) else choose(run, store, folder)[0]


def _moment(since: Since) -> datetime:
    """Return a day or a moment in UTC; raises ``UsageError`` if it is none."""
    try:
        moment = pd.Timestamp(since)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{since!r} is no date", cure="write '2026-12-24', or pass a datetime") from error
    if pd.isna(moment):
        raise UsageError("since is no date", cure="write '2026-12-24', or pass a datetime")
    in_utc = moment.tz_localize("UTC") if moment.tz is None else moment.tz_convert("UTC")
    return in_utc.to_pydatetime()


def chosen_cases(names: Mapping[str, Case], globs: Iterable[str]) -> set[str]:
    """Return the ids of the cases that globs select, their former names included.

    Args:
        names: all names of all measured cases, each with the case under its present name.
        globs: globs of the present names, as in ``perfsvc run --select``.

    Raises:
        NotMeasuredError: a glob selects no case.
        UsageError: a glob cannot be parsed.
    """
    chosen: set[Case] = set()
    for glob in globs:
        matches = Selection((glob,)).filter(names.values())
        if not matches:
            raise NotMeasuredError(f"{glob!r} selects no measured case", cure=_nearest(glob, _all_names(names)))
        chosen |= matches
    return {name for name, case in names.items() if case in chosen}


def _all_names(names: Mapping[str, Case]) -> list[str]:
    return list({name for case in names.values() for name in (case.id, case.benchmark)})


def chosen_devices(known: Mapping[str, str], device: Names) -> set[str] | None:
    """Return the UUIDs of the devices that a caller names; None if the caller names none.

    Args:
        known: the model of each device by its UUID.
        device: UUIDs or models.

    Raises:
        NotMeasuredError: the database has no such device.
    """
    named = listed(device)
    if not named:
        return None
    for name in named:
        if name not in known and name not in known.values():
            cure = _nearest(name, [*known, *known.values()])
            raise NotMeasuredError(f"no device {name!r} was ever measured", cure=cure)
    return {uuid for uuid, model in known.items() if {uuid, model} & set(named)}


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, sorted(known), n=3, cutoff=0.4)
    return f"the nearest are {', '.join(near)}" if near else "see what was measured: perfsvc report --all"
