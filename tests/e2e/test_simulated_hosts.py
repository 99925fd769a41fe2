"""Two simulated hosts in short: each planted event arrives once, and nothing else; tests/benchmarks has half a year."""

import importlib
from pathlib import Path

import pytest

from perfsvc.store import Store

BENCHMARKS = Path(__file__).parents[2] / "tests" / "benchmarks"


@pytest.mark.timeout(400)
def test_each_planted_event_arrives_once_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "locks"))
    simulated = importlib.import_module("simulated_hosts")
    plan = simulated.planned(simulated.LEAST)
    with simulated.webhook() as (address, posts):
        world = simulated.World(tmp_path, seed=1, variants=2, functions=2, remind=f"{plan.remind}d")
        received = list(simulated.live(world, plan, address, posts))
    assert [claim for claim in simulated.check(plan, received) if not claim.holds] == []
    with Store.open(tmp_path / "perfsvc.db") as store:
        stages = [stage.message for night in store.nights.list() for stage in night.stages if stage.name == "findings"]
    assert stages.count("1 moved again") == len(simulated.HOSTS)
