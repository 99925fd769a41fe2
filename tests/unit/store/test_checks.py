"""Stored static checks, and the baselines of the next check."""

from dataclasses import replace

import pytest

from perfsvc.judge import check_verdicts
from perfsvc.model import (
    Cause,
    CheckedKernel,
    CheckVerdict,
    Limiter,
    Occupancy,
    StaticBaseline,
    StaticFacts,
    Status,
    Verdict,
)
from tests.unit.store.conftest import ON_BOTH

NVCC, NEWER = "nvcc 13.0.88", "nvcc 13.5.37"
FACTS = StaticFacts(32, 16, 4, 8, 4224, 1, (("global", 8), ("integer", 30)), "aa")


@pytest.fixture
def kernel(story):
    return CheckedKernel(
        story.tiled,
        "sm_90",
        "transpose_tiled",
        facts=FACTS,
        occupancy=Occupancy(48, 64, Limiter.SHARED_MEMORY),
        threads=256,
        dynamic_shared_bytes=1024,
        source="bb",
    )


@pytest.fixture
def put(story):
    """Return a function that stores a check with the same verdict on all its kernels, and returns its number."""

    def put(*kernels, verdict=Verdict.NEW, toolkit=NVCC, accepted="", others=(), **given):
        baseline = given.pop("baseline", None)
        verdicts = [CheckVerdict(kernel, verdict, baseline_check=baseline) for kernel in kernels]
        provenance = story.provenance(**{"scope": "kernels", **given})
        return story.store.checks.put(provenance, verdicts, others, toolkit=toolkit, accepted=accepted)

    return put


def with_registers(kernel, registers):
    return replace(kernel, facts=replace(FACTS, registers=registers))


def baselines(story, *kernels, toolkit=NVCC, scope="kernels"):
    return story.store.checks.baselines(kernels, scope, toolkit)


def levels(story, *kernels, **given):
    """The checks of the baselines, with the registers."""
    return [(each.check, each.checked.facts.registers) for each in baselines(story, *kernels, **given)]


def names(story, *kernels, **given):
    return {each.checked.kernel for each in baselines(story, *kernels, **given)}


@ON_BOTH
def test_a_kernel_is_read_as_it_was_stored_and_unknown_facts_stay_unknown(story, kernel, put):
    number = put(kernel)
    assert baselines(story, kernel) == [StaticBaseline(kernel, NVCC, number)]
    without_facts, without_threads = {"facts": replace(FACTS, instructions=None)}, {"occupancy": None, "threads": 0}
    for name, change in {"first": without_facts, "second": without_threads}.items():
        unknown = replace(kernel, kernel=name, **change)
        put(unknown, scope="unknown")
        assert [each.checked for each in baselines(story, unknown, scope="unknown")] == [unknown]


def test_an_improvement_and_what_a_person_accepts_become_the_level_and_nothing_else_does(story, kernel, put):
    first = put(kernel)
    put(with_registers(kernel, 64), verdict=Verdict.REGRESSION, baseline=first)
    put(with_registers(kernel, 33), verdict=Verdict.UNCHANGED, baseline=first)
    put(with_registers(kernel, 8), verdict=Verdict.IMPROVEMENT, baseline=first, dirty=True)
    put(with_registers(kernel, 8), verdict=Verdict.BROKEN, accepted="whatever")
    assert levels(story, kernel) == [(first, 32)]
    better = put(with_registers(kernel, 16), verdict=Verdict.IMPROVEMENT, baseline=first)
    assert levels(story, kernel) == [(better, 16)]
    worse = put(with_registers(kernel, 64), verdict=Verdict.REGRESSION, baseline=better, accepted="it is faster")
    assert levels(story, kernel) == [(worse, 64)]


