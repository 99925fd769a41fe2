"""Baselines as a person sets them: pins."""

import getpass

from perfsvc.errors import UsageError
from perfsvc.model import MAX_ERROR, UNJUDGED, Status
from perfsvc.store import Store
from perfsvc.suite import Selection

_UNPINNED = UNJUDGED | {MAX_ERROR}
"""What nobody chooses a baseline for."""


def pin(store: Store, run: int, selection: Selection, *, comment: str) -> int:
    """Makes a run the baseline of its selected series that have a right result, and returns how many those are."""
    levels = store.series.levels(run)
    right = [one for one, level in levels.items() if level.status is Status.OK and one.metric not in _UNPINNED]
    selected = selection.filter(series.case for series in right)
    chosen = [series for series in right if series.case in selected]
    if not chosen:
        raise UsageError(
            f"run {run} has no right result of a selected case", cure=f"see what it has: perfsvc report {run} --summary"
        )
    store.baselines.pin(run, chosen, by=getpass.getuser(), comment=comment)
    return len(chosen)


def unpin(store: Store, selection: Selection) -> int:
    """Takes the pins of the selected series away and returns how many there were."""
    pinned = [pin.series for pin in store.baselines.pins()]
    selected = selection.filter(series.case for series in pinned)
    return store.baselines.unpin([series for series in pinned if series.case in selected])
