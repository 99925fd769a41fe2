"""A GPU that got slower is one finding, which a person accepts or the GPU resolves."""

import re

import pytest

USUAL = {"*": {"seconds": 1e-4}}
SLOW = {"*": {"seconds": 1.05e-4}}


def night(workplace, cases, code=0):
    """Measure six cases, with a suite outside any repository, so that no uncommitted change counts."""
    workplace.play(cases)
    workplace.fake("--points", "full", suite=workplace.folder / "scale", code=code)


def a_slow_night(workplace):
    workplace.own("scale")
    night(workplace, USUAL)
    night(workplace, SLOW)  # the code is the same on both sides


@pytest.fixture
def slow(prepared):
    """Return a workplace with a night on which all cases of the GPU are slower, after a usual one."""
    return prepared(a_slow_night)


def test_one_finding_names_the_board_and_all_that_it_moved_and_what_is_refused_leaves_it_open(slow):
    (found,) = slow("findings", "--format", "json", code=0).json
    assert (found["cause"], found["direction"], found["state"]) == ("environment", "slower", "open")
    assert len(found["moved"]) == 6
    assert {round(one["ratio"], 4) for one in found["moved"]} == {1.05}
    assert "6 of 6 cases slower, median +5.0 %" in slow("findings", code=0).out
    assert "there is no finding 7" in slow("findings", "accept", "7", "--reason", "so be it", code=2).err
    for until in ("2020-01-01", "tomorrow", "2w3", "0"):
        assert "--until" in slow("findings", "ignore", "1", "--until", until, code=2).err
    assert [one["state"] for one in slow("findings", "--format", "json").json] == ["open"]


def test_an_accepted_finding_is_the_level_from_then_on(slow):
    ended = slow("findings", "accept", "1", "--reason", "the GPU was moved to the other rack", code=0)
    assert re.fullmatch(
        r"finding 1 is accepted: later runs are compared with scale/\S+, scale/\S+, scale/\S+ and 3 more in run 2",
        ended.out.strip(),
    )
    night(slow, SLOW)
    assert "no finding is open" in slow("findings", code=0).out


def test_a_finding_resolves_itself_when_the_board_recovers(slow):
    night(slow, USUAL)
    assert slow("findings", "--format", "json", code=0).json == []
    (found,) = slow("findings", "--all", "--format", "json", code=0).json
    assert (found["state"], found["reason"]) == ("resolved", "back at its old level in run 3")


def test_some_cases_are_ignored_for_a_while(slow):
    ended = slow("findings", "ignore", "1", "--select", "scale/alpha[n=1000]", "--until", "2w", code=0)
    new, ignored = ended.out.splitlines()
    assert new == "finding 2 is new: it takes scale/alpha[n=1000] out of finding 1"
    assert ignored.startswith("finding 2 is ignored until ")
    states = {one["id"]: (one["state"], len(one["moved"])) for one in slow("findings", "--format", "json").json}
    assert states == {1: ("open", 5), 2: ("ignored", 1)}
    assert slow("findings", "reopen", "2", code=0).out.strip() == "finding 2 is open again"
    assert slow("findings", "assign", "2", "", code=0).out.strip() == "finding 2 is assigned to no owner"


def test_what_is_ignored_ends_no_run_with_an_alarm(perfsvc):
    suite = perfsvc.own("scale")
    night(perfsvc, USUAL)
    perfsvc.rebuild(suite)
    night(perfsvc, {**USUAL, "scale/alpha[n=1000]": {"seconds": 2e-4}}, code=1)
    perfsvc("confirm", "scale/alpha[n=1000]", "--device", f"fake:{perfsvc.script}", code=0)  # it is the GPU
    perfsvc("findings", "ignore", "1", code=0)
    night(perfsvc, {**USUAL, "scale/alpha[n=1000]": {"seconds": 2e-4}})
