"""What runs measured of cases besides times."""

from collections import defaultdict
from dataclasses import replace
from math import isnan, nan

import pytest

from perfsvc.model import CheckedKernel, CheckVerdict, StaticFacts, Status, Verdict
from tests.unit.store.conftest import ON_BOTH

FACTS = StaticFacts(32, 0, 4, 8, 0, 1, None, "5a" * 32)


@pytest.fixture
def check(story):
    """Return a function that stores a check of ``tiled`` with two kernels, whose facts it takes."""

    def put(commit, *facts, toolkit=None, architecture="sm_90", dirty=False):
        kernels = [
            CheckedKernel(story.tiled, architecture, f"kernel_{number}", facts=each, source="c" * 64)
            for number, each in enumerate(facts)
        ]
        provenance = story.provenance(commit=commit, dirty=dirty, scope="kernels")
        verdicts = [CheckVerdict(kernel, Verdict.NEW) for kernel in kernels]
        story.store.checks.put(provenance, verdicts, toolkit=toolkit or story.environment.toolkit)

    return put


@ON_BOTH
def test_errors_and_work_are_those_of_all_replicas(story, store):
    runs = [story.begin(), story.begin()]
    for run in runs:
        for replica, error in enumerate((1e-7, 3e-7 * run, None)):
            story.put(run, story.tiled, replica=replica, max_error=error)
        story.put(run, story.naive)
    naive = defaultdict(dict)
    table = store.measurements.columns(runs)
    for run, case, error, read, written, flops in zip(
        *(table[name] for name in ("run", "case", "max_error", "read_bytes", "written_bytes", "flops")), strict=True
    ):
        known = naive[case].get(run, (None, 0, 0))
        errors = [each for each in (known[0], error) if each is not None]
        naive[case][run] = (max(errors, default=None), max(known[1], read + written), max(known[2], flops))
    found = {
        series.case.id: {
            run: (None if isnan(error) else error, moved, flops)
            for run, error, moved, flops in zip(of.runs, of.max_error, of.moved_bytes, of.flops, strict=True)
        }
        for series, of in store.measurements.quantities(runs).items()
    }
    assert found == naive
    assert store.measurements.quantities(runs[:1])[story.series(story.tiled)].runs.tolist() == runs[:1]


def test_a_renamed_case_keeps_its_quantities_and_a_run_with_a_bad_replica_is_left_out(story, store):
    first = story.run()
    renamed = replace(story.tiled, variant="blocked", formerly=("tiled",))
    second = story.run(renamed)
    (of_case,) = store.measurements.quantities([first, second]).values()
    assert of_case.runs.tolist() == [first, second]
    run = story.begin()
    story.put(run, story.tiled, replica=0)
    story.put(run, story.tiled, replica=1, status=Status.WRONG)
    assert store.measurements.quantities([run]) == {}


@ON_BOTH
def test_static_facts_are_those_of_the_commit_the_compiler_and_the_architecture(story, store, check):
    check("a", FACTS, replace(FACTS, registers=40))
    check("a", FACTS, replace(FACTS, registers=48))
    check("a", replace(FACTS, registers=90), toolkit="nvcc 12.0")
    check("a", replace(FACTS, registers=91), architecture="sm_80")
    check("a", replace(FACTS, registers=92), dirty=True)
    check("b", replace(FACTS, registers=93))
    runs = [story.run(commit="a"), story.run(commit="a", dirty=True), story.run(commit="c"), story.run()]
    (of_case,) = store.measurements.quantities(runs).values()
    assert of_case.registers.tolist() == pytest.approx([48, nan, nan, nan], nan_ok=True)
    assert of_case.spilled_bytes.tolist() == pytest.approx([24, nan, nan, nan], nan_ok=True)
