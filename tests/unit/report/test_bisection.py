"""What people and programs are shown of the commit that moved a case."""

from dataclasses import replace
from datetime import UTC, datetime

from perfsvc.model import (
    TIME,
    Bisection,
    CacheState,
    Case,
    Commit,
    DeviceInfo,
    Measurement,
    SkippedCommit,
    Status,
    Trial,
    Verdict,
)
from perfsvc.report.export.objects import bisection_json
from perfsvc.report.tables.bisection import bisection_text, counts
from tests.unit.report import terminal

CASE = Case("dot", "tree", (("n", 1000),))
DEVICE = DeviceInfo("cuda", "cuda:0", "GPU-1", "NVIDIA H100", "sm_90")


def commit(place, parents=1):
    name = f"{place:040x}"
    above = tuple(f"{place - 1 - other:040x}" for other in range(parents))
    return Commit(name, f"Commit {place}", "Ada <ada@example.com>", datetime(2026, 11, 3, 14, 2, tzinfo=UTC), above)


def trial(before, after, ratio=1.05, verdict=Verdict.REGRESSION):
    turns = tuple(Measurement(CASE, "GPU-1", turn, Status.OK, samples_s=(1e-4, 3e-4, 2e-4)) for turn in range(3))
    interval = {} if ratio is None else {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01}
    return Trial(
        commit(before), commit(after), verdict, "because", looks=1, baseline=turns, candidate=turns, **interval
    )


COUNTS = {"threshold": 0.03, "seed": 7, "metric": TIME, "commits": 8, "builds": 4, "compiled": 2, "codes": 3}
FOUND = Bisection(
    CASE,
    DEVICE,
    CacheState.COLD,
    *(commit(1), commit(9)),
    **COUNTS,
    verdict=Verdict.REGRESSION,
    reason="it is slower",
    boundary=1.0247,
    culprits=(commit(5),),
    proof=trial(4, 5),
    changed=("binary",),
    files=("kernels/dot/dot.cu",),
    trials=(trial(1, 9, 1.06), trial(1, 4, 1.0, Verdict.UNCHANGED), trial(4, 5)),
    skipped=(SkippedCommit(commit(3), "dot.cu does not compile:\ndot.cu:1:2: error\nmore of it"),),
)


def lines(found, width=120):
    return terminal.rows(bisection_text(found), width)


def test_the_commit_comes_first_with_its_author_and_its_changes():
    output = lines(FOUND)
    assert output[:6] == [
        "NVIDIA H100 GPU-1",
        "",
        "0000000000 is the first commit at which dot/tree[n=1000] is slower",
        "",
        "Commit 5",
        "Ada <ada@example.com>, 2026-11-03 14:02",
    ]
    assert "it is slower" in output
    assert "interval +4.0 % to +6.0 %; from good to bad +6.0 %" in output
    assert "changed: binary (kernels/dot/dot.cu)" in output
    assert not any("inputs" in line for line in output)
    assert any("own benchmark file" in line for line in lines(replace(FOUND, changed=("benchmark file",))))
    assert f"{5:040x}, a merge of 2" in lines(replace(FOUND, culprits=(commit(5, parents=2),)))
    output = lines(replace(FOUND, verdict=Verdict.INCONCLUSIVE, culprits=(), proof=None, reason="noise", skipped=()))
    assert output[2] == "inconclusive: noise"


def test_every_comparison_has_a_row_and_every_skipped_commit_a_reason():
    output = lines(FOUND)
    assert "0000000000 good Commit 9 +6.0 % +5.0 % to +7.0 % 3" in output
    assert "0000000000 0000000000 Commit 5 +5.0 % +4.0 % to +6.0 % 3" in output
    assert "skipped 0000000000 (Commit 3): dot.cu does not compile: dot.cu:1:2: error" in output
    assert output[-1] == "8 commits: 4 built (2 compiled anew), 3 codes; 3 comparisons of 18 processes"
    assert counts(replace(FOUND, commits=1, codes=1, trials=FOUND.trials[:1])) == (
        "1 commit: 4 built (2 compiled anew), 1 code; 1 comparison of 6 processes"
    )


def test_a_broken_case_has_the_checks_of_commits_in_place_of_comparisons():
    checks = [(5, Verdict.BROKEN, "off by 1"), (4, Verdict.UNCHANGED, "the result is correct")]
    trials = tuple(
        replace(trial(1, place, None, verdict), reason=reason, baseline=(), candidate=trial(1, 2).candidate[:1])
        for place, verdict, reason in checks
    )
    found = replace(FOUND, verdict=Verdict.BROKEN, proof=trials[0], trials=trials, metric="energy_j")
    output = lines(found)
    assert output[2] == "0000000000 is the first commit at which dot/tree[n=1000] is broken"
    assert not any("interval" in line for line in output)
    assert "0000000000 Commit 5 off by 1" in output
    assert "0000000000 Commit 4 the result is correct" in output
    assert output[-1].endswith("2 checks of 2 processes")
    assert "changed: kernels/dot/dot.cu" in lines(replace(found, changed=()))
    assert (bisection_json(found)["verdict"], found.proven) == ("broken", True)


def test_several_indistinguishable_commits_are_all_named():
    for verdict, word in [(Verdict.REGRESSION, "slower"), (Verdict.IMPROVEMENT, "faster")]:
        output = lines(replace(FOUND, verdict=verdict, culprits=(commit(4), commit(5))))
        assert f"one of 2 commits made dot/tree[n=1000] {word}" in output, (verdict, word)
        assert {"Commit 4", "Commit 5"} <= set(output), (verdict, word)


def test_a_metric_other_than_time_is_named():
    for verdict, word in [(Verdict.REGRESSION, "higher"), (Verdict.IMPROVEMENT, "lower")]:
        found = replace(FOUND, metric="energy_j", verdict=verdict)
        assert lines(found)[2] == f"0000000000 is the first commit at which energy_j of dot/tree[n=1000] is {word}"
        assert bisection_json(found)["metric"] == "energy_j", (verdict, word)


def test_the_number_of_named_skipped_commits_is_limited():
    output = lines(replace(FOUND, skipped=tuple(SkippedCommit(commit(place), "gone") for place in range(20))))
    assert sum(line.startswith("skipped") for line in output) == 12
    assert "and 8 more skipped" in output


def test_a_commit_is_proven_if_it_changes_the_case_relative_to_its_parent():
    cases = [
        ({}, True),
        ({"culprits": (commit(4), commit(5))}, False),
        ({"proof": trial(4, 5, 1.0, Verdict.UNCHANGED)}, False),
        ({"proof": None}, False),
    ]
    assert [replace(FOUND, **changes).proven for changes, _ in cases] == [proven for *_, proven in cases]
