"""From stored runs to causes, suspects and findings."""

from dataclasses import replace

import numpy as np
import pytest

from perfsvc.errors import UsageError
from perfsvc.model import (
    CacheState,
    Call,
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    FindingState,
    Judgement,
    Kind,
    Launch,
    MovedSeries,
    Package,
    PythonCode,
    ReplayRecord,
    TritonKernel,
    Verdict,
    digest,
)
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.compare.sides import changed_packages, sides_of
from perfsvc.service.findings import actions, update
from perfsvc.service.findings.suspects import recovered, suspects_of
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_SQLITE

BENCH = b"# bench.py"


@pytest.fixture
def cases(story):
    return [replace(story.tiled, variant=f"v{place}") for place in range(6)]


@pytest.fixture
def night(story):
    """Return a function that measures and judges a run and updates findings; it takes the seconds of each case.

    The function returns the verdicts by variant, and the suspects.
    """

    def run(
        seconds,
        *,
        code=b"code",
        source=b"source",
        bench=BENCH,
        steps=(),
        environment=None,
        replicas=3,
        joules=None,
        error=1e-7,
        threshold=None,
        python=None,
        **provenance,
    ):
        in_environment = replace(story, environment=replace(story.environment, **(environment or {})))
        number = story.begin(scope="all", **provenance)
        story.store.devices.put(story.gpu)
        for case, value in seconds.items():
            record = ReplayRecord(case, Kind.KERNEL, (), steps, (digest(code),), digest(bench), seed=7)
            binary = story.put_binary(record, {digest(code): code}, bench, {"tiled.cu": source})
            for replica in range(replicas):
                metrics = {"python": python} | ({} if joules is None else {"metrics": {"energy_j": joules}})
                in_environment.put(
                    number, case, replica=replica, samples=(value,) * 5, binary=binary, max_error=error, **metrics
                )
        story.store.runs.end(number, RunState.FINISHED)
        judgements = judge_run(story.store, number, threshold=threshold)
        story.store.verdicts.put(number, judgements)
        suspects = suspects_of(story.store, number)
        update.update_findings(story.store, number)
        return {judgement.series.case.variant: judgement for judgement in judgements}, suspects

    return run


EDITED = {"code": b"other", "source": b"edited"}


def causes(judgements):
    return {variant: judgement.cause for variant, judgement in judgements.items() if judgement.cause}


def times(cases, *slow, by=1.2):
    return {case: 1e-4 * (by if case.variant in slow else 1) for case in cases}


def test_a_regression_of_changed_code_is_an_unconfirmed_suspect(story, night, cases):
    night(times(cases))
    judged, (suspect,) = night(times(cases, "v0"), code=b"other", source=b"edited")
    assert causes(judged) == {"v0": Cause.UNCONFIRMED}
    assert (suspect.series.case.variant, suspect.direction) == ("v0", Direction.SLOWER)
    assert suspect.evidence == "+20.0 % against run 1"
    assert [judgement.cause for judgement in story.store.verdicts.of_run(2) if judgement.cause] == [Cause.UNCONFIRMED]
    assert story.store.findings.active() == []


def test_a_regression_of_unchanged_code_is_noise_and_no_suspect(night, cases):
    night(times(cases))
    judged, suspects = night(times(cases, "v0"))
    assert (causes(judged), suspects) == ({"v0": Cause.NOISE}, [])


def test_an_edit_of_the_benchmark_file_is_a_change_of_code(night, cases):
    night(times(cases))
    judged, _ = night(times(cases, "v0"), bench=b"# another bench.py")
    assert causes(judged) == {"v0": Cause.UNCONFIRMED}


def test_a_launch_with_other_options_is_no_other_source_and_has_to_be_measured_again(night, cases):
    steps = (Launch(0, "sum", (8, 1, 1), (128, 1, 1), ()),)
    night(times(cases), steps=steps)
    judged, (suspect,) = night(times(cases, "v0"), steps=(replace(steps[0], block=(256, 1, 1)),))
    assert causes(judged) == {"v0": Cause.UNCONFIRMED}
    assert suspect.series.case.variant == "v0"


