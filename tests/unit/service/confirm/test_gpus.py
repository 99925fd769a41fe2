"""Which GPUs of a model measure a suspect, when their answer holds for all, and the causes of verdicts."""

from dataclasses import replace

import pytest

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import (
    CacheState,
    Case,
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    Judgement,
    Kind,
    Measurement,
    ReplayRecord,
    Series,
    Status,
    Suspect,
    Tolerance,
    Verdict,
)
from perfsvc.process.shared_memory import share
from perfsvc.service.confirm.conclude import relevant_change
from perfsvc.service.confirm.confirm import Group, groups_of, with_causes
from perfsvc.service.confirm.pairs import PairResults, Sides


def task(case, device, module, **more):
    record = ReplayRecord(case, Kind.KERNEL, (), (), (module,), "", seed=0)
    arrays = Recipe("none", lambda: share({}, {}))
    return Task(device, record, (), CacheState.COLD, Sampling(), Tolerance(0, 0), arrays, **more)


def suspect(device, ratio=1.05, *, case="a", model="H100", change=ChangeKind.REGRESSION, baseline_run=1, **sides):
    """Return a suspect with its unconfirmed confirmation, as an entry of what is to be measured."""
    case = Case("dot", case)
    series = Series(case, device, model, metric=sides.pop("metric", "time"))
    judgement = Judgement(series, Verdict.REGRESSION, ratio=ratio, baseline_run=baseline_run, candidate_run=9)
    direction = sides.pop("direction", Direction.SLOWER)
    old, new = sides.pop("old", "old"), sides.pop("new", "new")
    threshold = sides.pop("threshold", 0.01)
    unconfirmed = Confirmation(
        Suspect(judgement, change, direction), Cause.UNCONFIRMED, "", threshold, seed=1, budget_s=60
    )
    tasks = task(case, device, old, **sides), task(case, device, new, **sides)
    return Sides(*tasks, threshold, lambda _: True, series.metric), unconfirmed


def groups(*entries):
    return groups_of(dict(entries))


def devices(group):
    """Return the devices of a group: the first, the second, and all others than the first."""
    check = group.check.baseline.device if group.check else None
    return group.first.baseline.device, check, {sides.baseline.device for sides in group.others}


def test_a_suspect_of_a_single_gpu_is_measured_there():
    (group,) = groups(suspect("A"))
    assert devices(group) == ("A", None, set())
    assert group.measured == (group.first,)
    assert not group.applies


def test_the_gpu_with_the_largest_change_is_first_and_another_checks_it_with_one_pair():
    (group,) = groups(suspect("A", 1.05), suspect("B", 1.03), suspect("C", 1.10), suspect("D", 1.02))
    assert devices(group) == ("C", "A", {"A", "B", "D"})
    assert group.check.most_pairs == 1
    assert [task.replicas for task in group.check.tasks] == [1, 1]
    assert {sides.most_pairs for sides in group.others} == {judge.LOOKS[-1]}


def test_gpus_with_about_the_same_change_divide_the_work():
    entries = [
        suspect(device, 1.05 + 0.001 * number, case=f"case{case}")
        for case in range(8)
        for number, device in enumerate("ABCD")
    ]
    found = groups(*entries)
    firsts = [devices(group)[0] for group in found]
    checks = [devices(group)[1] for group in found]
    pairs = [3 * firsts.count(device) + checks.count(device) for device in "ABCD"]
    assert sum(pairs) == 8 * (3 + 1)
    assert max(pairs) - min(pairs) <= 3
    assert all(first != check for first, check in zip(firsts, checks, strict=True))


def test_suspects_that_differ_share_no_answer():
    others = [
        {"model": "A100"},
        {"case": "b"},
        {"old": "older"},
        {"new": "newer"},
        {"metric": "energy_j"},
        {"direction": Direction.FASTER},
        {"bench": "def step(): ..."},
        {"change": ChangeKind.AGAIN},
        {"change": ChangeKind.TREND, "threshold": 0.006},
    ]
    for other in others:
        alone = [devices(group) for group in groups(suspect("A"), suspect("B", **other))]
        assert alone == [("A", None, set()), ("B", None, set())], other


def test_a_baseline_of_another_run_with_the_same_binary_is_the_same_unless_the_reason_names_the_run():
    assert len(groups(suspect("A"), suspect("B", baseline_run=2))) == 1
    again = {"change": ChangeKind.AGAIN}
    assert len(groups(suspect("A", **again), suspect("B", baseline_run=2, **again))) == 2
    assert len(groups(suspect("A", **again), suspect("B", **again))) == 1


