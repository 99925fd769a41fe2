"""Verdicts on the series of a run, and confirmations: suspects of the run that were measured again in A/B pairs."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, bindparam, delete, exists, insert, select, update

from perfsvc.model import MAX_ERROR, TIME, Case, Cause, Confirmation, Judgement, Measurement, Series, Suspect, Verdict
from perfsvc.store.baselines.nights import IS_EVENT
from perfsvc.store.cases import ids_of, load_series, put_series, series_ids, series_of, with_series
from perfsvc.store.levels import VERDICT, note_exclusions, replicas_in
from perfsvc.store.measurements.batches import batch_summary
from perfsvc.store.rows import VerdictEvent
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import StorePart, among, new_id
from perfsvc.store.schema.judging_tables import ConfirmationRuns, Confirmations
from perfsvc.store.schema.samples import pack, readable_samples
from perfsvc.store.schema.tables import Devices, Levels, Runs, SeriesRows

_SIDES = ("baseline", "candidate")


class VerdictStore(StorePart):
    """Verdicts; each method is one transaction."""

    def put(self, run: int, judgements: Sequence[Judgement]) -> None:
        """Store the verdicts on a run's series; they replace all earlier verdicts on the run."""
        none = dict.fromkeys(VERDICT)
        of_run = Levels.run_id == run
        with self._database.writing() as connection:
            connection.execute(delete(Levels).where(of_run, Levels.status.is_(None)))
            connection.execute(update(Levels).where(of_run, Levels.verdict.is_not(None)).values(none))
            ids = put_series(connection, (judgement.series for judgement in judgements))
            baselines = {judgement.baseline_run for judgement in judgements if judgement.baseline_run}
            there = set(
                connection.scalars(select(Runs.id).where(among(Runs.id, baselines)))
            )  # it may be deleted by now
            measured = set(connection.scalars(select(Levels.series_id).where(of_run)))
            rows = [
                {name: value for name, value in to_row(Levels, judgement).items() if name in VERDICT}
                | {"of": ids[judgement.series], "verdict_reason": judgement.reason}
                | ({} if judgement.baseline_run in there else {"baseline_run_id": None})
                for judgement in judgements
            ]
            if absent := [
                {"run_id": run, "series_id": row["of"], "reason": ""} for row in rows if row["of"] not in measured
            ]:
                connection.execute(insert(Levels), absent)
            if rows:
                connection.execute(update(Levels).where(of_run, Levels.series_id == bindparam("of")), rows)
            if absent:
                note_exclusions(connection, run)

    def of_run(self, run: int, cases: Collection[Case] | None = None) -> list[Judgement]:
        """Return the verdicts on a run's series, except excluded ones.

        With ``cases``, only the verdicts on these cases are returned.
        """
        query = (
            select(Levels.series_id, Levels.level, Levels.medians, Levels.status, Levels.run_id)
            .add_columns(*(getattr(Levels, name) for name in VERDICT))
            .join(SeriesRows, SeriesRows.id == Levels.series_id)
            .where(Levels.run_id == run, Levels.verdict.is_not(None), Levels.excluded.is_(None))
            .order_by(SeriesRows.case_id, SeriesRows.device_id, SeriesRows.metric, SeriesRows.cache)
        )
        with self._database.reading() as connection:
            where = () if cases is None else (among(SeriesRows.case_id, ids_of(connection, cases).values()),)
            series = load_series(connection, *where)
            rows = connection.execute(query.where(*where)).all()
        return [
            from_row(
                Judgement,
                row,
                series=series[row.series_id],
                reason=row.verdict_reason,
                candidate_run=run,
                candidate_s=row.level,
                candidate_replicas=None if row.status is None else replicas_in(row.medians),
            )
            for row in rows
        ]

    def runs(self, runs: Collection[int]) -> set[int]:
        """Return which of some runs have a verdict that is not excluded."""
        judged = (Levels.verdict.is_not(None), Levels.excluded.is_(None))
        query = select(Runs.id).where(among(Runs.id, runs), exists().where(Levels.run_id == Runs.id, *judged))
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def on_other_models(
        self, series: Collection[Series], models: Collection[str], since: int
    ) -> list[tuple[Series, int, Verdict]]:
        """Return the verdicts on the cases of some series on GPUs of other models, the newest run last.

        Only series with the same metric and cache state count, and no excluded data.

        Args:
            series: the series.
            models: the models whose verdicts are left out.
            since: the first run that counts.
        """
        wanted = {(one.case, one.metric, one.cache) for one in series}
        with self._database.reading() as connection:
            ids = ids_of(connection, {one.case for one in series})
            others = Devices.model.not_in(models), Devices.kind.not_in(("cpu", "host"))
            known = load_series(connection, among(SeriesRows.case_id, ids.values()), *others)
            known = {number: of for number, of in known.items() if (of.case, of.metric, of.cache) in wanted}
            query = (
                select(Levels.series_id, Levels.run_id, Levels.verdict)
                .where(among(Levels.series_id, known), Levels.run_id >= since)
                .where(Levels.verdict.is_not(None), Levels.excluded.is_(None))
                .order_by(Levels.run_id, Levels.series_id)
            )
            rows: Iterable[Any] = connection.execute(query)
            return [(known[number], run, verdict) for number, run, verdict in rows]

    def events(
        self, runs: Collection[int], cases: Collection[Case] | None = None, *, metric: str | None = None
    ) -> dict[Series, list[VerdictEvent]]:
        """Return the verdicts of some runs on series that moved, broke or went missing, oldest first.

        Excluded runs and cases are left out. With ``cases``, only the verdicts on these
        cases are returned, and with ``metric``, only those on this metric.
        """
        query = (
            select(Levels.series_id, Levels.run_id, Levels.verdict, Levels.ratio, Levels.cause)
            # By a sum, which no other index finds: SQLite would read all levels of the runs.
            .where(among(Levels.run_id + 0, runs), IS_EVENT, Levels.excluded.is_(None))
            .order_by(Levels.run_id, Levels.series_id)
        )
        events: dict[Series, list[VerdictEvent]] = defaultdict(list)
        with self._database.reading() as connection:
            where = [] if metric is None else [SeriesRows.metric == metric]
            if cases is not None:
                where.append(among(SeriesRows.case_id, ids_of(connection, cases).values()))
            if where:
                query = query.where((Levels.series_id + 0).in_(select(SeriesRows.id).where(*where)))
            rows: Sequence[Any] = connection.execute(query).all()
            series = load_series(connection, among(SeriesRows.id, {number for number, *_ in rows}))
            for number, *event in rows:
                events[series[number]].append(VerdictEvent(*event))
        return dict(events)


