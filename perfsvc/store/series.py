"""Series: their levels in a run, and their histories over runs."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, exists, func, select

from perfsvc.errors import DamagedError
from perfsvc.model import AUXILIARY, MAX_ERROR, TIME, CacheState, Case, HistoryRow, Level, Series, Status
from perfsvc.model.levels import LevelColumns
from perfsvc.store.cases import (
    CASE_COLUMNS,
    TIME_OF_MEASUREMENT,
    case_ids,
    case_of,
    id_of_name,
    ids_of,
    judged,
    load_series,
    series_ids,
)
from perfsvc.store.levels import read_histories, read_levels, write_levels
from perfsvc.store.rows import CaseKey, SeriesHistory
from perfsvc.store.run_devices import write_run_devices
from perfsvc.store.runs import ENDED, unknown
from perfsvc.store.schema.engine import StorePart, among
from perfsvc.store.schema.samples import readable_samples
from perfsvc.store.schema.tables import Cases, Devices, FormerNames, Levels, Measurements, Runs, SeriesRows


class SeriesStore(StorePart):
    """Series; each method is one transaction."""

    def levels(self, run: int) -> LevelColumns:
        """Return the level of each judged series of a run.

        A level has one value for each replica: of the time the median in seconds. If a replica of a case is not ok, the
        case has only a level of its time: without values, with the status and the reason of the worst replica. Excluded
        cases are absent. Raises ``NotMeasuredError`` if the run does not exist.
        """
        return self.levels_of_runs([run])[run]

    def levels_of_runs(self, runs: Sequence[int]) -> dict[int, LevelColumns]:
        """Return what ``levels`` returns of each run, which is faster than one by one."""
        with self._database.reading() as connection:
            if unknown_runs := set(runs) - set(connection.scalars(select(Runs.id).where(among(Runs.id, runs)))):
                raise unknown(min(unknown_runs))
            stored = read_levels(connection, among(Levels.run_id, runs), Levels.excluded.is_(None))
            series = load_series(connection, among(SeriesRows.id, np.unique(stored.series).tolist()))
        return {run: stored.columns(series, stored.runs == run) for run in runs}

    def levels_of(self, runs: Mapping[Series, int]) -> dict[Series, Level]:
        """Return the level of each series in its run; a series is absent if the run has no judged level of it."""
        levels: dict[Series, Level] = {}
        with self._database.reading() as connection:
            ids = series_ids(connection, runs)
            for run in {runs[of] for of in ids}:
                series = {number: of for of, number in ids.items() if runs[of] == run}
                of_run = (Levels.run_id == run, among(Levels.series_id, series), Levels.excluded.is_(None))
                stored = read_levels(connection, *of_run)
                levels |= stored.columns(series, np.ones(stored.runs.size, np.bool_))
        return {of: levels[of] for of in runs if of in levels}

    def rebuild(self) -> list[tuple[int, str, str]]:
        """Compute anew what ended runs say of series and devices; return run, thing and difference of what was another.

        Each run is a transaction. Raises the first ``DamagedError`` of a run, after the others are right.
        """
        with self._database.reading() as connection:
            runs = connection.scalars(select(Runs.id).where(Runs.state.in_(ENDED)).order_by(Runs.id)).all()
        differences, damage = [], []
        for run in runs:
            try:
                with self._database.writing() as connection:
                    if write_run_devices(connection, run):
                        differences.append((run, "its devices", "stored otherwise"))
                    changes = write_levels(connection, run)
                    names = load_series(connection, among(SeriesRows.id, changes))
            except DamagedError as error:
                damage.append(error)
                continue
            differences += [
                (run, f"{names[number].case} on {names[number].device}, {names[number].metric}", what)
                for number, what in changes.items()
            ]
        if damage:
            raise damage[0]
        return differences

    def register(self, cases: Iterable[Case]) -> None:
        """Store the cases of a run before it measures them: rename those that are stored under a former name."""
        with self._database.writing() as connection:
            case_ids(connection, cases)

    def case_names(self) -> dict[str, Case]:
        """Return all names of all measured cases, former names too, each with the case under its present name.

        If several versions of a benchmark share a name, the newest version counts.
        """
        own = select(*CASE_COLUMNS).where(exists().where(Measurements.case_id == Cases.id))
        by_version = Cases.version, Cases.id
        former = own.join(FormerNames, FormerNames.case_id == Cases.id).add_columns(FormerNames.name)
        with self._database.reading() as connection:
            renamed = connection.execute(former.order_by(*by_version)).all()
            present = [case_of(*row) for row in connection.execute(own.order_by(*by_version))]
        return {name: case_of(*row) for *row, name in renamed} | {case.id: case for case in present}

    def former_names(self) -> set[tuple[int, str]]:
        """Return the former names of cases, each with the id of its case: another set after a case was renamed."""
        query = select(FormerNames.case_id, FormerNames.name)
        with self._database.reading() as connection:
            return {(number, name) for number, name in connection.execute(query)}

    def case_history(self, case_id: str, device: str | None = None, last: int | None = None) -> list[HistoryRow]:
        """Return the levels of a case in each run, without details and explanations, oldest first.

        Args:
            case_id: the name of the case, which may be a former one.
            device: the UUID of a device; None for all devices.
            last: read only the newest so many runs that measured the case; None for all.

        Raises:
            NotMeasuredError: the case is unknown.
        """
        with self._database.reading() as connection:
            series = self._of_case(connection, case_id, device)
            where = [among(Levels.series_id, series)]
            if last is not None:
                newest = select(Levels.run_id).where(*where).distinct().order_by(Levels.run_id.desc()).limit(last)
                where.append(among(Levels.run_id, connection.scalars(newest).all()))
            histories = read_histories(connection, series, *where)
            of_run = (Runs.id, Runs.started_at, Runs.git_commit, Runs.git_dirty, Runs.label)
            ids = {number for history in histories.values() for number in history.runs.tolist()}
            rows_of_runs: Iterable[Any] = connection.execute(select(*of_run).where(among(Runs.id, ids)))
            runs = {number: rest for number, *rest in rows_of_runs}
        found: dict[tuple[int, str, CacheState], dict[str, tuple[Series, SeriesHistory, int]]] = defaultdict(dict)
        rank = {of: number for number, of in series.items()}
        for of in sorted(histories, key=rank.__getitem__):
            for at, number in enumerate(histories[of].runs.tolist()):
                found[number, of.device, of.cache][of.metric] = of, histories[of], at
        hidden = {TIME, *AUXILIARY}
        rows = []
        for (run, _, cache), metrics in sorted(found.items()):
            of, history, at = metrics.get(TIME, next(iter(metrics.values())))
            status, reason = history.bad.get(at, (Status.OK, ""))
            started, commit, dirty, label = runs[run]
            is_timed = TIME in metrics and history.replicas[at] > 0
            rows.append(
                HistoryRow(
                    run,
                    started,
                    commit,
                    dirty,
                    label,
                    of.case.id,
                    of.device,
                    of.device_model,
                    cache,
                    status,
                    reason,
                    float(history.level[at]) if is_timed else None,
                    float(history.low[at]) if is_timed else None,
                    float(history.high[at]) if is_timed else None,
                    max(int(each.replicas[place]) for _, each, place in metrics.values()),
                    metrics={
                        name: float(each.level[place])
                        for name, (_, each, place) in sorted(metrics.items())
                        if name not in hidden
                    },
                    excluded=history.excluded.get(at, ""),
                )
            )
        return rows

    def count_runs(self, case_id: str, device: str | None = None) -> int:
        """Return how many runs ``case_history`` returns without ``last``; raises ``NotMeasuredError`` as it does."""
        with self._database.reading() as connection:
            of_case = among(Levels.series_id, self._of_case(connection, case_id, device))
            return connection.scalar(select(func.count(Levels.run_id.distinct())).where(of_case)) or 0

    @staticmethod
    def _of_case(connection: Connection, case_id: str, device: str | None) -> dict[int, Series]:
        """Return the series of a case, on one device or all, by their id; raises ``NotMeasuredError``."""
        is_case = SeriesRows.case_id == id_of_name(connection, case_id)
        return load_series(connection, is_case, *(() if device is None else (Devices.uuid == device,)))

    def newest_histories(
        self, runs: Collection[int], most: int, *, errors: Collection[Series] = ()
    ) -> dict[Series, SeriesHistory]:
        """Return what ``histories`` returns of all series as lists show it, which is several times as fast.

        Points older than the newest ``most`` may be missing.
        """
        with self._database.reading() as connection:
            known = _shown(load_series(connection), errors)
            newest = _histories(connection, sorted(runs)[-most:], known)
            short = {number: series for number, series in known.items() if len(newest.get(series, ())) < most}
            return newest | _histories(connection, runs, short)

    def histories(
        self, runs: Collection[int], *, errors: Collection[Series] = (), cases: Collection[Case] | None = None
    ) -> dict[Series, SeriesHistory]:
        """Return the history over some runs of every series whose metric is judged.

        A history begins with the oldest run and lacks the runs that did not measure the series. In a run where a
        replica of a case is not ok, only the time is present, without values, with the status and the reason of the
        worst replica. The errors of results are left out except for the series ``errors``: they hardly ever change, and
        there are as many errors as times. Data that is excluded from judging is included, with the reason of the
        exclusion. With ``cases``, only the series of these cases are returned.
        """
        with self._database.reading() as connection:
            of_cases = [] if cases is None else [among(SeriesRows.case_id, set(ids_of(connection, cases).values()))]
            return _histories(connection, runs, _shown(load_series(connection, *of_cases), errors))

    def measured(self, runs: Collection[int]) -> set[Series]:
        """Return the series of the histories of some runs, those of errors too."""
        in_a_run = exists().where(
            Levels.series_id == SeriesRows.id, Levels.status.is_not(None), among(Levels.run_id, runs)
        )
        with self._database.reading() as connection:
            return set(load_series(connection, in_a_run).values())

    def unsuccessful(self, run: int) -> dict[Series, SeriesHistory]:
        """Return the histories of this one run of the series without a correct result; excluded data is left out."""
        bad = (Levels.run_id == run, Levels.status != Status.OK, Levels.excluded.is_(None))
        with self._database.reading() as connection:
            return read_histories(connection, load_series(connection), *bad)

    def histories_until(self, run: int, last: int) -> dict[Series, SeriesHistory]:
        """Return the histories up to a run of all series whose case this run measured, if verdicts judge their metric.

        A history has at most ``last`` runs: the newest of the same scope that have ended and measured committed code.
        It begins with the oldest of these runs that measured anything on a device in the same environment as now.
        Excluded data is left out, and a level with a value of 0 or below has no number. A renamed case keeps its
        history. A history lacks runs that did not measure it.
        """
        with self._database.reading() as connection:
            runs = _runs_until(connection, run, last)
            of_runs = (among(Levels.run_id, runs), Levels.excluded.is_(None))
            read = read_histories(connection, load_series(connection), *of_runs, positive=True)
        measured = {_key(series) for series, history in read.items() if run in history.runs}
        return {series: history for series, history in read.items() if _key(series) in measured}

    def samples(
        self, runs: Collection[int], cases: Collection[Case] | None = None
    ) -> dict[Series, dict[int, tuple[NDArray[np.float32], ...]]]:
        """Return the samples of each time series in some runs, in seconds: one array for each replica that is ok.

        Samples that are excluded from judging are left out. With ``cases``, only the series of these cases are
        returned.
        """
        query = (
            select(SeriesRows.id, Measurements.run_id, Measurements.samples)
            .join(SeriesRows, TIME_OF_MEASUREMENT)
            .where(among(Measurements.run_id, runs), Measurements.samples.is_not(None))
            .where(Measurements.status == Status.OK, judged(Measurements.run_id, Measurements.case_id))
            .order_by(Measurements.run_id, SeriesRows.id, Measurements.replica)
        )
        found: dict[int, dict[int, tuple[NDArray[np.float32], ...]]] = defaultdict(dict)
        with self._database.reading() as connection:
            where = [SeriesRows.metric == TIME]
            if cases is not None:
                ids = set(ids_of(connection, cases).values())
                where.append(among(SeriesRows.case_id, ids))
                query = query.where(among(Measurements.case_id, ids))
            series = load_series(connection, *where)
            # As plain tuples, and by numbers: two weeks of nights have tens of thousands of rows.
            rows: Iterable[Any] = map(tuple, connection.execute(query))
            for number, run, blob in rows:
                replica = readable_samples(blob, series[number].case)
                if replica is not None:
                    found[number][run] = (*found[number].get(run, ()), replica)
        return {series[number]: of_runs for number, of_runs in found.items()}


def _shown(series: Mapping[int, Series], errors: Container[Series]) -> dict[int, Series]:
    """Return the series without those of errors of results, except for some."""
    return {number: of for number, of in series.items() if of.metric != MAX_ERROR or of in errors}


def _histories(
    connection: Connection, runs: Collection[int], series: Mapping[int, Series]
) -> dict[Series, SeriesHistory]:
    """Return the histories of some series over some runs."""
    return read_histories(connection, series, among(Levels.run_id, runs), among(Levels.series_id, series))


def _runs_until(connection: Connection, run: int, last: int) -> list[int]:
    """Return a run and earlier runs of its scope (suite and selection), at most ``last`` in all, oldest first.

    The list begins with the oldest run that measured in an environment of this run: older runs belong to other segments
    (times with another driver or compiler).
    """
    scope = select(Runs.scope).where(Runs.id == run).scalar_subquery()
    earlier = (Runs.id < run, Runs.scope == scope, Runs.git_dirty.is_(False), Runs.state.in_(ENDED), judged(Runs.id))
    newest = select(Runs.id).where(*earlier).order_by(Runs.id.desc()).limit(last - 1)
    runs = [*sorted(connection.scalars(newest)), run]
    environments = select(Measurements.environment_id).where(Measurements.run_id == run).distinct()
    first = connection.scalar(
        select(func.min(Measurements.run_id)).where(
            Measurements.environment_id.in_(connection.scalars(environments).all()),
            among(Measurements.run_id, runs),
            judged(Measurements.run_id, Measurements.case_id),
        )
    )
    return runs[runs.index(first or run) :]


def _key(series: Series) -> CaseKey:
    return series.device, series.case, series.cache
