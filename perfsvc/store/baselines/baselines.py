"""Baselines: the run that each series is compared with, and the pins that fix it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
)

from perfsvc.errors import NotMeasuredError
from perfsvc.model import MAX_ERROR, TIME, Cause, FindingState, Pin, Series, Status
from perfsvc.store.baselines.expected import correct_series, expected_series
from perfsvc.store.baselines.nights import earlier_runs, replica_levels
from perfsvc.store.cases import CaseIds, SeriesKey, judged, series_keys, series_of, with_case
from perfsvc.store.rows import UsedCode
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.judging_tables import ACCEPTED, FindingCases, Findings, Pins, Verdicts
from perfsvc.store.schema.tables import Devices, Measurements, Metrics, Runs
from perfsvc.store.series import present_segment_starts, segment_starts

_NOT_THE_CODE = (Cause.NOISE, Cause.ENVIRONMENT)
"""Improvements with these causes set no level: a lucky run would be the bar for all later ones."""
IS_ACCEPTED = Verdicts.verdict.in_(bindparam(None, ACCEPTED, expanding=True, literal_execute=True))
"""Whether a verdict may accept a level. The words stand in the statement itself: SQLite uses the partial index on them
only without parameters."""
_ACCEPTING = (
    IS_ACCEPTED,
    or_(Verdicts.cause.is_(None), Verdicts.cause.not_in(_NOT_THE_CODE)),
    Runs.git_dirty.is_(False),
    judged(Verdicts.run_id, Verdicts.case_id),
)
"""The conditions under which a verdict accepts the level of its run."""


class BaselineStore:
    """Baselines; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
            devices = connection.execute(select(Devices.id, Devices.uuid, Devices.model)).all()
            keys = series_keys(connection, series, {device.uuid: device.id for device in devices})
            runs = _accepted_runs(connection, set(keys.values()), before_run)
            runs |= _pinned_runs(connection, set(keys.values()))
        other_devices = {
            replace(series, device=device.uuid): runs[other]
            for series, key in keys.items()
            if key not in runs
            for device in devices
            if device.model == series.device_model and (other := key._replace(device=device.id)) in runs
        }
        return other_devices | {series: runs[key] for series, key in keys.items() if key in runs}

    def nights(self, baselines: Mapping[Series, int], before_run: int) -> dict[Series, dict[int, UsedCode]]:
        """Return the runs that may belong to each series' baseline, each with the code that it used.

        These are the runs from the baseline's run to the run before ``before_run`` that measured the series in the same
        environment, with a correct result. Later runs count only if they have ended, measured committed code and are
        not excluded, and if no finding reports that the case had moved in the run. Of each code, at most
        ``MOST_NIGHTS`` runs are returned, the newest, and the baseline's run. A series is absent if the code of its
        baseline's run is unknown.
        """
        with self._database.reading() as connection:
            return earlier_runs(connection, series_keys(connection, baselines), baselines, before_run)

    def replica_levels(self, runs: Mapping[Series, Collection[int]]) -> dict[Series, dict[int, tuple[float, ...]]]:
        """Return the value of each replica (of the time: the median) of each series in its runs.

        The samples are not read, so the result does not depend on retention.
        """
        with self._database.reading() as connection:
            return replica_levels(connection, series_keys(connection, runs), runs)

    def expected(self, run: int) -> dict[Series, int]:
        """Return the series that a run should have measured on its devices, each with the earlier run that measured it.

        These are the series of which the previous run has a correct result. The previous run of a device is the newest
        earlier run of the same scope that finished and measured on the device. A run with uncommitted changes counts
        only if there is no other run. If a case was over budget in the previous run, the newest older run that measured
        the case counts instead. A case that was over budget in ``run`` itself is not expected. Excluded runs are
        ignored. A case that is excluded from a run counts as over budget in that run. Nothing is expected if the scope
        is unknown.
        """
        with self._database.reading() as connection:
            return expected_series(connection, run)

    def pins(self) -> list[Pin]:
        """Return all pins."""
        query = with_case(Pins).order_by(Pins.case_id, Pins.device_id, Pins.metric, Pins.cache)
        with self._database.reading() as connection:
            return [
                Pin(series_of(row), row.run_id, row.set_at, row.set_by, row.comment)
                for row in connection.execute(query)
            ]

    def pin(self, run: int, series: Iterable[Series], *, by: str = "", comment: str = "") -> None:
        """Make a run the baseline of each series until the series is unpinned or pinned to another run.

        Raises ``NotMeasuredError``, and pins nothing, if the run lacks a correct result of one of the series.
        """
        wanted = list(dict.fromkeys(series))
        with self._database.writing() as connection:
            keys = series_keys(connection, wanted)
            measured = set(correct_series(connection, run).values())
            missing = [series.case.id for series in wanted if keys.get(series) not in measured]
            if missing:
                raise NotMeasuredError(
                    f"run {run} has no correct result of {', '.join(missing)}", cure="pin a run that measured them"
                )
            _remove_pins(connection, keys.values())
            now = datetime.now(UTC)
            rows = [
                {
                    **_columns_of(key),
                    "run_id": run,
                    "set_at": now,
                    "set_by": by,
                    "comment": comment,
                }
                for key in set(keys.values())
            ]
            if rows:
                connection.execute(insert(Pins), rows)

    def unpin(self, series: Iterable[Series] | None = None) -> int:
        """Remove the pins of some series, or all pins, and return how many there were."""
        with self._database.writing() as connection:
            if series is None:
                return connection.execute(delete(Pins)).rowcount
            return _remove_pins(connection, series_keys(connection, series).values())


