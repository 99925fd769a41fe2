"""Confirm before alarm: from a suspect to its cause, with exact numbers."""

import contextlib
import shutil
import sqlite3

import pytest

CASE = "scale/beta[n=100]"
SLOW = {"seconds": 1.05e-4}
USUAL = {"seconds": 1e-4}


def measure(perfsvc):
    perfsvc.play({"*": USUAL})
    perfsvc.fake("--replicas", "2", suite=perfsvc.own("scale"), code=0)


@pytest.fixture
def nights(prepared):
    """A suite that was measured once; the test scripts the second night."""
    perfsvc = prepared(measure)
    return perfsvc, perfsvc.folder / "scale"


def by_case(ended):
    return {confirmation["case"]: confirmation for confirmation in ended.json["confirmations"]}


def confirm(perfsvc, *arguments, case=CASE, code=None):
    """Return what ``perfsvc confirm`` prints about the only suspect."""
    ended = perfsvc("confirm", case, "--device", f"fake:{perfsvc.script}", "--format", "json", *arguments, code=code)
    (found,) = ended.json
    return found


def test_a_gpu_that_is_slow_tonight_is_the_environment_and_no_regression(nights):
    perfsvc, suite = nights
    perfsvc.rebuild(suite)
    perfsvc.play({"*": SLOW})
    found = by_case(perfsvc.fake("--confirm", "--format", "json", suite=suite, code=0))
    assert [confirmation["cause"] for confirmation in found.values()] == ["environment"] * 3
    assert found[CASE]["drift"] == pytest.approx(1.05, rel=1e-6)
    assert perfsvc.rows("select distinct cause from confirmations") == [("environment",)]
    compared = perfsvc("compare", "1", "2", "--format", "json", code=0).json["verdicts"]
    assert {(row["verdict"], row["cause"]) for row in compared} == {("regression", "environment")}
    assert "but the baseline's code is now 5.0 % slower than its stored level" in compared[0]["reason"]


def test_a_flake_is_noise_and_its_confirmation_is_stored(nights):
    perfsvc, suite = nights
    perfsvc.rebuild(suite)
    perfsvc.play({"*": USUAL, "scale/beta": SLOW})
    perfsvc.fake(suite=suite, code=1)
    perfsvc.play({"*": USUAL})
    found = confirm(perfsvc, code=0)
    assert (found["cause"], found["verdict"], found["judged"]) == ("noise", "unchanged", "regression")
    assert perfsvc.rows("select cause, judged_ratio > 1.04 from confirmations") == [("noise", 1)]


def test_a_faster_kernel_is_confirmed_and_raises_no_alarm(nights):
    perfsvc, suite = nights
    perfsvc.rebuild(suite)
    perfsvc.play({"*": USUAL, "scale/beta": {"seconds": 0.9e-4}, perfsvc.modules()["beta"]: USUAL})
    perfsvc.fake(suite=suite, code=0)
    found = confirm(perfsvc, code=0)
    assert (found["cause"], found["verdict"], found["direction"]) == ("kernel", "improvement", "faster")


def test_the_same_code_is_never_the_cause_whatever_its_pairs_show(nights):
    perfsvc, suite = nights
    perfsvc.play({"*": USUAL, "scale/beta": SLOW})
    perfsvc.fake(suite=suite)
    perfsvc.play({"*": USUAL})
    turns = confirm(perfsvc, "--seed", "3")["candidate"]
    unlucky = [1.05e-4 if place in {turn["turn"] for turn in turns} else 1e-4 for place in range(6)]
    perfsvc.play({"*": {"seconds": unlucky}})
    found = confirm(perfsvc, "--seed", "3", code=0)
    assert (found["verdict"], found["same_code"], found["cause"]) == ("regression", True, "noise")


@pytest.mark.quick
def test_a_budget_that_ends_too_early_leaves_a_regression_a_regression(nights):
    perfsvc, suite = nights
    perfsvc.rebuild(suite)
    perfsvc.play({"*": USUAL, "scale/beta": SLOW})
    perfsvc.fake(suite=suite, code=1)
    ended = perfsvc("confirm", CASE, "--device", f"fake:{perfsvc.script}", "--budget", "0.001s", code=1)
    message = "1 suspect was not measured again: 0.001 s is too short for three A/B pairs; give more time: --budget"
    assert message in ended.err
    assert "night" not in ended.err
    assert "did not move" not in ended.err
    assert ended.out == "measured again: 0 confirmed, 0 cleared, 0 unconfirmed\n"
    assert perfsvc.rows("select count(*) from confirmations") == [(0,)]


