import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.judge import exit_code, level_of_samples, verdicts
from perfsvc.judge.verdicts import ORDER
from perfsvc.model import TIME, UNJUDGED, Case, Cause, Judgement, Level, Series, Status, Verdict
from perfsvc.model.levels import LevelColumns

H100, CPU = "NVIDIA H100 80GB HBM3", "AMD EPYC 9654"


def series(variant: str = "tiled", *, device: str = "GPU-1", model: str = H100, version: int = 1) -> Series:
    return Series(Case("transpose", variant, (("n", 1024),), version), device, model)


def level(*medians: float, run: int = 1) -> Level:
    return level_of_samples([(median,) * 5 for median in medians], run)


BASE = level(1e-5, 1e-5, 1e-5)
SAME = level(1e-5, 1e-5, 1e-5, run=2)
SLOW = level(1.05e-5, 1.05e-5, 1.05e-5, run=2)
FAILED = Level(2, Status.FAILED, "tiled.cu does not compile")
WRONG = Level(2, Status.WRONG, "out differs by 0.3")
SKIPPED = Level(2, Status.SKIPPED, "needs sm_90")


def judge(baseline: dict[Series, Level], candidate: dict[Series, Level]) -> list[Judgement]:
    return verdicts(baseline, candidate, threshold=0.03)


def judge_one(before: Level | None, after: Level | None) -> Judgement:
    only = series()
    [judgement] = judge({only: before} if before else {}, {only: after} if after else {})
    return judgement


def test_a_slower_case_is_a_regression_with_its_numbers_and_equal_times_are_unchanged() -> None:
    found = judge_one(level(1e-5, 1e-5), SLOW)
    assert (found.verdict, found.ratio) == (Verdict.REGRESSION, pytest.approx(1.05))
    assert (found.baseline_run, found.candidate_run) == (1, 2)
    assert (found.baseline_s, found.candidate_s) == (pytest.approx(1e-5), pytest.approx(1.05e-5))
    assert (found.baseline_replicas, found.candidate_replicas) == (2, 3)
    found = judge_one(BASE, SAME)
    assert (found.verdict, found.ratio, found.low, found.high) == (Verdict.UNCHANGED, 1.0, 1.0, 1.0)
    assert judge_one(level(1e-5, 1.02e-5, 0.98e-5), level(1e-5, 1.02e-5, 0.98e-5, run=2)).smallest > 0.03
    assert judge_one(BASE, FAILED).smallest is None


def _any_level(random: np.random.Generator, run: int, metric: str) -> Level | None:
    """Return a level of any kind, or None."""
    kind = random.integers(12)
    if kind < 3:
        bad = (None, Level(run, Status.SKIPPED), Level(run, Status.WRONG, "out differs"))
        return bad[kind]
    spread, scale = random.choice([0.0, 1e-4, 3e-2], 2)
    lengths = [1] * 3 if metric != TIME else random.integers(kind != 3, 9, random.integers(kind != 4, 4))
    values = [1e-5 * (1 + scale + spread * random.standard_normal(length)) for length in lengths]
    if kind == 5:
        values = [np.zeros(length) for length in lengths]
    elif kind == 6:
        values[0][-1:] = random.choice([np.nan, np.inf, -1.0, 0.0])
    further = tuple((1e-5, 1.0001e-5) for _ in range(random.integers(8))) if kind == 7 and run == 1 else ()
    return level_of_samples(values, run, further)


def test_series_judged_together_are_those_judged_one_by_one():
    for every in [False, True]:
        random = np.random.default_rng(int(every))
        sides: tuple[dict[Series, Level], dict[Series, Level]] = ({}, {})
        for number in range(250):
            metric = str(random.choice([TIME, "energy_j", "max_error", "steps"]))
            one = replace(series(f"v{number}"), metric=metric)
            for run, side in enumerate(sides, start=1):
                if level_of_side := _any_level(random, run, metric):
                    side[one] = level_of_side
            if random.random() < 0.1 and one in sides[0]:  # the values did not move
                sides[1][one] = replace(sides[0][one], run=2, further=())
        alone = [
            row
            for one in {**sides[0], **sides[1]}
            for row in verdicts(
                *({one: side[one]} if one in side else {} for side in sides), threshold=0.01, every=every
            )
        ]
        for columns in (sides, tuple(map(LevelColumns.of, sides))):
            together = verdicts(*columns, threshold=0.01, every=every)
            assert sorted(map(repr, together)) == sorted(map(repr, alone)), every
            assert [ORDER.index(row.verdict) for row in together] == sorted(
                ORDER.index(row.verdict) for row in together
            )
        assert {row.verdict for row in alone} == set(Verdict), every


