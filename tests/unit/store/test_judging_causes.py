"""From stored runs to causes, suspects and findings."""

from dataclasses import replace

import numpy as np
import pytest

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
    Package,
    PythonCode,
    ReplayRecord,
    TritonKernel,
    Verdict,
    digest,
)
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.compare.sides import changed_inputs, changed_packages, compare_code, sides_of
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import recovered, suspects_of
from perfsvc.store.rows import CaseCode
from tests.unit.store.conftest import BENCH, ON_BOTH, six_cases, times


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
        edited=(),
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
        here = replace(story, environment=replace(story.environment, **(environment or {})))
        number = story.begin(**{"scope": "all", **provenance})
        story.store.devices.put(story.gpu)
        measured = {"python": python, "max_error": error} | ({"metrics": {"energy_j": joules}} if joules else {})
        for case, value in seconds.items():
            of_case = EDITED if case.variant in edited else {"code": code, "source": source}
            binary = story.binary(case, **of_case, bench=bench, steps=steps)
            here.put_replicas(number, case, value, (0.0,) * replicas, binary=binary, **measured)
        judgements = story.end_and_judge(number, threshold=threshold)
        suspects = suspects_of(story.store, number)
        update.update_findings(story.store, number)
        return {judgement.series.case.variant: judgement for judgement in judgements}, suspects

    return run


EDITED = {"code": b"other", "source": b"edited"}
CURED = {"code": b"third", "source": b"cured"}


def causes(judgements):
    return {variant: judgement.cause for variant, judgement in judgements.items() if judgement.cause}


@ON_BOTH
def test_a_regression_of_changed_code_is_an_unconfirmed_suspect(story, night, cases):
    night(times(cases))
    judged, (suspect,) = night(times(cases, "v0"), **EDITED)
    assert causes(judged) == {"v0": Cause.UNCONFIRMED}
    assert (suspect.series.case.variant, suspect.direction) == ("v0", Direction.SLOWER)
    assert suspect.evidence == "+20.0 % against run 1"
    assert [judgement.cause for judgement in story.store.verdicts.of_run(2) if judgement.cause] == [Cause.UNCONFIRMED]
    assert story.store.findings.active() == []


TRITON = PythonCode((Package("python", "3.12.3"), Package("torch", "2.8.0", "aa"), Package("triton", "3.4.0", "bb")))
NEWER = PythonCode((Package("python", "3.12.3"), Package("torch", "2.9.0", "cc"), Package("triton", "3.5.0", "dd")))
CALLS = {"steps": (Call("run"),)}
PYTHON = {**CALLS, "python": TRITON}
LAUNCH = Launch(0, "sum", (8, 1, 1), (128, 1, 1), ())


def with_options(code, *options):
    return {**CALLS, "python": replace(code, kernels=(TritonKernel("dot", "source", options, f"{options}", "", "{}"),))}


FILES = (("so/libown.so", "ab" * 32),)
X = (("x", "0a1b2c3d"),)
INPUTS = PythonCode(inputs=X, inputs_from=(("a/matrix.npz", "aa" * 32), ("SIZE", "3")))
OTHER_INPUTS = PythonCode(inputs=(("x", "ffffffff"),), inputs_from=(("a/matrix.npz", "bb" * 32), ("SIZE", "4")))

