"""A board that got slower is one finding, which a person accepts or the board resolves."""

import pytest

USUAL = {"*": {"seconds": 1e-4}}
SLOW = {"*": {"seconds": 1.05e-4}}


@pytest.fixture
def night(perfsvc):
    """A night of six cases, with a suite outside any repository: what is not committed is an experiment."""
    suite = perfsvc.own("scale")

    def run(cases, code):
        perfsvc.play(cases)
        perfsvc.fake("--points", "full", suite=suite, code=code)

    return run


@pytest.fixture
def slow(perfsvc, night):
    """A night on which all cases of the board are slower, after one that was as usual."""
    night(USUAL, 0)
    night(SLOW, 0)  # the code is the same on both sides
    return perfsvc


def test_one_finding_names_the_board_and_all_that_it_moved(slow):
    (found,) = slow("findings", "--format", "json", code=0).json
    assert (found["cause"], found["direction"], found["state"]) == ("environment", "slower", "open")
    assert len(found["moved"]) == 6
    assert {round(one["ratio"], 4) for one in found["moved"]} == {1.05}
    out = slow("findings", code=0).out
    assert "1 open  environment, loss, slower, run 2" in out
    assert "6 cases with unchanged code moved at once" in out
    assert "scale/alpha[n=1000]" in out


def test_an_accepted_finding_is_the_level_from_then_on(slow, night):
    ended = slow("findings", "accept", "1", "--reason", "the board was moved to the other rack", code=0)
    assert ended.out.strip() == "finding 1 is accepted: run 2 is the level of 6 series"
    night(SLOW, 0)
    assert "nothing stands" in slow("findings", code=0).out
    assert "the board was moved to the other rack" in slow("findings", "--all", code=0).out
    again = slow("findings", "accept", "1", "--reason", "again", code=2)
    assert "accepted already" in again.err


def test_a_finding_resolves_itself_when_the_board_recovers(slow, night):
    night(USUAL, 0)
    assert slow("findings", "--format", "json", code=0).json == []
    (found,) = slow("findings", "--all", "--format", "json", code=0).json
    assert (found["state"], found["reason"]) == ("resolved", "back at its old level in run 3")
    assert "back in run 3" in slow("findings", "--all", code=0).out


def test_a_finding_that_is_not_there_is_said_with_its_cure(slow):
    ended = slow("findings", "accept", "7", "--reason", "so be it", code=2)
    assert "there is no finding 7" in ended.err
    assert "perfsvc findings --all" in ended.err


def test_a_database_without_findings_says_so(perfsvc, night):
    night(USUAL, 0)
    assert "nothing stands" in perfsvc("findings", code=0).out
    assert "nothing was ever found" in perfsvc("findings", "--all", code=0).out
