"""Which runs a baseline has, and the verdicts that follow."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from perfsvc.judge import compare as compare_levels
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import (
    FIRST_RUNS,
    CacheState,
    Call,
    Cause,
    Confirmation,
    Measurement,
    Package,
    PythonCode,
    RunState,
    Status,
    Tolerance,
    Verdict,
)
from perfsvc.service.compare.compare import compare, judge_against, judge_run
from perfsvc.service.compare.nights import with_nights
from perfsvc.service.confirm.conclude import Confirmer
from perfsvc.service.confirm.pairs import PairResults, PairSettings
from perfsvc.service.exclusions import delete, exclude, include
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.findings.update import update_findings
from perfsvc.service.prepare.targets import Target
from perfsvc.service.run.measure import report_new_environments
from tests.unit.store.conftest import ON_BOTH

NOISE = (-1e-3, 0.0, 1e-3)
ECC_ON, ECC_OFF = (("gpu.ecc", "on"),), (("gpu.ecc", "off"),)


@pytest.fixture
def night(story):
    """Return a function that measures and judges a run, and returns its verdicts on times by variant."""
    story.store.devices.put(story.gpu)

    def run(
        seconds=1e-4,
        code=b"code",
        *,
        case=story.tiled,
        further=None,
        source=b"source",
        noise=NOISE,
        status=Status.OK,
        state=RunState.FINISHED,
        environment=None,
        steps=(),
        is_judged=True,
        measured=None,
        **provenance,
    ):
        here = replace(story, environment=replace(story.environment, **{"places": 8, **(environment or {})}))
        number = story.begin(**{"scope": "all", **provenance})
        story.store.series.register([case, *(further or {})])
        given = {"status": status, "reason": "because"} if status is not Status.OK else {}
        for each, value in {case: seconds, **(further or {})}.items():
            binary = story.binary(each, code, source=source, steps=steps)
            here.put_replicas(number, each, value, noise, binary=binary, **given, **(measured or {}))
        if not is_judged:
            story.store.runs.end(number, state)
            return {}
        judgements = story.end_and_judge(number, state)
        return {(judgement.series.case.variant, judgement.series.metric): judgement for judgement in judgements}

    return run


def runs(story, before_run, baseline_run=1, metric="time", case=None):
    """Return how many runs the baseline has that begins with a run."""
    series = story.series(case or story.tiled, metric=metric)
    levels = story.store.series.levels_of({series: baseline_run})
    (level,) = with_nights(story.store, levels, before_run, levels).values()
    return 1 + len(level.further)


@ON_BOTH
def test_all_runs_of_the_same_code_are_the_baseline(story, night):
    for _ in range(3):
        night()
    judged = night(1.02e-4)["tiled", "time"]
    assert (judged.baseline_run, judged.baseline_runs, judged.baseline_replicas) == (1, 3, 9)
    assert (judged.verdict, judged.cause, judged.against) == (Verdict.REGRESSION, Cause.NOISE, "3 runs since run 1")
    assert judged.baseline_s == pytest.approx(1e-4, rel=1e-5)
    assert judged.between_nights == pytest.approx(0, abs=1e-6)
    assert story.store.verdicts.of_run(4) == [judged]


CALLS = {"steps": (Call("work"),)}


def packages(version):
    return {**CALLS, "measured": {"python": PythonCode(packages=(Package("triton", version),))}}


COUNTED = {
    "equal code, built anew": (2, [{}, {"source": b"a comment more"}]),
    "other code in between": (2, [{}, {"code": b"other"}, {}]),
    "Python functions, unknown packages": (1, [CALLS, CALLS, CALLS]),
    "Python functions, other packages": (3, [packages("3.4.0")] * 3 + [packages("3.5.0")]),
    "uncommitted changes": (2, [{}, {"dirty": True}, {}]),
    "uncommitted changes of the baseline itself": (2, [{"dirty": True}, {}]),
    "a wrong result": (2, [{}, {"status": Status.WRONG}, {}]),
    "another driver": (2, [{}, {"environment": {"driver": "590.1"}}, {}]),
    "another number of places": (2, [{}, {"environment": {"places": 1}}, {}]),
    "a failed run": (2, [{}, {"state": RunState.FAILED, "status": Status.FAILED}, {}]),
    "another cache state": (2, [{}, {"measured": {"cache": CacheState.WARM}}, {}]),
}
"""How many runs the baseline has after some nights, by what differs between the nights."""


@pytest.mark.slow
def test_clean_runs_of_the_same_code_in_the_same_environment_are_the_baseline(story, night):
    found = {}
    for name, (_, nights) in COUNTED.items():
        case = replace(story.tiled, benchmark=name)
        first = story.store.runs.list(limit=1)[0].id + 1 if found else 1
        for options in nights:
            night(case=case, scope=name, **options)
        found[name] = runs(story, first + len(nights), first, case=case)
    assert found == {name: count for name, (count, _) in COUNTED.items()}


def test_new_code_that_was_measured_before_has_its_own_runs_too(night):
    night()
    night(code=b"other")
    assert night(code=b"other")["tiled", "time"].baseline_runs == 1
    night()
    assert night(code=b"other")["tiled", "time"].baseline_runs == 2


def test_excluded_runs_are_not_in_the_baseline(story, night):
    night()
    night(1.3e-4, noise=(-0.2, 0.0, 0.2))
    night()
    before = night(1.02e-4, b"other")["tiled", "time"]
    assert (before.baseline_runs, before.verdict) == (3, Verdict.REGRESSION)
    exclude(story.store, 2, (), reason="the GPU was shared")
    assert runs(story, 4) == 2
    (after,) = story.store.verdicts.of_run(4)
    assert (after.baseline_runs, after.between_nights) == (2, 0.0)
    include(story.store, 2, ())
    assert [judged.baseline_runs for judged in story.store.verdicts.of_run(4)] == [3]


@pytest.mark.slow
def test_a_baseline_has_its_first_and_its_newest_runs(story, night, monkeypatch):
    monkeypatch.setattr("perfsvc.service.compare.nights.MOST_NIGHTS", 8)
    monkeypatch.setattr("perfsvc.store.baselines.nights.MOST_NIGHTS", 8)
    for run in range(1, 13):
        night(1e-4 * (1 + run * 1e-5), noise=(0.0,))
    series = story.series(story.tiled)
    levels = story.store.series.levels_of({series: 1})
    (level,) = with_nights(story.store, levels, 13, levels).values()
    assert [round((seconds / 1e-4 - 1) * 1e5) for (seconds,) in level.further] == [2, 3, 4, 5, 10, 11, 12]


def test_runs_of_other_hosts_do_not_push_out_the_nights_of_a_host(story, night, monkeypatch):
    monkeypatch.setattr("perfsvc.store.baselines.nights.SEARCHED_RUNS", 2)
    monkeypatch.setattr("perfsvc.store.baselines.nights.MOST_NIGHTS", 1)
    monkeypatch.setattr("perfsvc.store.baselines.nights.SEARCHED_FIRST", 0)
    for host in ("mine", "mine", "mine", "mine", "other", "other", "other"):
        night(host=host, case=story.tiled if host == "mine" else story.naive)
    series = story.series(story.tiled)
    assert set(story.store.baselines.nights({series: 1}, 8)[series]) == {1, 4}
    assert set(story.store.baselines.nights({series: 1}, 4)[series]) == {1, 3}


@pytest.mark.slow
def test_many_later_runs_do_not_push_out_the_nights_of_replaced_code(story, night, monkeypatch):
    monkeypatch.setattr("perfsvc.store.baselines.nights.SEARCHED_RUNS", 3)
    night(0.98e-4)
    for _ in range(4):
        night()
    verdicts = [night(1.002e-4, code=b"other")["tiled", "time"] for _ in range(6)]
    assert {(judged.verdict, judged.baseline_runs) for judged in verdicts} == {(Verdict.UNCHANGED, 5)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_search_of_few_runs_first_finds_the_nights_of_a_search_of_all(story, night, monkeypatch, seed):
    chance = random.Random(seed)
    for module in ("perfsvc.service.compare.nights", "perfsvc.store.baselines.nights"):
        monkeypatch.setattr(f"{module}.MOST_NIGHTS", FIRST_RUNS + 2)
    monkeypatch.setattr("perfsvc.store.baselines.nights.SEARCHED_FIRST", FIRST_RUNS)
    latest = b"code"
    for number in range(24):
        latest = chance.choice((b"code", b"code", b"other")) if chance.random() < 0.2 else latest
        given = {"code": latest, "host": chance.choice("ab"), "noise": (0.0,), "is_judged": number < 2}
        status = Status.FAILED if chance.random() < 0.1 else Status.OK
        night(1e-4 * (1 + number * 1e-6), status=status, **given)
    series = story.series(story.tiled)
    found = {}
    for most in (3, 1_000):
        monkeypatch.setattr("perfsvc.store.baselines.nights.SEARCHED_AT_FIRST", most)
        for run in range(2, 25):
            baselines = story.store.baselines.get([series], run)
            levels = story.store.series.levels_of(baselines)
            further = with_nights(story.store, levels, run, levels)[series].further if levels else ()
            assert found.setdefault(run, further) == further
    assert max(map(len, found.values())) == FIRST_RUNS + 1


@pytest.mark.slow
def test_neither_later_runs_nor_those_beside_a_named_run_are_in_the_baseline_and_those_without_samples_are(
    story, night, tmp_path
):
    for _ in range(4):
        night()
    series = story.series(story.tiled)
    comparison = compare(story.store, "1", "3", folder=tmp_path, threshold=None)
    found = [
        judge_against(story.store, 3, {series: 1}, nights_before=3),
        judge_against(story.store, 3, {series: 1}),
        comparison.judgements,
        judge_run(story.store, 3, threshold=None, against=1),
    ]
    assert [[judged.baseline_runs for judged in each] for each in found] == [[2], [1], [1], [1]]
    story.execute("UPDATE measurements SET samples = NULL WHERE run_id = 2")
    assert night()["tiled", "time"].baseline_runs == 4


def test_a_pin_gets_the_later_runs_of_its_code(story, night):
    night(code=b"old")
    night()
    night()
    story.store.baselines.pin(2, [story.series(story.tiled)])
    judged = night(1.02e-4)["tiled", "time"]
    assert (judged.baseline_run, judged.baseline_runs) == (2, 2)


def test_named_metrics_have_nights_too_and_errors_have_none(story, night):
    for _ in range(3):
        judged = night(measured={"metrics": {"overlap": 0.5}})
    assert judged["tiled", "overlap"].baseline_runs == 2
    assert runs(story, 4, metric="overlap") == 3


@pytest.fixture
def slowed(story, night, after):
    """Three nights, and three slow nights of the same code, which raised a finding in run 5."""

    def live():
        for _ in range(3):
            night()
        for run in (4, 5, 6):
            night(1.05e-4)
            update_findings(story.store, run)

    after("three nights and three slow ones", live)


@pytest.mark.slow
def test_a_finding_keeps_the_slow_nights_of_a_renamed_case_out_of_its_baseline(story, night, slowed):
    renamed = replace(story.tiled, variant="tiles", formerly=("tiled",))
    for _ in range(3):
        judged = night(1.05e-4, case=renamed)["tiles", "time"]
    assert (judged.verdict, judged.baseline_runs) == (Verdict.REGRESSION, 3)


@pytest.mark.slow
def test_a_finding_whose_first_run_was_deleted_keeps_slow_nights_out_of_the_baseline(story, night, slowed):
    delete(story.store, 5, reason="the disk was full")
    for _ in range(3):
        judged = night(1.05e-4)["tiled", "time"]
    assert (judged.verdict, judged.baseline_runs) == (Verdict.REGRESSION, 3)


@pytest.mark.slow
def test_a_slow_night_stays_out_of_a_baseline_if_it_is_the_baseline_of_another_series(story, night):
    night(case=story.naive)
    for _ in range(3):
        night()
    for run in (5, 6, 7):
        night(1.05e-4)
        update_findings(story.store, run)
    tiled, naive = story.series(story.tiled), story.series(story.naive)
    alone = story.store.baselines.nights({tiled: 2}, 8)[tiled]
    assert {2, 3, 4} <= alone.keys()
    assert alone.keys().isdisjoint({5, 6})  # the finding began in run 6, but run 5 showed it first
    assert story.store.baselines.nights({tiled: 2, naive: 6}, 8)[tiled] == alone
    assert set(story.store.baselines.nights({tiled: 6}, 8)[tiled]) == {6}


@pytest.mark.slow
def test_a_finding_about_a_renamed_case_says_nothing_of_a_new_case_with_its_former_name(story, night, slowed):
    renamed = replace(story.tiled, variant="tiles", formerly=("tiled",))
    night(1.05e-4, case=renamed)
    for _ in range(3):
        judged = night(code=b"new", further={renamed: 1e-4})["tiled", "time"]
    assert (judged.baseline_run, judged.baseline_runs) == (8, 2)


# --- the same code ---------------------------------------------------------------------------------------------------


def test_noise_leaves_unchanged_code_unchanged(night):
    night(noise=(-0.02, 0.0, 0.02))
    judged = night()["tiled", "time"]
    assert judged.verdict is Verdict.UNCHANGED
    assert judged.reason.startswith("the same code as in run 1; the times allow -")
    judged = night(noise=(-0.02, 0.0, 0.02))["tiled", "time"]
    assert judged.verdict is Verdict.UNCHANGED
    assert judged.reason.startswith("the same code as in 2 earlier runs; the times allow -")


def test_noise_leaves_new_code_and_a_new_driver_inconclusive(night):
    night(noise=(-0.02, 0.0, 0.02))
    judged = night(code=b"other")["tiled", "time"]
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.reason.endswith("replicas on each side would settle it")
    assert night(environment={"driver": "590.1"})["tiled", "time"].verdict is Verdict.INCONCLUSIVE


def test_a_small_move_of_one_replica_of_unchanged_code_is_unchanged(night):
    night(noise=(0.0,))
    judged = night(1.009e-4, noise=(0.0,))["tiled", "time"]
    assert (judged.verdict, judged.reason) == (Verdict.UNCHANGED, "the same code as in run 1")


@pytest.mark.slow
@pytest.mark.parametrize(("a_night", "drifted"), [(0.003, 12), (0.001, 20)])
def test_a_slow_drift_of_unchanged_code_becomes_a_finding(story, night, a_night, drifted):
    for run in range(drifted + 1):
        is_judged = drifted < 20 or not 0 < run < drifted - 2  # to judge takes longest
        judged = night(1e-4 * (1 + a_night * run), is_judged=is_judged)
        if is_judged:
            update_findings(story.store, run + 1)
    last = judged["tiled", "time"]
    assert (last.verdict, last.cause, last.baseline_runs) == (Verdict.REGRESSION, Cause.NOISE, FIRST_RUNS)
    assert "the baseline's first 5 runs, because the later ones drifted too" in last.reason
    (finding,) = story.store.findings.all()
    assert finding.cause is Cause.UNEXPLAINED


@pytest.mark.slow
def test_nights_that_differ_without_a_drift_are_unchanged(night):
    for share in (0.0, 0.006, -0.004, 0.003, -0.006, 0.005, 0.0, -0.003, 0.006, 0.004, -0.005, 0.006, 0.006):
        judged = night(1e-4 * (1 + share))["tiled", "time"]
        assert judged.verdict in {Verdict.NEW, Verdict.UNCHANGED}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [({}, {"places": 1}, "places"), ({"parts": ECC_ON}, {"parts": ECC_OFF}, "another part of the environment changed")],
)
def test_a_change_of_the_places_or_of_a_chosen_part_is_another_environment(story, night, old, new, reason):
    for _ in range(2):
        night(environment=old)
    judged = night(1.05e-4, environment=new)["tiled", "time"]
    assert (judged.verdict, judged.cause, judged.baseline_run) == (Verdict.REGRESSION, Cause.ENVIRONMENT, 1)
    assert reason in judged.reason
    assert [environment.places for environment in story.store.devices.environments().values()] == [
        8,
        new.get("places", 8),
    ]
    judged = night(1.05e-4, environment=new)["tiled", "time"]
    assert (judged.verdict, judged.baseline_run, judged.baseline_runs) == (Verdict.UNCHANGED, 3, 1)


def test_a_new_environment_is_reported_against_the_last_run_of_the_case(story, night):
    target = Target(story.gpu, (SimpleNamespace(case=story.tiled),), None)

    def reported(*, dirty=False, **environment):
        messages = []
        now = replace(story.environment, **({"driver": "580.1", "places": 8} | environment))
        run = story.begin(scope="all", dirty=dirty)
        report_new_environments(story.store, run, [target], {story.gpu.uuid: now}, messages.append)
        story.store.runs.end(run, RunState.FINISHED)
        return messages

    assert reported() == []
    night()
    assert reported() == []
    (message,) = reported(places=1)
    assert message == (
        f"{story.gpu.model} ({story.gpu.uuid}) has changed since run 2: places of arrays 8 → 1; "
        "perfsvc compares later runs only with run 4 and the runs after it"
    )
    night(environment={"places": 1})
    night(environment={"driver": "590.1"}, dirty=True)
    assert reported(places=1) == []
    assert "since run 5: driver 580.1 → 590.1, places of arrays 1 → 8;" in reported(driver="590.1")[0]
    assert reported(driver="600.1", dirty=True) == []


def test_a_lucky_first_night_is_no_bar_for_new_code(story, night):
    night(0.95e-4)
    for _ in range(4):
        night()
    assert night(code=b"other")["tiled", "time"].verdict is Verdict.UNCHANGED
    assert suspects_of(story.store, 6) == []


def test_a_noisy_first_night_hides_no_regression(story, night):
    night(noise=(-0.05, 0.0, 0.4))
    for _ in range(4):
        night()
    judged = night(1.02e-4, b"other")["tiled", "time"]
    assert judged.verdict is Verdict.REGRESSION
    (suspect,) = suspects_of(story.store, 6)
    assert suspect.evidence == "+2.0 % against 5 runs since run 1"


@pytest.mark.parametrize(("nights", "noise"), [(1, (0.0,)), (5, NOISE)])
def test_a_large_move_of_one_replica_of_unchanged_code_is_noise(story, night, nights, noise):
    for _ in range(nights):
        night(noise=noise, further={story.naive: 1e-4})
    judged = night(1e-3, noise=(0.0,), further={story.naive: 1e-5})
    for variant, factor, verdict in (("tiled", 10.0, Verdict.REGRESSION), ("naive", 0.1, Verdict.IMPROVEMENT)):
        moved = judged[variant, "time"]
        assert moved.ratio == pytest.approx(factor, rel=0.01)
        assert (moved.verdict, moved.cause) == (verdict, Cause.NOISE)
        assert "--replicas 3; the code is the same on both sides" in moved.reason


def test_a_large_move_of_one_replica_of_new_code_is_inconclusive(night):
    night(noise=(0.0,))
    judged = night(1e-3, b"other", noise=(0.0,))["tiled", "time"]
    assert (judged.verdict, judged.cause) == (Verdict.INCONCLUSIVE, None)
    assert "--replicas 3" in judged.reason


@pytest.mark.slow
def test_unchanged_code_whose_single_replicas_stay_slow_becomes_a_finding(story, night):
    for _ in range(3):
        night(noise=(0.0,))
    for run in (4, 5):
        night(1e-3, noise=(0.0,))
        update_findings(story.store, run)
    (finding,) = story.store.findings.all()
    assert (finding.cause, finding.first_run) == (Cause.UNEXPLAINED, 5)


def test_a_confirmation_measures_at_as_many_places_as_the_run(story, night, monkeypatch):
    monkeypatch.setattr("perfsvc.suite.isolated.replay_tolerance", lambda *_: Tolerance(1.0, 1.0))
    night()
    night(1.2e-4, b"other")
    (suspect,) = suspects_of(story.store, 2)
    settings = PairSettings({story.gpu.uuid: story.gpu}, lambda _: Sampling(), {}, seed=1, threshold=0.01)
    why, sides = Confirmer(story.store, settings).prepare(suspect)
    assert sides, why.reason
    assert [task.sampling.places for task in sides.tasks] == [8, 8]


@pytest.mark.slow
@pytest.mark.parametrize(("nights", "drift"), [(1, 1.25), (9, 1.0)])
def test_a_confirmation_compares_the_old_binary_with_all_nights_of_the_baseline(story, night, nights, drift):
    night(0.8e-4)
    for _ in range(nights - 1):
        night()
    night(1.2e-4, b"other")
    (suspect,) = suspects_of(story.store, nights + 1)
    settings = PairSettings({story.gpu.uuid: story.gpu}, lambda _: Sampling(), {}, seed=1, threshold=0.01)
    unconfirmed = Confirmation(suspect, Cause.UNCONFIRMED, "", threshold=0.01, seed=1, budget_s=60.0)

    def pairs(seconds):
        return [
            Measurement(story.tiled, story.gpu.uuid, replica, Status.OK, samples_s=(seconds * (1 + share),) * 5)
            for replica, share in enumerate(NOISE)
        ]

    old, new = pairs(1e-4), pairs(1.2e-4)
    comparison = compare_levels([run.samples_s for run in old], [run.samples_s for run in new])
    concluded = Confirmer(story.store, settings).conclude(unconfirmed, PairResults(old, new, 1, comparison))
    assert concluded.drift == pytest.approx(drift, rel=0.03)
    assert concluded.cause is Cause.KERNEL
