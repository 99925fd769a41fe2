"""What users do with findings: acknowledge, accept, ignore, resolve, assign, comment. And how other models fare."""

import getpass
import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime

from perfsvc.errors import UsageError
from perfsvc.judge import MOVES
from perfsvc.model import Cause, Direction, Finding, FindingState, Series, Verdict
from perfsvc.selection import Selection
from perfsvc.service.expect.forget import forget
from perfsvc.service.findings.root_causes import CODE
from perfsvc.service.git import commit_ranges
from perfsvc.store import Store
from perfsvc.units import some

OVER = frozenset({FindingState.ACCEPTED, FindingState.RESOLVED})

MOST_CASES = 20
"""How many cases of a finding are looked up on other models, the worst first."""


def on_other_models(store: Store, findings: Iterable[Finding]) -> dict[int, str]:
    """Return for each active finding about slower code on which models alone it shows, and how the others do.

    The texts are like ``only on NVIDIA H100; unchanged on NVIDIA A100 in run 12``. A finding is absent if no other
    model has measured its cases since its baseline.
    """
    texts = {
        finding.id: _text(store, finding)
        for finding in findings
        if finding.cause in CODE and finding.state not in OVER and finding.direction is Direction.SLOWER
    }
    return {number: text for number, text in texts.items() if text}


def _text(store: Store, finding: Finding) -> str:
    """Return how the cases of a finding do on other models; empty if none has measured them since the baseline."""
    standing = [moved for moved in finding.shown if moved.first_run is not None][:MOST_CASES]
    models = sorted(set(finding.devices.values()))
    since = min((moved.baseline_run for moved in standing if moved.baseline_run is not None), default=None)
    if since is None:
        return ""
    elsewhere = store.verdicts.on_other_models([moved.series for moved in standing], models, since)
    if not elsewhere:
        return ""
    with_change = _runs_with_change(store, finding)
    newest: dict[str, dict[object, tuple[int, Verdict]]] = defaultdict(dict)
    for series, run, verdict in elsewhere:  # the newest run comes last
        of_model = newest[series.device_model]
        if run in with_change:
            of_model[series] = run, verdict
    return "; ".join([f"only on {' and '.join(models)}", *(_state(model, newest[model]) for model in sorted(newest))])


def _state(model: str, newest: dict[object, tuple[int, Verdict]]) -> str:
    """Return the state of a finding's cases on a model, from their newest verdicts."""
    if not newest:
        return f"not measured yet on {model}"
    verdicts = {verdict for _, verdict in newest.values()}
    run = max(run for run, _ in newest.values())
    if any(MOVES.get(verdict) is Direction.SLOWER for verdict in verdicts):
        state = "slower, but not confirmed,"
    elif verdicts <= {Verdict.UNCHANGED}:
        state = "unchanged"
    elif verdicts <= {Verdict.UNCHANGED, Verdict.IMPROVEMENT}:
        state = "not slower"
    else:
        state = "not known"
    return f"{state} on {model} in run {run}"


def _runs_with_change(store: Store, finding: Finding) -> set[int]:
    """Return the newest runs that measured the commits of a finding or later commits, as far as their order tells."""
    first = min(moved.first_run for moved in finding.moved if moved.first_run is not None)
    commits = store.runs.commits(first, later=True)
    first_seen = {commit: run for run, commit in commits.items()}  # the newest run comes first
    slow = [bad for _, bad in commit_ranges(finding.root_cause)]
    since = min((run for commit, run in first_seen.items() if any(map(commit.startswith, slow))), default=first)
    return {run for run, commit in commits.items() if (first_seen[commit] if commit else run) >= since}


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
    finding = store.findings.get(number)
    is_missing = finding.cause is Cause.MISSING and finding.state not in OVER
    if state is FindingState.ACCEPTED and step is None and is_missing:
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