def test_a_renamed_variant_runs_the_same_code(night, cases):
    night(times(cases))
    renamed = replace(cases[0], variant="renamed", formerly=("v0",))
    judged, _ = night({renamed: 2e-4})
    assert causes(judged) == {"renamed": Cause.NOISE}


def test_a_new_compiler_is_the_cause_once_and_then_begins_a_segment(night, cases):
    night(times(cases))
    new = {"code": b"other", "environment": {"toolkit": "nvcc 14.0"}}
    judged, (suspect,) = night(times(cases, "v0"), **new)
    assert causes(judged) == {"v0": Cause.TOOLCHAIN}
    assert suspect.judgement.cause is Cause.TOOLCHAIN
    judged, suspects = night(times(cases, "v0"), **new)
    assert ({judgement.verdict for judgement in judged.values()}, suspects) == ({Verdict.UNCHANGED}, [])


def test_a_new_driver_with_unchanged_code_is_the_environment(night, cases):
    night(times(cases))
    judged, suspects = night(times(cases, "v0"), environment={"driver": "590.1"})
    assert (causes(judged), suspects) == ({"v0": Cause.ENVIRONMENT}, [])


TRITON = PythonCode((Package("python", "3.12.3"), Package("torch", "2.8.0", "aa"), Package("triton", "3.4.0", "bb")))
NEWER = PythonCode((Package("python", "3.12.3"), Package("torch", "2.9.0", "cc"), Package("triton", "3.5.0", "dd")))
CALLS = (Call("run"),)


def test_a_python_variant_of_the_same_source_and_packages_is_noise(night, cases):
    night(times(cases), steps=CALLS, python=TRITON)
    judged, suspects = night(times(cases, "v0"), steps=CALLS, python=TRITON)
    assert (causes(judged), suspects) == ({"v0": Cause.NOISE}, [])


def test_a_comment_in_the_benchmark_file_changes_no_python_variant(night, cases):
    night(times(cases), steps=CALLS, python=TRITON)
    judged, suspects = night(times(cases, "v0"), steps=CALLS, python=TRITON, bench=b"# another bench.py")
    assert (causes(judged), suspects) == ({"v0": Cause.NOISE}, [])


def test_a_python_variant_of_other_packages_is_the_toolchain(night, cases):
    night(times(cases), steps=CALLS, python=TRITON)
    judged, (suspect,) = night(times(cases, "v0"), steps=CALLS, python=NEWER)
    assert causes(judged) == {"v0": Cause.TOOLCHAIN}
    assert "its packages are not: triton 3.4.0 → 3.5.0, torch 2.8.0 → 2.9.0" in suspect.judgement.reason


def test_a_python_variant_of_another_source_has_to_be_measured_again(night, cases):
    night(times(cases), steps=CALLS, python=TRITON)
    judged, suspects = night(times(cases, "v0"), steps=CALLS, python=NEWER, bench=b"N = 7")
    assert (causes(judged), len(suspects)) == ({"v0": Cause.UNCONFIRMED}, 1)


def test_what_only_one_side_has_loaded_differs_in_no_package_and_a_variable_does():
    loaded = replace(TRITON, packages=(*TRITON.packages, Package("libcublas", "13.0")))
    assert changed_packages(TRITON, loaded) == changed_packages(loaded, TRITON) == ""
    assert changed_packages(None, TRITON) == ""
    variable = replace(TRITON, variables=(("TRITON_F32_DEFAULT", "ieee"),))
    assert changed_packages(TRITON, variable) == "TRITON_F32_DEFAULT unset → ieee"
    rebuilt = replace(TRITON, packages=(*TRITON.packages[:2], Package("triton", "3.4.0", "ee")))
    assert changed_packages(TRITON, rebuilt) == "triton 3.4.0, built anew"
    assert changed_packages(TRITON, replace(NEWER, variables=variable.variables)).endswith(" and 1 other package")


