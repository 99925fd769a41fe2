"""The runs (nights) of a baseline: their code and their values; and the runs that show what a run should measure."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, exists, func, select, union

from perfsvc.model import FIRST_RUNS, CacheState, Case, Direction, FindingState, RunState, Series, Status, Verdict
from perfsvc.store.cases import ids_of, judged, load_series, series_ids, series_of, with_series
from perfsvc.store.levels import read_levels
from perfsvc.store.rows import UsedCode
from perfsvc.store.run_devices import read_run_devices
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.judging_tables import Exclusions, FindingCases, Findings
from perfsvc.store.schema.tables import (
    EVENTS,
    Devices,
    Levels,
    Measurements,
    Metrics,
    OverBudgetCases,
    Runs,
    SeriesRows,
)

_Cell = tuple[Case, str, CacheState]
"""A case on a device (UUID) in a cache state."""


MOST_NIGHTS = 30
"""The most runs of a baseline: its first ``FIRST_RUNS`` and its newest."""

SEARCHED_RUNS = 200
"""How many of the newest clean runs of each host are searched, beside ``MOST_NIGHTS`` after each baseline's run. A
baseline that is years old would otherwise slow every night."""

SEARCHED_AT_FIRST = 2 * MOST_NIGHTS
"""How many of them are searched at first: nearly all series have ``MOST_NIGHTS`` runs of their code among them."""

SEARCHED_FIRST = 2 * FIRST_RUNS
"""Among how many clean runs of each host after a baseline's run its ``FIRST_RUNS`` are searched."""

DISTURBED = 1.08
"""A baseline with a run that alone was so much slower than the others would hide changes of the same size."""

IS_EVENT = Levels.verdict.in_(bindparam(None, EVENTS, expanding=True, literal_execute=True))
"""The condition of the index of events, which SQLite uses only if the values are literals."""

ENDED_FINDINGS = (FindingState.ACCEPTED, FindingState.RESOLVED)
"""In these states, a finding says nothing about later runs; in all others, its series are still at the new level."""


