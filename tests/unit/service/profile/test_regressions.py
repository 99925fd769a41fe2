"""Errors that keep a profiler from one case, and errors that keep it from a GPU."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from perfsvc.errors import CountersError, DatabaseError, MissingPackageError, NoProfilerError, ProfileError
from perfsvc.model import Case, ChangeKind, DeviceInfo, Direction, Judgement, Series, Suspect, Verdict
from perfsvc.service.profile import regressions
from perfsvc.service.profile.case_profiler import CaseProfiler, ProfilerSettings, Subject
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
