"""Verdicts on the series of a run, and confirmations: suspects of the run that were measured again in A/B pairs."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, delete, exists, insert, select

from perfsvc.model import (
    MAX_ERROR,
    TIME,
    Case,
    Cause,
    Confirmation,
    Judgement,
    Measurement,
    Series,
    Suspect,
    Verdict,
)
from perfsvc.store.baselines.nights import IS_EVENT
from perfsvc.store.cases import (
    CASE_COLUMNS,
    Names,
    case_id,
    case_ids,
    case_of,
    device_id,
    device_ids,
    ids_of,
    judged,
    series_of,
    with_case,
)
from perfsvc.store.measurements.batches import batch_summary
from perfsvc.store.rows import VerdictEvent
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import Database, among, new_id
from perfsvc.store.schema.judging_tables import ConfirmationRuns, Confirmations, Verdicts
from perfsvc.store.schema.samples import pack, readable_samples
from perfsvc.store.schema.tables import Cases, Devices, Runs

_SIDES = ("baseline", "candidate")


def _words(column: Any) -> Callable[[str | None], Any]:
    """Return a function that converts the texts of a column as the column's type does, each once."""
    return cache(lambda text: column.type.process_result_value(text, None))


class VerdictStore:
    """Verdicts; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, run: int, judgements: Sequence[Judgement]) -> None:
        """Store the verdicts on a run's series; they replace all earlier verdicts on the run."""
        with self._database.writing() as connection:
            connection.execute(delete(Verdicts).where(Verdicts.run_id == run))
            cases = case_ids(connection, (judgement.series.case for judgement in judgements))
            devices = device_ids(connection, (judgement.series.device for judgement in judgements))
            rows = [
                {
                    "run_id": run,
                    "case_id": cases[judgement.series.case],
                    "device_id": devices[judgement.series.device],
                    "metric": judgement.series.metric,
                    "cache": judgement.series.cache,
                    "verdict": judgement.verdict,
                    "reason": judgement.reason,
                    "ratio": number(judgement.ratio),
                    "low": number(judgement.low),
                    "high": number(judgement.high),
                    "baseline_run_id": judgement.baseline_run,
                    "baseline_s": number(judgement.baseline_s),
                    "candidate_s": number(judgement.candidate_s),
                    "smallest": number(judgement.smallest),
                    "baseline_replicas": judgement.baseline_replicas,
                    "candidate_replicas": judgement.candidate_replicas,
                    "baseline_runs": judgement.baseline_runs,
                    "between_nights": number(judgement.between_nights),
                    "cause": judgement.cause,
                }
                for judgement in judgements
            ]
            if rows:
                connection.execute(insert(Verdicts), rows)

    def of_run(self, run: int, cases: Collection[Case] | None = None) -> list[Judgement]:
        """Return the verdicts on a run's series, except excluded ones.

        With ``cases``, only the verdicts on these cases are returned.
        """
        query = (
            select(
                *CASE_COLUMNS,
                *(Devices.uuid, Devices.model, Verdicts.metric, Verdicts.cache),
                Verdicts.verdict,
                Verdicts.reason,
                Verdicts.ratio,
                Verdicts.low,
                Verdicts.high,
                Verdicts.baseline_run_id,
                Verdicts.run_id,
                Verdicts.baseline_s,
                Verdicts.candidate_s,
                Verdicts.smallest,
                Verdicts.baseline_replicas,
                Verdicts.candidate_replicas,
                Verdicts.baseline_runs,
                Verdicts.between_nights,
                Verdicts.cause,
            )
            .join(Cases, Cases.id == Verdicts.case_id)
            .join(Devices, Devices.id == Verdicts.device_id)
            .where(Verdicts.run_id == run, judged(Verdicts.run_id, Verdicts.case_id))
            .order_by(Verdicts.case_id, Verdicts.device_id, Verdicts.metric, Verdicts.cache)
        )
        with self._database.reading() as connection:
            if cases is not None:
                query = query.where(among(Verdicts.case_id, ids_of(connection, cases).values()))
            rows = connection.execute(query).all()
        # The columns are in the order of the fields: a night has ten thousands of verdicts, and names take long.
        return [Judgement(Series(case_of(*row[:4]), *row[4:8]), *row[8:]) for row in rows]

    def runs(self, runs: Collection[int]) -> set[int]:
        """Return which of some runs have a verdict that is not excluded."""
        query = select(Runs.id).where(
            among(Runs.id, runs),
            exists().where(Verdicts.run_id == Runs.id, judged(Verdicts.run_id, Verdicts.case_id)),
        )
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
            query = (
                with_case(Verdicts)
                .where(among(Verdicts.case_id, ids.values()))
                .where(Devices.model.not_in(models), Devices.kind.not_in(("cpu", "host")))
                .where(Verdicts.run_id >= since, judged(Verdicts.run_id, Verdicts.case_id))
                .order_by(Verdicts.run_id)
            )
            rows = [(series_of(row), row.run_id, row.verdict) for row in connection.execute(query)]
        return [row for row in rows if (row[0].case, row[0].metric, row[0].cache) in wanted]

    def events(
        self, runs: Collection[int], cases: Collection[Case] | None = None, *, metric: str | None = None
    ) -> dict[Series, list[VerdictEvent]]:
        """Return the verdicts of some runs on series that moved, broke or went missing, oldest first.

        Excluded runs and cases are left out. With ``cases``, only the verdicts on these
        cases are returned, and with ``metric``, only those on this metric.
        """
        query = (
            select(
                *(Verdicts.case_id, Verdicts.device_id, Verdicts.metric, Verdicts.cache),
                *(Verdicts.run_id, Verdicts.verdict, Verdicts.ratio, Verdicts.cause),
            )
            .where(among(Verdicts.run_id, runs), IS_EVENT)
            .where(judged(Verdicts.run_id, Verdicts.case_id))
            .order_by(Verdicts.run_id)
        )
        if metric is not None:
            query = query.where(Verdicts.metric == metric)
        # By ids, and as plain tuples: a year of nights has tens of thousands of events, and series are slow keys.
        events: dict[tuple[Any, ...], list[VerdictEvent]] = defaultdict(list)
        with self._database.reading() as connection:
            ids = None
            if cases is not None:
                ids = set(ids_of(connection, cases).values())
                query = query.where(among(Verdicts.case_id, ids))
            names = Names(connection, ids)
            verdicts, causes, states = (_words(column) for column in (Verdicts.verdict, Verdicts.cause, Verdicts.cache))
            with connection.execute(query) as result:
                # SQLAlchemy would convert each text anew, which takes longer than reading it.
                for *key, run, verdict, ratio, cause in result.cursor.fetchall():
                    events[tuple(key)].append(VerdictEvent(run, verdicts(verdict), ratio, causes(cause)))
            return {
                names.series(case, device, of_metric, states(cache)): of_series
                for (case, device, of_metric, cache), of_series in events.items()
            }


