"""Finding runs, cases and devices."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import DeviceInfo, Provenance, Status
from perfsvc.store.interning import table
from perfsvc.store.rows import RunRow, State
from perfsvc.store.tables import Cases, Devices, Measurements, Runs

ENDED = (State.FINISHED, State.INTERRUPTED, State.FAILED)
"""The states of runs that others are compared with: what a run measured before it was cut short is as good as any."""

_COMPARABLE = (Runs.state.in_(ENDED), exists().where(Measurements.run_id == Runs.id))


def runs(connection: Connection, limit: int | None) -> list[RunRow]:
    """Newest first."""
    return _rows(connection, limit=limit)


def run(connection: Connection, number: int) -> RunRow:
    """One run; raises ``NotMeasuredError`` where there is none."""
    found = _rows(connection, Runs.id == number)
    if not found:
        raise NotMeasuredError(f"there is no run {number}", cure="perfsvc runs")
    return found[0]


def newest(connection: Connection, back: int, before: int | None) -> RunRow | None:
    """The latest run that can be compared with, or the one ``back`` before it."""
    earlier = () if before is None else (Runs.id < before,)
    return _first(connection, *_COMPARABLE, *earlier, offset=back)


def labelled(connection: Connection, label: str) -> RunRow | None:
    """The newest comparable run with that label."""
    return _first(connection, *_COMPARABLE, Runs.label == label) if label else None


def of_commit(connection: Connection, prefix: str) -> RunRow | None:
    """The newest comparable run of a commit, clean ones first; raises ``UsageError`` where the prefix is ambiguous."""
    if not prefix:
        return None
    matches = (*_COMPARABLE, Runs.git_commit.startswith(prefix, autoescape=True))
    commits = connection.scalars(select(Runs.git_commit).where(*matches).distinct().order_by(Runs.git_commit)).all()
    if len(commits) > 1:
        raise UsageError(f"{prefix} stands for {len(commits)} commits: {', '.join(commits)}", cure="give more digits")
    return _first(connection, *matches, Runs.git_dirty.is_(False)) or _first(connection, *matches)


def commits(connection: Connection, number: int) -> dict[int, str]:
    """The commits of the nights up to a run; see ``Store.commits``."""
    scope = select(Runs.scope).where(Runs.id == number).scalar_subquery()
    nights = (Runs.scope == scope, Runs.git_dirty.is_(False), Runs.state.in_(ENDED), Runs.id < number)
    query = select(Runs.id, Runs.git_commit).where(or_(Runs.id == number, and_(*nights))).order_by(Runs.id.desc())
    return dict(connection.execute(query).all())


def _first(connection: Connection, *where: ColumnElement[bool], offset: int = 0) -> RunRow | None:
    return next(iter(_rows(connection, *where, limit=1, offset=offset)), None)


def _rows(
    connection: Connection, *where: ColumnElement[bool], limit: int | None = None, offset: int = 0
) -> list[RunRow]:
    query = select(table(Runs)).where(*where).order_by(Runs.id.desc()).limit(limit).offset(offset)
    found = connection.execute(query).all()
    held = _held(connection, [row.id for row in found])
    return [_run_row(row, *held[row.id]) for row in found]


def _held(connection: Connection, numbers: Sequence[int]) -> dict[int, tuple[Counter[Status], set[int], set[str]]]:
    """Of each run: its measurements by status, its cases, its devices."""
    query = (
        select(Measurements.run_id, Measurements.status, Measurements.case_id, Devices.uuid, func.count())
        .join(Devices, Devices.id == Measurements.device_id)
        .where(Measurements.run_id.in_(numbers))
        .group_by(Measurements.run_id, Measurements.status, Measurements.case_id, Devices.uuid)
    )
    held: dict[int, tuple[Counter[Status], set[int], set[str]]] = defaultdict(lambda: (Counter(), set(), set()))
    for number, status, case, device, count in connection.execute(query):
        counts, cases, devices = held[number]
        counts[status] += count
        cases.add(case)
        devices.add(device)
    return held


def _run_row(row: Any, counts: Counter[Status], cases: set[int], devices: set[str]) -> RunRow:
    provenance = Provenance(
        started=row.started_at,
        command_line=row.command_line,
        suite=row.suite,
        commit=row.git_commit,
        dirty=row.git_dirty,
        branch=row.git_branch,
        host=row.host,
        cpu=row.cpu,
        perfsvc_version=row.perfsvc_version,
        python_version=row.python_version,
        packages=row.packages,
        seed=row.seed,
        replicas=row.replicas,
        label=row.label,
        scope=row.scope,
    )
    return RunRow(row.id, row.state, provenance, row.finished_at, dict(counts), len(cases), tuple(sorted(devices)))


def devices(connection: Connection) -> dict[str, DeviceInfo]:
    """Every stored device by UUID; driver and power limit are left out, since they are of an environment."""
    rows = connection.execute(select(table(Devices)).order_by(Devices.id)).mappings()
    return {row["uuid"]: DeviceInfo(**{name: row[name] for name in row if name != "id"}) for row in rows}


def case_ids(connection: Connection, number: int | None) -> list[str]:
    """The ids of all measured cases, or of one run's, in the order in which they were first stored."""
    of_run = () if number is None else (Measurements.run_id == number,)
    measured = exists().where(Measurements.case_id == Cases.id, *of_run)
    return list(dict.fromkeys(connection.scalars(select(Cases.name).where(measured).order_by(Cases.id))))


def lineage_of(connection: Connection, case_id: str) -> int:
    """The lineage of a case by any of its names, of its newest version.

    Raises ``NotMeasuredError`` where it is unknown.
    """
    newest_version = select(Cases.lineage_id).where(Cases.name == case_id).order_by(Cases.version.desc()).limit(1)
    lineage = connection.scalar(newest_version)
    if lineage is None:
        near = get_close_matches(case_id, case_ids(connection, None), n=3)
        raise NotMeasuredError(
            f"{case_id} was never measured", cure=f"did you mean {' or '.join(near)}?" if near else "perfsvc runs"
        )
    return lineage