# --- whether the answer holds ----------------------------------------------------------------------------------------


def runs(seconds, status=Status.OK):
    case = Case("dot", "a")
    return [Measurement(case, "B", number, status, samples_s=(value,) * 9) for number, value in enumerate(seconds)]


@pytest.fixture
def answered():
    """Return a function that returns a group with an answer of 5 % ± 1 %, and the pair of the second GPU."""

    def group(ratio=1.05, *, cause=Cause.KERNEL, status=Status.OK, old=(1e-4,)):
        first, unconfirmed = suspect("A", 1.06)
        other, _ = suspect("B", 1.05)
        (found,) = groups((first, unconfirmed), suspect("B", 1.04), suspect("C", 1.04))
        comparison = Comparison(1.05, 1.05 / 1.01, 1.05 * 1.01, Verdict.REGRESSION, "")
        found.answer = replace(unconfirmed, cause=cause, reason="it is slower", verdict=Verdict.REGRESSION, looks=1)
        found.results = PairResults(runs([1e-4] * 3), runs([1.05e-4] * 3), 1, comparison, decided=True)
        found.checked = PairResults(runs(old), runs([1e-4 * ratio], status), decided=True)
        assert other.metric == first.metric
        return found

    return group


def test_an_answer_that_blames_the_code_holds_if_the_pair_of_the_second_gpu_shows_a_similar_change(answered):
    holds = {1.05: True, 1.035: True, 1.065: True, 1.0: False, 1.02: False, 1.09: False, 0.95: False}
    assert {ratio: answered(ratio).applies for ratio in holds} == holds
    for cause in (Cause.NOISE, Cause.ENVIRONMENT, Cause.UNCONFIRMED):
        assert not answered(cause=cause).applies
    assert not answered(status=Status.WRONG).applies  # a pair without a result checks nothing
    assert not answered(old=()).applies


def test_an_applied_answer_names_both_gpus_and_keeps_the_pair_of_the_second(answered):
    group = answered()
    applied = {device: group.applied(suspect(device)[1]) for device in "BC"}
    assert {answer.reason for answer in applied.values()} == {"it is slower, as on A, and checked on B with one pair"}
    assert [applied[device].suspect.series.device for device in "BC"] == ["B", "C"]
    assert [applied[device].pairs for device in "BC"] == [1, 0]
    assert all((answer.confirmed, answer.carried_over) == (True, False) for answer in applied.values())


def test_a_group_without_an_agreed_answer_applies_nothing():
    (group,) = groups(suspect("A"), suspect("B"))
    with pytest.raises(ValueError, match="does not apply"):
        group.applied(suspect("B")[1])
    assert isinstance(group, Group)


SERIES = Series(Case("transpose", "tiled"), "GPU-1", "NVIDIA H100")


def changed(change: ChangeKind, ratio: float | None) -> Suspect:
    return Suspect(Judgement(SERIES, Verdict.REGRESSION, ratio=ratio), change, Direction.SLOWER)


def test_half_of_a_step_below_the_threshold_is_relevant():
    relevant = {
        (ChangeKind.REGRESSION, 1.05, None): 0.01,
        (ChangeKind.REGRESSION, 1.05, 0.03): 0.03,
        (ChangeKind.REGRESSION, None, None): 0.01,
        (ChangeKind.STEP, 1.0201, 0.03): 0.01,
        (ChangeKind.TREND, 1 / 1.0201, 0.03): 0.01,
        (ChangeKind.STEP, 1.008016, None): 0.004,
        (ChangeKind.STEP, 1.2, None): 0.01,
    }
    found = {given: relevant_change(changed(*given[:2]), "cuda", given[2]) for given in relevant}
    assert found == pytest.approx(relevant)


def test_an_unchanged_verdict_gets_no_cause() -> None:
    confirmation = Confirmation(changed(ChangeKind.STEP, 1.02), Cause.KERNEL, "", threshold=0.01, seed=1, budget_s=60.0)
    quiet = Judgement(SERIES, Verdict.UNCHANGED)
    moved = Judgement(SERIES, Verdict.REGRESSION, cause=Cause.UNCONFIRMED)
    assert [judgement.cause for judgement in with_causes([quiet, moved], [confirmation])] == [None, Cause.KERNEL]
