"""A run's ladders: what each variant reaches, beside its reference variant and the GPU's measured peak."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from perfsvc.model import CacheState, Status
from perfsvc.report.run_table import RIDGE

PEAK_IN_SIGHT = 0.25
"""Of the measured peak: where no variant reaches so much, its line would only push all bars into a corner."""


@dataclass(frozen=True, slots=True)
class VariantRate:
    """A variant at a point: its rate, and the shares of the reference variant and the measured peak; None where they are not known."""

    variant: str
    status: Status
    rate: float | None
    relative_speed: float | None
    of_peak: float | None


@dataclass(frozen=True, slots=True)
class Ladder:
    """A benchmark at a point in a cache state, on one device: its variants in their order.

    Attributes:
        cache: what is said of it; empty where the benchmark is measured in one cache state, cold.
        unit: of the rates: bytes a second, or operations where the work is mostly those.
        relative_to: the variant that the others are held against; empty where there is none.
        anchor_rate: what that reaches; None where it was not measured.
        peak: what the GPU's memory was measured to move; None where it is not known, or out of sight.
    """

    benchmark: str
    point: str
    cache: str
    unit: Literal["B/s", "FLOP/s"]
    variants: tuple[VariantRate, ...]
    relative_to: str = ""
    relative_rate: float | None = None
    peak: float | None = None

    @property
    def top(self) -> float:
        """The highest of all that is to be seen."""
        reached = [variant_index.rate for variant_index in self.variants if variant_index.rate]
        return max([*reached, *filter(None, (self.relative_rate, self.peak))])


def ladders(summary: pd.DataFrame) -> list[Ladder]:
    """The ladders of one run on one device, but for those of which nothing has a rate.

    Args:
        summary: rows of what ``perfsvc.report.frames.summary`` returns.
    """
    keys = ["benchmark", "version", "point", "cache"]
    groups = [rows.to_dict("records") for _, rows in summary.groupby(keys, sort=False)]
    caches = {name: set(of_it["cache"]) for name, of_it in summary.groupby("benchmark")}
    made = (_ladder(records, said=caches[records[0]["benchmark"]] != {CacheState.COLD.value}) for records in groups)
    return [ladder for ladder in made if any(variant_index.rate for variant_index in ladder.variants)]


def _ladder(records: list[dict[Any, Any]], *, said: bool) -> Ladder:
    known: list[dict[Any, Any]] = [
        {name: None if pd.isna(value) else value for name, value in record.items()} for record in records
    ]
    flops = any((one["flops_per_s"] or 0) > RIDGE * (one["bandwidth_bytes_per_s"] or 0) for one in known)
    rate = "flops_per_s" if flops else "bandwidth_bytes_per_s"
    variants = tuple(_rung(one, rate) for one in known)
    first = known[0]
    references = [
        variant_index.rate / variant_index.relative_speed
        for variant_index in variants
        if variant_index.rate and variant_index.relative_speed
    ]
    return Ladder(
        benchmark=first["benchmark"],
        point=first["point"],
        cache=first["cache"] if said else "",
        unit="FLOP/s" if flops else "B/s",
        variants=variants,
        relative_to=first.get("relative_to") or "",
        relative_rate=references[0] if references else None,
        peak=None if flops else _peak(first, variants),
    )


def _rung(one: Mapping[Any, Any], rate: str) -> VariantRate:
    of_peak = one["peak_share"] if rate == "bandwidth_bytes_per_s" else None
    return VariantRate(one["variant"], Status(one["status"]), one[rate], one.get("relative_speed"), of_peak)


def _peak(one: Mapping[Any, Any], variants: tuple[VariantRate, ...]) -> float | None:
    if one["copy_bytes_per_s"] is None:
        return None
    peak = float(max(one["copy_bytes_per_s"], one["read_bytes_per_s"]))
    return peak if any((variant_index.of_peak or 0) > PEAK_IN_SIGHT for variant_index in variants) else None