class ConfirmationStore(StorePart):
    """Confirmations; each method is one transaction."""

    def put(self, confirmation: Confirmation) -> None:
        """Add a confirmation of a suspect whose run and device are in the database; earlier confirmations stay."""
        judgement, series = confirmation.suspect.judgement, confirmation.suspect.series
        with self._database.writing() as connection:
            row = to_row(Confirmations, confirmation) | {
                "run_id": judgement.candidate_run,
                "series_id": put_series(connection, [series])[series],
                "baseline_run_id": judgement.baseline_run,
                "judged": judgement.verdict,
                "judged_ratio": number(judgement.ratio),
                "judged_baseline_s": number(judgement.baseline_s),
                "judged_candidate_s": number(judgement.candidate_s),
                "change": confirmation.suspect.change,
                "direction": confirmation.suspect.direction,
                "confirmed_at": datetime.now(UTC),
            }
            confirmation_id = new_id(connection, Confirmations, row)
            runs = [
                {"confirmation_id": confirmation_id, "side": side, **_run_row(measurement, series.metric)}
                for side in _SIDES
                for measurement in getattr(confirmation, side)
            ]
            if runs:
                connection.execute(insert(ConfirmationRuns), runs)

    def of_run(self, run: int) -> list[Confirmation]:
        """Return the confirmations of a run's suspects, including cleared suspects, in the order of measurement.

        Of the measurements of both sides, these values are stored: samples (rounded to float32), the value of a metric
        other than time, status, reason and wall time. The suspect has its series, runs, verdict, levels and ratio.
        """
        with self._database.reading() as connection:
            rows = connection.execute(_of_runs([run])).all()
            sides: dict[tuple[int, str], list[Any]] = defaultdict(list)
            runs = select(ConfirmationRuns).where(among(ConfirmationRuns.confirmation_id, [row.id for row in rows]))
            for side_run in connection.execute(runs.order_by(ConfirmationRuns.number)):
                sides[side_run.confirmation_id, side_run.side].append(side_run)
        return [_confirmation(row, sides[row.id, "baseline"], sides[row.id, "candidate"]) for row in rows]

    def of_series(self, series: Collection[Series]) -> list[Confirmation]:
        """Return the confirmations of some series in all runs, oldest first, without the measurements of both sides."""
        with self._database.reading() as connection:
            of_series = among(Confirmations.series_id, series_ids(connection, set(series)).values())
            rows = connection.execute(with_series(Confirmations).where(of_series).order_by(Confirmations.id)).all()
        return [_confirmation(row, (), ()) for row in rows]

    def series(self, runs: Collection[int], *, conclusive: bool = False) -> set[Series]:
        """Return the series that were measured again as suspects of some runs.

        With ``conclusive``, only the series whose confirmation found a cause are returned.
        """
        query = _of_runs(runs)
        if conclusive:
            query = query.where(Confirmations.cause != Cause.UNCONFIRMED)
        with self._database.reading() as connection:
            return {series_of(row) for row in connection.execute(query)}


