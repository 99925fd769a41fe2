from dataclasses import replace

import pytest

from perfsvc.model import Verdict
from perfsvc.service.exclusions import exclude
from perfsvc.service.results import stored_report
from tests.unit.store.conftest import ON_BOTH


@pytest.fixture
def renamed(story):
    return replace(story.tiled, variant="shared", formerly=("tiled",))


def runs_of(story, case):
    return [row.run for row in story.store.series.case_history(case.id)]


def test_a_former_name_may_be_added_later_and_names_may_swap(story, renamed):
    story.run(story.tiled)
    story.run(replace(renamed, formerly=()))
    story.run(renamed)
    assert [row.run for row in story.store.series.case_history(renamed.id)] == [1, 2, 3]
    back = story.run(replace(story.tiled, formerly=("shared",)))
    assert [row.run for row in story.store.series.case_history(story.tiled.id)] == [1, 2, 3, back]


def test_two_variants_that_a_run_measured_stay_two_cases_whatever_is_declared_later(story, renamed):
    story.run(story.tiled)
    story.run(story.tiled, replace(renamed, formerly=()))
    story.run(renamed)
    assert (runs_of(story, renamed), runs_of(story, story.tiled)) == ([2, 3], [1, 2])


def test_findings_exclusions_and_verdicts_of_a_former_name_follow_a_late_declaration(story, renamed):
    first, second = story.run(story.tiled), story.run(story.tiled)
    story.judge(second, story.tiled, Verdict.REGRESSION)
    story.store.exclusions.exclude(first, {story.tiled}, by="me", reason="a hot GPU")
    story.run(replace(renamed, formerly=()))
    story.run(renamed)
    assert [judged.series.case.variant for judged in story.store.verdicts.of_run(second)] == ["shared"]
    assert [exclusion.case for exclusion in story.store.exclusions.all()] == [renamed.id]
    assert story.store.series.case_names() == {renamed.id: renamed, story.tiled.id: renamed}


def test_the_level_and_the_pin_of_a_renamed_variant_are_its_old_ones(story, renamed):
    shared = story.series(renamed)
    first, second = story.run(story.tiled), story.run(story.tiled)
    story.judge(first, story.tiled, Verdict.NEW)
    story.store.baselines.pin(second, [story.series(story.tiled)], comment="good")
    third = story.run(renamed)
    assert [pin.series for pin in story.store.baselines.pins()] == [shared]
    assert story.store.baselines.get([shared], third) == {shared: second}
    story.store.baselines.unpin()
    assert story.store.baselines.get([shared], third) == {shared: first}


@ON_BOTH
def test_a_rename_that_joins_two_pins_keeps_the_newer_one(story, renamed):
    first, second = story.run(story.tiled), story.run(replace(renamed, formerly=()))
    story.store.baselines.pin(second, [story.series(renamed)], comment="older")
    story.store.baselines.pin(first, [story.series(story.tiled)], comment="newer")
    story.run(renamed)
    (pin,) = story.store.baselines.pins()
    assert (pin.run, pin.comment, pin.series) == (first, "newer", story.series(renamed))


def test_names_chain_through_every_order_of_their_first_measurement(story, renamed):
    last = replace(story.tiled, variant="swizzled", formerly=("shared",))
    for case in (last, renamed, story.tiled):
        story.run(case)
    assert [runs_of(story, case) for case in (last, renamed, story.tiled)] == [[1, 2, 3]] * 3
    assert [series.case.variant for series in story.store.series.levels(3)] == ["swizzled"]


def test_only_the_variant_is_renamed(story, renamed):
    story.run(story.tiled)
    for run, other in enumerate([{"version": 2}, {"benchmark": "dot"}, {"point": (("n", 1),)}], start=2):
        elsewhere = replace(renamed, **other)
        story.run(elsewhere)
        assert [row.run for row in story.store.series.case_history(elsewhere.id)] == [run]


