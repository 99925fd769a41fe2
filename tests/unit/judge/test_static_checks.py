from dataclasses import replace

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
FACTS = StaticFacts(32, 0, 0, 0, 4224, 1, (("global", 8), ("integer", 30)), "aa")
ABOUT = {"occupancy": Occupancy(64, 64, Limiter.WARPS), "threads": 256, "source": "source"}
KERNEL = CheckedKernel(TILED, "sm_90", "transpose_tiled", facts=FACTS, **ABOUT)
FULL, HALF = Occupancy(64, 64, Limiter.WARPS), Occupancy(32, 64, Limiter.REGISTERS)


def now(occupancy=FULL, *, source="another source", **facts):
    """Return the kernel with other facts."""
    return replace(KERNEL, facts=replace(KERNEL.facts, **facts), occupancy=occupancy, source=source)


def judged(after, before=KERNEL, toolkit=OLD):
    (verdict,) = check_verdicts([StaticBaseline(before, OLD, 3)], [after], toolkit)
    return verdict


def test_facts_that_slow_a_launch_are_a_regression_and_the_way_back_is_not():
    for worse in (
        now(spill_store_bytes=4),
        now(spill_load_bytes=4),
        now(stack_bytes=8),
        now(HALF),
        now(registers=40),
        now(HALF, registers=64),
        now(spill_store_bytes=4, registers=24),  # fewer registers do not make up for spills
        now(HALF, registers=24),
    ):
        verdict = judged(worse)
        assert (verdict.verdict, verdict.cause) == (Verdict.REGRESSION, Cause.KERNEL), worse
        assert (verdict.baseline, verdict.baseline_check) == (KERNEL, 3)
        assert judged(KERNEL, worse).verdict is not Verdict.REGRESSION or len(verdict.changes) > 1, worse
    assert judged(now(registers=24)).verdict is judged(KERNEL, now(HALF)).verdict is Verdict.IMPROVEMENT
    assert judged(now(None)).verdict is Verdict.UNCHANGED
    assert judged(now(None, registers=64)).verdict is Verdict.REGRESSION
    for spilling in ({"spill_load_bytes": 64}, {"stack_bytes": 64}):
        assert judged(now(registers=64), now(**spilling)).verdict is Verdict.INCONCLUSIVE, spilling


def test_facts_without_effect_on_a_launch_are_reported_and_not_judged():
    for other in [
        now(registers=39),
        now(registers=25),
        now(shared_bytes=8192),
        now(barriers=2),
        now(instructions=(("global", 99),)),
    ]:
        verdict = judged(other)
        assert (verdict.verdict, verdict.cause) == (Verdict.UNCHANGED, None), other
        assert [change.better for change in verdict.changes] == [None] * len(verdict.changes) != [], other


def test_every_change_has_its_old_and_new_value():
    assert judged(replace(KERNEL, source="new comment")).changes == ()
    verdict = judged(now(HALF, registers=64, instructions=(("global", 8), ("local", 2), ("integer", 20))))
    assert verdict.changes == (
        FactChange("occupancy", 1.0, 0.5, better=False),
        FactChange("registers", 32, 64, better=False),
        FactChange("instructions", 38, 30),
        FactChange("integer instructions", 30, 20),
        FactChange("local instructions", 0, 2),
    )


def test_a_slow_rise_becomes_a_regression_when_it_adds_up():
    rising = [now(registers=32 + added) for added in (3, 6, 9)]
    assert [judged(row).verdict for row in rising] == [Verdict.UNCHANGED, Verdict.UNCHANGED, Verdict.REGRESSION]


def test_the_cause_separates_compiler_and_source():
    cases = [
        ("source", "nvcc 13.1", Cause.TOOLCHAIN),
        ("another", OLD, Cause.KERNEL),
        ("another", "nvcc 13.1", Cause.UNCONFIRMED),
        ("source", OLD, Cause.ENVIRONMENT),
    ]
    assert [judged(now(HALF, source=source), toolkit=toolkit).cause for source, toolkit, _ in cases] == [
        cause for *_, cause in cases
    ]


