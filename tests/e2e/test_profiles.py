"""Profiles: of confirmed regressions, to their explanation, and of a case that the user names."""

import json
import shutil

import pytest

CASE = "scale/beta[n=100]"
USUAL, SLOW = {"seconds": 1e-4}, {"seconds": 2e-4}
QUICK, HELD_BACK = {"duration_s": 1e-4, "sm_clock_hz": 2e9}, {"duration_s": 2e-4, "sm_clock_hz": 1e9}
SENTENCE = "2.0 × slower: lower clocks"


def slower_night(perfsvc):
    """Return the workplace, its suite, and a function that scripts a night with a slower case, and its profiler."""
    old = perfsvc.modules()["beta"]

    def play(**profiler):
        metrics = {"*": HELD_BACK, old: QUICK}
        perfsvc.play({"*": USUAL, "scale/beta": SLOW, old: USUAL}, profiler={"metrics": metrics, **profiler})

    return perfsvc, perfsvc.folder / "suite", play


def measure(perfsvc):
    suite = perfsvc.folder / "suite"
    shutil.copytree(perfsvc.suites / "scale", suite)
    perfsvc.play({"*": USUAL})
    perfsvc.fake("--replicas", "2", suite=suite, code=0)
    with (suite / "scale" / "scale.cu").open("a") as source:
        source.write("// changed\n")
    _, _, play = slower_night(perfsvc)
    play()


def measure_and_explain(perfsvc):
    measure(perfsvc)
    perfsvc.fake("--confirm", "--profile", suite=perfsvc.folder / "suite", code=1)


@pytest.fixture
def night(prepared):
    """Return what ``slower_night`` returns for a suite that was measured once."""
    return slower_night(prepared(measure))


def test_a_confirmed_regression_is_profiled_on_both_sides_and_explained_in_the_same_command(night):
    perfsvc, suite, play = night
    ended = perfsvc.fake("--confirm", "--profile", "--format", "json", suite=suite, code=1)
    (why,) = ended.json["explained"]
    assert (why["case"], why["baseline_run"], why["candidate_run"], why["factor"]) == (CASE, 1, 2, 2.0)
    assert (why["sentence"].startswith(SENTENCE), why["reason"]) == (True, "")
    sides = perfsvc.rows("select run_id, kernel, launch, reason, binary_id is null from profiles order by run_id")
    assert [side[0] for side in sides] == [1, 2]
    assert {side[1:] for side in sides} == {("scale", 0, "", 0)}
    values = (
        "select run_id, value from profile_metrics join profiles on profiles.id = profile_id where name = 'duration_s'"
    )
    assert perfsvc.rows(values + " order by run_id") == [(1, 1e-4), (2, 2e-4)]
    ((run, baseline, sentence),) = perfsvc.rows("select run_id, baseline_run_id, sentence from explanations")
    assert (run, baseline) == (2, 1)
    assert sentence.startswith(SENTENCE)
    assert SENTENCE in perfsvc("findings", code=0).out
    assert SENTENCE in perfsvc("show", CASE, code=0).out
    assert SENTENCE in perfsvc("findings", "--format", "json", code=0).json[0]["why"]
    assert SENTENCE in perfsvc("show", CASE, "--format", "json", code=0).json[-1]["why"]
    play(fault="nothing")  # a stored profile is not made again
    out = perfsvc.fake("--confirm", "--profile", suite=suite, code=1).out
    assert f"why {CASE}: {SENTENCE}" in out
    assert "lower clocks 100 %: " in out
    assert perfsvc.rows("select count(*) from profiles") == [(2,)]


def test_the_cases_of_a_finding_are_grouped_by_their_reasons(night):
    perfsvc, suite, _ = night
    slow = {"duration_s": 2e-4, "sm_clock_hz": 1e9, "theoretical_occupancy": 0.5, "achieved_occupancy": 0.5}
    by_clock = {**slow, "duration_s": 1e-4, "sm_clock_hz": 2e9}
    by_occupancy = {**slow, "duration_s": 1e-4, "theoretical_occupancy": 1.0, "achieved_occupancy": 1.0}
    old = perfsvc.modules()
    quick = {digest: by_occupancy if variant == "gamma" else by_clock for variant, digest in old.items()}
    perfsvc.play({"*": SLOW, **dict.fromkeys(quick, USUAL)}, profiler={"metrics": {"*": slow, **quick}})
    perfsvc.fake("--confirm", "--profile", suite=suite, code=1)

    (found,) = perfsvc("findings", "--format", "json", code=0).json
    assert {group["reason"]: len(group["cases"]) for group in found["explanations"]} == {
        "lower clocks": 2,
        "lower occupancy": 1,
    }
    assert all(series["why"] for series in found["moved"])
    for arguments in (("findings",), ("findings", "show", str(found["id"]))):
        assert "2 cases: lower clocks (2.0 times)" in perfsvc(*arguments, code=0).out
    out = perfsvc("findings", "show", str(found["id"]), code=0).out
    for case in ("scale/alpha[n=100]", "scale/beta[n=100]", "scale/gamma[n=100]"):
        assert f"{case}: 2.0 × slower: lower" in out


