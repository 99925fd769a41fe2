"""Which launches of two cases are compared: stored profiles, or new ones."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from perfsvc.model import Case, Profile, ProfileResult
from perfsvc.service.profile import explain
from perfsvc.service.profile.explain import ExplainRequest, RunCase

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
        pair = explain._stored_pair(self, *sides(*cases))
        return pair and tuple(result.profile.kernel for result in pair)

    def compared(self):
        request = ExplainRequest("1", "2", "", Path(), case=CASE.id)
        return tuple(result.profile.kernel for result in explain._made_pair(self, request, sides(), Mock()))


@pytest.fixture
def play(monkeypatch):
    def played(*held):
        stand_in = StandIn(*held)
        monkeypatch.setattr(explain, "_Maker", lambda *_: stand_in)
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