def test_a_kernel_that_fits_no_multiprocessor_is_broken():
    verdict = judged(now(Occupancy(0, 64, Limiter.SHARED_MEMORY)))
    assert verdict.verdict is Verdict.BROKEN
    assert verdict.reason == "no block of the kernel can run: it exceeds the limit of shared memory"


def test_a_kernel_that_does_not_compile_is_broken_and_nothing_of_its_case_is_missing():
    failed = CheckedKernel(TILED, "sm_90", "", Status.FAILED, "tiled.cu does not compile")
    before = [StaticBaseline(replace(KERNEL, kernel=name), OLD) for name in ("first", "second")]
    for held in (before[:1], before):
        verdicts = check_verdicts(held, [failed], OLD)
        assert [(row.verdict, row.reason) for row in verdicts] == [(Verdict.BROKEN, "tiled.cu does not compile")]


def test_a_kernel_without_a_baseline_or_of_a_raised_version_is_new_and_one_that_is_gone_or_skipped_is_missing():
    (verdict,) = check_verdicts([], [KERNEL], OLD)
    assert (verdict.verdict, verdict.baseline, verdict.cause) == (Verdict.NEW, None, None)
    held = [StaticBaseline(KERNEL, OLD)]
    raised = replace(now(HALF), case=replace(TILED, version=2))
    assert [row.verdict for row in check_verdicts(held, [raised], OLD)] == [Verdict.NEW]
    assert [row.verdict for row in check_verdicts(held, [], OLD)] == [Verdict.MISSING]
    skipped = CheckedKernel(TILED, "sm_90", "", Status.SKIPPED, "requires sm_100")
    assert check_verdicts([], [skipped], OLD) == []
    assert check_verdicts([StaticBaseline(skipped, OLD)], [skipped], OLD) == []
    (verdict,) = check_verdicts(held, [skipped], OLD)
    assert (verdict.verdict, verdict.reason, verdict.checked) == (Verdict.MISSING, "requires sm_100", KERNEL)


def of_kernels(before, after):
    """Return the verdicts on the kernels of row case by name; ``after`` has the occupancy of each."""
    held = [StaticBaseline(replace(KERNEL, kernel=name), OLD) for name in before]
    present = [replace(now(occupancy), kernel=name) for name, occupancy in after.items()]
    return {row.checked.kernel: row.verdict for row in check_verdicts(held, present, OLD)}


def test_several_kernels_are_matched_by_name_and_the_only_one_that_is_gone_with_the_only_new_one():
    assert judged(replace(now(HALF), kernel="turned")).verdict is Verdict.REGRESSION
    verdicts = of_kernels(["first", "second"], {"first": FULL, "third": HALF})
    assert verdicts == {"first": Verdict.UNCHANGED, "third": Verdict.REGRESSION}
    verdicts = of_kernels(["first", "second"], {"first": FULL, "second": HALF})
    assert verdicts == {"first": Verdict.UNCHANGED, "second": Verdict.REGRESSION}
    assert of_kernels(["first"], {"first": FULL, "second": FULL})["second"] is Verdict.NEW
    assert of_kernels(["first", "second"], {"first": FULL})["second"] is Verdict.MISSING


def test_a_kernel_that_may_be_a_renamed_one_is_not_new():
    verdicts = of_kernels(["first", "second"], {"first": FULL, "third": HALF, "fourth": FULL})
    assert verdicts.pop("second") is Verdict.MISSING
    assert verdicts == {"first": Verdict.UNCHANGED, "third": Verdict.INCONCLUSIVE, "fourth": Verdict.INCONCLUSIVE}
    assert of_kernels(["first", "second"], {"fused": FULL})["fused"] is Verdict.INCONCLUSIVE


def test_the_worst_comes_first_and_architectures_in_the_order_of_their_numbers():
    before = [StaticBaseline(replace(KERNEL, architecture=name), OLD) for name in ("sm_100", "sm_90", "sm_80")]
    after = [replace(now(HALF), architecture=name) for name in ("sm_100", "sm_90")] + [
        replace(KERNEL, architecture="sm_80")
    ]
    verdicts = [(row.verdict, row.checked.architecture) for row in check_verdicts(before, after, OLD)]
    assert verdicts == [(Verdict.REGRESSION, "sm_90"), (Verdict.REGRESSION, "sm_100"), (Verdict.UNCHANGED, "sm_80")]
