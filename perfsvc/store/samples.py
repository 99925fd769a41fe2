"""Samples as blobs, and the batches in which they were taken.

A blob is little-endian float32, compressed with zlib. A float32 keeps seven digits (a relative rounding error of 6e-8
at most), far below what any clock resolves.
"""

import zlib
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import numpy as np
from sqlalchemy import Connection, insert

from perfsvc.model import Batch, Slowdown
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.tables import MeasurementBatches

_DTYPE = np.dtype("<f4")


def pack(samples: Sequence[float]) -> bytes:
    """Return samples in seconds as a blob."""
    return zlib.compress(np.asarray(samples, _DTYPE).tobytes())


def unpack(blob: bytes) -> tuple[float, ...]:
    """Return the samples of a blob; raises ``zlib.error`` or ``ValueError`` if the blob is damaged."""
    return tuple(np.frombuffer(zlib.decompress(blob), _DTYPE).tolist())


def put_batches(connection: Connection, measurement: int, batches: Iterable[Batch]) -> None:
    """Store the batches of a stored measurement; accepted samples are stored with the measurement."""
    rows = [
        {
            "measurement_id": measurement,
            "number": place,
            "blocked": batch.blocked,
            "kept_ahead": batch.kept_ahead,
            "busy_s": batch.busy_s,
            "rejected": batch.rejected,
            "sample_count": len(batch.samples_s),
            "samples": pack(batch.samples_s) if batch.rejected and batch.samples_s else None,
            "sm_clock_hz": number(batch.conditions.sm_clock_hz),
            "memory_clock_hz": number(batch.conditions.memory_clock_hz),
            "temperature_c": number(batch.conditions.temperature_c),
            "power_w": number(batch.conditions.power_w),
            "slowdowns": _listed(batch.conditions.slowdowns),
            "ecc_errors": batch.conditions.ecc_errors,
            "xids": _listed(batch.conditions.xids),
            "others": _listed(batch.conditions.others),
        }
        for place, batch in enumerate(batches)
    ]
    if rows:
        connection.execute(insert(MeasurementBatches), rows)


def batch_summary(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the columns in which a measurement summarizes its batches.

    The clock is the median over the batches whose samples count. Temperature, power and slowdowns are the worst of all
    batches, because they also explain why some were rejected.
    """
    clocks = _known(batch.conditions.sm_clock_hz for batch in batches if not batch.rejected)
    slowdowns = {slowdown for batch in batches for slowdown in batch.conditions.slowdowns}
    return {
        "sm_clock_hz": median(clocks) if clocks else None,
        "temperature_c": max(_known(batch.conditions.temperature_c for batch in batches), default=None),
        "power_w": max(_known(batch.conditions.power_w for batch in batches), default=None),
        "slowdowns": _listed(slowdown for slowdown in Slowdown if slowdown in slowdowns),
        "rejected_batches": sum(bool(batch.rejected) for batch in batches),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in map(number, values) if value is not None]


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
