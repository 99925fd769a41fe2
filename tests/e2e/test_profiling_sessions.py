"""Profiling sessions: one profiler for all regressions of a GPU, a crash that costs its case only, and the budget."""

import contextlib
import json
import os
from unittest import mock

import pytest

from perfsvc.device.find import find
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.profile.fake import FakeProfiler
from perfsvc.service.profile import session
from perfsvc.service.profile.case_profiler import ProfilerSettings
from perfsvc.service.run.run import explain_regressed
from perfsvc.store import Store
from tests.e2e.nights import Nights

USUAL = {"seconds": 1e-4}
FACTORS = {"gamma": 4, "alpha": 3, "beta": 2}
"""How much slower each variant becomes, the worst first: not in the order in which the suite lists them."""
WORST_FIRST = [(variant, run) for variant in FACTORS for run in (2, 1)]
QUICK, HELD_BACK = {"duration_s": 1e-4, "sm_clock_hz": 2e9}, {"duration_s": 2e-4, "sm_clock_hz": 1e9}
SENTENCE = "2.0 × slower: lower clocks"


def scripted(perfsvc, faults=(), **profiler):
    """Return the parts of a script in which the binaries of run 1 are fast, and each variant is slower today.

    ``faults`` has the fault of each variant's new binary.
    """
    old = perfsvc.modules()
    cases = {f"scale/{variant}": {"seconds": factor * 1e-4} for variant, factor in FACTORS.items()}
    cases |= dict.fromkeys(old.values(), USUAL)
    cases |= {perfsvc.modules(2)[variant]: {"fault": fault} for variant, fault in dict(faults).items()}
    metrics = {"*": HELD_BACK, **dict.fromkeys(old.values(), QUICK)}
    return {"cases": cases, "profiler": {"metrics": metrics, **profiler}}


def confirm(perfsvc, *devices):
    """Measure a suite, make its three variants slower, and confirm the regressions."""
    devices = devices or (perfsvc.script,)
    options = [option for device in devices for option in ("--device", f"fake:{device}")]
    suite = perfsvc.own("scale")

    def play(script):
        for number, device in enumerate(devices):
            device.write_text(json.dumps({"uuid": f"FAKE-{number}", **script}))

    play({"cases": {"*": USUAL}})
    perfsvc("run", *options, "--suite", suite, "--replicas", "2", code=0)
    perfsvc.rebuild(suite)
    play(scripted(perfsvc))
    perfsvc("run", *options, "--suite", suite, "--replicas", "2", "--confirm", code=1)


class Progress:
    def begin(self, stage, total):
        self.total, self.steps = total, 0

    def step(self, what):
        self.steps += 1


class Stage:
    """The profiling stage of a run in a workplace.

    Attributes:
        messages: what it reported.
        programs: the folders of the sessions that it began.
    """

    def __init__(self, perfsvc, monkeypatch):
        self.perfsvc = perfsvc
        self.messages, self.programs = [], []
        self.progress = Progress()
        run = FakeProfiler.run

        def counted(profiler, program, report, **given):
            self.programs.append(program[-1])
            run(profiler, program, report, **given)

        monkeypatch.setattr(FakeProfiler, "run", counted)

    def play(self, faults=(), **profiler):
        self.perfsvc.script.write_text(json.dumps({"uuid": "FAKE-0", **scripted(self.perfsvc, faults, **profiler)}))

    def explain(self, run=2, devices=None, **settings):
        """Profile and explain the regressions of a run; return the text of each variant's explanation."""
        with (
            contextlib.chdir(self.perfsvc.folder),
            mock.patch.dict(os.environ, self.perfsvc.environment, clear=True),
            Store.open(str(self.perfsvc.database)) as store,
        ):
            found = {
                device.uuid: device for device in find([f"fake:{path}" for path in devices or [self.perfsvc.script]])
            }
            profiling = ProfilerSettings(found, {}, report=self.messages.append, **settings)
            made = explain_regressed(store, run, profiling, self.progress)
        return {explanation.case.variant: explanation.text for explanation in made}

    def profiled(self, *, failed=False):
        """Return the variants and runs that were profiled, or those that failed, in their order."""
        query = (
            "select variant, run_id from profiles join cases on cases.id = case_id where (reason <> '') = ? "
            "order by profiles.id"
        )
        return self.perfsvc.rows(query, failed)

    def reports(self):
        return self.perfsvc.rows("select count(*) from artifacts where kind = 'report'")[0][0]