class PastRuns:
    """What earlier runs measured of series; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def nights(self, baselines: Mapping[Series, int], before_run: int) -> dict[Series, dict[int, UsedCode]]:
        """Return the runs that may belong to each series' baseline, each with the code that it used.

        These are the runs from the baseline's run to the run before ``before_run`` that measured the series in the same
        environment, with a correct result. Later runs count only if they have ended, measured committed code and are
        not excluded, and if no finding reports that the case had moved in the run. Of each code, at most
        ``MOST_NIGHTS`` runs are returned, the newest, and the baseline's run. A series is absent if the code of its
        baseline's run is unknown.
        """
        with self._database.reading() as connection:
            ids = series_ids(connection, baselines)
            if not ids:
                return {}
            anchors = {baselines[series] for series in ids}
            clean = _clean_runs(connection, min(anchors), before_run)
            searched = _searched_runs(clean, anchors, SEARCHED_AT_FIRST)
            nights = _nights(connection, ids, baselines, before_run, searched)
            # From this run on, all clean runs were searched; older ones matter to a series with too few since then.
            since = max((runs[-SEARCHED_AT_FIRST] for runs in clean if len(runs) > SEARCHED_AT_FIRST), default=0)
            few = {
                series: number
                for series, number in ids.items()
                if series in nights and baselines[series] < since and _count_since(since, nights[series]) < MOST_NIGHTS
            }
            if few:
                nights |= _nights(connection, few, baselines, before_run, _searched_runs(clean, anchors, SEARCHED_RUNS))
            return nights

    def replica_levels(self, runs: Mapping[Series, Collection[int]]) -> dict[Series, dict[int, tuple[float, ...]]]:
        """Return the value of each replica (of the time: the median) of each series in its runs."""
        with self._database.reading() as connection:
            ids = series_ids(connection, runs)
            wanted = {number: series for series, number in ids.items() if runs[series]}
            numbers = {run for series in wanted.values() for run in runs[series]}
            stored = read_levels(connection, among(Levels.series_id, wanted), among(Levels.run_id, numbers))
            levels: dict[Series, dict[int, tuple[float, ...]]] = defaultdict(dict)
            for row, (number, run) in enumerate(zip(stored.series.tolist(), stored.runs.tolist(), strict=True)):
                if run in runs[series := wanted[number]] and (values := stored.values(row)):
                    levels[series][run] = values
            return dict(levels)

    def values_of_metric(
        self, metric: str, runs: Mapping[Series, Collection[int]]
    ) -> dict[Series, dict[int, tuple[float, ...]]]:
        """Return what ``replica_levels`` returns, of a metric that is not judged and has no levels."""
        with self._database.reading() as connection:
            wanted = {(series.case, series.device, series.cache): series for series in runs}
            cases = ids_of(connection, {series.case for series in runs})
            names = {number: case for case, number in cases.items()}
            query = (
                select(Measurements.case_id, Devices.uuid, Measurements.cache, Measurements.run_id, Metrics.value)
                .join(Metrics, Metrics.measurement_id == Measurements.id)
                .join(Devices, Devices.id == Measurements.device_id)
                .where(among(Measurements.case_id, names), Metrics.name == metric, Metrics.value.is_not(None))
                .where(among(Measurements.run_id, {run for of_series in runs.values() for run in of_series}))
                .order_by(Measurements.run_id, Measurements.replica)
            )
            found: dict[Series, dict[int, tuple[float, ...]]] = defaultdict(dict)
            for number, uuid, cache, run, value in connection.execute(query):
                series = wanted.get((names[number], uuid, cache))
                if series is not None and value is not None and run in runs[series]:
                    found[series][run] = (*found[series].get(run, ()), value)
            return dict(found)

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
            previous = _previous_runs(connection, run)
            earlier = _measured_before_budget_ran_out(connection, previous)
            unmeasured = load_series(connection, SeriesRows.id.in_(_skipped(run))).values()
            excused = {(series.case, series.device, series.cache) for series in unmeasured}
            runs: dict[Series, int] = {}
            for source in sorted({*previous.values(), *earlier.values()}):
                for series in correct_series(connection, source).values():
                    cell = (series.case, series.device, series.cache)
                    if cell not in excused and source == earlier.get(cell, previous.get(series.device)):
                        runs[series] = source
            return runs


def correct_series(connection: Connection, run: int) -> dict[int, Series]:
    """Return the series of which a run has a correct result, by their id."""
    levels = (Levels.run_id == run, Levels.status == Status.OK, Levels.excluded.is_(None))
    return load_series(connection, SeriesRows.id.in_(select(Levels.series_id).where(*levels)))


def _previous_runs(connection: Connection, number: int) -> dict[str, int]:
    """For each device of a run (by UUID), return the newest earlier run of the same scope that finished on it.

    A scope is a suite with a selection of cases. Runs without uncommitted changes are preferred.
    """
    scope = connection.scalar(select(Runs.scope).where(Runs.id == number))
    if not scope:
        return {}
    missing = _devices(connection, number)
    runs = select(Runs.id, Runs.git_dirty).where(Runs.scope == scope, Runs.state == RunState.FINISHED, Runs.id < number)
    runs = runs.where(judged(Runs.id))
    clean: dict[str, int] = {}
    dirty: dict[str, int] = {}
    for run, is_dirty in connection.execute(runs.order_by(Runs.id.desc())).all():
        if not missing:
            break
        for device in missing & _devices(connection, run):
            (dirty if is_dirty else clean).setdefault(device, run)
        missing -= clean.keys()
    return dirty | clean


def _devices(connection: Connection, run: int) -> set[str]:
    return {row.device for row in read_run_devices(connection, [run]).get(run, ())}


def _measured_before_budget_ran_out(connection: Connection, runs: Mapping[str, int]) -> dict[_Cell, int]:
    """For each case that was over budget in ``runs``, return the newest earlier run that measured it.

    A case that is excluded from judging counts as over budget. Runs without uncommitted changes are preferred.
    ``runs`` maps the UUID of each device to a run on it.
    """
    found: dict[_Cell, int] = {}
    for device, run in runs.items():
        scope = select(Runs.scope).where(Runs.id == run).scalar_subquery()
        unmeasured = load_series(connection, SeriesRows.id.in_(_skipped(run)), Devices.uuid == device)
        clean = func.max(Runs.id).filter(Runs.git_dirty.is_(False))
        query = (
            select(Levels.series_id, func.coalesce(clean, func.max(Runs.id)))
            .join(Runs, Runs.id == Levels.run_id)
            .where(among(Levels.series_id, unmeasured), Levels.status.is_not(None), Levels.excluded.is_(None))
            .where(Levels.run_id < run, Runs.scope == scope, Runs.state == RunState.FINISHED)
            .group_by(Levels.series_id)
        )
        for number, newest in connection.execute(query) if unmeasured else ():
            series = unmeasured[number]
            found[series.case, series.device, series.cache] = newest
    return found


def _skipped(run: int) -> Select[Any]:
    """Return a query of the series of times that were over budget in a run or individually excluded from it."""
    over_budget = select(OverBudgetCases.series_id).where(OverBudgetCases.run_id == run)
    by_case = Exclusions.run_id == run, Exclusions.included_at.is_(None), Exclusions.case_id == SeriesRows.case_id
    is_excluded = (Levels.run_id == run, Levels.excluded.is_not(None), exists().where(*by_case))
    excluded = select(Levels.series_id).join(SeriesRows, SeriesRows.id == Levels.series_id).where(*is_excluded)
    return select(union(over_budget, excluded).subquery())


def _count_since(since: int, of_series: Mapping[int, UsedCode]) -> int:
    """Return how many runs from ``since`` on used the code of the first run, which is the baseline's run."""
    own = of_series[min(of_series)]
    return sum(run >= since and code == own for run, code in of_series.items())


