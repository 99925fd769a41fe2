"""A run's ladders: what each rung reaches, beside its anchor and the board's roof."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from perfsvc.model import Mode, Status
from perfsvc.report.run_table import RIDGE

ROOF_IN_SIGHT = 0.25
"""Of the roof: where no rung reaches so much, its line would only push all bars into a corner."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A variant at a point: its rate, and the shares of the anchor and the roof; None where they are not known."""

    variant: str
    status: Status
    rate: float | None
    of_anchor: float | None
    of_roof: float | None


@dataclass(frozen=True, slots=True)
class Ladder:
    """A benchmark at a point in a mode, on one device: its rungs in their order.

    Attributes:
        mode: what is said of it; empty where the benchmark is measured in one mode, cold.
        unit: of the rates: bytes a second, or operations where the work is mostly those.
        anchor: the variant that the others are held against; empty where there is none.
        anchor_rate: what that reaches; None where it was not measured.
        roof: what the board's memory was measured to move; None where it is not known, or out of sight.
    """

    benchmark: str
    point: str
    mode: str
    unit: Literal["B/s", "FLOP/s"]
    rungs: tuple[Rung, ...]
    anchor: str = ""
    anchor_rate: float | None = None
    roof: float | None = None

    @property
    def top(self) -> float:
        """The highest of all that is to be seen."""
        reached = [rung.rate for rung in self.rungs if rung.rate]
        return max([*reached, *filter(None, (self.anchor_rate, self.roof))])


def ladders(summary: pd.DataFrame) -> list[Ladder]:
    """The ladders of one run on one device, but for those of which nothing has a rate.

    Args:
        summary: rows of what ``perfsvc.report.frames.summary`` returns.
    """
    keys = ["benchmark", "version", "point", "mode"]
    groups = [rows.to_dict("records") for _, rows in summary.groupby(keys, sort=False)]
    modes = {name: set(of_it["mode"]) for name, of_it in summary.groupby("benchmark")}
    made = (_ladder(records, said=modes[records[0]["benchmark"]] != {Mode.COLD.value}) for records in groups)
    return [ladder for ladder in made if any(rung.rate for rung in ladder.rungs)]


def _ladder(records: list[dict[Any, Any]], *, said: bool) -> Ladder:
    known: list[dict[Any, Any]] = [
        {name: None if pd.isna(value) else value for name, value in record.items()} for record in records
    ]
    flops = any((one["flops_per_s"] or 0) > RIDGE * (one["bandwidth_bytes_per_s"] or 0) for one in known)
    rate = "flops_per_s" if flops else "bandwidth_bytes_per_s"
    rungs = tuple(_rung(one, rate) for one in known)
    first = known[0]
    anchors = [rung.rate / rung.of_anchor for rung in rungs if rung.rate and rung.of_anchor]
    return Ladder(
        benchmark=first["benchmark"],
        point=first["point"],
        mode=first["mode"] if said else "",
        unit="FLOP/s" if flops else "B/s",
        rungs=rungs,
        anchor=first.get("anchor") or "",
        anchor_rate=anchors[0] if anchors else None,
        roof=None if flops else _roof(first, rungs),
    )


def _rung(one: Mapping[Any, Any], rate: str) -> Rung:
    of_roof = one["roof_share"] if rate == "bandwidth_bytes_per_s" else None
    return Rung(one["variant"], Status(one["status"]), one[rate], one.get("anchor_share"), of_roof)


def _roof(one: Mapping[Any, Any], rungs: tuple[Rung, ...]) -> float | None:
    if one["copy_bytes_per_s"] is None:
        return None
    roof = float(max(one["copy_bytes_per_s"], one["read_bytes_per_s"]))
    return roof if any((rung.of_roof or 0) > ROOF_IN_SIGHT for rung in rungs) else None
