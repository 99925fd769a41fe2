"""The search for a commit on simulated processes: what it measures, its answer, and how often that is right."""

import math
from datetime import UTC, datetime
from unittest.mock import Mock

import numpy as np
import pytest

from perfsvc import judge
from perfsvc.errors import CaseError, CompileError, UnsupportedError
from perfsvc.model import (
    TIME,
    Bisection,
    CacheState,
    Case,
    Commit,
    DeviceInfo,
    Kind,
    Measurement,
    ReplayRecord,
    Status,
    Verdict,
)
from perfsvc.service.bisect.builds import BuildFailure, Builds, CommitBuild
from perfsvc.service.bisect.search import Search
from perfsvc.service.confirm.pairs import PairResults

CASE = Case("dot", "tree")
DEVICE = DeviceInfo("cuda", "cuda:0", "GPU-1", "NVIDIA H100", "sm_90")


class StandInGpu:
    """Measures builds; the module contains their time, and processes differ by ``between``."""

    def __init__(self, between=0.0, seed=0, pairs=judge.LOOKS[-1], faulty=()):
        self.chance = np.random.default_rng(seed)
        self.between = between
        self.pairs = pairs
        self.faulty = faulty
        self.asked = []
        self.checked = []

    def check(self, built):
        self.checked.append(built.code[1][0])
        return self.process(built)

    def __call__(self, sides, *, threshold, enough):
        self.asked.append(tuple(side.code[1][0] for side in sides))
        results = PairResults()
        for look, pairs in enumerate(judge.LOOKS, start=1):
            while results.pairs < min(pairs, self.pairs):
                results.baseline.append(self.process(sides[0]))
                results.candidate.append(self.process(sides[1]))
            if results.fault[0] or results.pairs < pairs:
                break
            before, after = ([run.samples_s for run in side] for side in (results.baseline, results.candidate))
            results.looks = look
            results.comparison = judge.compare(before, after, threshold=threshold, alpha=judge.ALPHA / len(judge.LOOKS))
            if enough(results.comparison):
                break
        return results

    def process(self, built):
        (module,) = built.code[1]
        level, _ = module.split()
        status = Status.WRONG if module in self.faulty or level == "0" else Status.OK
        between = 0.3 if level == "wild" else self.between
        time = (1.0 if level == "wild" else float(level)) * math.exp(self.chance.normal(0, between))
        reason = "off by 1" if status is Status.WRONG else ""
        return Measurement(CASE, "GPU-1", 0, status, reason=reason, samples_s=(time,) * 20)


def build(module):
    """Build the case with a module: text after its time makes it other code; time 0 makes its result wrong.

    ``!`` makes it fail to compile, ``?`` makes the device unable to run it.
    """
    if module[0] in "!?":
        return BuildFailure((CompileError if module[0] == "!" else UnsupportedError)(module), module)
    return CommitBuild(None, (), (ReplayRecord(CASE, Kind.KERNEL, (), (), (), "bench", 0), (module,)), ())


def search(modules, gpu, threshold=0.03, metric=TIME):
    """Search a line of commits with these modules."""
    date = datetime(2026, 11, 21, tzinfo=UTC)
    commits = [
        Commit(f"c{place}", module, "Ada", date, (f"c{place - 1}",) if place else ())
        for place, module in enumerate(modules)
    ]
    ends = (commits[0], commits[-1])
    counts = {"commits": len(modules) - 1, "builds": 0, "compiled": 0}
    asked = Bisection(CASE, DEVICE, CacheState.COLD, *ends, threshold, seed=1, metric=metric, **counts)
    rebuilt = Builds({commit.hash: build(commit.subject) for commit in commits}, 0, 0)
    return Search(asked, commits, rebuilt, gpu, gpu.check, progress=Mock()).answer()


def names(bisection):
    return [commit.hash for commit in bisection.culprits]


def test_each_code_is_measured_once_and_the_ends_are_known_from_their_comparison():
    gpu = StandInGpu()
    bisection = search(["1.0 a", "1.0 b", "1.0 b", "1.0 b", "1.1 c", "1.1 c", "1.1 d", "1.1 e"], gpu)
    assert (names(bisection), bisection.proven) == (["c4"], True)
    assert len(gpu.asked) == len(set(gpu.asked)) == len(bisection.trials)
    assert bisection.codes == 5
    assert gpu.asked[-1] == ("1.0 b", "1.1 c")
    assert (bisection.proof.before.hash, bisection.proof.after.hash) == ("c3", "c4")


def test_a_proof_that_was_measured_at_other_commits_of_the_same_codes_names_the_culprit():
    bisection = search(["1.0 a", "1.0 a", "1.1 b", "1.1 b"], StandInGpu())
    (trial,) = bisection.trials
    assert (trial.before.hash, trial.after.hash) == ("c0", "c3")
    assert (bisection.proof.before.hash, bisection.proof.after.hash) == ("c1", "c2")
    assert bisection.proof.ratio == trial.ratio


def test_the_level_between_two_equal_steps_counts_as_moved():
    bisection = search(["1.0 a", "1.0 b", "1.03 c", "1.03 d", "1.0609 e"], StandInGpu(between=0.003), threshold=0.01)
    assert names(bisection) == ["c2"]
    assert bisection.reason.endswith("this is a part of the change: bisect again for the rest")


def test_the_larger_of_two_steps_is_named():
    assert names(search(["1.0 a", "1.02 b", "1.02 c", "1.1 d", "1.1 e"], StandInGpu(), threshold=0.01)) == ["c3"]