CHANGES = {
    "nothing": ({}, {}, Cause.NOISE, 0),
    "the benchmark file": ({}, {"bench": b"# another bench.py"}, Cause.UNCONFIRMED, 1),
    "a launch": ({"steps": (LAUNCH,)}, {"steps": (replace(LAUNCH, block=(256, 1, 1)),)}, Cause.UNCONFIRMED, 1),
    "the driver": ({}, {"environment": {"driver": "590.1"}}, Cause.ENVIRONMENT, 0),
    "nothing of a Python variant": (PYTHON, PYTHON, Cause.NOISE, 0),
    "a comment of a Python variant": (PYTHON, {**PYTHON, "bench": b"# another bench.py"}, Cause.NOISE, 0),
    "the packages of a Python variant": (PYTHON, {**CALLS, "python": NEWER}, Cause.TOOLCHAIN, 1),
    "the source of a Python variant": (PYTHON, {**CALLS, "python": NEWER, "bench": b"N = 7"}, Cause.UNCONFIRMED, 1),
    "a library of a Python variant": (PYTHON, {**CALLS, "python": replace(TRITON, files=FILES)}, Cause.TOOLCHAIN, 1),
    "the values of the inputs": ({"python": INPUTS}, {"python": OTHER_INPUTS}, Cause.INPUTS, 0),
    "a file with the same values": ({"python": INPUTS}, {"python": replace(OTHER_INPUTS, inputs=X)}, Cause.NOISE, 0),
    "the inputs and the source": ({"python": INPUTS}, {"python": OTHER_INPUTS, **EDITED}, Cause.UNCONFIRMED, 1),
    "unknown packages of a Python variant": (CALLS, CALLS, Cause.UNCONFIRMED, 1),
    "Triton, with its options": (
        with_options(TRITON, ("num_ctas", "1"), ("num_stages", "3")),
        with_options(NEWER, ("num_stages", "2")),
        Cause.TOOLCHAIN,
        1,
    ),
}
"""What changes: the options of the night before and after, the cause of a regression, and the number of suspects."""


@pytest.mark.slow
def test_the_cause_of_a_regression_is_what_has_changed(night, cases):
    found = {}
    for change, (before, after, *_) in CHANGES.items():
        measured = [replace(case, benchmark=change) for case in cases]
        night(times(measured), scope=change, **before)
        judged, suspects = night(times(measured, "v0"), scope=change, **after)
        found[change] = (causes(judged), len(suspects))
    assert found == {change: ({"v0": cause}, count) for change, (*_, cause, count) in CHANGES.items()}


def test_a_regression_with_other_packages_names_them(night, cases):
    night(times(cases), **PYTHON)
    _, (suspect,) = night(times(cases, "v0"), **CALLS, python=NEWER)
    assert "what it runs with is not: triton 3.4.0 → 3.5.0, torch 2.8.0 → 2.9.0" in suspect.judgement.reason


def test_other_inputs_are_named():
    assert changed_inputs(INPUTS, OTHER_INPUTS) == "SIZE 3 → 4, a/matrix.npz"
    assert changed_inputs(INPUTS, replace(OTHER_INPUTS, inputs_from=INPUTS.inputs_from)) == "the values of x"
    assert changed_inputs(INPUTS, replace(OTHER_INPUTS, inputs=X)) == ""
    assert changed_inputs(INPUTS, PythonCode()) == changed_inputs(None, INPUTS) == ""


def test_headers_of_the_system_that_changed_are_the_cause(story, cases):
    def built(code, headers):
        record = ReplayRecord(cases[0], Kind.KERNEL, (), (), (digest(code),), digest(BENCH), seed=7)
        lists = {"headers in /usr/include": headers}
        built_with = CaseCode(record, {digest(code): code}, BENCH, {"a.cu": b"a"}, built_with=lists)
        return story.store.binaries.put([built_with])[0], None

    old, other, same = built(b"1", b"a.h 1"), built(b"2", b"a.h 2"), built(b"3", b"a.h 1")
    compared = compare_code(story.store, {(old, other), (old, same)})
    assert (compared[old, other].source, compared[old, other].packages) == (True, "headers in /usr/include")
    assert (compared[old, same].source, compared[old, same].packages) == (True, "")


def test_a_renamed_variant_runs_the_same_code(night, cases):
    night(times(cases))
    judged, _ = night({replace(cases[0], variant="renamed", formerly=("v0",)): 2e-4})
    assert causes(judged) == {"renamed": Cause.NOISE}


def test_a_new_compiler_is_the_cause_once_and_then_begins_a_segment(night, cases):
    night(times(cases))
    new = {"code": b"other", "environment": {"toolkit": "nvcc 14.0"}}
    judged, (suspect,) = night(times(cases, "v0"), **new)
    assert causes(judged) == {"v0": Cause.TOOLCHAIN}
    assert suspect.judgement.cause is Cause.TOOLCHAIN
    judged, suspects = night(times(cases, "v0"), **new)
    assert ({judgement.verdict for judgement in judged.values()}, suspects) == ({Verdict.UNCHANGED}, [])


