"""Pin and unpin baselines: ``perfsvc baseline``."""

from perfsvc.errors import UsageError
from perfsvc.model import MAX_ERROR, UNJUDGED, Status
from perfsvc.selection import Selection
from perfsvc.service.findings.actions import user_name
from perfsvc.service.revisions import require_judged
from perfsvc.store import Store

_NEVER_PINNED = UNJUDGED | {MAX_ERROR}
"""Metrics that have no pins."""


def pin(store: Store, run: int, selection: Selection, *, comment: str) -> int:
    """Pin a run as the baseline of each selected series with a correct result in the run; return the number of pins."""
    require_judged(store, run)
    levels = store.series.levels(run)
    correct = [
        series for series, level in levels.items() if level.status is Status.OK and series.metric not in _NEVER_PINNED
    ]
    selected = selection.filter(series.case for series in correct)
    chosen = [series for series in correct if series.case in selected]
    if not chosen:
        raise UsageError(
            f"run {run} has no correct result of a selected case",
            cure=f"see what the run measured: perfsvc report {run} --summary",
        )
    store.baselines.pin(run, chosen, by=user_name(), comment=comment)
    return len(chosen)


def unpin(store: Store, selection: Selection) -> int:
    """Remove the pins of the selected series; return how many pins were removed."""
    pinned = [pin.series for pin in store.baselines.pins()]
    selected = selection.filter(series.case for series in pinned)
    return store.baselines.unpin([series for series in pinned if series.case in selected])
