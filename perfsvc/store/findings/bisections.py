"""Bisections of the cases of findings: stored as JSON, because only people read them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from sqlalchemy import Connection, select

from perfsvc.model import Bisection, Measurement, StoredBisection, Trial
from perfsvc.model.codec import encode
from perfsvc.store.schema.column_types import stored
from perfsvc.store.schema.engine import new_id
from perfsvc.store.schema.judging_tables import Bisections


def put(connection: Connection, finding: int, bisection: Bisection) -> None:
    """Add a bisection to a finding that exists; earlier bisections stay."""
    stored = replace(
        bisection,
        proof=bisection.proof and _without_samples(bisection.proof),
        trials=tuple(map(_without_samples, bisection.trials)),
    )
    row = {"finding_id": finding, "answer": encode(stored).decode(), "stored_at": datetime.now(UTC)}
    new_id(connection, Bisections, row)


def load(connection: Connection, finding: int) -> list[StoredBisection]:
    """Return the bisections of a finding, the newest first; raise ``DatabaseError`` if one of them is damaged."""
    query = select(Bisections).where(Bisections.finding_id == finding).order_by(Bisections.id.desc())
    return [
        StoredBisection(stored(Bisection, row.answer, f"bisection {row.id} of finding {finding}"), row.stored_at)
        for row in connection.execute(query)
    ]


def _without_samples(trial: Trial) -> Trial:
    return replace(trial, baseline=_medians(trial.baseline), candidate=_medians(trial.candidate))


def _medians(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Return measurements with their median as their only sample, and without what nobody reads again."""
    return tuple(
        replace(
            measurement,
            samples_s=(median(measurement.samples_s),) if measurement.samples_s else (),
            places_s=(),
            batches=(),
            python=None,
            files={},
        )
        for measurement in measurements
    )
