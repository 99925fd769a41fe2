"""The words about a finding: its title, how far its series moved, what to do, and why."""

from perfsvc import units
from perfsvc.model import Cause, Finding, FindingState, MovedSeries
from perfsvc.report.wording import level


def finding_title(finding: Finding) -> str:
    """Return the variant that moved furthest and how many other variants moved: ``dot/tree and 2 more``.

    A finding without series is named by what is missing or slow: ``GPU-1 (NVIDIA H100) on host a``.
    """
    if finding.worst is None:
        return finding.root_cause
    cases = [moved.series.case for moved in (finding.worst, *finding.standing, *finding.moved)]
    variants = list(dict.fromkeys(f"{case.benchmark}/{case.variant}" for case in cases))
    return variants[0] + (f" and {len(variants) - 1} more" if len(variants) > 1 else "")


def since_first_step(finding: Finding, step: MovedSeries) -> str:
    """Return how far a series moved from before its first step to ``step``; empty if ``step`` is the first.

    ``+1500.0 % since run 1: 100.0 µs → 1.600 ms``
    """
    first = next((moved for moved in finding.moved if moved.series == step.series and moved.step == 1), None)
    if step.step == 1 or first is None or not first.baseline_s or not step.candidate_s:
        return ""
    levels = (level(value, step.series.metric) for value in (first.baseline_s, step.candidate_s))
    return f"{units.percent(step.candidate_s / first.baseline_s)} since run {first.baseline_run}: {' → '.join(levels)}"


def missing_cures(finding: Finding) -> list[str]:
    """Return what to do about a missing host, GPU or case: a line if it should be there, a line if it was removed.

    The result is empty for a finding about series, and for a finding that is accepted or resolved.
    """
    if finding.cause is not Cause.MISSING or finding.state in {FindingState.ACCEPTED, FindingState.RESOLVED}:
        return []
    if finding.root_cause.startswith("host "):
        look, until = "see its cron job and the log of its last night", "its next night"
    elif " on host " in finding.root_cause:
        look, until = "see what nvidia-smi and perfsvc devices list there", "the next night that finds all of it"
    else:
        look, until = "see what perfsvc list says", "the next night that measures all of it"
    return [
        f"not gone? {look}; {until} resolves this finding",
        f'gone on purpose? perfsvc expect forget --finding {finding.id} --reason "…"',
    ]


def why(finding: Finding) -> str:
    """Return the explanation of the worst series that is explained, after its case; empty without one."""
    return f"{finding.explained.series.case.id}: {finding.why}" if finding.explained else ""