def test_a_failed_or_wrong_candidate_or_one_with_impossible_values_is_broken_with_its_reason():
    for after in (FAILED, WRONG):
        for before in (BASE, FAILED, None):
            found = judge_one(before, after)
            assert (found.verdict, found.reason, found.ratio) == (Verdict.BROKEN, after.reason, None), before
    assert judge_one(BASE, level(math.nan)).verdict is Verdict.BROKEN
    assert judge_one(BASE, Level(2, Status.OK)).verdict is Verdict.BROKEN
    assert judge_one(BASE, Level(2, Status.OK)).reason == "no replica holds values"
    assert judge_one(BASE, Level(2, Status.OK, medians=(1.0, math.nan))).reason == "a value is not a finite number"


def test_a_case_is_new_without_a_level_in_the_baseline_and_missing_if_the_candidate_skips_or_lacks_it() -> None:
    assert judge_one(None, SAME).verdict is Verdict.NEW
    found = judge_one(FAILED, SAME)
    assert (found.verdict, found.reason) == (Verdict.NEW, "the baseline has no level: tiled.cu does not compile")
    latency = replace(series(), metric="latency_ms")
    [found] = judge({series(): FAILED}, {latency: SAME})
    assert (found.series, found.verdict) == (latency, Verdict.NEW)
    assert found.reason == "the baseline has no level: tiled.cu does not compile"
    found = judge_one(BASE, SKIPPED)
    assert (found.verdict, found.reason) == (Verdict.MISSING, "needs sm_90")
    found = judge_one(BASE, None)
    assert (found.verdict, found.baseline_run, found.candidate_run) == (Verdict.MISSING, 1, None)
    for before, after in ((None, SKIPPED), (SKIPPED, SKIPPED), (SKIPPED, None), (FAILED, None), (FAILED, SKIPPED)):
        sides = ({series(): side} if side else {} for side in (before, after))
        assert judge(*sides) == [], (before, after)
    assert {row.verdict for row in judge({series(): BASE}, {latency: SLOW})} == {Verdict.MISSING, Verdict.NEW}


def test_a_case_without_a_right_result_has_one_row_whatever_metrics_it_had():
    for tonight, verdict in [(FAILED, Verdict.BROKEN), (SKIPPED, Verdict.MISSING)]:
        before = {replace(series(), metric=metric): BASE for metric in ("latency_ms", "hops")}
        [found] = judge(before, {series(): tonight})
        assert (found.series, found.verdict, found.reason) == (series(), verdict, tonight.reason), (tonight, verdict)


def test_a_baseline_used_for_another_gpu_is_missing_if_its_own_gpu_was_measured() -> None:
    before = {series("a", device="GPU-1"): BASE, series("b", device="GPU-1"): BASE}
    found = judge(before, {series("a", device="GPU-1"): SAME, series("b", device="GPU-2"): SAME})
    assert [(row.series.case.variant, row.series.device, row.verdict) for row in found] == [
        ("b", "GPU-1", Verdict.MISSING),
        ("a", "GPU-1", Verdict.UNCHANGED),
        ("b", "GPU-2", Verdict.UNCHANGED),
    ]


def test_a_new_version_is_new_and_follows_the_last_of_the_same_series() -> None:
    [found] = judge({series(version=1): BASE}, {series(version=2): SAME})
    assert found.verdict is Verdict.NEW
    assert found.reason == "version 2 of a case whose history ended with version 1"
    before = {series(version=3): BASE, series(version=1): BASE, series("naive", version=7): BASE}
    found = judge(before, {series(version=4): SAME, series("naive"): SAME, series("wide"): SAME})
    assert {(row.series.case.variant, row.reason) for row in found} == {
        ("tiled", "version 4 of a case whose history ended with version 3"),
        ("naive", "version 1 of a case whose history ended with version 7"),
        ("wide", "the baseline does not have it"),
    }


def test_only_a_gpu_without_history_is_compared_with_another_of_its_model_and_the_reason_says_so() -> None:
    [found] = judge({series(device="GPU-1"): BASE}, {series(device="GPU-2"): SLOW})
    assert found.verdict is Verdict.REGRESSION
    assert found.series.device == "GPU-2"
    assert f"another {H100} (GPU-1)" in found.reason
    found = judge({series(device="GPU-1"): BASE, series(device="GPU-2"): SLOW}, {series(device="GPU-2"): SLOW})
    assert [(j.series.device, j.verdict) for j in found] == [("GPU-1", Verdict.MISSING), ("GPU-2", Verdict.UNCHANGED)]
    baseline = {series(device="GPU-1"): BASE, series(device="GPU-3"): replace(FAILED, run=9)}
    [found] = judge(baseline, {series(device="GPU-9"): SAME})
    assert (found.verdict, found.baseline_run) == (Verdict.UNCHANGED, 1)  # GPU-3 has no usable level
    assert "another" in found.reason