def levels_to_keep(connection: Connection, candidates: Select[int, int]) -> set[tuple[int, int]]:
    """Return the levels that a later run may be compared with, as pairs of run and case.

    These are all pins; all levels that were ever accepted, since a newer level may be revoked; the first correct result
    of each series; and its first correct result of committed code in the present environment (segment). The next run
    may begin a segment, which has no result yet: its level is then an accepted one, or the first of the series.

    First results are looked for among the candidates alone, because all measurements of years are too many. If the
    first result of a series is no candidate, the result has the first of the candidates instead.

    Args:
        connection: a transaction.
        candidates: a query of runs and cases (``run_id``, ``case_id``): what may be removed.
    """
    accepted = select(Verdicts.run_id, Verdicts.case_id).join(Runs, Runs.id == Verdicts.run_id).where(*_ACCEPTING)
    kept = {(run, case) for run, case in connection.execute(accepted)}
    kept |= {(run, case) for run, case in connection.execute(select(Pins.run_id, Pins.case_id))}
    ended = Runs.state.in_(ENDED)
    first = _first_correct_runs(connection, None, ended, candidates=candidates)
    kept |= {(run, key.case) for key, run in first.items()}
    starts = present_segment_starts(connection, {key.case_ids for key in first})
    for start, keys in _by_start(first, starts).items():
        later = candidates.subquery()
        of_keys = among(later.c.case_id, _cases(keys))
        in_segment = select(later.c.run_id, later.c.case_id).where(later.c.run_id > start, of_keys)
        runs = _first_correct_runs(connection, None, ended, Runs.git_dirty.is_(False), candidates=in_segment)
        kept |= {(run, key.case) for key, run in runs.items() if key in keys}
    return kept


def _remove_pins(connection: Connection, keys: Iterable[SeriesKey]) -> int:
    """Remove the pins of some series and return how many there were."""
    removed = 0
    for key in set(keys):
        removed += connection.execute(delete(Pins).filter_by(**_columns_of(key))).rowcount
    return removed


def _columns_of(key: SeriesKey) -> dict[str, Any]:
    return {"case_id": key.case, "device_id": key.device, "metric": key.metric, "cache": key.cache}


def _cases(keys: Iterable[SeriesKey]) -> set[int]:
    return {key.case for key in keys}


def _pinned_runs(connection: Connection, keys: Collection[SeriesKey]) -> dict[SeriesKey, int]:
    """Return the pinned runs of the cases in ``keys``, by series."""
    query = select(Pins.case_id, Pins.device_id, Pins.metric, Pins.cache, Pins.run_id)
    return _by_key(connection, query.where(among(Pins.case_id, _cases(keys))))


def _accepted_runs(connection: Connection, keys: Collection[SeriesKey], before_run: int) -> dict[SeriesKey, int]:
    """Return the run with the last accepted level of each series, and of the same series on other devices."""
    starts = segment_starts(connection, _cases(keys), before_run)
    accepted = _last_accepted_runs(connection, _cases(keys), before_run)
    # The first run of a segment is compared with the segment before it; later runs are compared with the first run.
    old = {key for key in keys if accepted.get(key, 0) <= starts.get(key.case_ids, 0)}
    in_segment = _first_runs_in_segments(connection, old, starts, before_run)
    first = _first_runs(connection, keys - accepted.keys() - in_segment.keys(), Runs.id < before_run)
    return first | accepted | in_segment


def _last_accepted_runs(connection: Connection, cases: Collection[int], before_run: int) -> dict[SeriesKey, int]:
    """Return the newest earlier run whose level a verdict or a person accepted, by series."""
    series: tuple[Any, ...] = (Verdicts.case_id, Verdicts.device_id, Verdicts.metric, Verdicts.cache)
    by_verdict = (
        select(*series, func.max(Verdicts.run_id))
        .join(Runs, Runs.id == Verdicts.run_id)
        .where(among(Verdicts.case_id, cases), Verdicts.run_id < before_run, *_ACCEPTING)
        .group_by(*series)
    )
    series = (FindingCases.case_id, FindingCases.device_id, FindingCases.metric, FindingCases.cache)
    by_person = (  # without recovered series: they are back at their old level
        select(*series, func.max(FindingCases.last_run_id))
        .join(Findings, Findings.id == FindingCases.finding_id)
        .where(among(FindingCases.case_id, cases), FindingCases.last_run_id < before_run)
        .where(judged(FindingCases.last_run_id, FindingCases.case_id))
        .where(Findings.state == FindingState.ACCEPTED, FindingCases.recovered_run_id.is_(None))
        .group_by(*series)
    )
    accepted: dict[SeriesKey, int] = {}
    rows: Iterable[Any] = connection.execute(union_all(by_verdict, by_person))
    for case, device, metric, cache, run in rows:
        key = SeriesKey(case, device, metric, cache)
        accepted[key] = max(run, accepted.get(key, 0))
    return accepted