def test_a_change_in_many_small_steps_blames_no_single_commit():
    bisection = search([f"{1.01**step} {step}" for step in range(10)], StandInGpu(), threshold=0.045)
    assert (names(bisection), bisection.proven) == (["c5"], False)
    assert "several small changes" in bisection.reason


def test_commits_hidden_by_noise_are_skipped_with_the_reason():
    bisection = search(["1.0 a", "1.0 b", "wild c", "1.06 d"], StandInGpu(between=0.001), threshold=0.03)
    assert names(bisection) == ["c2", "c3"]
    (skipped,) = bisection.skipped
    assert (skipped.commit.hash, bisection.proven) == ("c2", False)
    assert skipped.reason.startswith("noise hides a change")
    assert bisection.reason == "one of 2 commits, which cannot be told apart: all but the last were skipped"


def test_a_commit_without_a_right_result_is_skipped():
    bisection = search(["1.0 a", "1.0 b", "1.0 c", "1.06 d"], StandInGpu(faulty=("1.0 c",)), threshold=0.03)
    assert names(bisection) == ["c2", "c3"]
    assert bisection.skipped[0].reason == "at c2 the case has no correct result: off by 1"


def test_the_commit_that_broke_the_case_is_found_with_one_process_for_each_code():
    gpu = StandInGpu()
    bisection = search(["1.0 a", "1.0 b", "1.3 c", "0 d", "0 d", "0 e", "0 f", "0 f"], gpu)
    assert (names(bisection), bisection.verdict, bisection.proven) == (["c3"], Verdict.BROKEN, True)
    assert bisection.reason == "off by 1; at c2 below it, the result is correct"
    assert gpu.asked == [("1.0 a", "0 f")]
    assert len(gpu.checked) == len(set(gpu.checked)) <= 3
    assert "0 f" not in gpu.checked
    assert (bisection.proof.before.hash, bisection.proof.after.hash) == ("c2", "c3")


def test_a_commit_that_cannot_be_built_is_bad_only_if_the_bad_commit_cannot_be_built_either():
    bisection = search(["1.0 a", "1.0 b", "!syntax", "0 c", "!again"], StandInGpu())
    assert (names(bisection), bisection.skipped) == (["c2"], ())
    assert bisection.reason == "!syntax; at c1 below it, the result is correct"
    assert (bisection.changed, bisection.codes) == ((), 3)
    bisection = search(["1.0 a", "1.0 b", "!syntax", "0 c"], StandInGpu())
    assert (names(bisection), [skipped.reason for skipped in bisection.skipped]) == (["c2", "c3"], ["!syntax"])
    assert bisection.reason.endswith("all but the last were skipped; at the last: off by 1")
    bisection = search(["1.0 a", "?", "!syntax"], StandInGpu())
    assert (names(bisection), [skipped.reason for skipped in bisection.skipped]) == (["c1", "c2"], ["?"])


def test_a_case_that_is_broken_at_the_good_commit_or_cannot_run_at_the_bad_one_is_an_error():
    for modules in (["0 a", "1.0 b", "1.0 c"], ["0 a", "1.0 b", "0 c"], ["0 a", "1.0 b", "!c"]):
        with pytest.raises(CaseError, match="at the good commit, c0, the case has no correct result: off by 1"):
            search(modules, StandInGpu())
    with pytest.raises(CaseError, match="at the bad commit, c1, the case has no correct result"):
        search(["1.0 a", "?"], StandInGpu())


def test_an_end_without_the_metric_is_an_error():
    with pytest.raises(CaseError, match="at c0 the case has no energy_j"):
        search(["1.0 a", "1.1 b"], StandInGpu(), metric="energy_j")


def test_a_budget_that_ends_before_the_first_look_is_inconclusive():
    bisection = search(["1.0 a", "1.1 b"], StandInGpu(pairs=2))
    assert (bisection.verdict, bisection.culprits) == (Verdict.INCONCLUSIVE, ())
    assert "the budget ended after 2 pairs" in bisection.reason


def test_the_reason_names_the_change_and_the_commit_below():
    for last, slower in ((1.1, "slower"), (0.9, "faster")):
        bisection = search(["1.0 a", f"{last} b"], StandInGpu())
        assert bisection.reason == f"compared with the commit below it, c0, the case is 10 % {slower}"


@pytest.mark.parametrize(("searches", "limit"), [(40, 1), pytest.param(100, 2, marks=pytest.mark.slow)])
def test_the_right_commit_is_named_in_95_percent_of_searches(searches, limit):
    right = wrong = 0
    for seed in range(searches):
        place = 1 + seed % 15
        modules = [f"{1.05 if at >= place else 1.0} {at}" for at in range(16)]
        bisection = search(modules, StandInGpu(between=0.01, seed=seed), threshold=0.03)
        right += names(bisection) == [f"c{place}"]
        wrong += bool(bisection.culprits) and f"c{place}" not in names(bisection)
    assert right >= 0.95 * searches
    assert wrong <= limit


@pytest.mark.parametrize(("seeds", "limit"), [(50, 1), pytest.param(200, 2, marks=pytest.mark.slow)])
def test_equal_commits_are_rarely_blamed(seeds, limit):
    searches = (search(["1.0 a", "1.0 b"], StandInGpu(between=0.01, seed=seed)) for seed in range(seeds))
    assert sum(bool(found.culprits) for found in searches) <= limit