def test_what_only_one_side_has_loaded_differs_in_no_package_and_a_variable_does():
    loaded = replace(TRITON, packages=(*TRITON.packages, Package("libcublas", "13.0")))
    assert changed_packages(TRITON, loaded) == changed_packages(loaded, TRITON) == ""
    assert changed_packages(None, TRITON) == ""
    variable = replace(TRITON, variables=(("TRITON_F32_DEFAULT", "ieee"),))
    assert changed_packages(TRITON, variable) == "TRITON_F32_DEFAULT unset → ieee"
    rebuilt = replace(TRITON, packages=(*TRITON.packages[:2], Package("triton", "3.4.0", "ee")))
    assert changed_packages(TRITON, rebuilt) == "triton 3.4.0, built anew"
    assert changed_packages(TRITON, replace(NEWER, variables=variable.variables)).endswith(" and 1 more")


def test_other_options_of_a_triton_kernel_are_found(night, cases, story):
    night(times(cases[1:]), **with_options(TRITON, ("num_warps", "4")))
    night(times(cases), **with_options(TRITON, ("num_warps", "4")))
    _, (suspect,) = night(times(cases, "v0"), **with_options(TRITON, ("num_warps", "16")))
    (sides,) = sides_of(story.store, [suspect.judgement]).values()
    assert (sides.code, sides.source, sides.launch) == (False, False, "num_warps 4 → 16")
    assert sides_of(story.store, [replace(suspect.judgement, baseline_run=1)]) == {}  # which did not measure the case


@pytest.mark.slow
@six_cases
def test_a_device_that_moves_as_a_whole_is_one_finding(story, night, cases):
    night(times(cases))
    slow = times(cases, "v0", "v1", "v2", "v3", "v4")
    _, suspects = night(slow)
    assert suspects == []
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.direction, len(finding.moved)) == (Cause.ENVIRONMENT, Direction.SLOWER, 5)
    assert finding.evidence == "5 of 6 cases slower, median +20.0 %"
    night(slow)
    (again,) = story.store.findings.active()
    assert (again.id, again.first_run, again.last_run) == (finding.id, 2, 3)
    night(times(cases))
    assert story.store.findings.active() == []


@six_cases
def test_pairs_that_blame_the_device_count_for_a_device_that_moves_as_a_whole(story, night, cases):
    night(times(cases))
    every = [case.variant for case in cases]
    _, suspects = night(times(cases, *every), edited=every[:3])
    assert [suspect.series.case.variant for suspect in suspects] == every[:3]
    assert story.store.findings.active() == []  # three of six: that may be chance
    for suspect in suspects:
        story.store.confirmations.put(confirmation(suspect, Cause.ENVIRONMENT))
    story.store.verdicts.put(2, judge_run(story.store, 2, threshold=None))
    assert update.update_findings(story.store, 2).raised == (1,)
    (finding,) = story.store.findings.active()
    assert (finding.cause, len(finding.moved)) == (Cause.ENVIRONMENT, 6)
    assert finding.evidence == "6 of 6 cases slower, median +20.0 %"


@pytest.mark.parametrize("cases", [12], indirect=True)
def test_cases_with_new_code_that_did_not_move_count_against_a_gpu_that_moved_as_a_whole(story, night, cases):
    every = [case.variant for case in cases]
    night(times(cases))
    night(times(cases, *every[:5]), edited=every[5:])
    assert story.store.findings.active() == []
    night(times(cases, *every[:5]), edited=every[10:])
    (finding,) = story.store.findings.active()
    assert (finding.cause, len(finding.moved)) == (Cause.UNEXPLAINED, 5)  # two runs show it


