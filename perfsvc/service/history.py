"""The history of a case: its level in every run."""

from perfsvc import judge
from perfsvc.report.rows import HistoryRow
from perfsvc.store import CaseInRun, Store


def history(store: Store, case: str, device: str | None) -> list[HistoryRow]:
    """A case in every run, oldest first, under all of its names, on one or all devices.

    Raises ``NotMeasuredError`` where the case is unknown.
    """
    return [_row(one) for one in store.history(case, device)]


def _row(one: CaseInRun) -> HistoryRow:
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
        mode=one.mode,
        status=one.status,
        reason=one.reason,
        median_s=level.median_s if level else None,
        low_s=level.low_s if level else None,
        high_s=level.high_s if level else None,
        replicas=one.replicas,
    )