def test_the_first_of_two_variants_that_claim_a_former_name_gets_it(story, renamed):
    story.run(story.tiled)
    rival = replace(renamed, variant="rival")
    story.run(renamed, rival)
    assert [runs_of(story, case) for case in (story.tiled, renamed, rival)] == [[1, 2], [1, 2], [2]]


def test_a_former_name_that_an_old_commit_measures_alone_has_the_level_of_its_heir(story, renamed):
    first = story.run(story.tiled)
    story.run(renamed)
    again = story.run(story.tiled)
    (series,) = story.store.series.levels(again)
    assert story.store.baselines.get([series], again) == {story.series(renamed): first}


def test_a_pin_of_a_renamed_case_is_none_of_a_new_case_with_its_former_name(story, renamed):
    heir, anew = story.series(renamed), story.series(story.tiled)
    first, second, third = story.run(story.tiled), story.run(renamed, story.tiled), story.run(renamed, story.tiled)
    story.store.baselines.pin(first, [heir])
    assert story.store.baselines.get([heir, anew], third) == {heir: first, anew: second}
    last = story.run(renamed, story.tiled)
    story.store.baselines.pin(third, [heir])
    assert story.store.baselines.get([heir, anew], last) == {heir: third, anew: second}


def test_the_stored_verdicts_of_an_old_run_have_present_names(story, renamed):
    first, second = story.run(story.tiled, story.naive), story.run(story.tiled, story.naive)
    judged = [story.judgement(story.tiled, Verdict.REGRESSION), story.judgement(story.naive, Verdict.UNCHANGED)]
    story.store.verdicts.put(second, judged)
    story.run(renamed)
    of_run = story.store.verdicts.of_run
    assert {one.series.case.variant for one in of_run(second)} == {"shared", "naive"}
    assert [one.verdict for one in of_run(second, {renamed})] == [Verdict.REGRESSION]
    shown = {row.case.variant: row.judgement.verdict for row in stored_report(story.store, second).rows}
    assert shown == {"shared": Verdict.REGRESSION, "naive": Verdict.UNCHANGED}
    assert {row.case.variant for row in stored_report(story.store, first).rows} == {"shared", "naive"}


def test_stored_verdicts_on_a_reused_name_keep_it_with_or_without_a_verdict_on_the_renamed_case(story, renamed):
    run = story.run(story.tiled, renamed)
    story.store.verdicts.put(run, [story.judgement(story.tiled, Verdict.BROKEN)])
    (judged,) = story.store.verdicts.of_run(run)
    assert judged.series.case == story.tiled
    shown = {row.case.variant: row.judgement for row in stored_report(story.store, run).rows}
    assert (shown["tiled"], shown["shared"]) == (judged, None)
    both = [story.judgement(renamed, Verdict.REGRESSION), story.judgement(story.tiled, Verdict.NEW)]
    story.store.verdicts.put(run, both)
    stored = {one.series.case.variant: one.verdict for one in story.store.verdicts.of_run(run)}
    assert stored == {"shared": Verdict.REGRESSION, "tiled": Verdict.NEW}


def test_a_reused_name_is_judged_alone_while_the_renamed_case_is_excluded(story, renamed):
    runs = [story.run(story.tiled, renamed) for _ in range(2)]
    for run in runs:
        story.store.exclusions.exclude(run, {renamed}, by="me", reason="a hot GPU")
        assert {series.case.variant for series in story.store.series.levels(run)} == {"tiled"}
        story.store.exclusions.include(run, {renamed}, by="me")
        assert {series.case.variant for series in story.store.series.levels(run)} == {"tiled", "shared"}


@pytest.mark.slow
def test_an_exclusion_keeps_the_verdicts_on_a_case_that_was_renamed_later(story, renamed):
    def night(case):
        story.end_and_judge(run := story.run(case))
        return run

    first, second, third, _ = night(story.tiled), night(story.tiled), night(story.tiled), night(renamed)
    exclude(story.store, first, (), reason="a hot GPU")
    (judged,) = story.store.verdicts.of_run(third)
    assert (judged.series.case.variant, judged.baseline_run) == ("shared", second)