@pytest.mark.slow
def test_an_improvement_of_unchanged_code_sets_no_level(night, cases):
    night(times(cases))
    judged, suspects = night(times(cases, "v0", by=0.9))
    assert (judged["v0"].verdict, judged["v0"].cause, suspects) == (Verdict.IMPROVEMENT, Cause.NOISE, [])
    judged, _ = night(times(cases))
    assert (judged["v0"].verdict, judged["v0"].baseline_run) == (Verdict.UNCHANGED, 1)
    night(times(cases, "v0", by=0.9), **EDITED)
    judged, _ = night(times(cases))
    assert (judged["v0"].verdict, judged["v0"].baseline_run) == (Verdict.REGRESSION, 4)


def confirmation(suspect, cause=Cause.KERNEL, threshold=0.01):
    judged = suspect.judgement
    again = {"ratio": judged.ratio, "low": judged.low, "high": judged.high} if cause is Cause.KERNEL else {}
    return Confirmation(suspect, cause, "the old one is faster", threshold, seed=1, budget_s=60.0, **again)


def confirm(story, run, suspects, cause=Cause.KERNEL):
    """Confirm suspects with a cause, update the findings of their run, and return the findings that this raised."""
    for suspect in suspects:
        story.store.confirmations.put(confirmation(suspect, cause))
    return list(update.update_findings(story.store, run).raised)


def test_all_series_that_the_code_of_a_night_moved_are_one_finding(story, night, cases):
    wide = replace(cases[0], point=(("n", 8192),))
    every = [*cases[:2], wide]
    night(times(every))
    _, suspects = night(times(every, "v0", "v1"), **EDITED)
    assert confirm(story, 2, suspects) == [1]
    (finding,) = story.store.findings.active()
    assert finding.root_cause == "the code of run 2"
    assert finding.evidence == f"{', '.join(case.id for case in [*cases[:2], wide])}: the old one is faster"
    assert {moved.series.case for moved in finding.moved} == {*cases[:2], wide}


CLEARED = {
    (Cause.NOISE, 0.1, None): Cause.UNCONFIRMED,
    (Cause.ENVIRONMENT, 0.1, None): Cause.UNCONFIRMED,
    (Cause.NOISE, 0.1, 0.1): Cause.NOISE,
    (Cause.NOISE, 0.01, None): Cause.NOISE,
    (Cause.NOISE, 0.01, 0.1): Cause.NOISE,
    (Cause.KERNEL, 0.1, None): Cause.KERNEL,
}
"""The cause that the verdict on a suspect has, by the cause and the threshold of its last confirmation, and its own."""


@pytest.mark.slow
def test_a_confirmation_with_a_larger_threshold_clears_no_smaller_change(story, night, cases):
    night(times(cases))
    _, (suspect,) = night(times(cases, "v0"), **EDITED)
    found = {}
    for cause, confirmed_with, threshold in CLEARED:
        story.execute("DELETE FROM confirmations")
        story.store.confirmations.put(confirmation(suspect, cause, confirmed_with))
        judged = judge_run(story.store, 2, threshold=threshold)
        (found[cause, confirmed_with, threshold],) = [each.cause for each in judged if each.cause]
    assert found == CLEARED


@pytest.mark.slow
@six_cases
def test_a_run_with_uncommitted_changes_raises_and_resolves_nothing(story, night, cases):
    night(times(cases))
    _, suspects = night(times(cases, "v0"), **EDITED, dirty=True)
    assert confirm(story, 2, suspects) == []
    night(times(cases, "v0", "v1", "v2", "v3", "v4"), dirty=True)
    assert story.store.findings.active() == []
    _, suspects = night(times(cases, "v0"), **EDITED)
    assert confirm(story, 4, suspects) == [1]
    night(times(cases), dirty=True)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]


@pytest.fixture
def finding(story, night, cases):
    """A finding of one kernel that became 20 % slower in run 2."""
    night(times(cases))
    _, suspects = night(times(cases, "v0"), **EDITED)
    confirm(story, 2, suspects)


def test_a_recovery_resolves_its_finding_and_half_a_recovery_does_not(story, night, cases, finding):
    night(times(cases, "v0", by=1.05), code=b"third", source=b"half cured", threshold=0.1)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases), **CURED)
    (finding,) = story.store.findings.all()
    assert (finding.state, finding.reason) == (FindingState.RESOLVED, "back at its old level in run 4")