def test_an_improvement_does_not_raise_the_baseline_registers_but_a_person_or_another_compiler_does(story, kernel, put):
    def level(**given):
        facts = [baseline.checked.facts for baseline in baselines(story, kernel, **given)]
        return [(fact.registers, fact.stack_bytes) for fact in facts]

    def less_stack(registers, stack):
        return replace(kernel, facts=replace(FACTS, registers=registers, stack_bytes=stack))

    first = put(less_stack(32, 8))
    second = put(less_stack(39, 4), verdict=Verdict.IMPROVEMENT, baseline=first)
    assert level() == [(32, 4)]
    third = put(less_stack(38, 2), verdict=Verdict.IMPROVEMENT, baseline=second)
    assert level() == [(32, 2)]
    put(less_stack(39, 1), verdict=Verdict.IMPROVEMENT, baseline=third, toolkit=NEWER)
    assert level(toolkit=NEWER) == [(39, 1)]
    fourth = put(less_stack(39, 1), verdict=Verdict.IMPROVEMENT, baseline=third, accepted="as it is")
    assert level() == [(39, 1)]
    put(less_stack(24, 0), verdict=Verdict.IMPROVEMENT, baseline=fourth)
    assert level() == [(24, 0)]


def test_a_trade_in_two_steps_is_judged_like_one_step(story, kernel):
    verdicts = []
    for registers, stack in [(32, 8), (39, 4), (46, 0)]:
        now = replace(kernel, facts=replace(FACTS, registers=registers, stack_bytes=stack), source=str(registers))
        judged = check_verdicts(baselines(story, now), [now], NVCC)
        story.store.checks.put(story.provenance(scope="kernels"), judged, toolkit=NVCC)
        verdicts += [verdict.verdict for verdict in judged]
    assert verdicts == [Verdict.NEW, Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE]


def test_each_compiler_has_its_own_levels_after_its_first_check(story, kernel, put):
    old = put(kernel)
    assert levels(story, kernel, toolkit=NEWER) == [(old, 32)]
    new = put(with_registers(kernel, 64), verdict=Verdict.REGRESSION, baseline=old, toolkit=NEWER)
    assert levels(story, kernel, toolkit=NEWER) == levels(story, kernel, toolkit="nvcc 14") == [(new, 64)]
    assert levels(story, kernel, toolkit=NVCC) == [(old, 32)]
    assert [each.toolkit for each in baselines(story, kernel, toolkit="nvcc 14")] == [NEWER]


def test_a_renamed_variant_keeps_its_level(story, kernel, put):
    number = put(kernel)
    renamed = replace(kernel, case=replace(story.tiled, variant="shared", formerly=("tiled",)))
    assert baselines(story, renamed) == [StaticBaseline(renamed, NVCC, number)]


def renamed_to(kernel, name):
    return replace(kernel, kernel=name)


def test_a_renamed_kernel_keeps_its_level_until_it_gets_its_own(story, kernel, put):
    first = put(kernel)
    worse = renamed_to(with_registers(kernel, 64), "turned")
    compared = CheckVerdict(worse, Verdict.REGRESSION, kernel, baseline_check=first)
    for scope in ("kernels", "kernels", "another"):  # however often it is looked at, and by whatever selection
        assert baselines(story, worse, scope=scope) == [StaticBaseline(kernel, NVCC, first)]
        story.store.checks.put(story.provenance(scope=scope), [compared], toolkit=NVCC)
    better = CheckVerdict(worse, Verdict.IMPROVEMENT, kernel, baseline_check=first)
    last = story.store.checks.put(story.provenance(scope="kernels"), [better], toolkit=NVCC)
    assert baselines(story, worse) == [StaticBaseline(worse, NVCC, last)]
    assert baselines(story, worse, renamed_to(kernel, "added")) == [StaticBaseline(worse, NVCC, last)]