def test_other_options_of_a_triton_kernel_are_found(night, cases, story):
    def with_warps(warps):
        kernel = TritonKernel("dot", "source", (("num_warps", warps),), f"code {warps}", "", "{}")
        return replace(TRITON, kernels=(kernel,))

    night(times(cases), steps=CALLS, python=with_warps("4"))
    _, (suspect,) = night(times(cases, "v0"), steps=CALLS, python=with_warps("16"))
    (sides,) = sides_of(story.store, [suspect.judgement]).values()
    assert (sides.code, sides.source, sides.launch) == (False, False, "num_warps 4 → 16")


def test_options_that_came_with_another_triton_are_the_toolchain(night, cases):
    def with_options(code, *options):
        return replace(code, kernels=(TritonKernel("dot", "source", options, f"code {options}", "", "{}"),))

    night(times(cases), steps=CALLS, python=with_options(TRITON, ("num_ctas", "1"), ("num_stages", "3")))
    judged, _ = night(times(cases, "v0"), steps=CALLS, python=with_options(NEWER, ("num_stages", "2")))
    assert causes(judged) == {"v0": Cause.TOOLCHAIN}


def test_python_variants_whose_packages_are_unknown_remain_unconfirmed(night, cases):
    steps = (Call("run"),)
    night(times(cases), steps=steps)
    judged, suspects = night(times(cases, "v0"), steps=steps)
    assert causes(judged) == {"v0": Cause.UNCONFIRMED}
    assert len(suspects) == 1


def test_a_device_that_moves_as_a_whole_is_one_finding(story, night, cases):
    night(times(cases))
    slow = times(cases, "v0", "v1", "v2", "v3", "v4")
    _, suspects = night(slow)
    assert suspects == []
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.direction, len(finding.moved)) == (Cause.ENVIRONMENT, Direction.SLOWER, 5)
    assert finding.evidence == "5 cases with unchanged code moved at once"
    night(slow)
    (again,) = story.store.findings.active()
    assert (again.id, again.first_run, again.last_run) == (finding.id, 2, 3)
    night(times(cases))
    assert story.store.findings.active() == []


def test_an_improvement_of_unchanged_code_sets_no_level(night, cases):
    night(times(cases))
    judged, suspects = night(times(cases, "v0", by=0.9))
    assert (judged["v0"].verdict, judged["v0"].cause, suspects) == (Verdict.IMPROVEMENT, Cause.NOISE, [])
    judged, _ = night(times(cases))
    assert (judged["v0"].verdict, judged["v0"].baseline_run) == (Verdict.UNCHANGED, 1)
    night(times(cases, "v0", by=0.9), code=b"other", source=b"edited")
    judged, _ = night(times(cases))
    assert (judged["v0"].verdict, judged["v0"].baseline_run) == (Verdict.REGRESSION, 4)


def confirm(story, run, suspects, cause=Cause.KERNEL):
    """Confirm suspects with a cause, update the findings of their run, and return the findings that this raised."""
    for suspect in suspects:
        story.store.confirmations.put(confirmation(suspect, cause, "the old one is faster"))
    return list(update.update_findings(story.store, run).raised)


def confirmation(suspect, cause, reason):
    judged = suspect.judgement
    again = {"ratio": judged.ratio, "low": judged.low, "high": judged.high} if cause is Cause.KERNEL else {}
    return Confirmation(suspect, cause, reason, threshold=0.01, seed=1, budget_s=60.0, **again)


def test_all_series_that_the_code_of_a_night_moved_are_one_finding(story, night, cases):
    wide = replace(cases[0], point=(("n", 8192),))
    every = [*cases[:2], wide]
    night(times(every))
    _, suspects = night(times(every, "v0", "v1"), code=b"other", source=b"edited")
    assert confirm(story, 2, suspects) == [1]
    (finding,) = story.store.findings.active()
    assert finding.root_cause == "the code of run 2"
    assert finding.evidence == f"{', '.join(case.id for case in [*cases[:2], wide])}: the old one is faster"
    assert {moved.series.case for moved in finding.moved} == {*cases[:2], wide}


