"""The runs (nights) of a baseline: which code they used, and the values of their replicas."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, and_, bindparam, exists, func, literal, or_, select

from perfsvc.model import FIRST_RUNS, TIME, Direction, FindingState, Series, Status, Verdict
from perfsvc.store.cases import SeriesKey, judged
from perfsvc.store.rows import UsedCode
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.judging_tables import EVENTS, FindingCases, Findings, Verdicts
from perfsvc.store.schema.tables import Measurements, Metrics, Runs

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

IS_EVENT = Verdicts.verdict.in_(bindparam(None, EVENTS, expanding=True, literal_execute=True))
"""The condition of the index of events, which SQLite uses only if the values are literals."""

ENDED_FINDINGS = (FindingState.ACCEPTED, FindingState.RESOLVED)
"""In these states, a finding says nothing about later runs; in all others, its series are still at the new level."""


def earlier_runs(
    connection: Connection, keys: Mapping[Series, SeriesKey], baselines: Mapping[Series, int], before_run: int
) -> dict[Series, dict[int, UsedCode]]:
    """Return the runs that may belong to the baseline of each series (``BaselineStore.nights``)."""
    if not keys:
        return {}
    anchors = {baselines[series] for series in keys}
    clean = _clean_runs(connection, min(anchors), before_run)
    searched = _searched_runs(clean, anchors, SEARCHED_AT_FIRST)
    nights = _nights(connection, keys, baselines, before_run, searched)
    # From this run on, all clean runs were searched. Older runs only matter to a series with too few since then.
    since = max((runs[-SEARCHED_AT_FIRST] for runs in clean if len(runs) > SEARCHED_AT_FIRST), default=0)
    few = {
        series: key
        for series, key in keys.items()
        if series in nights and baselines[series] < since and _count_since(since, nights[series]) < MOST_NIGHTS
    }
    if few:
        nights |= _nights(connection, few, baselines, before_run, _searched_runs(clean, anchors, SEARCHED_RUNS))
    return nights


def _count_since(since: int, of_series: Mapping[int, UsedCode]) -> int:
    """Return how many runs from ``since`` on used the code of the first run, which is the baseline's run."""
    own = of_series[min(of_series)]
    return sum(run >= since and code == own for run, code in of_series.items())


def _nights(
    connection: Connection,
    keys: Mapping[Series, SeriesKey],
    baselines: Mapping[Series, int],
    before_run: int,
    searched: tuple[Collection[int], Collection[int]],
) -> dict[Series, dict[int, UsedCode]]:
    """Return what ``earlier_runs`` returns; ``searched`` has the runs that ``_searched_runs`` returned."""
    anchors = {baselines[series] for series in keys}
    runs, first = searched
    identity = (Measurements.run_id, Measurements.case_id, Measurements.device_id, Measurements.cache)
    replicas = func.count()
    with_binary, with_python = func.count(Measurements.binary_id), func.count(Measurements.python_code_id)
    correct = (
        select(
            *identity,
            func.min(Measurements.environment_id).label("environment"),
            func.min(Measurements.binary_id).label("binary"),
            func.min(Measurements.python_code_id).label("python"),
        )
        .where(among(Measurements.case_id, {key.case for key in keys.values()}))
        .where(Measurements.device_id.in_({key.device for key in keys.values()}))
        .where(Measurements.run_id < before_run, judged(Measurements.run_id, Measurements.case_id))
        .where(or_(among(Measurements.run_id, runs), Measurements.run_id.in_(anchors)))
        .group_by(*identity)
        # A case has one code in a run unless its replicas differ, as they do after the run of another binary.
        .having(replicas.filter(Measurements.status != Status.OK) == 0)
        .having(with_binary == replicas, or_(with_python == 0, with_python == replicas))
        .having(func.min(Measurements.binary_id) == func.max(Measurements.binary_id))
        .having(func.min(Measurements.environment_id) == func.max(Measurements.environment_id))
        .having(
            or_(with_python == 0, func.min(Measurements.python_code_id) == func.max(Measurements.python_code_id)),
        )
        .cte("correct")
    )
    flagged = select(correct, _in_finding(keys, correct).label("moved")).cte("flagged")
    of_code = (
        *(flagged.c.case_id, flagged.c.device_id, flagged.c.cache),
        *(flagged.c.environment, flagged.c.binary, flagged.c.python),
    )
    newest = func.row_number().over(partition_by=of_code, order_by=flagged.c.run_id.desc()).label("newest")
    ranked = select(flagged, newest).where(or_(flagged.c.run_id.in_(anchors), ~flagged.c.moved)).cte("ranked")
    kept = or_(ranked.c.newest <= MOST_NIGHTS, among(ranked.c.run_id, {*first, *anchors}))
    query = select(ranked).where(kept)
    used: dict[tuple[Any, ...], dict[int, tuple[int, UsedCode]]] = defaultdict(dict)
    moved: set[tuple[Any, ...]] = set()
    for run, case, device, cache, environment, binary, python, is_moved, _ in connection.execute(query):
        used[case, device, cache][run] = environment, UsedCode(binary, python)
        if is_moved:
            moved.add((case, device, cache, run))
    nights: dict[Series, dict[int, UsedCode]] = {}
    for series, key in keys.items():
        of_case, anchor = key.case_ids, baselines[series]
        if anchor in used[of_case]:
            environment, _ = used[of_case][anchor]
            nights[series] = {
                run: code
                for run, (where, code) in sorted(used[of_case].items())
                # In the run of another series' baseline, this series may have moved.
                if run >= anchor and where == environment and (run == anchor or (*of_case, run) not in moved)
            }
    return _without_disturbed(connection, keys, nights)


