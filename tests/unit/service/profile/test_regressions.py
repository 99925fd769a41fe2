"""Errors that keep a profiler from a case or a GPU, which launches are compared, and the file of a timeline."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from perfsvc.errors import CountersError, DatabaseError, MissingPackageError, NoProfilerError, ProfileError
from perfsvc.model import (
    Case,
    ChangeKind,
    DeviceInfo,
    Direction,
    Judgement,
    Profile,
    ProfileResult,
    Series,
    Suspect,
    Verdict,
)
from perfsvc.service.profile import explain as launches
from perfsvc.service.profile import profile, regressions
from perfsvc.service.profile.case_profiler import CaseProfiler, ProfilerSettings, Subject
from perfsvc.service.profile.explain import ExplainRequest, RunCase
from perfsvc.service.profile.regressions import explain_confirmed

GPUS = [DeviceInfo("cuda", f"cuda:{model}", f"GPU-{model}", model, "sm_90") for model in ("H100", "H200")]


class Profiles:
    """The profiles of a store that has none."""

    def __init__(self):
        self.explanations = []

    def put_explanation(self, explanation):
        self.explanations.append(explanation)

    def failed(self, device):
        return set()

    def of_binary(self, binary):
        return []


def confirmed(benchmark, gpu, ratio=2.0):
    series = Series(Case(benchmark, "v", ()), gpu.uuid, "cold")
    judged = Judgement(series, Verdict.REGRESSION, ratio=ratio, baseline_run=1, candidate_run=2)
    suspect = Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER)
    return SimpleNamespace(suspect=suspect, regressed=True, ratio=ratio)


@pytest.fixture
def explain(monkeypatch):
    """Return a function that explains regressions with a profiler that answers with an error, and what it was asked."""

    def explained(answer, *confirmations, binary=lambda uuid, run: run):
        asked, messages, store = [], [], SimpleNamespace(profiles=Profiles())

        def subject_of(_, case, run, devices):
            (device,) = devices.values()
            return Subject(Case(case.partition("/")[0], "v", ()), run, binary(device.uuid, run), device.uuid, device)

        def profile_all(_, tasks, deadline):
            asked.append([(task.subject.device.uuid, task.subject.case.benchmark, task.subject.run) for task in tasks])
            if isinstance(answer, (CountersError, NoProfilerError, MissingPackageError)):
                raise answer
            return {} if answer is None else {task: answer for task in tasks if task.like is None}

        monkeypatch.setattr(regressions, "subject_of", subject_of)
        monkeypatch.setattr(CaseProfiler, "profile_all", profile_all)
        settings = ProfilerSettings({gpu.uuid: gpu for gpu in GPUS}, {}, budget_s=30.0, report=messages.append)
        made = explain_confirmed(store, confirmations, settings, Mock())
        assert made == store.profiles.explanations
        return asked, made, messages

    return explained


def test_each_gpu_model_has_a_session_of_its_own_of_both_sides_of_its_cases_the_largest_regression_first(explain):
    smaller, larger = ([confirmed(name, gpu, ratio) for gpu in GPUS] for name, ratio in (("a", 1.5), ("b", 3.0)))
    asked, _, _ = explain(None, *smaller, *larger)
    assert asked == [[(gpu.uuid, benchmark, run) for benchmark in "ba" for run in (2, 1)] for gpu in GPUS]


def test_an_error_that_holds_for_the_gpu_is_the_reason_of_each_of_its_cases(explain):
    cases = [confirmed(name, GPUS[0]) for name in "ab"]
    _, made, messages = explain(CountersError("no rights", cure="ask"), *cases)
    found = [(explanation.case.benchmark, explanation.reason) for explanation in made]
    assert found == [("a", "no rights; ask"), ("b", "no rights; ask")]
    assert messages == []


@pytest.mark.parametrize("kind", [NoProfilerError, MissingPackageError])
def test_a_gpu_without_a_profiler_is_reported_once_and_nothing_is_stored(explain, kind):
    _, made, messages = explain(kind("none here", cure="install"), confirmed("a", GPUS[0]), confirmed("b", GPUS[0]))
    assert (made, messages) == ([], ["nothing is profiled on H100: none here; install"])


@pytest.mark.parametrize("kind", [ProfileError, DatabaseError])
def test_another_error_is_the_reason_of_its_case(explain, kind):
    _, (made,), messages = explain(kind("no profile", cure="none"), confirmed("a", GPUS[0]))
    assert (made.reason, made.sentence, made.device) == ("no profile; none", "", GPUS[0].uuid)
    assert messages == []


def test_a_gpu_that_is_gone_is_reported(explain):
    asked, made, messages = explain(None, confirmed("a", replace(GPUS[0], uuid="GPU-9")))
    assert (asked, made) == ([], [])
    assert messages == ["nothing is profiled on GPU-9: this GPU is no longer here"]


def test_only_confirmed_regressions_of_a_time_are_profiled(explain):
    cleared, energy = confirmed("a", GPUS[0]), confirmed("b", GPUS[0])
    cleared.regressed = False
    series = replace(energy.suspect.series, metric="energy_j")
    energy.suspect = replace(energy.suspect, judgement=replace(energy.suspect.judgement, series=series))
    assert explain(None, cleared, energy) == ([], [], [])


# --- which launches of two cases are compared ------------------------------------------------------------------------


CASE = Case("norm", "two", (("n", 8),))
OTHER = Case("norm", "one", (("n", 8),))
KERNELS = ("sum", "divide")


def profiled(run, launch, case=CASE, kernel=None):
    seen = Profile(kernel or KERNELS[launch], {"duration_s": 1e-3}, (), "H100", "sm_90", "2025.3")
    return ProfileResult(case, run, run, "GPU-1", "H100", "ncu", "full", seen, launch)


class StandIn:
    """A store with some profiles that also makes new ones, of the second launch unless ``like`` names another."""

    def __init__(self, *held):
        self.held = held
        self.made_of = []
        self.binaries = self.profiles = self

    def of_run(self, run):
        return {("GPU-1", held.case, "cold"): SimpleNamespace(binary=run) for held in self.held if held.run == run}

    def of_binary(self, binary):
        return [held for held in self.held if held.binary == binary]

    def stored_profile(self, side):
        return next((held for held in self.held if (held.run, held.case.id) == (side.run, side.case)), None)

    def new_profiles(self, side, other=None, *, same_case=False, like=None):
        sides = [side, other] if other else [side]
        self.made_of.append([made.run for made in sides])
        return [profiled(made.run, 1 if like is None else like.launch) for made in sides]

    def stored(self, *cases):
        pair = launches._stored_pair(self, *sides(*cases))
        return pair and tuple(result.profile.kernel for result in pair)

    def compared(self):
        request = ExplainRequest("1", "2", "", Path(), case=CASE.id)
        return tuple(result.profile.kernel for result in launches._made_pair(self, request, sides(), Mock()))


@pytest.fixture
def play(monkeypatch):
    def played(*held):
        stand_in = StandIn(*held)
        monkeypatch.setattr(launches, "_Maker", lambda *_: stand_in)
        return stand_in

    return played


def sides(before=CASE, after=CASE):
    return RunCase(before.id, 1), RunCase(after.id, 2)


def test_stored_profiles_of_different_launches_are_compared_of_different_cases_only(play):
    assert play(profiled(1, 0), profiled(2, 1)).stored() is None
    assert play(profiled(1, 0), profiled(2, 0, kernel="other")).stored() is None
    assert play(profiled(1, 0), profiled(1, 1), profiled(2, 1)).stored() == ("divide", "divide")
    assert play(profiled(1, 0, OTHER), profiled(2, 1)).stored(OTHER, CASE) == ("sum", "divide")


def test_one_of_two_stored_profiles_is_made_again_for_the_launch_of_the_other(play):
    played = play(profiled(1, 0), profiled(2, 1))
    assert played.compared() == ("sum", "sum")
    assert played.made_of == [[2]]


def test_both_profiles_are_made_for_a_launch_that_both_runs_have(play, monkeypatch):
    played = play(profiled(1, 0, kernel="gone"))
    monkeypatch.setattr(played, "new_profiles", lambda side, like=None: [profiled(side.run, 1)])
    assert played.compared() == ("divide", "divide")


def test_two_sides_without_profiles_are_profiled_in_one_session(play):
    played = play()
    assert played.compared() == ("divide", "divide")
    assert played.made_of == [[2, 1]]


# --- the file of a timeline ------------------------------------------------------------------------------------------


NAME = "norm-two-n=8.nsys-rep"


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Return a function that records a timeline; Nsight Systems writes ``new``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profile, "run_nsys", lambda _, report, **__: report.write_text("new"))
    subject, profiler = Mock(case=Case("norm", "two", (("n", 8),))), Mock()
    subject.device.kind = "cuda"
    profiler.run_once = lambda _, folder, run: run()
    return lambda output: profile._timeline(profiler, subject, output)


def test_a_link_with_the_name_after_the_case_is_replaced_and_its_target_stays(record, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / NAME).symlink_to("victim")
    assert record(None).name == NAME
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / NAME).read_text() == "new"


def test_a_link_that_the_user_names_is_followed(record, tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "mine").symlink_to("target")
    assert record(tmp_path / "mine") == tmp_path / "mine"
    assert (tmp_path / "target").read_text() == "new"