@pytest.mark.parametrize(
    ("cause", "confirmed_with", "threshold", "expected"),
    [
        (Cause.NOISE, 0.1, None, Cause.UNCONFIRMED),
        (Cause.ENVIRONMENT, 0.1, None, Cause.UNCONFIRMED),
        (Cause.NOISE, 0.1, 0.1, Cause.NOISE),
        (Cause.NOISE, 0.01, None, Cause.NOISE),
        (Cause.NOISE, 0.01, 0.1, Cause.NOISE),
        (Cause.KERNEL, 0.1, None, Cause.KERNEL),
    ],
)
def test_a_confirmation_with_a_larger_threshold_clears_no_smaller_change(
    story, night, cases, *, cause, confirmed_with, threshold, expected
):
    night(times(cases))
    _, (suspect,) = night(times(cases, "v0"), **EDITED)
    again = Confirmation(suspect, cause, "measured in A/B pairs", threshold=confirmed_with, seed=1, budget_s=60.0)
    story.store.confirmations.put(again)
    assert [judgement.cause for judgement in judge_run(story.store, 2, threshold=threshold) if judgement.cause] == [
        expected
    ]


@pytest.mark.parametrize("cause", [Cause.NOISE, Cause.UNCONFIRMED])
def test_an_unconfirmed_suspect_is_no_finding(story, night, cases, cause):
    night(times(cases))
    _, suspects = night(times(cases, "v0"), code=b"other", source=b"edited")
    assert confirm(story, 2, suspects, cause) == []
    assert story.store.findings.active() == []


def test_a_run_with_uncommitted_changes_raises_and_resolves_nothing(story, night, cases):
    night(times(cases))
    _, suspects = night(times(cases, "v0"), code=b"other", source=b"edited", dirty=True)
    assert confirm(story, 2, suspects) == []
    night(times(cases, "v0", "v1", "v2", "v3", "v4"), dirty=True)
    assert story.store.findings.active() == []
    _, suspects = night(times(cases, "v0"), code=b"other", source=b"edited")
    assert confirm(story, 4, suspects) == [1]
    night(times(cases), dirty=True)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]


@pytest.fixture
def finding(story, night, cases):
    """A finding of one kernel that became 20 % slower in run 2."""
    night(times(cases))
    _, suspects = night(times(cases, "v0"), code=b"other", source=b"edited")
    confirm(story, 2, suspects)


def test_a_recovery_resolves_its_finding(story, night, cases, finding):
    night(times(cases), code=b"third", source=b"cured")
    (finding,) = story.store.findings.all()
    assert (finding.state, finding.reason) == (FindingState.RESOLVED, "back at its old level in run 3")


def test_a_run_with_a_larger_threshold_resolves_nothing_that_is_still_slow(story, night, cases):
    night(times(cases))
    _, suspects = night(times(cases, "v0", by=1.03), **EDITED)
    confirm(story, 2, suspects)
    judged, _ = night(times(cases, "v0", by=1.03), **EDITED, threshold=0.1)
    assert judged["v0"].verdict is Verdict.UNCHANGED
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases, "v0", by=1.004), code=b"third", source=b"cured", threshold=0.1)
    assert story.store.findings.active() == []


def test_a_run_with_a_larger_threshold_resolves_a_recovered_series(story, night, cases, finding):
    night(times(cases), code=b"third", source=b"cured", threshold=0.5)
    assert story.store.findings.active() == []


def test_a_series_that_is_still_slower_has_not_recovered(story, night, cases, finding):
    night(times(cases, "v0", by=1.05), code=b"third", source=b"half cured", threshold=0.1)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]


def test_a_new_segment_at_the_slower_level_is_no_recovery(story, night, cases, finding):
    elsewhere = {"environment": {"driver": "590.1"}, "code": b"other", "source": b"edited"}
    for _ in range(2):
        night(times(cases, "v0"), **elsewhere)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases, "v0", by=1.15), **elsewhere)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases), **elsewhere)
    assert story.store.findings.active() == []


def test_the_next_night_is_compared_with_an_accepted_level(story, night, cases, finding):
    accepted = actions.set_state(story.store, 1, FindingState.ACCEPTED, reason="exact results cost that")
    assert (accepted.state, accepted.reason, bool(accepted.by)) == (
        FindingState.ACCEPTED,
        "exact results cost that",
        True,
    )
    judged, _ = night(times(cases, "v0"), code=b"other", source=b"edited")
    assert (judged["v0"].verdict, judged["v0"].baseline_run) == (Verdict.UNCHANGED, 2)
    with pytest.raises(UsageError, match="accepted already"):
        actions.set_state(story.store, 1, FindingState.ACCEPTED, reason="again")


