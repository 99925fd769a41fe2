from dataclasses import replace

import pytest

from perfsvc.judge import check_verdicts
from perfsvc.model import (
    Case,
    Cause,
    CheckedKernel,
    FactChange,
    Limiter,
    Occupancy,
    StaticBaseline,
    StaticFacts,
    Status,
    Verdict,
)

OLD = "nvcc 13.0.88"
TILED = Case("transpose", "tiled", (("n", 4096),))
KERNEL = CheckedKernel(
    TILED,
    "sm_90",
    "transpose_tiled",
    facts=StaticFacts(32, 0, 0, 0, 4224, 1, (("global", 8), ("integer", 30)), "aa"),
    occupancy=Occupancy(64, 64, Limiter.WARPS),
    threads=256,
    source="source",
)
FULL, HALF = Occupancy(64, 64, Limiter.WARPS), Occupancy(32, 64, Limiter.REGISTERS)


def now(occupancy=FULL, *, source="another source", **facts):
    """The kernel with other facts."""
    return replace(KERNEL, facts=replace(KERNEL.facts, **facts), occupancy=occupancy, source=source)


def judged(after, before=KERNEL, toolkit=OLD):
    (verdict,) = check_verdicts([StaticBaseline(before, OLD, 3)], [after], toolkit)
    return verdict


@pytest.mark.parametrize(
    "worse",
    [
        now(spill_store_bytes=4),
        now(spill_load_bytes=4),
        now(stack_bytes=8),
        now(HALF),
        now(registers=40),
        now(HALF, registers=64),
        now(spill_store_bytes=4, registers=24),  # fewer registers are no comfort
        now(HALF, registers=24),
    ],
)
def test_what_costs_a_launch_something_is_a_regression_and_the_way_back_is_none(worse):
    verdict = judged(worse)
    assert (verdict.verdict, verdict.cause) == (Verdict.REGRESSION, Cause.KERNEL)
    assert (verdict.baseline, verdict.baseline_check) == (KERNEL, 3)
    assert judged(KERNEL, worse).verdict is not Verdict.REGRESSION or len(verdict.changes) > 1


@pytest.mark.parametrize(
    "better",
    [now(registers=24), now(HALF)],
)
def test_what_a_launch_is_spared_is_an_improvement(better):
    old, new = (better, KERNEL) if better.occupancy is HALF else (KERNEL, better)
    assert judged(new, old).verdict is Verdict.IMPROVEMENT


@pytest.mark.parametrize(
    "other",
    [
        now(registers=39),
        now(registers=25),
        now(shared_bytes=8192),
        now(barriers=2),
        now(instructions=(("global", 99),)),
    ],
)
def test_what_no_launch_feels_is_told_and_not_judged(other):
    verdict = judged(other)
    assert (verdict.verdict, verdict.cause) == (Verdict.UNCHANGED, None)
    assert [change.better for change in verdict.changes] == [None] * len(verdict.changes) != []


def test_equal_facts_have_no_changes():
    assert judged(replace(KERNEL, source="new comment")).changes == ()


def test_every_change_is_told_with_what_was_and_what_is():
    verdict = judged(now(HALF, registers=64, instructions=(("global", 8), ("local", 2), ("integer", 20))))
    assert verdict.changes == (
        FactChange("occupancy", 1.0, 0.5, better=False),
        FactChange("registers", 32, 64, better=False),
        FactChange("instructions", 38, 30),
        FactChange("integer instructions", 30, 20),
        FactChange("local instructions", 0, 2),
    )


@pytest.mark.parametrize("spilling", [{"spill_load_bytes": 64}, {"stack_bytes": 64}])
def test_registers_spent_on_fewer_spills_are_for_a_measurement_to_judge(spilling):
    assert judged(now(registers=64), now(**spilling)).verdict is Verdict.INCONCLUSIVE


def test_a_slow_rise_adds_up_until_it_counts():
    rising = [now(registers=32 + added) for added in (3, 6, 9)]
    assert [judged(one).verdict for one in rising] == [Verdict.UNCHANGED, Verdict.UNCHANGED, Verdict.REGRESSION]


@pytest.mark.parametrize(
    ("source", "toolkit", "cause"),
    [
        ("source", "nvcc 13.1", Cause.TOOLCHAIN),
        ("another", OLD, Cause.KERNEL),
        ("another", "nvcc 13.1", Cause.UNCONFIRMED),
        ("source", OLD, Cause.ENVIRONMENT),
    ],
)
def test_a_change_of_the_compiler_is_told_from_one_of_the_source(source, toolkit, cause):
    assert judged(now(HALF, source=source), toolkit=toolkit).cause is cause


def test_a_kernel_that_no_multiprocessor_holds_is_broken():
    verdict = judged(now(Occupancy(0, 64, Limiter.SHARED_MEMORY)))
    assert verdict.verdict is Verdict.BROKEN
    assert verdict.reason == "no block of it can run: too much of shared memory"