def test_a_case_that_did_not_move_says_so_and_without_time_is_inconclusive(nights):
    perfsvc, suite = nights
    perfsvc.fake(suite=suite, code=0)
    device = ("--device", f"fake:{perfsvc.script}")
    unmoved = (
        f"{CASE} did not move in run 2: unchanged against run 1; to compare run 2 with an older run: perfsvc compare"
    )
    assert unmoved in perfsvc("confirm", CASE, *device, "--budget", "0.001s", code=3).err
    assert "compared no time" in perfsvc("confirm", "scale/nothing[n=100]", *device, code=2).err
    assert "none of the devices asked for" in perfsvc("confirm", CASE, "--device", "cpu", code=2).err
    measured = perfsvc("confirm", CASE, *device, code=0)
    assert unmoved in measured.err
    assert "measured again: 0 confirmed, 1 cleared, 0 unconfirmed" in measured.out


def test_an_old_binary_that_crashes_confirms_nothing(nights):
    perfsvc, suite = nights
    perfsvc.rebuild(suite)
    perfsvc.play({"*": USUAL, "scale/beta": SLOW, perfsvc.modules()["beta"]: {"fault": "crash"}})
    ended = perfsvc.fake("--confirm", "--format", "json", suite=suite, code=1)
    found = by_case(ended)[CASE]
    assert found["cause"] == "unconfirmed"
    assert found["reason"].startswith("the baseline's binary has no correct result any more: ")
    assert [turn["status"] for turn in found["baseline"]] == ["failed"]
    assert confirm(perfsvc, code=4)["cause"] == "unconfirmed"


def test_a_binary_that_is_no_longer_stored_confirms_nothing(nights):
    perfsvc, suite = nights
    perfsvc.rebuild(suite)
    perfsvc.play({"*": USUAL, "scale/beta": SLOW})
    perfsvc.fake(suite=suite, code=1)
    with contextlib.closing(sqlite3.connect(perfsvc.database)) as connection, connection:
        connection.execute("update measurements set binary_id = null where run_id = 1")
    found = confirm(perfsvc, code=0)
    assert (found["cause"], found["same_code"]) == ("unconfirmed", None)
    assert "run 1 holds no binary" in found["reason"]


def test_a_case_is_measured_again_on_the_cpu_from_the_database_alone(perfsvc):
    suite = perfsvc.own("scale")
    arguments = ("--select", "scale/beta", "--replicas", "2", "--samples", "5")
    perfsvc.cpu(*arguments, suite=suite, code=0)
    perfsvc.cpu(*arguments, suite=suite)
    shutil.rmtree(suite)
    ended = perfsvc("confirm", CASE, "--device", "cpu", "--budget", "60s", "--format", "json", code=0)
    (found,) = ended.json
    assert found["same_code"] is True
    assert found["cause"] in {"noise", "environment"}
    assert all(turn["status"] == "ok" for side in ("baseline", "candidate") for turn in found[side])


def test_a_suspect_of_energy_is_measured_again_with_energy(nights):
    perfsvc, suite = nights
    usual, hungry = ({"seconds": 1e-4, "energy_j": joules} for joules in (0.25, 0.3))
    perfsvc.play({"*": usual})
    perfsvc.fake("--replicas", "2", "--energy", suite=suite, code=0)
    perfsvc.rebuild(suite)
    perfsvc.play({"*": usual, "scale/beta": hungry, perfsvc.modules()["beta"]: usual})
    ended = perfsvc.fake("--energy", "--confirm", "--format", "json", suite=suite, code=1)
    (found,) = ended.json["confirmations"]
    assert (found["case"], found["metric"], found["cause"]) == (CASE, "energy_j", "kernel")
    assert found["reason"] == "measured in A/B pairs, its code's energy_j is 20.0 % higher than the baseline's"
    assert {turn["value"] for turn in found["candidate"]} == {0.3}
    assert perfsvc.rows("select side, value, count(*) from confirmation_runs group by side") == [
        ("baseline", 0.25, 3),
        ("candidate", 0.3, 3),
    ]
    perfsvc.play({"*": {"seconds": 1e-4}})
    again = confirm(perfsvc, "--metric", "energy_j", code=0)
    assert (again["cause"], again["reason"]) == (
        "unconfirmed",
        "measured again it has no energy_j: this device does not count energy",
    )