def test_a_kernel_reported_as_gone_is_no_baseline_of_a_new_name(story, kernel, put):
    second = renamed_to(kernel, "second")
    first = put(kernel, second)
    gone = CheckVerdict(second, Verdict.MISSING, second, baseline_check=first)
    same = CheckVerdict(kernel, Verdict.UNCHANGED, kernel, baseline_check=first)
    story.store.checks.put(story.provenance(scope="kernels", dirty=True), [same, gone], toolkit=NVCC)
    added = renamed_to(kernel, "added")
    assert names(story, kernel, added) == {kernel.kernel, "second"}
    story.store.checks.put(story.provenance(scope="kernels"), [same, gone], toolkit=NVCC)
    assert [baseline.checked for baseline in baselines(story, kernel, added)] == [kernel]


def test_a_possible_rename_stays_open_until_a_person_accepts_it(story, kernel, put):
    first = put(kernel)
    parts = [renamed_to(kernel, name) for name in ("front", "back")]
    gone = CheckVerdict(kernel, Verdict.MISSING, kernel, baseline_check=first)
    verdicts = [*(CheckVerdict(kernel, Verdict.INCONCLUSIVE) for kernel in parts), gone]
    for _ in range(2):
        story.store.checks.put(story.provenance(scope="kernels"), verdicts, toolkit=NVCC)
        assert [baseline.checked for baseline in baselines(story, *parts)] == [kernel]
    story.store.checks.put(story.provenance(scope="kernels"), verdicts, toolkit=NVCC, accepted="split on purpose")
    added = renamed_to(kernel, "added")
    assert names(story, *parts, added) == {"front", "back"}


@ON_BOTH
def test_a_kernel_of_the_previous_check_is_expected_once(story, kernel, put):
    second = replace(kernel, kernel="second")
    first = put(kernel, second)
    assert names(story, kernel) == {"transpose_tiled", "second"}
    assert names(story, kernel, scope="another") == {"transpose_tiled"}
    gone = CheckVerdict(second, Verdict.MISSING, baseline_check=first)
    same = CheckVerdict(kernel, Verdict.UNCHANGED, baseline_check=first)
    story.store.checks.put(story.provenance(scope="kernels"), [same, gone], toolkit=NVCC)
    assert names(story, kernel) == {"transpose_tiled"}
    rows = story.execute("SELECT status, facts_id, verdict FROM checked_kernels WHERE kernel = 'second' ORDER BY 1")
    assert [tuple(row) for row in rows] == [("ok", 1, "new"), ("skipped", None, "missing")]


def test_equal_facts_are_stored_once_and_kernels_are_deleted_with_their_check(story, kernel, put):
    put(kernel, replace(kernel, architecture="sm_80"))
    put(kernel, verdict=Verdict.UNCHANGED)
    assert story.execute("SELECT count(*) FROM facts")[0][0] == 1
    assert story.execute("SELECT count(*) FROM checked_kernels")[0][0] == 3
    story.execute("DELETE FROM checks")
    assert story.execute("SELECT * FROM checked_kernels") == []
    assert put(kernel) == 3
    assert story.store.measurements.columns()["case"] == []  # a checked case is not measured


def test_a_skipped_kernel_has_its_reason_and_is_not_expected_and_a_verdict_has_its_cause(story, kernel, put):
    skipped = CheckedKernel(story.naive, "sm_80", "", Status.SKIPPED, "requires sm_90a: this device is sm_80")
    first = put(kernel, others=[skipped])
    rows = story.execute("SELECT status, reason, verdict FROM checked_kernels WHERE architecture = 'sm_80'")
    assert [tuple(row) for row in rows] == [("skipped", skipped.reason, None)]
    assert [baseline.checked.case for baseline in baselines(story)] == [story.tiled]
    worse = CheckVerdict(
        kernel, Verdict.REGRESSION, kernel, (), "another compiler", Cause.TOOLCHAIN, baseline_check=first
    )
    story.store.checks.put(story.provenance(), [worse], toolkit=NEWER, disassembler="nvdisasm 13.5")
    query = "SELECT verdict, cause, verdict_reason, baseline_check_id FROM checked_kernels WHERE check_id = 2"
    assert [tuple(row) for row in story.execute(query)] == [("regression", "toolchain", "another compiler", first)]