def _first_runs_in_segments(
    connection: Connection,
    keys: Iterable[SeriesKey],
    starts: Mapping[CaseIds, int],
    before_run: int,
) -> dict[SeriesKey, int]:
    """For each series, return the first run of its segment that has a correct result of committed code.

    Series without a segment start are absent.
    """
    return {
        key: run
        for start, of_start in _by_start(keys, starts).items()
        for key, run in _first_runs(
            connection, of_start, Runs.id > start, Runs.id < before_run, Runs.git_dirty.is_(False)
        ).items()
        if key in of_start
    }


def _by_start(keys: Iterable[SeriesKey], starts: Mapping[CaseIds, int]) -> dict[int, set[SeriesKey]]:
    """Return the series whose segment begins after each run; series without a segment start are absent."""
    by_start: dict[int, set[SeriesKey]] = defaultdict(set)
    for key in keys:
        if key.case_ids in starts:
            by_start[starts[key.case_ids]].add(key)
    return by_start


def _first_runs(
    connection: Connection, keys: Collection[SeriesKey], *runs: ColumnElement[bool]
) -> dict[SeriesKey, int]:
    """For each series, return the first run that meets the conditions ``runs`` and has a correct result.

    Runs without uncommitted changes are preferred. Nearly all series have a correct result in the first run; later runs
    are searched only for the other series.
    """
    conditions = (Runs.state.in_(ENDED), judged(Runs.id), *runs)
    first_run = select(Runs.id).where(*conditions).order_by(Runs.git_dirty, Runs.id).limit(1).scalar_subquery()
    if not keys:
        return {}
    first = _first_correct_runs(connection, _cases(keys), Measurements.run_id == first_run)
    if missing := keys - first.keys():
        first = _first_correct_runs(connection, _cases(missing), *conditions) | first
    return first


def _first_correct_runs(
    connection: Connection,
    cases: Collection[int] | None,
    *runs: ColumnElement[bool],
    candidates: Select[int, int] | None = None,
) -> dict[SeriesKey, int]:
    """For each series of some cases, or of all, return the first run that has a correct result.

    Only the runs that meet the conditions ``runs`` count, and of these only the runs and cases that ``candidates``
    returns, if it is given. Runs without uncommitted changes are preferred. A result is correct if all replicas are ok.
    """
    of_cases = [] if cases is None else [among(Measurements.case_id, cases)]
    names = ("run_id", "case_id", "device_id", "cache")
    measured = [getattr(Measurements, name) for name in names]
    results = (
        select(
            *measured,
            func.max(Measurements.sample_count).label("samples"),
            func.max(Measurements.max_error).label("max_error"),
        )
        .join(Runs, Runs.id == Measurements.run_id)
        .where(*runs, *of_cases, judged(Measurements.run_id, Measurements.case_id))
        .group_by(*measured)
        .having(func.count().filter(Measurements.status != Status.OK) == 0)
    )
    if candidates is not None:
        pairs = candidates.subquery()
        # Distinct pairs of a run and a case: SQLite then begins with them, and not with all measurements.
        of = select(pairs.c.run_id, pairs.c.case_id).distinct().subquery("candidates")
        results = results.join(of, and_(of.c.run_id == Measurements.run_id, of.c.case_id == Measurements.case_id))
    correct = results.cte("correct")

    def first(metric: Any) -> Select[Any]:
        """Return a query of the first run of each series of a metric; runs of committed code are preferred."""
        clean = func.min(correct.c.run_id).filter(Runs.git_dirty.is_(False))
        run = func.coalesce(clean, func.min(correct.c.run_id))
        return (
            select(correct.c.case_id, correct.c.device_id, metric, correct.c.cache, run)
            .join(Runs, Runs.id == correct.c.run_id)
            .group_by(correct.c.case_id, correct.c.device_id, correct.c.cache)
        )

    by_name = (
        first(Metrics.name)
        .join(Measurements, and_(*(getattr(Measurements, name) == correct.c[name] for name in names)))
        .join(Metrics, Metrics.measurement_id == Measurements.id)
        .where(Metrics.value.is_not(None))
        .group_by(Metrics.name)
    )
    timed = first(literal(TIME)).where(correct.c.samples > 0)
    with_error = first(literal(MAX_ERROR)).where(correct.c.max_error.is_not(None))
    return _by_key(connection, union_all(timed, with_error, by_name))


def _by_key(connection: Connection, query: Executable) -> dict[SeriesKey, int]:
    """Return the runs that a query returns by series; its columns are those of ``SeriesKey`` and the run."""
    return {SeriesKey(*key): run for *key, run in connection.execute(query)}