@pytest.fixture
def nights(night, cases, after):
    """Return a function that measures a noisy run of six cases, after thirty quiet ones."""
    rng = np.random.default_rng(7)

    def noisy(*slow, by=1.0, **given):
        seconds = {
            case: value * float(np.exp(rng.normal(0, 0.002))) for case, value in times(cases, *slow, by=by).items()
        }
        return night(seconds, replicas=1, **given)

    def quiet():
        assert [suspect for _ in range(30) for suspect in noisy()[1]] == []
        return rng.bit_generator.state

    rng.bit_generator.state = after("30 quiet nights of six cases", quiet)
    return noisy


def clear(story, suspects):
    """Store a confirmation that clears each suspect, and return the suspects."""
    for suspect in suspects:
        answer = Confirmation(suspect, Cause.NOISE, "it is gone", threshold=0.01, seed=1, budget_s=60.0)
        story.store.confirmations.put(answer)
    return suspects


def test_a_step_below_the_threshold_is_a_suspect_against_the_run_before_it(story, nights):
    edited = {"code": b"other", "source": b"edited"}
    raised = [clear(story, nights("v0", by=1.02, **edited)[1]) for _ in range(6)]
    (suspect,) = [suspect for of_night in raised for suspect in of_night]
    assert (suspect.series.case.variant, suspect.change, suspect.direction) == ("v0", ChangeKind.STEP, Direction.SLOWER)
    assert (suspect.judgement.verdict, suspect.judgement.cause) == (Verdict.REGRESSION, Cause.UNCONFIRMED)
    assert suspect.judgement.baseline_run == 30
    assert suspect.judgement.ratio == pytest.approx(1.02, abs=0.015)
    assert suspect.evidence.endswith("since run 31, a step in its history")


@pytest.mark.slow
@ON_SQLITE
def test_undoing_a_step_below_the_threshold_resolves_its_finding(story, nights):
    edited = {"code": b"other", "source": b"edited"}
    for number in range(31, 37):
        confirm(story, number, nights("v0", by=1.02, **edited)[1])
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.changes) == (Cause.KERNEL, (ChangeKind.STEP,))
    assert [suspect for _ in range(8) for suspect in nights(code=b"third", source=b"cured")[1]] == []
    assert story.store.findings.active() == []


@pytest.mark.slow
@ON_SQLITE
def test_a_step_of_the_history_stays_open_if_the_run_before_it_is_pinned(story, night, cases):
    rng = np.random.default_rng(7)
    case = cases[0]

    def measure(by=1.0, **given):
        seconds = by * 1e-4 * (1 + 3e-4 * rng.standard_normal())
        return night({case: seconds}, threshold=0.05, **given)[1]  # so that only the history shows the step

    assert [suspect for _ in range(25) for suspect in measure()] == []
    story.store.baselines.pin(25, [story.series(case)])
    for number in range(26, 34):
        confirm(story, number, measure(1.015, **EDITED))
    (finding,) = story.store.findings.all()
    assert (finding.state, finding.moved[0].baseline_run) == (FindingState.OPEN, 25)
    cured = [measure(code=b"third", source=b"cured")]
    (finding,) = story.store.findings.all()
    assert (finding.state, finding.moved[0].recovered_run) == (FindingState.RESOLVED, 34)
    assert [*cured, *(measure(code=b"third", source=b"cured") for _ in range(5))] == [[]] * 6


def test_an_interval_that_contains_the_moved_level_is_no_recovery(story, night, cases):
    series = story.series(cases[0])
    tonight = Judgement(
        series, Verdict.UNCHANGED, ratio=1.002, low=0.995, high=1.009, baseline_s=1e-4, candidate_s=1.002e-4
    )
    moved = MovedSeries(series, 1.007, None, None, baseline_run=1, baseline_s=1e-4, candidate_s=1.007e-4, last_run=2)
    night(times(cases[:1]))
    _, suspects = night(times(cases[:1], "v0"), **EDITED)
    confirm(story, 2, suspects)
    standing = [replace(finding, moved=(moved,)) for finding in story.store.findings.active()]
    assert recovered(standing, [tonight]) == []
    assert recovered(standing, [replace(tonight, high=1.006)]) == [(1, series, 1)]