def devices(*medians: float) -> dict[Series, Level]:
    """Return GPUs of row model, each with a later run than the row before."""
    return {series(device=f"GPU-{n}"): level(*[median] * 3, run=n) for n, median in enumerate(medians)}


def test_gpus_that_agree_show_a_small_change_of_a_new_gpu() -> None:
    [found] = judge(devices(1e-5, 1e-5, 1e-5, 1e-5), {series(device="GPU-9"): SLOW})
    assert (found.verdict, found.baseline_run) == (Verdict.REGRESSION, 3)
    assert f"compared with 4 other GPUs of {H100}, whose spread is in the interval" in found.reason


def test_the_spread_of_a_models_gpus_is_no_regression_of_a_new_one() -> None:
    others = devices(1.00e-5, 1.04e-5, 0.97e-5, 1.02e-5, 0.99e-5)
    [found] = judge(others, {series(device="GPU-9"): SLOW})
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.low < 1 < found.high
    assert found.baseline_s == pytest.approx(
        math.exp(sum(math.log(m) for m in (1.00, 1.04, 0.97, 1.02, 0.99)) / 5) * 1e-5
    )
    [worse] = judge(others, {series(device="GPU-9"): level(1.5e-5, 1.5e-5, 1.5e-5, run=2)})
    assert worse.verdict is Verdict.REGRESSION


@pytest.mark.parametrize(("draws", "limit"), [(100, 4), pytest.param(600, 12, marks=pytest.mark.slow)])
def test_new_gpus_with_an_equal_spread_are_rarely_called_changed(draws, limit) -> None:
    rng = np.random.default_rng(5)
    called = 0
    for _ in range(draws):
        medians = 1e-5 * np.exp(rng.normal(0, 0.02, 7))
        noisy = [tuple(median * np.exp(rng.normal(0, 0.001, 3))) for median in medians]
        *known, new = [Level(1, Status.OK, medians=times) for times in noisy]
        others = {series(device=f"GPU-{n}"): values for n, values in enumerate(known)}
        [found] = verdicts(others, {series(device="GPU-9"): new}, threshold=0.0)
        called += found.verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT}
    assert called <= limit  # at alpha = 0.01, 1 and 6 are expected


def test_the_cpu_device_is_never_compared_with_a_gpu() -> None:
    gpu, cpu = series(device="GPU-1", model=H100), series(device="cpu-1", model=CPU)
    found = {judgement.series: judgement.verdict for judgement in judge({gpu: BASE}, {cpu: SLOW})}
    assert found == {gpu: Verdict.MISSING, cpu: Verdict.NEW}


def test_metrics_are_better_when_they_are_lower_and_may_be_zero() -> None:
    errors = replace(series(), metric="hops")
    zero, some, more = (Level(1, Status.OK, medians=(e, e, e)) for e in (0.0, 1e-7, 2e-7))

    def verdict(before: Level, after: Level) -> Verdict:
        return judge({errors: before}, {errors: after})[0].verdict

    assert verdict(some, more) is Verdict.REGRESSION
    assert verdict(zero, zero) is Verdict.UNCHANGED
    assert verdict(zero, some) is Verdict.INCONCLUSIVE


def test_the_threshold_may_depend_on_the_series() -> None:
    rough, fine = series("naive"), series("tiled")
    limits = {rough: 0.5, fine: 0.03}
    found = verdicts({rough: BASE, fine: BASE}, {rough: SLOW, fine: SLOW}, threshold=limits.get)
    assert {row.series: row.verdict for row in found} == {rough: Verdict.UNCHANGED, fine: Verdict.REGRESSION}


def test_the_steepest_regression_comes_first_and_the_unchanged_last() -> None:
    steeper = level(2e-5, 2e-5, 2e-5, run=2)
    faster = level(0.5e-5, 0.5e-5, 0.5e-5, run=2)
    single = level(1e-5, run=2)
    after = {"a": SAME, "b": SLOW, "c": steeper, "d": FAILED, "e": SKIPPED, "f": faster, "g": single, "h": SAME}
    before = {name: BASE for name in after if name != "h"} | {"g": level(1e-5)}
    found = judge(
        {series(name): values for name, values in before.items()},
        {series(name): values for name, values in after.items()},
    )
    assert [judgement.series.case.variant for judgement in found] == ["c", "b", "d", "e", "f", "g", "h", "a"]


