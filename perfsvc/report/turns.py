"""What was measured in turn, wherever it is shown: an interval for people, a process for programs."""

from statistics import median
from typing import Any

from perfsvc import units
from perfsvc.model import TIME, Measurement
from perfsvc.report.export.objects import plain
from perfsvc.report.tables.layout import DASH


def interval_text(low: float | None, high: float | None) -> str:
    """The interval of a ratio: ``+3.0 % to +7.0 %``; a dash where there is none."""
    return DASH if low is None or high is None else f"{units.percent(low)} to {units.percent(high)}"


def moved_word(metric: str, ratio: float) -> str:
    """What a ratio says: ``slower`` or ``faster`` of a time, ``higher`` or ``lower`` of any other metric."""
    more, less = ("slower", "faster") if metric == TIME else ("higher", "lower")
    return more if ratio > 1 else less


def turn_json(measured: Measurement, metric: str = TIME) -> dict[str, Any]:
    """What one process measured of one side; ``value`` is what it had of a metric that is not the time."""
    return {
        "turn": measured.replica,
        "status": plain(measured.status),
        "reason": measured.reason,
        "samples": len(measured.samples_s),
        "median_s": median(measured.samples_s) if measured.samples_s else None,
        "value": None if metric == TIME else next(iter(measured.values_of(metric)), None),
    }
