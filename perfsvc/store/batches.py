"""The batches of a measurement, and what they come to in its own row."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from sqlalchemy import Connection

from perfsvc.model import Batch, Slowdown
from perfsvc.store.columntypes import number
from perfsvc.store.interning import insert_into
from perfsvc.store.samples import pack
from perfsvc.store.tables import Batches


def put(connection: Connection, measured: Mapping[int, Sequence[Batch]]) -> None:
    """Stores all batches of stored measurements, in their order, by the measurements' ids."""
    rows = [
        {"measurement_id": measurement, "number": place, **_row(batch)}
        for measurement, batches in measured.items()
        for place, batch in enumerate(batches)
    ]
    if rows:
        connection.execute(insert_into(Batches), rows)


def _row(batch: Batch) -> dict[str, Any]:
    """A batch as a row; accepted samples are left out, since the measurement holds them."""
    conditions = batch.conditions
    return {
        "blocked": batch.blocked,
        "kept_ahead": batch.kept_ahead,
        "busy_s": batch.busy_s,
        "rejected": batch.rejected,
        "sample_count": len(batch.samples_s),
        "samples": pack(batch.samples_s) if batch.rejected and batch.samples_s else None,
        "sm_clock_hz": number(conditions.sm_clock_hz),
        "memory_clock_hz": number(conditions.memory_clock_hz),
        "temperature_c": number(conditions.temperature_c),
        "power_w": number(conditions.power_w),
        "slowdowns": _listed(conditions.slowdowns),
        "ecc_errors": conditions.ecc_errors,
        "xids": _listed(conditions.xids),
        "others": _listed(conditions.others),
    }


def summary(batches: Sequence[Batch]) -> dict[str, Any]:
    """What an analyst wants to know of a measurement's batches without joining them.

    The clock is that of the samples that count, the median over their batches; heat, power and slowdowns are the worst
    of all batches, for they explain also why some were rejected.
    """
    clocks = _known(batch.conditions.sm_clock_hz for batch in batches if not batch.rejected)
    met = {slowdown for batch in batches for slowdown in batch.conditions.slowdowns}
    return {
        "sm_clock_hz": median(clocks) if clocks else None,
        "temperature_c": max(_known(batch.conditions.temperature_c for batch in batches), default=None),
        "power_w": max(_known(batch.conditions.power_w for batch in batches), default=None),
        "slowdowns": _listed(slowdown for slowdown in Slowdown if slowdown in met),
        "rejected_batches": sum(bool(batch.rejected) for batch in batches),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in map(number, values) if value is not None]


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