@pytest.mark.parametrize(("low", "high", "back"), [(0.9, 1.4, True), (0.9, 1.5, False), (None, None, False)])
def test_a_noisy_run_recovers_if_its_whole_interval_is_nearer_the_old_level(story, night, cases, *, low, high, back):
    series = story.series(cases[0])
    night(times(cases[:1]))
    _, suspects = night(times(cases[:1], "v0", by=2.0), **EDITED)
    confirm(story, 2, suspects)
    standing = story.store.findings.active()
    tonight = Judgement(
        series, Verdict.INCONCLUSIVE, ratio=1.1, low=low, high=high, baseline_s=1e-4, candidate_s=1.1e-4
    )
    assert recovered(standing, [tonight]) == [(1, series, 1)] * back


@pytest.mark.parametrize(("alerted", "back"), [(frozenset(), False), ("its series", True)])
def test_one_good_run_does_not_resolve_a_change_of_mixture(story, night, cases, *, alerted, back):
    series = story.series(cases[0])
    tonight = Judgement(series, Verdict.IMPROVEMENT, ratio=0.9, baseline_s=1.1e-4, candidate_s=1e-4)
    night(times(cases[:1]))
    _, suspects = night(times(cases[:1], "v0", by=1.1), **EDITED)
    confirm(story, 2, suspects)
    (finding,) = story.store.findings.active()
    mixed = replace(finding, moved=(replace(finding.moved[0], change=ChangeKind.MIXTURE),))
    alerts = {series} if alerted else alerted
    assert recovered([mixed], [tonight], alerts) == [(1, series, 1)] * back
    assert recovered([finding], [tonight], frozenset()) == [(1, series, 1)]