def _nights(
    connection: Connection,
    ids: Mapping[Series, int],
    baselines: Mapping[Series, int],
    before_run: int,
    searched: tuple[Collection[int], Collection[int]],
) -> dict[Series, dict[int, UsedCode]]:
    """Return what ``PastRuns.nights`` returns; ``searched`` has the runs that ``_searched_runs`` returned."""
    anchors = {baselines[series] for series in ids}
    runs, first = searched
    wanted = {run for run in {*runs, *anchors} if run < before_run}
    query = (
        select(Levels.series_id, Levels.run_id, Levels.environment_id, Levels.binary_id, Levels.python_code_id)
        .add_columns(Levels.verdict, Levels.ratio)
        .where(among(Levels.series_id, ids.values()), among(Levels.run_id, wanted))
        .where(Levels.status == Status.OK, Levels.binary_id.is_not(None), Levels.excluded.is_(None))
        .order_by(Levels.run_id.desc())
    )
    measured: dict[int, list[Any]] = defaultdict(list)
    for number, *row in connection.execute(query):
        measured[number].append(row)
    moved = _moved(connection, ids, wanted)
    nights: dict[Series, dict[int, UsedCode]] = {}
    for series, number in ids.items():
        anchor, rows = baselines[series], measured[number]
        environments = {run: environment for run, environment, *_ in rows}
        if anchor not in environments:
            continue
        of_series: dict[int, UsedCode] = {}
        count: dict[UsedCode, int] = defaultdict(int)
        slow: dict[UsedCode, list[int]] = defaultdict(list)
        for run, environment, binary, python, verdict, ratio in rows:
            if run < anchor or environment != environments[anchor] or (run != anchor and run in moved[series]):
                continue
            code = UsedCode(binary, python)
            count[code] += 1
            if count[code] <= MOST_NIGHTS or run in first or run in anchors:
                of_series[run] = code
                if verdict is Verdict.REGRESSION and ratio is not None and ratio >= DISTURBED:
                    slow[code].append(run)
        # Two disturbed runs of one code show that the code is so noisy; one would only hide a change of other code.
        alone = {runs_of[0] for runs_of in slow.values() if len(runs_of) == 1} - {anchor}
        nights[series] = {run: of_series[run] for run in sorted(of_series) if run not in alone}
    return nights


