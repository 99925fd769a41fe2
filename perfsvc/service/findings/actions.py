"""What users do with findings: acknowledge, accept, ignore, resolve, assign, comment."""

import getpass
import os
from collections.abc import Collection
from datetime import datetime

from perfsvc.errors import UsageError
from perfsvc.model import Cause, Finding, FindingState, Series
from perfsvc.selection import Selection
from perfsvc.service.expect.forget import forget
from perfsvc.store import Store
from perfsvc.units import some


def set_state(
    store: Store,
    number: int,
    state: FindingState,
    *,
    reason: str = "",
    until: datetime | None = None,
    selection: Selection | None = None,
    step: int | None = None,
    by: str = "",
) -> Finding:
    """Set the state of a finding, or of its selected cases, and return the finding that holds exactly these cases.

    ``step`` is the last step to act on; later steps stay in the finding. None means all steps. If a finding about a
    missing host, GPU or case is accepted, perfsvc no longer expects what the finding reports. ``by`` is the person who
    acts; empty for the current user.

    Raises:
        NotMeasuredError: there is no such finding.
        UsageError: nothing of the finding is selected, or the finding cannot get this state.
    """
    series, by = _selected(store, number, selection), by or user_name()
    if state is FindingState.ACCEPTED and step is None and _is_missing(store, number):
        forget(store, (), by=by, reason=reason, finding=number)
        return store.findings.get(number)
    return store.findings.set_state(number, state, reason=reason, by=by, until=until, series=series, step=step)


def assign(
    store: Store, number: int, owner: str | None, *, selection: Selection | None = None, by: str = ""
) -> Finding:
    """Assign a finding, or its selected cases, to an owner; to the person who acts if ``owner`` is None."""
    by = by or user_name()
    owner = by if owner is None else owner
    return store.findings.assign(number, owner, by=by, series=_selected(store, number, selection))


def comment(store: Store, number: int, text: str, *, selection: Selection | None = None, by: str = "") -> Finding:
    """Add a comment to a finding, or to its selected cases."""
    return store.findings.comment(number, text, by=by or user_name(), series=_selected(store, number, selection))


def user_name() -> str:
    """Return the name of the current user, or the number of a user without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _is_missing(store: Store, number: int) -> bool:
    """Return whether a finding that is not over is about something missing."""
    finding = store.findings.get(number)
    return finding.cause is Cause.MISSING and finding.state not in {FindingState.ACCEPTED, FindingState.RESOLVED}


def _selected(store: Store, number: int, selection: Selection | None) -> Collection[Series] | None:
    """Return the selected series of a finding; None if the user selected none, which means all of its series."""
    if selection is None or selection == Selection():
        return None
    moved = [moved.series for moved in store.findings.get(number).moved]
    if not moved:
        raise UsageError(
            f"finding {number} is about a host, a GPU or a benchmark and has no cases", cure="leave out --select"
        )
    cases = selection.filter(series.case for series in moved)
    if not cases:
        names = some(list(dict.fromkeys(series.case.id for series in moved)))
        raise UsageError(f"finding {number} has no such case", cure=f"select some of {names}")
    return [series for series in moved if series.case in cases]