class ConfirmationStore:
    """Confirmations; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, confirmation: Confirmation) -> None:
        """Add a confirmation of a suspect whose run and device are in the database; earlier confirmations stay."""
        judgement, series = confirmation.suspect.judgement, confirmation.suspect.series
        with self._database.writing() as connection:
            row = {
                "run_id": judgement.candidate_run,
                "case_id": case_id(connection, series.case),
                "device_id": device_id(connection, series.device),
                "metric": series.metric,
                "cache": series.cache,
                "baseline_run_id": judgement.baseline_run,
                "judged": judgement.verdict,
                "judged_ratio": number(judgement.ratio),
                "judged_baseline_s": number(judgement.baseline_s),
                "judged_candidate_s": number(judgement.candidate_s),
                "change": confirmation.suspect.change,
                "direction": confirmation.suspect.direction,
                "cause": confirmation.cause,
                "reason": confirmation.reason,
                "verdict": confirmation.verdict,
                "ratio": number(confirmation.ratio),
                "low": number(confirmation.low),
                "high": number(confirmation.high),
                "looks": confirmation.looks,
                "drift": number(confirmation.drift),
                "same_code": confirmation.same_code,
                "threshold": confirmation.threshold,
                "seed": confirmation.seed,
                "budget_s": confirmation.budget_s,
                "wall_s": confirmation.wall_s,
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
        wanted = set(series)
        devices = select(Devices.id).where(Devices.uuid.in_({measured.device for measured in wanted}))
        query = with_case(Confirmations).where(Confirmations.device_id.in_(devices))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(Confirmations.id)).all() if wanted else ()
        return [_confirmation(row, (), ()) for row in rows if series_of(row) in wanted]

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
    return {
        "number": measurement.replica,
        "status": measurement.status,
        "reason": measurement.reason,
        "samples": pack(measurement.samples_s) if measurement.samples_s else None,
        "sample_count": len(measurement.samples_s),
        "value": number(value),
        "wall_s": measurement.wall_s,
        **batch_summary(measurement.batches),
    }


def _of_runs(runs: Collection[int]) -> Select[Any]:
    query = with_case(Confirmations)
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
    return Confirmation(
        Suspect(judgement, row.change, row.direction),
        row.cause,
        row.reason,
        threshold=row.threshold,
        seed=row.seed,
        budget_s=row.budget_s,
        verdict=row.verdict,
        ratio=row.ratio,
        low=row.low,
        high=row.high,
        looks=row.looks,
        drift=row.drift,
        same_code=row.same_code,
        wall_s=row.wall_s,
        baseline=tuple(_measurement(side_run, series) for side_run in baseline),
        candidate=tuple(_measurement(side_run, series) for side_run in candidate),
    )


def _measurement(side_run: Any, series: Series) -> Measurement:
    """Return the measurement of a row of ``confirmation_runs``; the row's value is a metric or the result's error."""
    has_metric = side_run.value is not None and series.metric != MAX_ERROR
    samples = None if side_run.samples is None else readable_samples(side_run.samples, series.case.id)
    return Measurement(
        series.case,
        series.device,
        side_run.number,
        side_run.status,
        series.cache,
        reason=side_run.reason,
        samples_s=() if samples is None else tuple(samples.tolist()),
        max_error=None if has_metric else side_run.value,
        metrics={series.metric: side_run.value} if has_metric else {},
        wall_s=side_run.wall_s,
    )
