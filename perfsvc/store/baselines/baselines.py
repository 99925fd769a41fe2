"""Baselines: the run that each series is compared with, and the pins that fix it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    union_all,
)

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Cause, FindingState, Pin, Series, Status
from perfsvc.store.baselines.nights import PastRuns, correct_series
from perfsvc.store.cases import ids_of, is_judged, judged, load_series, series_ids, series_of, with_series
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.judging_tables import FindingCases, Findings, Pins
from perfsvc.store.schema.tables import ACCEPTED, Environments, Levels, Measurements, Runs, SeriesRows

_NOT_THE_CODE = (Cause.NOISE, Cause.ENVIRONMENT)
"""Improvements with these causes set no level: a lucky run would be the bar for all later ones."""
_IS_ACCEPTED = Levels.verdict.in_(bindparam(None, ACCEPTED, expanding=True, literal_execute=True))
"""Whether a verdict may accept a level. The words stand in the statement itself: SQLite uses the partial index on them
only without parameters."""
ACCEPTING = (
    _IS_ACCEPTED,
    or_(Levels.cause.is_(None), Levels.cause.not_in(_NOT_THE_CODE)),
    Runs.git_dirty.is_(False),
    Levels.excluded.is_(None),
)
"""The conditions under which a verdict accepts the level of its run."""


class BaselineStore(PastRuns):
    """Baselines; each method is one transaction."""

    def get(self, series: Iterable[Series], before_run: int) -> dict[Series, int]:
        """Return the run that each series is compared with: its pin, else its last accepted level.

        The last accepted level comes from the newest earlier run whose verdict is new or an improvement, or whose
        finding a person accepted. A regression does not move the level until a person accepts it. Unchanged and
        inconclusive verdicts do not move the level either, because a slow drift would then move it step by step. These
        runs never set a level by their verdict:

        - a run with uncommitted changes: a discarded experiment would become the level for all later runs;
        - an improvement of unchanged code, which comes from the environment or from noise;
        - a run that is excluded from judging, as a whole or for this case.

        If no run set a level, the level is that of the earliest run with a correct result. A new environment begins a
        segment: levels of earlier segments count only until a run without uncommitted changes has a correct result in
        the segment. A run with uncommitted changes is a baseline only if the series has no other correct result.

        A series with neither a pin nor a level is replaced in the result by the same series on other devices of its
        model, each with its pin or level. If the other devices have no pin or level either, the series is absent.
        """
        with self._database.reading() as connection:
            asked = list(series)
            cases = ids_of(connection, {(of.case, of.case.formerly): of.case for of in asked}.values())
            known = load_series(connection, among(SeriesRows.case_id, set(cases.values())))
            ids = {of: number for number, of in known.items()}
            rows = connection.execute(select(Pins.series_id, Pins.run_id).where(among(Pins.series_id, known)))
            pinned = {number: run for number, run in rows}  # noqa: C416 - for mypy
            runs = _accepted_runs(connection, ids, asked, before_run) | pinned
        of_model: dict[tuple[Any, ...], list[Series]] = defaultdict(list)
        for number in runs:
            of_model[_of_model(known[number])].append(known[number])
        found: dict[Series, int] = {}
        for of in asked:
            chosen = [of] if ids.get(of) in runs else of_model[_of_model(of)]
            found |= {each: runs[ids[each]] for each in chosen}
        return found

    def pins(self) -> list[Pin]:
        """Return all pins."""
        query = with_series(Pins).order_by(SeriesRows.case_id, SeriesRows.device_id, SeriesRows.metric)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(SeriesRows.cache)).all()
        return [Pin(series_of(row), row.run_id, row.set_at, row.set_by, row.comment) for row in rows]

    def pin(self, run: int, series: Iterable[Series], *, by: str = "", comment: str = "") -> None:
        """Make a run the baseline of each series until the series is unpinned or pinned to another run.

        Raises ``NotMeasuredError``, and pins nothing, if the run lacks a correct result of one of the series.
        """
        wanted = list(dict.fromkeys(series))
        with self._database.writing() as connection:
            ids = {of: number for number, of in correct_series(connection, run).items()}
            if missing := [of.case.id for of in wanted if of not in ids]:
                raise NotMeasuredError(
                    f"run {run} has no correct result of {', '.join(missing)}", cure="pin a run that measured them"
                )
            numbers = [ids[of] for of in wanted]
            connection.execute(delete(Pins).where(among(Pins.series_id, numbers)))
            pinned = {"run_id": run, "set_at": datetime.now(UTC), "set_by": by, "comment": comment}
            if numbers:
                connection.execute(insert(Pins), [{"series_id": number, **pinned} for number in numbers])

    def unpin(self, series: Iterable[Series] | None = None) -> int:
        """Remove the pins of some series, or all pins, and return how many there were."""
        with self._database.writing() as connection:
            pins = delete(Pins)
            if series is not None:
                pins = pins.where(among(Pins.series_id, list(series_ids(connection, series).values())))
            return connection.execute(pins).rowcount


def _of_model(series: Series) -> tuple[Any, ...]:
    return series.case, series.device_model, series.metric, series.cache


def _accepted_runs(
    connection: Connection, ids: Mapping[Series, int], asked: Collection[Series], before_run: int
) -> dict[int, int]:
    """Return the run with the last accepted level of each series, and of the same series on other devices.

    Args:
        connection: a transaction.
        ids: the ids of all series of the cases.
        asked: the series.
        before_run: only earlier runs count.
    """
    own = {ids[of] for of in asked if of in ids}
    starts = _segment_starts(connection, own, before_run)
    accepted = _last_accepted_runs(connection, ids.values(), before_run)
    # The first run of a segment is compared with the segment before it; later runs are compared with the first run.
    by_start: dict[int, set[int]] = defaultdict(set)
    for number, start in starts.items():
        if accepted.get(number, 0) <= start:
            by_start[start].add(number)
    in_segment: dict[int, int] = {}
    for start, numbers in by_start.items():
        later = (Runs.id > start, Runs.id < before_run, Runs.git_dirty.is_(False))
        in_segment |= _first_runs(connection, numbers, *later)
    without = {of.case for of in asked if ids.get(of) not in {**accepted, **in_segment}}
    others = [number for of, number in ids.items() if of.case in without]
    first = _first_runs(connection, others, Runs.id < before_run)
    return first | accepted | in_segment


def _last_accepted_runs(connection: Connection, ids: Iterable[int], before_run: int) -> dict[int, int]:
    """Return the newest earlier run whose level a verdict or a person accepted, by series."""
    wanted = set(ids)
    by_verdict = (
        select(Levels.series_id, func.max(Levels.run_id))
        .join(Runs, Runs.id == Levels.run_id)
        # By a sum, which no other index finds: SQLite would read all levels of the series.
        .where(among(Levels.series_id + 0, wanted), Levels.run_id < before_run, *ACCEPTING)
        .group_by(Levels.series_id)
    )
    by_person = (  # without recovered series: they are back at their old level
        select(FindingCases.series_id, func.max(FindingCases.last_run_id))
        .join(Findings, Findings.id == FindingCases.finding_id)
        .where(among(FindingCases.series_id, wanted), FindingCases.last_run_id < before_run)
        .where(is_judged(FindingCases.last_run_id, FindingCases.series_id))
        .where(Findings.state == FindingState.ACCEPTED, FindingCases.recovered_run_id.is_(None))
        .group_by(FindingCases.series_id)
    )
    accepted: dict[int, int] = {}
    for number, run in connection.execute(union_all(by_verdict, by_person)):
        accepted[number] = max(run, accepted.get(number, 0))
    return accepted


def _first_runs(connection: Connection, ids: Collection[int], *runs: ColumnElement[bool]) -> dict[int, int]:
    """For each series, return the first run that meets the conditions ``runs`` and has a correct result.

    Runs without uncommitted changes are preferred. Nearly all series have a correct result in the first run; later runs
    are searched only for the other series.
    """
    conditions = (Runs.state.in_(ENDED), judged(Runs.id), *runs)
    first_run = select(Runs.id).where(*conditions).order_by(Runs.git_dirty, Runs.id).limit(1).scalar_subquery()
    clean = func.min(Levels.run_id).filter(Runs.git_dirty.is_(False))
    correct = (
        select(Levels.series_id, func.coalesce(clean, func.min(Levels.run_id)))
        .join(Runs, Runs.id == Levels.run_id)
        .where(Levels.status == Status.OK, Levels.medians.is_not(None), Levels.excluded.is_(None))
        .group_by(Levels.series_id)
    )
    first: dict[int, int] = {}
    for searched in ((Levels.run_id == first_run,), conditions):
        if missing := set(ids) - first.keys():
            first |= dict(connection.execute(correct.where(*searched, among(Levels.series_id, missing))).all())
    return first


# --- segments ---------------------------------------------------------------------------------------------------------


def _segment_starts(connection: Connection, ids: Collection[int], run: int) -> dict[int, int]:
    """For each series, return the newest earlier run that measured its case in another environment than ``run``.

    The segment of ``run`` begins after the returned run. All series of a case on a device in a cache state have the
    same segments, also if a run measured only some of them, because the case failed. A run with uncommitted changes
    ends no segment: trying another compiler in such a run changes nothing for later runs. A series is absent if ``run``
    did not measure its case, or if the case was always measured in the same environment.
    """
    of_case = (SeriesRows.case_id, SeriesRows.device_id, SeriesRows.cache)
    cases = select(SeriesRows.case_id).where(among(SeriesRows.id, ids))
    rows: Iterable[Any] = connection.execute(select(SeriesRows.id, *of_case).where(SeriesRows.case_id.in_(cases)))
    case_of: dict[int, _CaseOfSeries] = {number: tuple(key) for number, *key in rows}
    asked = {case_of[number] for number in ids}
    case_of = {number: key for number, key in case_of.items() if key in asked}
    query = select(Levels.series_id, Levels.environment_id).where(
        among(Levels.series_id, case_of), Levels.run_id == run
    )
    rows = connection.execute(query.where(Levels.environment_id.is_not(None)))
    by_environment: dict[int, set[_CaseOfSeries]] = defaultdict(set)
    for number, environment in rows:
        by_environment[environment].add(case_of[number])
    starts: dict[_CaseOfSeries, int] = {}
    for environment, keys in by_environment.items():
        wanted = {number: key for number, key in case_of.items() if key in keys}
        starts |= _last_elsewhere(connection, wanted, run, environment)
    return {number: starts[case_of[number]] for number in ids if case_of[number] in starts}


_CaseOfSeries = tuple[Any, ...]
"""The ids of a case and a device, and the cache state."""


def _last_elsewhere(
    connection: Connection, case_of: Mapping[int, _CaseOfSeries], run: int, environment: int
) -> dict[_CaseOfSeries, int]:
    """For each case of some series, return the newest run before ``run`` that measured it in another environment.

    Looks at the newest runs first, and then only for the cases that were not found: to read all levels would take the
    longer the more nights there are. Only runs that have ended, had no uncommitted changes and are not excluded count.
    A case that no such run measured is absent.
    """
    # By the ids of environments, which an index finds: a comparison with one would read all measurements.
    environments = select(Environments.id).where(Environments.id != environment)
    measured = Measurements.environment_id.in_(environments), Measurements.run_id == Runs.id
    earlier = (Runs.id < run, Runs.git_dirty.is_(False), Runs.state.in_(ENDED), exists().where(*measured))
    runs = connection.scalars(select(Runs.id).where(*earlier).order_by(Runs.id.desc())).all()
    last: dict[_CaseOfSeries, int] = {}
    at, count = 0, 1
    while at < len(runs) and (missing := [number for number, key in case_of.items() if key not in last]):
        query = (
            select(Levels.series_id, func.max(Levels.run_id))
            .where(among(Levels.run_id, runs[at : at + count]), among(Levels.series_id, missing))
            .where(Levels.environment_id != environment, Levels.excluded.is_(None))
            .group_by(Levels.series_id)
        )
        for number, newest in connection.execute(query):
            last[case_of[number]] = max(newest, last.get(case_of[number], 0))
        at, count = at + count, count * 4
    return last