@pytest.mark.parametrize("fault", ["permission", "hang"])
def test_a_failed_profile_fails_no_night_and_is_stored_with_its_reason(night, fault):
    perfsvc, suite, play = night
    play(fault=fault)
    ended = perfsvc.fake("--confirm", "--profile", suite=suite, code=1)
    assert f"why {CASE}: not explained: " in ended.out
    ((run, reason, cure),) = perfsvc.rows("select run_id, reason, cure from profiles")
    assert (run, cure) == (2, "change the script")
    assert reason in ended.out.replace("\n", " ")
    ((stored, sentence),) = perfsvc.rows("select reason, sentence from explanations")
    assert (stored, sentence) == (f"{reason}; {cure}", "")


def test_an_unreadable_report_is_stored_with_the_reason(night):
    perfsvc, suite, play = night
    play(fault="unread")
    assert "the reader of reports die" in perfsvc.fake("--confirm", "--profile", suite=suite, code=1).out
    rows = perfsvc.rows("select reason, kind from profiles join artifacts on sha256 = report_sha256")
    assert rows == 2 * [("the script makes the reader of reports die", "report")]  # both sides, one report
    assert perfsvc.rows("select count(*) from artifacts where kind = 'report'") == [(1,)]


@pytest.mark.parametrize(("fault", "looked"), [("permission", 1), ("nothing", 2), ("unread", 4)])
def test_an_error_that_holds_for_the_whole_gpu_is_not_tried_for_every_case(night, fault, looked):
    perfsvc, suite, play = night
    play(fault=fault)
    script = json.loads(perfsvc.script.read_text())
    script["cases"]["*"] = SLOW
    script["cases"] |= dict.fromkeys(perfsvc.modules().values(), USUAL)
    perfsvc.script.write_text(json.dumps(script))
    perfsvc.fake("--confirm", "--profile", "--exclude", "scale/gamma", suite=suite, code=1)
    assert perfsvc.rows("select count(*) from profiles") == [(looked,)]
    assert perfsvc.rows("select count(*), sum(sentence = '') from explanations") == [(2, 2)]


def test_a_device_without_a_profiler_is_reported_once_and_nothing_is_stored(night):
    perfsvc, suite, _ = night
    script = json.loads(perfsvc.script.read_text())
    del script["profiler"]
    perfsvc.script.write_text(json.dumps(script))
    ended = perfsvc.fake("--confirm", "--profile", suite=suite, code=1)
    (line,) = [line for line in ended.err.splitlines() if "profile" in line]
    assert line.startswith("nothing is profiled on Fake GPU: ")
    assert perfsvc.rows("select * from profiles") == []


@pytest.mark.quick
def test_what_cannot_be_profiled_is_refused_before_anything_is_profiled(night):
    perfsvc, suite, _ = night
    assert "add --confirm" in perfsvc.fake("--profile", suite=suite, code=2).err
    device = ("--device", f"fake:{perfsvc.script}")
    folder = "none/beta.rep cannot be written: there is no folder none"
    for arguments, message in {
        ("profile", CASE, *device, "--tool", "ncu", "--output", "none/beta.rep"): folder,
        ("profile", CASE, *device, "--tool", "nsys", "--output", "none/beta.rep"): folder,
        ("profile", "scale/nothing[n=100]", *device): "holds no binary",
        ("profile", "scale/beta[n=101]", *device): f"did you mean {CASE}",
        ("profile", CASE, "--device", "cpu"): "none of the devices asked for can run it",
        ("explain", "1", "1", "--case", CASE, "--device", "cpu"): "none of the devices asked for can run it",
        ("explain", "1", "nothing", "--case", CASE): "is no run, label or git revision",
    }.items():
        assert message in perfsvc(*arguments, code=2).err
    assert perfsvc.rows("select count(*) from profiles") == [(0,)]


