"""The life of a finding, as persons lead it."""

import getpass
import os
from collections.abc import Collection
from datetime import datetime

from perfsvc.errors import UsageError
from perfsvc.model import Finding, FindingState, Series
from perfsvc.store import Store
from perfsvc.suite import Selection


def put(
    store: Store,
    number: int,
    state: FindingState,
    *,
    reason: str = "",
    until: datetime | None = None,
    selection: Selection | None = None,
) -> Finding:
    """Brings a finding, or its selected cases alone, into a state.

    Raises:
        NotMeasuredError: there is no such finding.
        UsageError: nothing of it is selected, or it cannot come into that state (``Store.put_finding_state``).
    """
    series = _selected(store, number, selection)
    return store.put_finding_state(number, state, reason=reason, by=who(), until=until, series=series)


def assign(store: Store, number: int, owner: str | None, *, selection: Selection | None = None) -> Finding:
    """Gives a finding, or its selected cases, to somebody; to whoever asks for it where ``owner`` is None."""
    owner = who() if owner is None else owner
    return store.assign_finding(number, owner, by=who(), series=_selected(store, number, selection))


def comment(store: Store, number: int, text: str, *, selection: Selection | None = None) -> Finding:
    """Notes what somebody has to say of a finding, or of its selected cases."""
    return store.comment_finding(number, text, by=who(), series=_selected(store, number, selection))


def who() -> str:
    """The name of the user, or the number of one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _selected(store: Store, number: int, selection: Selection | None) -> Collection[Series] | None:
    """The series of a finding that are selected; None for all of it."""
    if selection is None or selection == Selection():
        return None
    moved = [one.series for one in store.finding(number).moved]
    cases = selection.filter(series.case for series in moved)
    if not cases:
        names = ", ".join(dict.fromkeys(series.case.id for series in moved))
        raise UsageError(f"finding {number} has no such case", cure=f"select of {names}")
    return [series for series in moved if series.case in cases]
