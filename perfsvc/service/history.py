"""The history of a case: its level in every run, and what its newest run tells beside it."""

from dataclasses import replace

from perfsvc import judge
from perfsvc.errors import NotMeasuredError
from perfsvc.report.export import frames
from perfsvc.report.rows import HistoryRow, RunDetails
from perfsvc.store import CaseInRun, Store


def history(store: Store, case: str, device: str | None) -> list[HistoryRow]:
    """A case in every run, oldest first, under all of its names, on one or all devices.

    Raises:
        NotMeasuredError: the case is unknown, or was never measured on the device.
    """
    why = {(one.device, one.candidate_run): one.sentence for one in store.profiles.explanations_of(case)}
    rows = [_row(one, why.get((one.device, one.run), "")) for one in store.series.case_history(case, device)]
    if device and not rows:
        known = ", ".join(sorted({one.device for one in store.series.case_history(case)}))
        raise NotMeasuredError(f"{case} was never measured on {device}", cure=f"name a device that has it: {known}")
    newest = {(row.device, row.cache): place for place, row in enumerate(rows)}
    for place in newest.values():
        rows[place] = replace(rows[place], details=_details(store, rows[place]))
    return rows


def _row(one: CaseInRun, why: str) -> HistoryRow:
    level = judge.level_of(one.times) if one.times else None
    return HistoryRow(
        run=one.run,
        started=one.started,
        commit=one.commit,
        dirty=one.dirty,
        label=one.label,
        case=one.case,
        device=one.device,
        device_model=one.device_model,
        cache=one.cache,
        status=one.status,
        reason=one.reason,
        median_s=level.median_s if level else None,
        low_s=level.low_s if level else None,
        high_s=level.high_s if level else None,
        replicas=one.replicas,
        why=why,
    )


def _details(store: Store, row: HistoryRow) -> RunDetails:
    """What the run of a row tells of its case beside the time."""
    summary = frames.summary(frames.frame(store.measurements.columns([row.run])))
    mine = (summary["case"] == row.case) & (summary["device"] == row.device) & (summary["cache"] == row.cache)
    return frames.details(summary[mine].to_dict("records")[0])
