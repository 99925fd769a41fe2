"""Baselines as a person sets them: pins."""

import getpass

from perfsvc.errors import UsageError
from perfsvc.model import Series, Status
from perfsvc.store import Store
from perfsvc.suite import Selection


def pin(store: Store, run: int, selection: Selection, *, comment: str) -> int:
    """Makes a run the baseline of its series that the selection picks and that have a right result; returns how many."""
    chosen = [
        series
        for series, level in store.levels(run).items()
        if level.status is Status.OK and selection.picks(series.case)
    ]
    if not chosen:
        raise UsageError(f"run {run} has no right result of a selected case", cure=f"see perfsvc report {run} --summary")
    store.pin(run, chosen, by=getpass.getuser(), comment=comment)
    return len(chosen)


def unpin(store: Store, selection: Selection) -> int:
    """Takes the pins of the selected series away; returns how many there were."""
    return store.unpin([series for series in pinned(store) if selection.picks(series.case)])


def pinned(store: Store) -> list[Series]:
    """The series that have a pin."""
    return [pin.series for pin in store.pins()]