def _clean_runs(connection: Connection, after: int, before_run: int) -> list[list[int]]:
    """Return, for each host, its clean runs between two runs, in order."""
    query = (
        select(Runs.host, Runs.id)
        .where(Runs.state.in_(ENDED), Runs.git_dirty.is_(False), judged(Runs.id))
        .where(Runs.id > after, Runs.id < before_run)
    )
    of_host: dict[str, list[int]] = defaultdict(list)
    for host, run in connection.execute(query.order_by(Runs.id)):
        of_host[host].append(run)
    return list(of_host.values())


def _searched_runs(
    clean: Collection[Sequence[int]], anchors: Collection[int], newest: int
) -> tuple[set[int], set[int]]:
    """Return the runs that are searched for nights, and those of them that may be a baseline's first runs.

    The newest runs of each host are searched, and the runs after each baseline's run. Without the second part, a
    baseline whose code was replaced long ago would be a single night.

    Args:
        clean: the clean runs of each host.
        anchors: the runs of the baselines.
        newest: how many of the newest runs of each host are searched.
    """
    searched: set[int] = set()
    first_runs: set[int] = set()
    for runs in clean:
        searched.update(runs[-newest:])
        for anchor in anchors:
            first = bisect_right(runs, anchor)
            searched.update(runs[first : first + MOST_NIGHTS])
            first_runs.update(runs[first : first + SEARCHED_FIRST])
    return searched, first_runs


def _moved(connection: Connection, ids: Mapping[Series, int], runs: Collection[int]) -> dict[Series, set[int]]:
    """Return the runs in which a finding reports that the case of a series had moved, for each series.

    Earlier runs that were as slow against the baseline of the finding count too: a finding of two runs begins with the
    second of them.
    """
    moved: dict[tuple[Case, str, CacheState], set[int]] = defaultdict(set)
    known = load_series(connection, among(SeriesRows.id, ids.values()))
    cases = select(SeriesRows.case_id).where(among(SeriesRows.id, ids.values()))
    query = with_series(FindingCases).add_columns(Findings.state)
    query = query.join(Findings, Findings.id == FindingCases.finding_id).where(SeriesRows.case_id.in_(cases))
    steps = [(series_of(row), row) for row in connection.execute(query)]
    shown: dict[tuple[int, int | None], dict[int, float]] = defaultdict(dict)
    levels = (
        select(Levels.series_id, Levels.baseline_run_id, Levels.run_id, Levels.level)
        .where(among(Levels.series_id, {row.series_id for _, row in steps}), among(Levels.run_id, runs))
        .where(Levels.verdict.in_([Verdict.REGRESSION, Verdict.INCONCLUSIVE]), Levels.level.is_not(None))
    )
    rows: Iterable[Any] = connection.execute(levels) if steps else ()
    for number, baseline, run, level in rows:
        shown[number, baseline][run] = level
    for series, row in steps:
        as_slow: set[int] = set()
        if row.direction is Direction.SLOWER and row.baseline_s is not None and row.candidate_s is not None:
            of_step = shown[row.series_id, row.baseline_run_id].items()
            as_slow = {run for run, level in of_step if level * level > row.baseline_s * row.candidate_s}
        stands = row.recovered_run_id is None and row.state not in ENDED_FINDINGS
        until = max(row.last_run_id, (row.recovered_run_id or 0) - 1)
        moved[series.case, series.device, series.cache] |= {
            run
            for run in runs
            if (run in as_slow or (row.first_run_id is not None and run >= row.first_run_id))
            and (stands or run <= until)
        }
    return {of: moved[of.case, of.device, of.cache] for of in known.values()}