@pytest.mark.parametrize(
    ("plateau", "back"),
    [
        ((Direction.SLOWER, 2), True),
        ((Direction.SLOWER, 1), True),
        ((Direction.SLOWER, 3), False),  # a later plateau
        ((Direction.FASTER, 2), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("change", [ChangeKind.STEP, ChangeKind.MIXTURE])
def test_a_plateau_that_is_over_is_a_recovery_however_noisy_the_run_is(story, night, cases, *, change, plateau, back):
    series = story.series(cases[0])
    night(times(cases[:1]))
    _, suspects = night(times(cases[:1], "v0", by=1.1), **EDITED)
    confirm(story, 2, suspects)
    (finding,) = story.store.findings.active()
    alerted = replace(finding, moved=(replace(finding.moved[0], change=change),))
    tonight = Judgement(
        series, Verdict.INCONCLUSIVE, ratio=1.01, low=0.9, high=1.2, baseline_s=1e-4, candidate_s=1.01e-4
    )
    ended = {series: plateau} if plateau else {}
    assert recovered([alerted], [tonight], frozenset(), ended) == [(1, series, 1)] * back
    still_there = replace(tonight, candidate_s=1.09e-4)
    assert recovered([alerted], [still_there], frozenset(), ended) == []
    assert recovered([finding], [tonight], frozenset(), ended) == []  # its verdict raised it, not an alert


def test_a_step_of_unchanged_code_is_no_suspect(nights):
    assert [suspect for _ in range(6) for suspect in nights("v0", by=1.02)[1]] == []


@pytest.mark.slow
@ON_SQLITE
def test_a_device_that_steps_as_a_whole_is_one_finding_of_the_environment(story, nights):
    slow = [f"v{place}" for place in range(6)]
    assert [suspect for _ in range(6) for suspect in nights(*slow, by=1.02)[1]] == []
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.changes) == (Cause.ENVIRONMENT, (ChangeKind.REGRESSION,))
    assert {moved.series.case.variant for moved in finding.moved} == set(slow)


def test_a_run_with_uncommitted_changes_raises_no_alert(nights):
    edited = {"code": b"other", "source": b"edited", "dirty": True}
    assert [suspect for _ in range(6) for suspect in nights("v0", by=1.02, **edited)[1]] == []


def test_binaries_of_a_run_are_read_under_the_present_names_of_its_cases(story, night, cases):
    night(times(cases[:1]))
    ((place, built),) = story.store.binaries.of_run(1).items()
    assert place == ("GPU-1", cases[0], CacheState.COLD)
    assert built.environment == story.environment
    row = story.store.binaries.get([built.binary])[built.binary]
    assert row.sources == {("tiled.cu", digest(b"source"))}
    assert story.store.binaries.modules(row.record.modules) == {digest(b"code"): b"code"}


def test_binaries_of_cases_are_read_each_from_its_own_run(story, night, cases):
    night(times(cases[:2]))
    night(times(cases[:2]), **EDITED)
    first, second = (("GPU-1", case, CacheState.COLD) for case in cases[:2])
    assert story.store.binaries.of_cases(
        {(1, first), (2, second), (3, first), (1, ("GPU-2", cases[0], CacheState.COLD))}
    ) == {
        (1, first): story.store.binaries.of_run(1)[first],
        (2, second): story.store.binaries.of_run(2)[second],
    }
    assert story.store.binaries.of_cases([]) == {}


def test_a_case_with_several_binaries_has_that_of_its_last_replica(story, cases):
    bench = b"bench"
    run = story.begin()
    numbers = []
    for replica, code in enumerate((b"one", b"other")):
        record = ReplayRecord(cases[0], Kind.KERNEL, (), (), (digest(code),), digest(bench), seed=7)
        numbers.append(story.put_binary(record, {digest(code): code}, bench, {}))
        story.put(run, cases[0], replica=replica, binary=numbers[-1])
    ((place, built),) = story.store.binaries.of_run(run).items()
    assert built.binary == numbers[-1] != numbers[0]
    assert story.store.binaries.of_cases([(run, place)]) == {(run, place): built}


def test_rising_energy_and_errors_are_suspects_and_recover(story, night, cases):
    night(times(cases[:1]), joules=0.25)
    _, suspects = night(times(cases[:1]), joules=0.3, error=3e-7, **EDITED)
    assert [(suspect.series.metric, suspect.direction) for suspect in suspects] == [
        ("max_error", Direction.SLOWER),
        ("energy_j", Direction.SLOWER),
    ]
    assert len(confirm(story, 2, suspects)) == 1
    night(times(cases[:1]), joules=0.25, **EDITED)
    (finding,) = story.store.findings.all()
    assert {moved.series.metric: moved.recovered_run for moved in finding.moved} == {"energy_j": 3, "max_error": 3}
    assert finding.state is FindingState.RESOLVED


@pytest.mark.slow
def test_a_step_of_energy_is_detected_like_a_step_of_time(story, night, cases):
    rng = np.random.default_rng(11)

    def noisy(joules, **given):
        return night(times(cases[:1]), replicas=1, joules=joules * float(np.exp(rng.normal(0, 0.002))), **given)[1]

    assert [suspect for _ in range(30) for suspect in noisy(0.25)] == []
    (suspect,) = [suspect for _ in range(6) for suspect in clear(story, noisy(0.2575, **EDITED))]
    assert (suspect.series.metric, suspect.change, suspect.direction) == ("energy_j", ChangeKind.STEP, Direction.SLOWER)
    assert suspect.judgement.baseline_run == 30
    assert suspect.judgement.cause is Cause.UNCONFIRMED


@pytest.mark.slow
@ON_SQLITE
@pytest.mark.parametrize(("error", "raised"), [(1.5e-7, set()), (4e-7, {"max_error"})])
def test_an_error_that_changes_by_less_than_one_bit_raises_nothing(night, cases, after, error, raised):
    def quiet():
        for _ in range(24):
            night(times(cases[:1]), replicas=1)

    after("24 equal nights of a case", quiet)
    suspects = [s for _ in range(6) for s in night(times(cases[:1]), replicas=1, error=error, **EDITED)[1]]
    assert {suspect.series.metric for suspect in suspects} == raised