LEVELS = st.sampled_from([None, BASE, SAME, SLOW, FAILED, WRONG, SKIPPED, level(1e-5)])


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(LEVELS, LEVELS)))
def test_each_series_has_at_most_one_row_and_the_rows_are_in_order(levels):
    before = {series(name): pair[0] for name, pair in levels.items() if pair[0]}
    after = {series(name): pair[1] for name, pair in levels.items() if pair[1]}
    found = judge(before, after)
    judged = {judgement.series for judgement in found}
    assert len(judged) == len(found)
    assert [ORDER.index(judgement.verdict) for judgement in found] == sorted(
        ORDER.index(judgement.verdict) for judgement in found
    )
    assert {key for key, level_after in after.items() if level_after.status is not Status.SKIPPED} <= judged
    assert all(judgement.reason for judgement in found)


# --- exit codes ------------------------------------------------------------------------------------------------------


def judged(*found: Verdict) -> Iterable[Judgement]:
    return [Judgement(series(str(number)), verdict) for number, verdict in enumerate(found)]


def test_a_failure_outranks_a_regression_which_outranks_doubt_and_what_no_code_caused_is_no_alarm():
    cases = [
        ((), False, False, 0),
        ((Verdict.UNCHANGED, Verdict.NEW, Verdict.IMPROVEMENT), False, True, 0),
        ((Verdict.MISSING, Verdict.REGRESSION), False, True, 4),
        ((Verdict.INCONCLUSIVE,), False, False, 0),
        ((Verdict.INCONCLUSIVE,), False, True, 3),
        ((Verdict.INCONCLUSIVE, Verdict.REGRESSION), False, True, 1),
        ((Verdict.REGRESSION, Verdict.BROKEN), False, True, 4),
        ((Verdict.REGRESSION,), True, False, 4),
        ((), True, False, 4),
    ]
    for found, failed, strict, code in cases:
        assert exit_code(judged(*found), failed=failed, strict=strict) == code, (found, failed, strict)
    (slower,) = judged(Verdict.REGRESSION)
    codes = {cause: exit_code([replace(slower, cause=cause)], failed=False, strict=True) for cause in (None, *Cause)}
    assert {codes[cause] for cause in (Cause.ENVIRONMENT, Cause.NOISE)} == {0}
    assert {codes[cause] for cause in (None, Cause.KERNEL, Cause.TOOLCHAIN, Cause.UNCONFIRMED)} == {1}


def test_energy_has_a_verdict_only_if_it_moved() -> None:
    energy = replace(series(), metric="energy_j")
    known = {series(): BASE, energy: level(1.0, 1.0, 1.0)}

    def metrics(tonight: dict[Series, Level]) -> dict[str, Verdict]:
        return {found.series.metric: found.verdict for found in judge(known, {series(): SAME, **tonight})}

    assert metrics({energy: level(1.2, 1.2, 1.2)}) == {TIME: Verdict.UNCHANGED, "energy_j": Verdict.REGRESSION}
    assert metrics({energy: level(0.8, 0.8, 0.8)}) == {TIME: Verdict.UNCHANGED, "energy_j": Verdict.IMPROVEMENT}
    assert metrics({energy: level(1.0, 1.0, 1.0)}) == {TIME: Verdict.UNCHANGED}
    assert metrics({}) == {TIME: Verdict.UNCHANGED}
    assert [found.series.metric for found in judge({series(): BASE}, {series(): SAME, energy: BASE})] == [TIME]


def test_energies_near_the_threshold_have_the_verdicts_that_comparing_all_of_them_gives():
    for threshold in [0.0, 0.01, 0.5]:
        random = np.random.default_rng(1)
        energies = [replace(series(f"v{number}"), metric="energy_j") for number in range(100)]
        limit = (1 + threshold) * (1 + 2.0**-23)
        ratios = [limit ** (sign * (1 + 1e-6 * random.standard_normal())) for _ in range(50) for sign in (1, -1)]
        before = {one: level(1.0, 1.0, 1.0) for one in energies}
        after = {one: level(*[ratio] * 3, run=2) for one, ratio in zip(energies, ratios, strict=True)}
        every = verdicts(before, after, threshold=threshold, every=True)
        moved = [row for row in every if row.verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT}]
        assert 0 < len(moved) < len(every), threshold
        assert verdicts(before, after, threshold=threshold) == moved, threshold


def test_a_metric_that_only_explains_times_has_no_verdict():
    for metric in sorted(UNJUDGED):
        explains = replace(series(), metric=metric)
        slower = {series(): SAME, explains: level(5.0, 5.0, 5.0, run=2)}
        assert [found.series.metric for found in judge({series(): BASE, explains: level(1.0, 1.0, 1.0)}, slower)] == [
            TIME
        ]
        assert [found.series.metric for found in judge({series(): BASE, explains: BASE}, {series(): SAME})] == [TIME]