@pytest.fixture
def stage(prepared, monkeypatch):
    made = Stage(prepared(confirm), monkeypatch)
    made.play()
    return made


def explained(texts):
    return sorted(variant for variant, text in texts.items() if text.startswith(SENTENCE))


def test_all_regressions_are_profiled_by_one_profiler_the_worst_first(stage):
    assert explained(stage.explain()) == sorted(FACTORS)
    assert len(stage.programs) == 1
    assert stage.profiled() == WORST_FIRST
    assert (stage.progress.steps, stage.progress.total) == (6, 6)
    assert stage.reports() == 1
    assert stage.explain() == {}  # a resumed night does nothing again
    assert len(stage.programs) == 1


@pytest.mark.quick
def test_a_user_gets_the_report_of_the_session_and_the_name_of_the_range(stage):
    case = "scale/beta[n=100]"
    ended = stage.perfsvc("profile", case, "--stored", code=2)
    assert f"no profile of {case} is stored for run 2" in ended.err
    assert f"perfsvc profile '{case}' --run 2" in ended.err
    assert "timelines are not stored" in stage.perfsvc("profile", case, "--stored", "--tool", "nsys").err
    stage.explain()
    stage.perfsvc.script.unlink()
    out = stage.perfsvc("profile", case, "--run", "1", "--stored", "--output", "night.rep", code=0).out
    assert f"the NVTX range of this launch is '{case} of run 1'" in " ".join(out.split())
    ranges = json.loads((stage.perfsvc.folder / "night.rep").read_text())
    assert sorted(ranges) == sorted(f"scale/{variant}[n=100] of run {run}" for variant, run in WORST_FIRST)
    assert ranges[f"{case} of run 1"]["metrics"] == QUICK
    found = stage.perfsvc("profile", case, "--stored", "--format", "json", code=0).json
    assert (found["profile"]["metrics"], found["range"]) == (HELD_BACK, f"{case} of run 2")


@pytest.mark.parametrize(("fault", "partial"), [("crash", True), ("illegal", False), ("lost", True)])
def test_a_launch_that_ends_the_process_costs_its_case_only(stage, fault, partial):
    stage.play({"alpha": fault}, partial=partial)
    texts = stage.explain()
    assert explained(texts) == (["beta", "gamma"] if fault != "lost" else ["gamma"])
    assert texts["alpha"].startswith("not explained: ")
    if fault != "lost":  # a lost GPU costs the sessions after it, too
        assert len(stage.programs) == 2
        assert stage.profiled() == [pair for pair in WORST_FIRST if pair[0] != "alpha"]
        assert stage.profiled(failed=True) == [("alpha", 2)]


def test_a_launch_that_hangs_is_killed_and_costs_its_case_only(stage):
    stage.play({"gamma": "hang"})
    texts = stage.explain(limit_s=1.0)
    assert explained(texts) == ["alpha", "beta"]
    assert texts["gamma"].startswith(
        "not explained: time limit: its launch was still being profiled after 1 s, so it was killed"
    )
    assert len(stage.programs) == 2


def test_a_launch_that_fails_without_ending_the_process_needs_no_other_session(stage):
    stage.play({"gamma": "refused"})
    texts = stage.explain()
    assert explained(texts) == ["alpha", "beta"]
    assert "invalid configuration" in texts["gamma"]
    assert len(stage.programs) == 1


@pytest.mark.quick
def test_a_profiler_that_never_works_is_not_started_for_every_case(stage, monkeypatch):
    monkeypatch.setattr("perfsvc.service.profile.case_profiler.MOST_FRUITLESS", 2)
    stage.play(fault="nothing")
    texts = stage.explain()
    assert len(stage.programs) == 2
    assert texts["beta"].startswith(
        "not explained: nothing could be profiled in 2 sessions in a row, the last time because the script hides"
    )
    assert stage.profiled(failed=True) == [("gamma", 2), ("alpha", 2)]