def _without_disturbed(
    connection: Connection, keys: Mapping[Series, SeriesKey], nights: Mapping[Series, dict[int, UsedCode]]
) -> dict[Series, dict[int, UsedCode]]:
    """Return the runs of baselines, except runs that alone were disturbed.

    A run is disturbed if its verdict on the series is a regression of ``DISTURBED``. Two such runs of one code show
    that the code is so noisy; one of them would only hide a change of other code.
    """
    runs = {run for of_series in nights.values() for run in of_series}
    series = (Verdicts.case_id, Verdicts.device_id, Verdicts.metric, Verdicts.cache)
    query = (
        select(*series, Verdicts.run_id)
        .where(among(Verdicts.run_id, runs), IS_EVENT)
        .where(Verdicts.verdict == Verdict.REGRESSION, Verdicts.ratio >= DISTURBED)
    )
    disturbed: dict[SeriesKey, set[int]] = defaultdict(set)
    rows: Iterable[Any] = connection.execute(query).all() if runs else ()
    for case, device, metric, cache, run in rows:
        disturbed[SeriesKey(case, device, metric, cache)].add(run)
    kept = dict(nights)
    for own, of_series in nights.items():
        slow = disturbed[keys[own]] & of_series.keys() if keys[own] in disturbed else set()
        alone = {run for run in slow if [of_series[other] for other in slow].count(of_series[run]) == 1}
        if alone:
            kept[own] = {run: code for run, code in of_series.items() if run not in alone or run == min(of_series)}
    return kept


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


def _in_finding(keys: Mapping[Series, SeriesKey], measured: CTE) -> ColumnElement[bool]:
    """Return an SQL condition: whether a finding reports that a case had moved in a run.

    Earlier runs that were as slow against the baseline of the finding count too: a finding of two runs begins with the
    second of them.

    Args:
        keys: the series whose findings count, with their keys.
        measured: the cases in runs.
    """
    moved = (
        select(
            *(FindingCases.case_id, FindingCases.device_id, FindingCases.cache, FindingCases.first_run_id),
            *(FindingCases.last_run_id, FindingCases.recovered_run_id, Findings.state),
            *(FindingCases.metric, FindingCases.baseline_run_id, FindingCases.direction),
            (FindingCases.baseline_s * FindingCases.candidate_s).label("middle"),
        )
        .join(Findings, Findings.id == FindingCases.finding_id)
        .where(among(FindingCases.case_id, {key.case for key in keys.values()}))
        .cte("moved")
    )
    showed_it = (
        exists()
        .correlate(measured, moved)
        .where(
            *(getattr(Verdicts, name) == moved.c[name] for name in ("case_id", "device_id", "cache", "metric")),
            *(Verdicts.run_id == measured.c.run_id, Verdicts.baseline_run_id == moved.c.baseline_run_id),
            *(moved.c.direction == Direction.SLOWER, Verdicts.verdict.in_([Verdict.REGRESSION, Verdict.INCONCLUSIVE])),
            Verdicts.candidate_s * Verdicts.candidate_s > moved.c.middle,
        )
    )
    return exists().where(
        *(measured.c[name] == moved.c[name] for name in ("case_id", "device_id", "cache")),
        or_(measured.c.run_id >= moved.c.first_run_id, showed_it),
        or_(
            measured.c.run_id <= moved.c.last_run_id,
            measured.c.run_id < moved.c.recovered_run_id,
            and_(moved.c.recovered_run_id.is_(None), moved.c.state.not_in(ENDED_FINDINGS)),
        ),
    )


def replica_levels(
    connection: Connection, keys: Mapping[Series, SeriesKey], runs: Mapping[Series, Collection[int]]
) -> dict[Series, dict[int, tuple[float, ...]]]:
    """Return the value of each replica of each series in its runs (``BaselineStore.replica_levels``)."""
    wanted = {key: series for series, key in keys.items() if runs[series]}
    numbers = {run for series in wanted.values() for run in runs[series]}
    if not wanted:
        return {}
    case = (Measurements.case_id, Measurements.device_id, Measurements.cache)
    measured = (
        select(*case, literal(TIME), Measurements.run_id, Measurements.median_s)
        .where(among(Measurements.case_id, {key.case for key in wanted}), among(Measurements.run_id, numbers))
        .order_by(Measurements.run_id, Measurements.replica)
    )
    metrics = {key.metric for key in wanted} - {TIME}
    rows: list[Any] = list(connection.execute(measured))
    if metrics:
        named: Any = measured.join(Metrics, Metrics.measurement_id == Measurements.id)
        columns = (*case, Metrics.name, Measurements.run_id, Metrics.value)
        rows += connection.execute(named.where(Metrics.name.in_(metrics)).with_only_columns(*columns)).all()
    levels: dict[Series, dict[int, tuple[float, ...]]] = defaultdict(dict)
    for case_id, device, cache, metric, run, value in rows:
        series = wanted.get(SeriesKey(case_id, device, metric, cache))
        if series is not None and value is not None and run in runs[series]:
            levels[series][run] = (*levels[series].get(run, ()), value)
    return dict(levels)