def test_what_nobody_published_the_limits_of_is_judged_by_the_rest():
    assert judged(now(None)).verdict is Verdict.UNCHANGED
    assert judged(now(None, registers=64)).verdict is Verdict.REGRESSION


def test_a_kernel_without_a_past_is_new():
    (verdict,) = check_verdicts([], [KERNEL], OLD)
    assert (verdict.verdict, verdict.baseline, verdict.cause) == (Verdict.NEW, None, None)


def test_one_that_does_not_compile_is_broken_and_nothing_of_its_case_is_missing():
    failed = CheckedKernel(TILED, "sm_90", "", Status.FAILED, "tiled.cu does not compile")
    verdicts = check_verdicts([StaticBaseline(KERNEL, OLD)], [failed], OLD)
    assert [(one.verdict, one.reason) for one in verdicts] == [(Verdict.BROKEN, "tiled.cu does not compile")]


def test_one_that_the_architecture_cannot_run_any_more_is_missing_and_one_that_it_never_could_is_nothing():
    skipped = CheckedKernel(TILED, "sm_90", "", Status.SKIPPED, "requires sm_100")
    assert check_verdicts([], [skipped], OLD) == []
    assert check_verdicts([StaticBaseline(skipped, OLD)], [skipped], OLD) == []
    (verdict,) = check_verdicts([StaticBaseline(KERNEL, OLD)], [skipped], OLD)
    assert (verdict.verdict, verdict.reason, verdict.checked) == (Verdict.MISSING, "requires sm_100", KERNEL)


def test_a_kernel_that_is_gone_is_missing():
    (verdict,) = check_verdicts([StaticBaseline(KERNEL, OLD)], [], OLD)
    assert verdict.verdict is Verdict.MISSING


def test_the_only_kernel_of_a_case_may_be_renamed():
    assert judged(replace(now(HALF), kernel="turned")).verdict is Verdict.REGRESSION


def of_kernels(before, after):
    """The verdicts on the kernels of one case, by their names; ``after`` tells the occupancy of each."""
    held = [StaticBaseline(replace(KERNEL, kernel=name), OLD) for name in before]
    present = [replace(now(occupancy), kernel=name) for name, occupancy in after.items()]
    return {one.checked.kernel: one.verdict for one in check_verdicts(held, present, OLD)}


def test_of_several_kernels_each_is_known_by_its_name():
    found = of_kernels(["first", "second"], {"first": FULL, "second": HALF})
    assert found == {"first": Verdict.UNCHANGED, "second": Verdict.REGRESSION}
    assert of_kernels(["first"], {"first": FULL, "second": FULL})["second"] is Verdict.NEW
    assert of_kernels(["first", "second"], {"first": FULL})["second"] is Verdict.MISSING


def test_the_only_one_that_went_is_the_only_one_that_came():
    found = of_kernels(["first", "second"], {"first": FULL, "third": HALF})
    assert found == {"first": Verdict.UNCHANGED, "third": Verdict.REGRESSION}


def test_what_may_be_one_of_several_by_another_name_is_not_new():
    found = of_kernels(["first", "second"], {"first": FULL, "third": HALF, "fourth": FULL})
    assert found.pop("second") is Verdict.MISSING
    assert found == {"first": Verdict.UNCHANGED, "third": Verdict.INCONCLUSIVE, "fourth": Verdict.INCONCLUSIVE}
    assert of_kernels(["first", "second"], {"fused": FULL})["fused"] is Verdict.INCONCLUSIVE


def test_nothing_of_several_kernels_is_missing_where_they_do_not_compile():
    failed = CheckedKernel(TILED, "sm_90", "", Status.FAILED, "tiled.cu does not compile")
    before = [StaticBaseline(replace(KERNEL, kernel=name), OLD) for name in ("first", "second")]
    assert [one.verdict for one in check_verdicts(before, [failed], OLD)] == [Verdict.BROKEN]


def test_a_raised_version_begins_anew():
    raised = replace(now(HALF), case=replace(TILED, version=2))
    assert [one.verdict for one in check_verdicts([StaticBaseline(KERNEL, OLD)], [raised], OLD)] == [Verdict.NEW]


def test_the_worst_comes_first_and_architectures_in_the_order_of_their_numbers():
    before = [StaticBaseline(replace(KERNEL, architecture=name), OLD) for name in ("sm_100", "sm_90", "sm_80")]
    after = [replace(now(HALF), architecture=name) for name in ("sm_100", "sm_90")] + [
        replace(KERNEL, architecture="sm_80")
    ]
    found = [(one.verdict, one.checked.architecture) for one in check_verdicts(before, after, OLD)]
    assert found == [
        (Verdict.REGRESSION, "sm_90"),
        (Verdict.REGRESSION, "sm_100"),
        (Verdict.UNCHANGED, "sm_80"),
    ]
