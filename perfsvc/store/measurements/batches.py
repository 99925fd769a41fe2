"""Batches: how a measurement stores and summarizes them, and how they are read back.

The batches of a measurement are one blob: JSON, compressed with zlib. The JSON is a list of batches in the order of
measuring, and each batch is a list of values (docs/reference/database-measurements.md). Values at the end of a batch
that are as in ``USUAL`` are left out. Numbers have seven digits, like float32.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from perfsvc.model import Batch, Conditions, Slowdown
from perfsvc.store.schema.column_types import FreeText, number
from perfsvc.store.schema.samples import decompressed

USUAL: Final[tuple[Any, ...]] = (0, 0, None, None, None, None, True, True, "", (), 0, (), ())
"""The usual value at each place of a batch."""

MOST_ERRORS: Final = 2**31 - 1
"""The largest number of memory errors that the column of a measurement holds."""


def pack_batches(batches: Sequence[Batch]) -> bytes | None:
    """Return batches as a blob; None if there are none. Accepted samples are left out: the measurement has them."""
    if not batches:
        return None
    content = json.dumps([_values(batch) for batch in batches], separators=(",", ":"))
    return zlib.compress(content.encode())


def unpack_batches(blob: bytes | None, samples_s: Sequence[float] = ()) -> tuple[Batch, ...]:
    """Return the batches of a blob; raises one of ``DAMAGED`` if the blob is damaged.

    Args:
        blob: the blob; None if there are no batches.
        samples_s: the samples of the measurement in seconds, which are divided among its accepted batches.
    """
    batches, start = [], 0
    for stored in json.loads(decompressed(blob)) if blob is not None else ():
        values: list[Any] = [*stored, *USUAL[len(stored) :]]
        samples, busy_s, *readings = values[:6]
        sm_clock_hz, memory_clock_hz, temperature_c, power_w = (_as_float(reading) for reading in readings)
        blocked, kept_ahead, rejected, slowdowns, ecc_errors, xids, others = values[6:]
        if isinstance(samples, int):
            own, start = samples_s[start : start + samples], start + samples
        else:
            own = [float(sample) for sample in samples]
        conditions = Conditions(
            sm_clock_hz,
            memory_clock_hz,
            temperature_c,
            power_w,
            tuple(map(Slowdown, slowdowns)),
            int(ecc_errors),
            tuple(map(int, xids)),
            tuple(map(int, others)),
        )
        ahead = None if kept_ahead is None else bool(kept_ahead)
        batches.append(Batch(tuple(own), bool(blocked), ahead, float(busy_s or 0), str(rejected), conditions))
    return tuple(batches)


def _values(batch: Batch) -> list[Any]:
    """Return the values of a batch as JSON stores them."""
    conditions = batch.conditions
    readings = (conditions.sm_clock_hz, conditions.memory_clock_hz, conditions.temperature_c, conditions.power_w)
    faults = (conditions.slowdowns, conditions.ecc_errors, conditions.xids, conditions.others)
    values = [
        _nine_digits(batch.samples_s) if batch.rejected else len(batch.samples_s),
        *map(_seven_digits, (batch.busy_s, *readings)),
        batch.blocked,
        batch.kept_ahead,
        FreeText.storable(batch.rejected),
        *faults,
    ]
    while values and values[-1] == USUAL[len(values) - 1]:
        values.pop()
    return values


def _seven_digits(value: float | None) -> float | None:
    """Return a number with seven digits, as an integer if it is one: that is shorter in JSON."""
    known = number(value)
    if known is None:
        return None
    rounded = float(f"{known:.7g}")
    return int(rounded) if rounded.is_integer() else rounded


def _nine_digits(samples_s: Sequence[float]) -> list[float]:
    """Return samples with nine digits, which give each float32 exactly."""
    return [float(f"{sample:.9g}") for sample in np.asarray(samples_s, np.float32).tolist()]


def _as_float(value: float | None) -> float | None:
    return None if value is None else float(value)


def measurement_columns(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the columns of a measurement that come from its batches."""
    conditions = [batch.conditions for batch in batches]
    return {
        "batches": pack_batches(batches),
        "ecc_errors": min(sum(condition.ecc_errors for condition in conditions), MOST_ERRORS),
        "xids": _listed(dict.fromkeys(xid for condition in conditions for xid in condition.xids)),
        "others": _listed(dict.fromkeys(process for condition in conditions for process in condition.others)),
        **batch_summary(batches),
    }


def batch_summary(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the columns in which a measurement, or a process of a confirmation, summarizes its batches.

    The clock is the median over the batches whose samples count. Temperature, power and slowdowns are the worst of all
    batches, because they also explain why some were rejected. The numbers come from those that batches are stored with,
    so that a server that receives the batches computes the same.
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
    return [float(value) for value in map(_seven_digits, values) if value is not None]


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
