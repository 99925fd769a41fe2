"""The exit code of a run whose suspects were measured again."""

from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    Judgement,
    Measurement,
    Series,
    Status,
    Suspect,
    Verdict,
)
from perfsvc.service.run.run import RunOutcome

CASE = Case("dot", "tree")
SERIES = Series(CASE, "GPU-1", "NVIDIA H100")


def outcome(night, cause, found, status=Status.OK):
    """A run with a single case, its verdict and the confirmation of it."""
    judged = Judgement(SERIES, night, ratio=1.05, baseline_run=1, candidate_run=2)
    suspect = Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER)
    again = Confirmation(suspect, cause, "", threshold=0.03, seed=1, budget_s=20.0, verdict=found)
    none = dict.fromkeys(("over_budget", "doubts", "problems", "warnings"), ())
    bad = (Measurement(CASE, "GPU-1", 0, status),) if status is not Status.OK else ()
    return RunOutcome(run=2, judgements=(judged,), confirmations=(again,) if cause else (), bad=bad, **none)


EXIT_CODES = {
    (Verdict.REGRESSION, None, None): 1,
    (Verdict.REGRESSION, Cause.KERNEL, Verdict.REGRESSION): 1,
    (Verdict.REGRESSION, Cause.UNCONFIRMED, None): 1,
    (Verdict.REGRESSION, Cause.NOISE, Verdict.UNCHANGED): 0,
    (Verdict.REGRESSION, Cause.ENVIRONMENT, Verdict.UNCHANGED): 0,
    (Verdict.UNCHANGED, Cause.KERNEL, Verdict.REGRESSION): 1,  # an alert of its history
    (Verdict.UNCHANGED, Cause.KERNEL, Verdict.IMPROVEMENT): 0,
    (Verdict.UNCHANGED, Cause.NOISE, Verdict.UNCHANGED): 0,
    (Verdict.REGRESSION, Cause.KERNEL, Verdict.REGRESSION, Status.FAILED): 4,
}


def test_a_confirmed_suspect_counts_a_cleared_one_does_not_and_a_failure_comes_first():
    assert {given: outcome(*given).exit_code(strict=False) for given in EXIT_CODES} == EXIT_CODES
