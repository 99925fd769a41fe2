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
    """Return the kernel with other facts."""
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
        now(spill_store_bytes=4, registers=24),  # fewer registers do not make up for spills
        now(HALF, registers=24),
    ],
)
def test_facts_that_slow_a_launch_are_a_regression_and_the_way_back_is_not(worse):
    verdict = judged(worse)
    assert (verdict.verdict, verdict.cause) == (Verdict.REGRESSION, Cause.KERNEL)
    assert (verdict.baseline, verdict.baseline_check) == (KERNEL, 3)
    assert judged(KERNEL, worse).verdict is not Verdict.REGRESSION or len(verdict.changes) > 1


@pytest.mark.parametrize(
    "better",
    [now(registers=24), now(HALF)],
)
def test_facts_that_speed_up_a_launch_are_an_improvement(better):
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
def test_facts_without_effect_on_a_launch_are_reported_and_not_judged(other):
    verdict = judged(other)
    assert (verdict.verdict, verdict.cause) == (Verdict.UNCHANGED, None)
    assert [change.better for change in verdict.changes] == [None] * len(verdict.changes) != []


def test_equal_facts_have_no_changes():
    assert judged(replace(KERNEL, source="new comment")).changes == ()


def test_every_change_has_its_old_and_new_value():
    verdict = judged(now(HALF, registers=64, instructions=(("global", 8), ("local", 2), ("integer", 20))))
    assert verdict.changes == (
        FactChange("occupancy", 1.0, 0.5, better=False),
        FactChange("registers", 32, 64, better=False),
        FactChange("instructions", 38, 30),
        FactChange("integer instructions", 30, 20),
        FactChange("local instructions", 0, 2),
    )


@pytest.mark.parametrize("spilling", [{"spill_load_bytes": 64}, {"stack_bytes": 64}])
def test_more_registers_for_fewer_spills_are_inconclusive(spilling):
    assert judged(now(registers=64), now(**spilling)).verdict is Verdict.INCONCLUSIVE


def test_a_slow_rise_becomes_a_regression_when_it_adds_up():
    rising = [now(registers=32 + added) for added in (3, 6, 9)]
    assert [judged(row).verdict for row in rising] == [Verdict.UNCHANGED, Verdict.UNCHANGED, Verdict.REGRESSION]


@pytest.mark.parametrize(
    ("source", "toolkit", "cause"),
    [
        ("source", "nvcc 13.1", Cause.TOOLCHAIN),
        ("another", OLD, Cause.KERNEL),
        ("another", "nvcc 13.1", Cause.UNCONFIRMED),
        ("source", OLD, Cause.ENVIRONMENT),
    ],
)
def test_the_cause_separates_compiler_and_source(source, toolkit, cause):
    assert judged(now(HALF, source=source), toolkit=toolkit).cause is cause


def test_a_kernel_that_fits_no_multiprocessor_is_broken():
    verdict = judged(now(Occupancy(0, 64, Limiter.SHARED_MEMORY)))
    assert verdict.verdict is Verdict.BROKEN
    assert verdict.reason == "no block of the kernel can run: it exceeds the limit of shared memory"


def test_a_kernel_without_known_occupancy_is_judged_by_its_other_facts():
    assert judged(now(None)).verdict is Verdict.UNCHANGED
    assert judged(now(None, registers=64)).verdict is Verdict.REGRESSION


def test_a_kernel_without_a_baseline_is_new():
    (verdict,) = check_verdicts([], [KERNEL], OLD)
    assert (verdict.verdict, verdict.baseline, verdict.cause) == (Verdict.NEW, None, None)


def test_a_kernel_that_does_not_compile_is_broken_and_nothing_of_its_case_is_missing():
    failed = CheckedKernel(TILED, "sm_90", "", Status.FAILED, "tiled.cu does not compile")
    verdicts = check_verdicts([StaticBaseline(KERNEL, OLD)], [failed], OLD)
    assert [(row.verdict, row.reason) for row in verdicts] == [(Verdict.BROKEN, "tiled.cu does not compile")]


def test_a_kernel_that_is_now_skipped_is_missing_and_one_that_always_was_has_no_verdict():
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
    """Return the verdicts on the kernels of row case by name; ``after`` has the occupancy of each."""
    held = [StaticBaseline(replace(KERNEL, kernel=name), OLD) for name in before]
    present = [replace(now(occupancy), kernel=name) for name, occupancy in after.items()]
    return {row.checked.kernel: row.verdict for row in check_verdicts(held, present, OLD)}


def test_several_kernels_are_matched_by_name():
    verdicts = of_kernels(["first", "second"], {"first": FULL, "second": HALF})
    assert verdicts == {"first": Verdict.UNCHANGED, "second": Verdict.REGRESSION}
    assert of_kernels(["first"], {"first": FULL, "second": FULL})["second"] is Verdict.NEW
    assert of_kernels(["first", "second"], {"first": FULL})["second"] is Verdict.MISSING


def test_the_only_kernel_that_is_gone_is_matched_with_the_only_new_one():
    verdicts = of_kernels(["first", "second"], {"first": FULL, "third": HALF})
    assert verdicts == {"first": Verdict.UNCHANGED, "third": Verdict.REGRESSION}


def test_a_kernel_that_may_be_a_renamed_one_is_not_new():
    verdicts = of_kernels(["first", "second"], {"first": FULL, "third": HALF, "fourth": FULL})
    assert verdicts.pop("second") is Verdict.MISSING
    assert verdicts == {"first": Verdict.UNCHANGED, "third": Verdict.INCONCLUSIVE, "fourth": Verdict.INCONCLUSIVE}
    assert of_kernels(["first", "second"], {"fused": FULL})["fused"] is Verdict.INCONCLUSIVE


def test_no_kernel_is_missing_if_the_case_does_not_compile():
    failed = CheckedKernel(TILED, "sm_90", "", Status.FAILED, "tiled.cu does not compile")
    before = [StaticBaseline(replace(KERNEL, kernel=name), OLD) for name in ("first", "second")]
    assert [row.verdict for row in check_verdicts(before, [failed], OLD)] == [Verdict.BROKEN]


def test_a_raised_version_starts_anew():
    raised = replace(now(HALF), case=replace(TILED, version=2))
    assert [row.verdict for row in check_verdicts([StaticBaseline(KERNEL, OLD)], [raised], OLD)] == [Verdict.NEW]


def test_the_worst_comes_first_and_architectures_in_the_order_of_their_numbers():
    before = [StaticBaseline(replace(KERNEL, architecture=name), OLD) for name in ("sm_100", "sm_90", "sm_80")]
    after = [replace(now(HALF), architecture=name) for name in ("sm_100", "sm_90")] + [
        replace(KERNEL, architecture="sm_80")
    ]
    verdicts = [(row.verdict, row.checked.architecture) for row in check_verdicts(before, after, OLD)]
    assert verdicts == [
        (Verdict.REGRESSION, "sm_90"),
        (Verdict.REGRESSION, "sm_100"),
        (Verdict.UNCHANGED, "sm_80"),
    ]