@pytest.mark.slow
def test_a_run_with_a_larger_threshold_resolves_nothing_that_is_still_slow(story, night, cases):
    night(times(cases))
    _, suspects = night(times(cases, "v0", by=1.03), **EDITED)
    confirm(story, 2, suspects)
    judged, _ = night(times(cases, "v0", by=1.03), **EDITED, threshold=0.1)
    assert judged["v0"].verdict is Verdict.UNCHANGED
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases, "v0", by=1.004), **CURED, threshold=0.1)
    assert story.store.findings.active() == []


@pytest.mark.slow
def test_a_new_segment_at_the_slower_level_is_no_recovery(story, night, cases, finding):
    elsewhere = {"environment": {"driver": "590.1"}, "code": b"other", "source": b"edited"}
    for _ in range(2):
        night(times(cases, "v0"), **elsewhere)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases, "v0", by=1.15), **elsewhere)
    assert [finding.state for finding in story.store.findings.active()] == [FindingState.OPEN]
    night(times(cases), **elsewhere)
    assert story.store.findings.active() == []


@pytest.fixture
def nights(night, cases, after):
    """Return a function that measures a noisy run, after thirty quiet ones."""
    rng = np.random.default_rng(7)

    def noisy(*slow, by=1.0, **given):
        seconds = zip(times(cases, *slow, by=by).items(), np.exp(rng.normal(0, 0.002, 6)), strict=False)
        return night({case: value * share for (case, value), share in seconds}, replicas=1, **given)

    def quiet():
        assert [suspect for _ in range(30) for suspect in noisy()[1]] == []
        return rng.bit_generator.state

    rng.bit_generator.state = after(f"30 quiet nights of {len(cases)} cases", quiet)
    return noisy


def clear(story, suspects):
    """Store a confirmation that clears each suspect, and return the suspects."""
    for suspect in suspects:
        story.store.confirmations.put(confirmation(suspect, Cause.NOISE))
    return suspects


@pytest.mark.slow
def test_a_step_below_the_threshold_is_a_suspect_against_the_run_before_it(story, nights):
    raised = [clear(story, nights("v0", by=1.02, **EDITED)[1]) for _ in range(6)]
    (suspect,) = [suspect for of_night in raised for suspect in of_night]
    assert (suspect.series.case.variant, suspect.change, suspect.direction) == ("v0", ChangeKind.STEP, Direction.SLOWER)
    assert (suspect.judgement.verdict, suspect.judgement.cause) == (Verdict.REGRESSION, Cause.UNCONFIRMED)
    assert suspect.judgement.baseline_run == 30
    assert suspect.judgement.ratio == pytest.approx(1.02, abs=0.015)
    assert suspect.evidence.endswith("since run 31, a step in its history")


@pytest.mark.slow
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
    cured = [measure(**CURED)]
    (finding,) = story.store.findings.all()
    assert (finding.state, finding.moved[0].recovered_run) == (FindingState.RESOLVED, 34)
    assert [*cured, *(measure(**CURED) for _ in range(5))] == [[]] * 6


PLATEAU = {
    (Direction.SLOWER, 2): True,
    (Direction.SLOWER, 1): True,
    (Direction.SLOWER, 3): False,  # a later plateau
    (Direction.FASTER, 2): False,
    None: False,
}
"""Whether the end of a plateau, which began with this run, is the recovery of a step in run 2."""


