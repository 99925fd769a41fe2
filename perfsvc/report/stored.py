"""From the store's frame back to the tables that ``perfsvc run`` showed."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, CacheState, Case, Judgement, Peak, Status
from perfsvc.report.export.frames import METRIC, parse_point, summary
from perfsvc.report.rows import SEPARATOR, MetricRow, ResultRow, Shown
from perfsvc.report.tables.run import run_table


def stored_table(table: pd.DataFrame, judgements: Iterable[Judgement] = ()) -> RenderableType:
    """The runs of a frame one below the other, each as it was shown when it ended.

    Args:
        table: what ``frames.frame`` returns: a row a measurement.
        judgements: the verdicts of its runs, each of which names its run as the candidate's.
    """
    if table.empty:
        return Text("nothing measured")
    judged = {_place_of(one): one for one in judgements}
    parts: list[RenderableType] = []
    for run, of_run in table.groupby("run", sort=False):
        records = summary(of_run).to_dict("records")
        shown = Shown(int(str(run)), [_row(record, judged) for record in records], peaks=_peaks(records))
        parts += [_heading(of_run.iloc[0]), run_table(shown), Text()]
    return Group(*parts[:-1])


def _heading(first: "pd.Series[Any]") -> Text:
    facts = [f"{first['started_at']:%Y-%m-%d %H:%M} UTC", first["label"], first["commit"][:9], first["host"]]
    return Text.assemble((f"run {first['run']}", "bold"), ("  " + "  ".join(filter(None, facts)), "dim"))


def _peaks(records: Iterable[Mapping[Any, Any]]) -> dict[str, Peak]:
    return {
        one["device"]: Peak(one["copy_bytes_per_s"], one["read_bytes_per_s"])
        for one in records
        if not pd.isna(one["copy_bytes_per_s"])
    }


Judged = Mapping[tuple[Any, ...], Judgement]
"""Verdicts by run, device, case, cache state and metric."""


def _place_of(judgement: Judgement) -> tuple[Any, ...]:
    series = judgement.series
    return judgement.candidate_run, series.device, series.case.id, series.cache.value, series.metric


def _row(record: dict[Any, Any], judged: Judged) -> ResultRow:
    place = tuple(record[name] for name in ("run", "device", "case", "cache"))
    known: dict[str, Any] = {str(name): None if pd.isna(value) else value for name, value in record.items()}
    spread = known["samples"] > 1
    return ResultRow(
        case=Case(
            known["benchmark"], known["variant"], tuple(parse_point(known["point"]).items()), int(known["version"])
        ),
        device=known["device"],
        device_model=known["device_model"],
        device_kind=known["device_kind"],
        status=Status(known["status"]),
        reason=known["reason"],
        replicas=int(known["replicas"]),
        median_s=known["median_s"],
        low_s=known["low_s"] if spread else None,
        high_s=known["high_s"] if spread else None,
        bandwidth_bytes_per_s=known["bandwidth_bytes_per_s"],
        flops_per_s=known["flops_per_s"],
        max_error=known["max_error"],
        mean_error=known["mean_error"],
        metrics=tuple(
            MetricRow(own := name.removeprefix(METRIC), value, judgement=judged.get((*place, own)))
            for name, value in sorted(known.items())
            if name.startswith(METRIC) and value is not None
        ),
        cache=CacheState(known["cache"]),
        judgement=judged.get((*place, TIME)),
        peak_share=known["peak_share"],
        relative_to=known.get("relative_to") or "",
        relative_speed=known.get("relative_speed"),
        noise_within=known["noise_within"],
        noise_between=known["noise_between"],
        stopped=_each(known["stopped"]),
        notes=(*_rejections(int(known["rejected_batches"])), *_each(known["note"])),
    )


def _each(texts: str) -> tuple[str, ...]:
    return tuple(filter(None, texts.split(SEPARATOR)))


def _rejections(batches: int) -> tuple[str, ...]:
    return (f"{units.count(batches, 'batch', 'batches')} rejected",) if batches else ()
