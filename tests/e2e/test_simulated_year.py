"""A small year on the fake device: what is planted is found, and nothing else; benchmarks/ has a whole one."""

import importlib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsvc.store import Store

BENCHMARKS = Path(__file__).parents[2] / "tests" / "benchmarks"


@pytest.fixture(scope="module")
def simulated():
    """The modules that the benchmark is made of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        names = ("planted", "workplace", "life", "found", "pages")
        yield SimpleNamespace(**{name: importlib.import_module(f"simulated.{name}") for name in names})


def planned(planted):
    """Twenty cases and two dozen nights; each change is beyond three times what noise makes of a night."""
    step, commit = planted.step, planted.Commit
    return planted.Plan(
        nights=24,
        benchmarks=4,
        variants=5,
        planted=(
            planted.rebuilt("a commit without speed", 3, "b0/second.cu", "b0/v[2-4]"),
            step("a step", [commit(5, "b1/first.cu", "b1/v[01]", 1.08)], back=9),
            planted.spike("a spike", 7, "b3/*", 1.1),
            planted.improvement("an improvement", commit(10, "b0/first.cu", "b0/v[01]", 0.92)),
            planted.driver("a driver", 12, "590.12", 1.08, accepted=14),
            planted.slow_gpu("a slow GPU", 16, 3, 1.1),
            step("a late step", [commit(22, "b2/second.cu", "b2/v[2-4]", 1.08)]),
        ),
    )


@pytest.fixture(scope="module")
def year(simulated, tmp_path_factory):
    """The nights, and what has come of them."""
    folder = tmp_path_factory.mktemp("year")
    plan = planned(simulated.planted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFSVC_CACHE", str(folder / "cache"))
        patch.setenv("PERFSVC_LOCKS", str(folder / "locks"))
        workplace = simulated.workplace.Workplace(folder, plan, seed=1)
        lived = list(simulated.life.live(workplace))
        with Store.open(workplace.database) as store:
            told, of_nothing = simulated.found.read(store, plan)
            built = simulated.pages.build(store, folder / "site", plan.nights)
    return SimpleNamespace(plan=plan, lived=lived, told=told, of_nothing=of_nothing, built=built)


def test_the_findings_are_those_that_were_planted(simulated, year):
    found = {
        one.planted.name: [(each.cause, each.first_run, each.state, len(each.moved), one.back) for each in one.findings]
        for one in year.told
    }
    assert found == {
        "a commit without speed": [],
        "a step": [("kernel", 5, "resolved", 2, (9,))],
        "a spike": [],
        "an improvement": [],
        "a driver": [("environment", 12, "accepted", 20, (None,))],
        "a slow GPU": [("environment", 16, "resolved", 20, (19,))],
        "a late step": [("kernel", 22, "open", 3, (None,))],
    }
    assert year.of_nothing == []
    assert [str(one) for one in simulated.found.claims_of(year.told, year.of_nothing) if not one.holds] == []


def test_suspects_are_measured_again_on_their_first_night_alone_and_the_page_has_all_of_it(year):
    """What a step slowed, and under a new driver what is another binary than its baseline's; not while it stands."""
    assert {one.night: one.suspects for one in year.lived if one.suspects} == {5: 2, 12: 3 + 2, 22: 3}
    assert (year.built.missing, year.built.findings, year.built.series) == ((), 4, 20)


def test_every_part_of_the_nights_makes_the_database_grow_by_about_the_same(simulated, year):
    assert len(simulated.life.tenths(year.lived)) == 10
    # A week has enough nights that it does not matter which tables grow by a whole page in which night.
    weeks = [year.lived[night].bytes for night in (2, 9, 16, 23)]
    grown = [after - before for before, after in pairwise(weeks)]
    assert max(grown) < 1.2 * min(grown)