def test_what_does_not_fit_the_budget_is_reported_and_done_the_next_night(stage, monkeypatch):
    clock = mock.Mock(wraps=session.time)
    clock.monotonic.side_effect = lambda: 1e9 * (stage.progress.steps >= 2) + 1
    monkeypatch.setattr(session, "time", clock)
    assert explained(stage.explain(budget_s=1e5)) == ["gamma"]
    assert stage.messages == [
        "2 regressions were not profiled: the budget of 100000 s ended; the next night profiles them"
    ]
    assert stage.profiled() == WORST_FIRST[:2]
    assert stage.reports() == 1
    monkeypatch.undo()
    suite = stage.perfsvc.folder / "scale"
    ended = stage.perfsvc.fake("--replicas", "2", "--confirm", "--profile", suite=suite, code=1)
    assert ended.out.count(SENTENCE) == 3
    # gamma is explained by the profiles of the night before
    assert stage.profiled()[2:] == [(variant, run) for variant in ("alpha", "beta") for run in (3, 1)]
    assert stage.reports() == 2


def test_waiting_for_a_gpu_that_another_run_uses_counts_in_the_budget(stage, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", stage.perfsvc.environment["PERFSVC_LOCKS"])
    lock = DeviceLock("FAKE-0")
    assert lock.take()
    try:
        assert stage.explain(budget_s=0.3) == {}
    finally:
        lock.release()
    assert stage.messages == [
        f"FAKE-0 is in use by another perfsvc run (pid {os.getpid()}): waiting",
        "3 regressions were not profiled: the budget of 0.3 s ended; the next night profiles them",
    ]
    assert stage.programs == []


def test_a_night_keeps_its_budget_and_the_next_night_explains_what_was_left_over(perfsvc):
    nights = Nights(perfsvc, '\n[profile]\nbudget = "0.001s"\n')
    nights(code=0)
    nights.slower()
    script = json.loads(perfsvc.script.read_text())
    profiler = {"metrics": {"*": HELD_BACK, **dict.fromkeys(perfsvc.modules().values(), QUICK)}}
    perfsvc.play(script["cases"], profiler=profiler)
    over = "1 regression was not profiled: the budget of 0.001 s ended; the next night profiles it"
    nights(code=1)
    assert nights.result(2, "profile")[0] == over
    assert over in [line["event"] for line in nights.log(2)]
    assert perfsvc.rows("select count(*) from profiles") == [(0,)]
    nights.settings()
    nights()
    assert nights.result(3, "profile")[0] == "1 of 1 regression explained"
    assert SENTENCE in perfsvc("findings", code=0).out


def confirm_on_two(perfsvc):
    confirm(perfsvc, perfsvc.folder / "first.json", perfsvc.folder / "second.json")


def test_gpus_of_one_model_with_the_same_binaries_share_an_explanation(prepared, monkeypatch):
    stage = Stage(prepared(confirm_on_two), monkeypatch)
    devices = [stage.perfsvc.folder / name for name in ("first.json", "second.json")]
    stage.explain(devices=devices)
    assert len(stage.programs) == 1
    assert stage.profiled() == WORST_FIRST
    ((profiled_on,),) = stage.perfsvc.rows("select distinct uuid from profiles join devices on devices.id = device_id")
    rows = stage.perfsvc.rows(
        "select variant, uuid, sentence, baseline_profile_id is null from explanations "
        "join cases on cases.id = case_id join devices on devices.id = device_id"
    )
    assert sorted((variant, uuid) for variant, uuid, *_ in rows) == [
        (variant, uuid) for variant in sorted(FACTORS) for uuid in ("FAKE-0", "FAKE-1")
    ]
    for _, uuid, sentence, without_profile in rows:
        assert sentence.startswith(SENTENCE)
        assert sentence.endswith(f"Profiled on {profiled_on}, which has the same model and the same binaries.") is (
            uuid != profiled_on
        )
        assert not without_profile
    out = stage.perfsvc("report", "2", code=0).out
    assert out.count(SENTENCE) == 3
    assert "on 2 GPUs of the model Fake GPU (FAKE-0, FAKE-1)" in " ".join(out.split())


def test_without_its_gpu_a_regression_is_profiled_on_another_of_the_same_model(prepared, monkeypatch):
    stage = Stage(prepared(confirm_on_two), monkeypatch)
    stage.explain(devices=[stage.perfsvc.folder / "second.json"])
    assert stage.messages == 3 * ["nothing is profiled on FAKE-0: this GPU is no longer here"]
    assert stage.perfsvc.rows("select distinct uuid from profiles join devices on devices.id = device_id") == [
        ("FAKE-1",)
    ]
