"""What people and programs are shown of suspects that were measured again."""

from dataclasses import replace

from perfsvc.model import (
    CacheState,
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
from perfsvc.report.export.objects import confirmation_json
from perfsvc.report.tables.comparison import confirmations_table, counts
from tests.unit.report.terminal import show

CASE = Case("dot", "tree", (("n", 1000),))
ASKED = {"threshold": 0.03, "seed": 1, "budget_s": 20.0, "looks": 1}


def confirmation(cause, *, device="GPU-1", cache=CacheState.COLD, ratio=1.05, verdict=Verdict.REGRESSION):
    series = Series(CASE, device, "NVIDIA H100", cache=cache)
    judged = Judgement(series, Verdict.REGRESSION, ratio=1.04, baseline_run=1, candidate_run=2)
    turns = [Measurement(CASE, device, turn, Status.OK, cache, samples_s=(1e-4, 3e-4, 2e-4)) for turn in range(2)]
    low, high = (None, None) if ratio is None else (1.03, 1.07)
    return Confirmation(
        Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER),
        cause,
        f"because of {cause}",
        **{**ASKED, "verdict": verdict, "ratio": ratio, "low": low, "high": high},
        baseline=tuple(turns[:1]),
        candidate=tuple(turns[1:]),
    )


def shown(*confirmations):
    return show(confirmations_table(confirmations))


def test_a_row_shows_the_change_in_the_run_and_in_the_pairs():
    lines = [" ".join(line.split()) for line in shown(confirmation(Cause.KERNEL)).splitlines()]
    assert lines[2] == "kernel dot/tree[n=1000] +4.0 % +5.0 % +3.0 % to +7.0 % 1"
    assert "kernel dot/tree[n=1000]: because of kernel" in lines
    line = shown(confirmation(Cause.UNCONFIRMED, ratio=None, verdict=None)).splitlines()[2]
    assert " ".join(line.split()) == "unconfirmed dot/tree[n=1000] +4.0 % – – 1"  # it was not measured again
    for causes, text in (
        ("kernel toolchain", "2 confirmed, 0 cleared, 0 unconfirmed"),
        ("noise environment unconfirmed", "0 confirmed, 2 cleared, 1 unconfirmed"),
    ):
        assert counts([confirmation(Cause(cause)) for cause in causes.split()]) == f"measured again: {text}"


def test_device_and_cache_state_are_shown_only_if_they_matter():
    assert "GPU-1" not in shown(confirmation(Cause.KERNEL))
    both = shown(confirmation(Cause.KERNEL), confirmation(Cause.NOISE, device="GPU-2", cache=CacheState.WARM))
    assert "on NVIDIA H100 (GPU-1)" in both
    assert "on NVIDIA H100 (GPU-2)" in both
    assert "dot/tree[n=1000] warm" in both


def test_json_has_the_decision_and_each_side_run():
    found = confirmation_json(confirmation(Cause.KERNEL))
    assert (found["case"], found["cause"], found["verdict"], found["pairs"]) == (CASE.id, "kernel", "regression", 1)
    assert (found["judged_ratio"], found["ratio"]) == (1.04, 1.05)
    known = {"turn": 1, "status": "ok", "reason": "", "samples": 3, "median_s": 2e-4, "value": None}
    assert found["candidate"] == [known]


def test_a_metric_other_than_time_is_named_and_each_side_run_has_its_value():
    timed = confirmation(Cause.KERNEL)
    judged = replace(timed.suspect.judgement, series=replace(timed.suspect.series, metric="energy_j"))
    turn = replace(timed.candidate[0], metrics={"energy_j": 0.5})
    one = replace(timed, suspect=replace(timed.suspect, judgement=judged), candidate=(turn,))
    assert confirmation_json(one)["candidate"][0]["value"] == 0.5
    assert f"{CASE.id} energy_j" in shown(one)