def test_a_run_recovers_a_series_if_it_shows_the_old_level_and_cannot_show_the_moved_one(story, finding):
    """A mixture has to be reported by an alert, and the end of a plateau counts however noisy the run is."""
    (found,) = story.store.findings.active()

    def is_back(verdict, ratio, low=None, high=None, *, slower, alerted=False, plateau=None, **given):
        (moved,) = found.moved
        moved = replace(moved, ratio=slower, baseline_s=1e-4, candidate_s=1e-4 * slower, **given)
        tonight = Judgement(moved.series, verdict, "", ratio, low, high, baseline_s=1e-4, candidate_s=1e-4 * ratio)
        alerts, ended = {moved.series} if alerted else set(), {moved.series: plateau} if plateau else {}
        back = recovered([replace(found, moved=(moved,))], [tonight], alerts, ended, {})
        assert back in ([], [(found.id, moved.series, 1)])
        return bool(back)

    assert not is_back(Verdict.UNCHANGED, 1.002, 0.995, 1.009, slower=1.007)
    assert is_back(Verdict.UNCHANGED, 1.002, 0.995, 1.006, slower=1.007)
    assert is_back(Verdict.INCONCLUSIVE, 1.1, 0.9, 1.4, slower=2.0)
    assert not is_back(Verdict.INCONCLUSIVE, 1.1, 0.9, 1.5, slower=2.0)
    assert not is_back(Verdict.INCONCLUSIVE, 1.1, slower=2.0)
    assert is_back(Verdict.IMPROVEMENT, 1.0, slower=1.1)
    assert not is_back(Verdict.IMPROVEMENT, 1.0, slower=1.1, change=ChangeKind.MIXTURE)
    assert is_back(Verdict.IMPROVEMENT, 1.0, slower=1.1, change=ChangeKind.MIXTURE, alerted=True)
    noisy = {"low": 0.9, "high": 1.2, "slower": 1.1}
    for change in (ChangeKind.STEP, ChangeKind.MIXTURE):
        for plateau, expected in PLATEAU.items():
            alerted = {**noisy, "change": change, "plateau": plateau}
            assert is_back(Verdict.INCONCLUSIVE, 1.01, **alerted) is expected
            assert not is_back(Verdict.INCONCLUSIVE, 1.09, **alerted)
    for plateau in PLATEAU:  # its verdict raised it, not an alert
        assert not is_back(Verdict.INCONCLUSIVE, 1.01, **noisy, plateau=plateau)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {**EDITED, "dirty": True}], ids=["unchanged code", "uncommitted changes"])
def test_a_step_of_unchanged_code_or_of_uncommitted_changes_is_no_suspect(nights, given):
    assert [suspect for _ in range(6) for suspect in nights("v0", by=1.02, **given)[1]] == []


@ON_BOTH
def test_binaries_of_runs_and_of_cases_are_read_each_from_its_own_run(story, night, cases):
    night(times(cases))
    night(times(cases), **EDITED)
    first, second = (("GPU-1", case, CacheState.COLD) for case in cases)
    built = story.store.binaries.of_run(1)
    assert built.keys() == {first, second}
    assert built[first].environment == story.environment
    row = story.store.binaries.get([built[first].binary])[built[first].binary]
    assert row.sources == {("tiled.cu", digest(b"source"))}
    assert story.store.binaries.modules(row.record.modules) == {digest(b"code"): b"code"}
    asked = {(1, first), (2, second), (3, first), (1, ("GPU-2", cases[0], CacheState.COLD))}
    assert story.store.binaries.of_cases(asked) == {
        (1, first): built[first],
        (2, second): story.store.binaries.of_run(2)[second],
    }
    assert story.store.binaries.of_cases([]) == {}


def test_a_case_with_several_binaries_has_that_of_its_last_replica(story, cases):
    run = story.begin()
    numbers = [story.binary(cases[0], code) for code in (b"one", b"other")]
    for replica, number in enumerate(numbers):
        story.put(run, cases[0], replica=replica, binary=number)
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
@pytest.mark.parametrize(("error", "raised"), [(1.5e-7, set()), (4e-7, {"max_error"})])
def test_an_error_that_changes_by_less_than_one_bit_raises_nothing(night, cases, after, error, raised):
    def quiet():
        for _ in range(24):
            night(times(cases[:1]), replicas=1)

    after("24 equal nights of a case", quiet)
    suspects = [s for _ in range(6) for s in night(times(cases[:1]), replicas=1, error=error, **EDITED)[1]]
    assert {suspect.series.metric for suspect in suspects} == raised
