"""The relevant change of a suspect, and the causes of verdicts."""

import pytest

from perfsvc.model import Case, Cause, ChangeKind, Confirmation, Direction, Judgement, Series, Suspect, Verdict
from perfsvc.service.confirm.conclude import relevant_change
from perfsvc.service.confirm.confirm import with_causes

SERIES = Series(Case("transpose", "tiled"), "GPU-1", "NVIDIA H100")


def suspect(change: ChangeKind, ratio: float | None) -> Suspect:
    return Suspect(Judgement(SERIES, Verdict.REGRESSION, ratio=ratio), change, Direction.SLOWER)


@pytest.mark.parametrize(
    ("change", "ratio", "asked", "looked_for"),
    [
        (ChangeKind.REGRESSION, 1.05, None, 0.01),
        (ChangeKind.REGRESSION, 1.05, 0.03, 0.03),
        (ChangeKind.REGRESSION, None, None, 0.01),
        (ChangeKind.STEP, 1.0201, 0.03, 0.01),
        (ChangeKind.TREND, 1 / 1.0201, 0.03, 0.01),
        (ChangeKind.STEP, 1.008016, None, 0.004),
        (ChangeKind.STEP, 1.2, None, 0.01),
    ],
)
def test_half_of_a_step_below_the_threshold_is_relevant(
    change: ChangeKind, ratio: float | None, asked: float | None, looked_for: float
) -> None:
    assert relevant_change(suspect(change, ratio), "cuda", asked) == pytest.approx(looked_for)


def test_an_unchanged_verdict_gets_no_cause() -> None:
    confirmation = Confirmation(suspect(ChangeKind.STEP, 1.02), Cause.KERNEL, "", threshold=0.01, seed=1, budget_s=60.0)
    quiet = Judgement(SERIES, Verdict.UNCHANGED)
    moved = Judgement(SERIES, Verdict.REGRESSION, cause=Cause.UNCONFIRMED)
    assert [judgement.cause for judgement in with_causes([quiet, moved], [confirmation])] == [None, Cause.KERNEL]
