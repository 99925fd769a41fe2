"""What came of measuring suspects again: the decision, and what both sides were measured to take."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, and_, bindparam, insert, or_, select
from sqlalchemy.orm import aliased

from perfsvc.model import (
    MAX_ERROR,
    TIME,
    Confirmation,
    Judgement,
    Measurement,
    Series,
    Suspect,
)
from perfsvc.store.cases import case_id, case_of, device_id, own_name
from perfsvc.store.measurements import batch_summary, pack, unpack
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import Database, new_id
from perfsvc.store.schema.judging_tables import ConfirmationRuns, Confirmations
from perfsvc.store.schema.tables import Cases, Devices

SIDES = ("baseline", "candidate")


class ConfirmationStore:
    """Suspects that were measured again; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, confirmation: Confirmation) -> None:
        """Stores what came of a suspect, beside what was stored of it before; its run and device must be there."""
        with self._database.writing() as connection:
            _put(connection, confirmation)

    def of_run(self, run: int) -> list[Confirmation]:
        """What came of the suspects of a run, in the order they were measured again, cleared ones included.

        Of each process there are samples (rounded to float32), what it had of another metric that was in doubt, status
        and reason; of the suspect, under the present name of its case, its runs, verdict, levels and ratio.
        """
        with self._database.reading() as connection:
            return _of_run(connection, run)

    def series(self, runs: Collection[int]) -> set[Series]:
        """The suspects of some runs that were measured again, under the present names of their cases."""
        with self._database.reading() as connection:
            return {_series(row) for row in connection.execute(_named(), {"runs": list(runs)})}


def _put(connection: Connection, confirmation: Confirmation) -> None:
    judged, series = confirmation.suspect.judgement, confirmation.suspect.series
    row = {
        "run_id": judged.candidate_run,
        "case_id": case_id(connection, series.case),
        "device_id": device_id(connection, series.device),
        "metric": series.metric,
        "cache": series.cache,
        "baseline_run_id": judged.baseline_run,
        "judged": judged.verdict,
        "judged_ratio": number(judged.ratio),
        "judged_baseline_s": number(judged.baseline_s),
        "judged_candidate_s": number(judged.candidate_s),
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
    stored = new_id(connection, Confirmations, row)
    turns = [_turn(stored, side, one, series.metric) for side in SIDES for one in getattr(confirmation, side)]
    if turns:
        connection.execute(insert(ConfirmationRuns), turns)


def _turn(confirmation: int, side: str, measurement: Measurement, metric: str) -> dict[str, Any]:
    value = None if metric == TIME else next(iter(measurement.values_of(metric)), None)
    return {
        "confirmation_id": confirmation,
        "number": measurement.replica,
        "side": side,
        "status": measurement.status,
        "reason": measurement.reason,
        "samples": pack(measurement.samples_s) if measurement.samples_s else None,
        "sample_count": len(measurement.samples_s),
        "value": number(value),
        "wall_s": measurement.wall_s,
        **batch_summary(measurement.batches),
    }


def _of_run(connection: Connection, run: int) -> list[Confirmation]:
    rows = connection.execute(_named(), {"runs": [run]}).all()
    turns = _turns(connection, [row.id for row in rows]) if rows else {}
    return [_confirmation(row, turns[row.id]) for row in rows]


@cache
def _named() -> Any:
    """The confirmations of some runs, each with the name under which its case is handed out (``naming.own_name``)."""
    present, own = aliased(Cases), own_name(Confirmations.run_id)
    named = or_(and_(own == 0, present.former.is_(False)), present.id == own)
    names = (present.benchmark, present.variant, present.point, present.version, Devices.uuid, Devices.model)
    return (
        select(Confirmations, *names)
        .join(Cases, Cases.id == Confirmations.case_id)
        .join(Devices, Devices.id == Confirmations.device_id)
        .join(present, and_(present.lineage_id == Cases.lineage_id, named))
        .where(Confirmations.run_id.in_(bindparam("runs", expanding=True)))
        .order_by(Confirmations.id)
    )


def _series(row: Any) -> Series:
    case = case_of(row.benchmark, row.variant, row.point, row.version)
    return Series(case, row.uuid, row.model, row.metric, row.cache)


def _turns(connection: Connection, confirmations: Sequence[int]) -> Mapping[int, Sequence[Any]]:
    query = (
        select(ConfirmationRuns)
        .where(ConfirmationRuns.confirmation_id.in_(confirmations))
        .order_by(ConfirmationRuns.number)
    )
    found: dict[int, list[Any]] = defaultdict(list)
    for turn in connection.execute(query):
        found[turn.confirmation_id].append(turn)
    return found


def _confirmation(row: Any, turns: Sequence[Any]) -> Confirmation:
    series = _series(row)
    judged = Judgement(
        series,
        row.judged,
        ratio=row.judged_ratio,
        baseline_run=row.baseline_run_id,
        candidate_run=row.run_id,
        baseline_s=row.judged_baseline_s,
        candidate_s=row.judged_candidate_s,
    )
    sides = {side: tuple(_measured(one, series) for one in turns if one.side == side) for side in SIDES}
    return Confirmation(
        Suspect(judged, row.change, row.direction),
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
        **sides,
    )


def _measured(turn: Any, series: Series) -> Measurement:
    samples = () if turn.samples is None else unpack(turn.samples)
    named = turn.value is not None and series.metric != MAX_ERROR
    return Measurement(
        series.case,
        series.device,
        turn.number,
        turn.status,
        series.cache,
        reason=turn.reason,
        samples_s=samples,
        max_error=None if named else turn.value,
        metrics={series.metric: turn.value} if named else {},
        wall_s=turn.wall_s,
    )