def test_a_case_of_any_run_is_profiled_from_the_database_alone(night):
    perfsvc, suite, _ = night
    shutil.rmtree(suite)
    device = f"fake:{perfsvc.script}"
    out = perfsvc("profile", CASE, "--run", "1", "--device", device, code=0).out
    assert f"{CASE} of run 1: kernel scale" in out
    assert "100.0 µs" in out
    found = perfsvc("profile", CASE, "--device", device, "--format", "json", "--output", "beta.rep", code=0).json
    assert (found["case"], found["profile"]["metrics"], found["range"]) == (CASE, QUICK, f"{CASE} of run 1")
    assert json.loads((perfsvc.folder / "beta.rep").read_text())[f"{CASE} of run 1"]["metrics"] == QUICK


def test_a_failure_ends_the_command_with_its_cure(night):
    perfsvc, _, play = night
    profile = ("profile", CASE, "--run", "1", "--device", f"fake:{perfsvc.script}")
    ended = perfsvc(*profile, "--output", 300 * "x", code=2)
    assert "cannot be written: File name too long" in " ".join(ended.err.split())
    play(fault="permission")
    ended = perfsvc(*profile, code=5)
    assert "forbids reading counters" in ended.err
    assert "cure: change the script" in ended.err
    play(fault="nothing")
    perfsvc(*profile, code=4)


def test_a_variant_that_runs_python_is_profiled_and_one_that_measures_itself_cannot_be(perfsvc):
    perfsvc.play({"*": USUAL}, profiler={"metrics": {"*": {"duration_s": 1e-4}}})
    perfsvc.fake("--select", "kinds/python", "--select", "kinds/reports", "--replicas", "1", suite="kinds", code=0)
    device = ("--device", f"fake:{perfsvc.script}")
    perfsvc("profile", "kinds/python[n=1000]", *device, code=0)
    assert perfsvc.rows("select reason from profiles") == [("",)]
    ended = perfsvc("profile", "kinds/reports[n=1000]", *device, code=4)
    assert "measures itself, and only what perfsvc times can be profiled" in ended.err
    assert [reason for (reason,) in perfsvc.rows("select reason from profiles") if "measures itself" in reason]


# --- perfsvc explain -------------------------------------------------------------------------------------------------


@pytest.fixture
def profiled(prepared):
    """Two nights, the second of which was explained."""
    return prepared(measure_and_explain)


def test_stored_profiles_of_two_runs_are_compared_without_any_device(profiled):
    profiled.script.unlink()
    assert SENTENCE in profiled("explain", "1", "2", "--case", CASE, "--device", "cpu", code=0).out
    explanation = profiled("explain", "2", "latest~1", "--case", CASE, "--format", "json", code=0).json
    assert explanation["factor"] == 0.5
    assert explanation["sentence"].startswith("2.0 × faster: higher clocks")


def test_two_cases_without_profiles_are_profiled(night):
    perfsvc, _, _ = night
    device = ("--device", f"fake:{perfsvc.script}")
    alpha = "scale/alpha[n=100]"
    explanation = perfsvc("explain", CASE, alpha, "--run", "1", *device, "--format", "json", code=0).json
    assert (explanation["factor"], explanation["before"]["metrics"], explanation["after"]["metrics"]) == (
        2.0,
        QUICK,
        HELD_BACK,
    )
    assert perfsvc.rows("select count(*) from profiles") == [(2,)]
    perfsvc("explain", CASE, alpha, "--run", "1", *device, code=0)
    assert perfsvc.rows("select count(*) from profiles") == [(2,)]


def test_a_missing_profile_of_one_of_two_runs_is_made(profiled):
    third = "scale/gamma[n=100]"
    device = ("--device", f"fake:{profiled.script}")
    profiled("profile", third, "--run", "1", *device, code=0)
    assert "Both take equally long" in profiled("explain", "1", "2", "--case", third, *device, code=0).out
    runs = profiled.rows("select run_id from profiles join cases on cases.id = case_id where variant = 'gamma'")
    assert runs == [(1,), (2,)]


def test_a_report_is_compared_with_a_case(profiled, ncu_report):
    report = ncu_report("transpose-tiled")
    explanation = profiled("explain", report, CASE, "--run", "1", "--format", "json", code=0).json
    assert (explanation["before"]["kernel"], explanation["after"]["kernel"]) == ("transpose_tiled", "scale")
    explanation = profiled("explain", CASE, report, "--run", "1", "--format", "json", code=0).json
    assert (explanation["before"]["kernel"], explanation["after"]["kernel"]) == ("scale", "transpose_tiled")
