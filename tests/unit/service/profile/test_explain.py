"""Which launches are compared where two runs of a case are."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from perfsvc.model import Case, Profile, ProfileResult
from perfsvc.service.profile import explain
from perfsvc.service.profile.explain import ExplainRequest, Side
from perfsvc.service.progress import Silent

CASE = Case("norm", "two", (("n", 8),))
OTHER = Case("norm", "one", (("n", 8),))
KERNELS = ("sum", "divide")


def profiled(run, launch, case=CASE, kernel=None):
    seen = Profile(kernel or KERNELS[launch], {"duration_s": 1e-3}, (), "H100", "sm_90", "2025.3")
    return ProfileResult(case, run, run, "GPU-1", "H100", "ncu", "full", seen, launch)


@dataclass(frozen=True)
class Built:
    """What a run was built to, as far as profiles are looked up by it: a binary of the run's number."""

    binary: int


class Played:
    """A store of some profiles, and a maker of new ones: of the second launch, unless of one like another."""

    def __init__(self, *held):
        self.held = held
        self.made_of = []

    def built(self, run):
        return {("GPU-1", one.case, "cold"): Built(run) for one in self.held if one.run == run}

    def profiles_of(self, binary):
        return [one for one in self.held if one.binary == binary]

    def known(self, side):
        return next((one for one in self.held if (one.run, one.case.id) == (side.run, side.case)), None)

    def made(self, side, like=None):
        self.made_of.append(side.run)
        return profiled(side.run, 1 if like is None else like.launch)

    def stored(self, *cases):
        found = explain._stored_pair(self, *sides(*cases))
        return found and tuple(one.kernel for one in found)

    def compared(self):
        request = ExplainRequest("1", "2", "", Path(), case=CASE.id)
        return tuple(one.kernel for one in explain._made_pair(self, request, sides(), Silent()))


@pytest.fixture
def play(monkeypatch):
    def played(*held):
        stand_in = Played(*held)
        monkeypatch.setattr(explain, "_Maker", lambda *_: stand_in)
        return stand_in

    return played


def sides(before=CASE, after=CASE):
    return Side(before.id, 1), Side(after.id, 2)


def test_stored_profiles_of_different_launches_of_a_case_are_no_pair(play):
    assert play(profiled(1, 0), profiled(2, 1)).stored() is None
    assert play(profiled(1, 0), profiled(2, 0, kernel="other")).stored() is None
    assert play(profiled(1, 0), profiled(1, 1), profiled(2, 1)).stored() == ("divide", "divide")


def test_different_cases_are_compared_whatever_they_launch(play):
    assert play(profiled(1, 0, OTHER), profiled(2, 1)).stored(OTHER, CASE) == ("sum", "divide")


def test_of_two_that_are_stored_one_is_made_anew_of_the_others_launch(play):
    played = play(profiled(1, 0), profiled(2, 1))
    assert played.compared() == ("sum", "sum")
    assert played.made_of == [2]


def test_where_a_run_has_not_the_others_launch_both_are_of_what_both_have(play, monkeypatch):
    played = play(profiled(1, 0, kernel="gone"))
    monkeypatch.setattr(played, "made", lambda side, like=None: profiled(side.run, 1))
    assert played.compared() == ("divide", "divide")