def _run_row(measurement: Measurement, metric: str) -> dict[str, Any]:
    """Return the columns of a process that measured one side; ``metric`` is the metric of the suspect."""
    value = None if metric == TIME else next(iter(measurement.values_of(metric)), None)
    return to_row(ConfirmationRuns, measurement) | {
        "number": measurement.replica,
        "samples": pack(measurement.samples_s) if measurement.samples_s else None,
        "sample_count": len(measurement.samples_s),
        "value": number(value),
        **batch_summary(measurement.batches),
    }


def _of_runs(runs: Collection[int]) -> Select[Any]:
    query = with_series(Confirmations)
    return query.where(among(Confirmations.run_id, runs)).order_by(Confirmations.id)


def _confirmation(row: Any, baseline: Collection[Any], candidate: Collection[Any]) -> Confirmation:
    """Return a confirmation from its row and the rows of the processes that measured its two sides."""
    series = series_of(row)
    judgement = Judgement(
        series,
        row.judged,
        ratio=row.judged_ratio,
        baseline_run=row.baseline_run_id,
        candidate_run=row.run_id,
        baseline_s=row.judged_baseline_s,
        candidate_s=row.judged_candidate_s,
    )
    return from_row(
        Confirmation,
        row,
        suspect=Suspect(judgement, row.change, row.direction),
        baseline=tuple(_measurement(side_run, series) for side_run in baseline),
        candidate=tuple(_measurement(side_run, series) for side_run in candidate),
    )


def _measurement(side_run: Any, series: Series) -> Measurement:
    """Return the measurement of a row of ``confirmation_runs``; the row's value is a metric or the result's error."""
    has_metric = side_run.value is not None and series.metric != MAX_ERROR
    samples = None if side_run.samples is None else readable_samples(side_run.samples, series.case.id)
    return from_row(
        Measurement,
        side_run,
        case=series.case,
        device=series.device,
        replica=side_run.number,
        cache=series.cache,
        samples_s=() if samples is None else tuple(samples.tolist()),
        max_error=None if has_metric else side_run.value,
        metrics={series.metric: side_run.value} if has_metric else {},
    )
