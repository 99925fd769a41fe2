"""The steps of findings (``finding_cases``) follow from the runs that show them (``sightings``)."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, update

from perfsvc.model import Judgement
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import new_ids
from perfsvc.store.schema.judging_tables import FindingCases, Sightings

Columns = dict[str, Any]
"""Columns of a row by name."""

_NEWEST = ("candidate_s", "ratio", "low", "high")
_DERIVED = (
    *_NEWEST,
    "baseline_run_id",
    "baseline_s",
    "first_run_id",
    "level_run_id",
    "last_run_id",
    "recovered_run_id",
)


def shown(run: int, judgement: Judgement, *, new_level: bool = False) -> Columns:
    """Return the sighting of a step that a run shows, without the step's key."""
    values = {name: number(getattr(judgement, name)) for name in ("baseline_s", *_NEWEST)}
    return {"run_id": run, "back": False, "new_level": new_level, "baseline_run_id": judgement.baseline_run, **values}


def back(run: int) -> Columns:
    """Return the sighting of a run in which a series was back at the level before a step, without the step's key."""
    return dict.fromkeys(("baseline_run_id", "baseline_s", *_NEWEST)) | {
        "run_id": run,
        "back": True,
        "new_level": False,
    }


def derived(sightings: Iterable[Columns], row: Columns | None = None) -> Columns | None:
    """Return what follows from the sightings of a step, oldest first: columns of ``finding_cases``.

    Return None if no sighting shows the step. ``row`` has what follows from earlier sightings; None if there are none.
    """
    values = row and {name: row[name] for name in _DERIVED}
    for sighting in sightings:
        run = sighting["run_id"]
        if sighting["back"]:
            values = values and values | {"recovered_run_id": run}
            continue
        newest = {name: sighting[name] for name in _NEWEST} | {"last_run_id": run, "recovered_run_id": None}
        if values is None:
            baseline = {name: sighting[name] for name in ("baseline_run_id", "baseline_s")}
            values = newest | baseline | {"first_run_id": run, "level_run_id": run}
            continue
        if sighting["baseline_run_id"] != values["baseline_run_id"] and values["baseline_s"] and newest["candidate_s"]:
            # The row says what it is compared with, so its number compares the same two levels.
            newest |= {"ratio": newest["candidate_s"] / values["baseline_s"], "low": None, "high": None}
        if sighting["new_level"] or values["recovered_run_id"] is not None:
            newest["level_run_id"] = run
        values |= newest
    return values


def begin(connection: Connection, steps: Sequence[tuple[Columns, Columns]]) -> None:
    """Store new steps: what follows from no sighting, and the first sighting."""
    ids = new_ids(connection, FindingCases, [step | (derived([first]) or {}) for step, first in steps])
    rows = [{"step_id": number} | first for number, (_, first) in zip(ids, steps, strict=True)]
    connection.execute(insert(Sightings), rows)


def see(connection: Connection, steps: Sequence[tuple[Any, Columns]]) -> None:
    """Store a newer sighting of each step, and change the step's row by it; a sighting of the same run is replaced."""
    if steps:
        rows = [{"key": step.id} | (derived([sighting], step._asdict()) or {}) for step, sighting in steps]
        connection.execute(update(FindingCases).where(FindingCases.id == bindparam("key")), rows)
        replaced = delete(Sightings).where(Sightings.step_id == bindparam("key"), Sightings.run_id == bindparam("run"))
        connection.execute(replaced, [{"key": step.id, "run": sighting["run_id"]} for step, sighting in steps])
        connection.execute(insert(Sightings), [{"step_id": step.id} | sighting for step, sighting in steps])
