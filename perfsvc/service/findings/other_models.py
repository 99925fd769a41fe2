"""How the cases of a finding do on the models of GPUs that it does not name."""

from collections import defaultdict
from collections.abc import Iterable

from perfsvc.judge import MOVES
from perfsvc.model import Direction, Finding, FindingState, Verdict
from perfsvc.service.findings.root_causes import CODE
from perfsvc.service.git import commit_ranges
from perfsvc.store import Store

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
