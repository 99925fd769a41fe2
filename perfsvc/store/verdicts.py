"""Verdicts on the series of a run, judged when the run ended."""

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlalchemy import delete, insert

from perfsvc.model import Judgement, Series, Verdict
from perfsvc.store.cases import case_ids, device_ids, series_of, with_case, with_series
from perfsvc.store.rows import VerdictEvent
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import Database
from perfsvc.store.schema.judging_tables import Verdicts

QUIET = (Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.NEW)
"""The verdicts that are not events in a history."""


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
                    "cause": judgement.cause,
                }
                for judgement in judgements
            ]
            if rows:
                connection.execute(insert(Verdicts), rows)

    def of_run(self, run: int) -> list[Judgement]:
        """Return the verdicts on a run's series, under the names that their cases had."""
        query = (
            with_case(Verdicts)
            .where(Verdicts.run_id == run)
            .order_by(Verdicts.case_id, Verdicts.device_id, Verdicts.metric, Verdicts.cache)
        )
        with self._database.reading() as connection:
            return [
                Judgement(
                    series_of(row),
                    row.verdict,
                    reason=row.reason,
                    ratio=row.ratio,
                    low=row.low,
                    high=row.high,
                    baseline_run=row.baseline_run_id,
                    candidate_run=run,
                    baseline_s=row.baseline_s,
                    candidate_s=row.candidate_s,
                    smallest=row.smallest,
                    baseline_replicas=row.baseline_replicas,
                    candidate_replicas=row.candidate_replicas,
                    cause=row.cause,
                )
                for row in connection.execute(query)
            ]

    def events(self, runs: Collection[int]) -> dict[Series, list[VerdictEvent]]:
        """Return the verdicts of some runs that are events, oldest first, under the present names of their cases."""
        query = (
            with_series(Verdicts, Verdicts.run_id)
            .where(Verdicts.run_id.in_(runs), Verdicts.verdict.not_in(QUIET))
            .order_by(Verdicts.run_id)
        )
        events: dict[Series, list[VerdictEvent]] = defaultdict(list)
        with self._database.reading() as connection:
            for row in connection.execute(query):
                events[series_of(row)].append(VerdictEvent(row.run_id, row.verdict, row.ratio, row.cause))
        return dict(events)
