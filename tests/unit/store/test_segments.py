"""Segment starts, compared with a search through every run."""

import random
from dataclasses import replace

import pytest

from perfsvc.model import CacheState
from perfsvc.store import RunState
from perfsvc.store.baselines import segment_starts
from perfsvc.store.schema.engine import transaction

RUNS = 14
BOARDS = ("GPU-1", "GPU-2")
STATES = (RunState.FINISHED, RunState.FINISHED, RunState.INTERRUPTED, RunState.RUNNING)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_segment_begins_after_the_newest_clean_run_in_another_environment(story, store, seed):
    chance = random.Random(seed)
    cases = [replace(story.tiled, variant=f"v{number}") for number in range(3)]
    drivers = ["580.1", "580.1", "590.1", "600.1"]
    ran = {}  # the driver of each case and GPU, by run
    counted = {}  # whether a run ends a segment
    for _ in range(RUNS):
        dirty, state, usual = chance.random() < 0.2, chance.choice(STATES), chance.choice(drivers)
        run = story.begin(dirty=dirty)
        for board in BOARDS:
            for case in cases:
                if chance.random() < 0.7:
                    driver = usual if chance.random() < 0.7 else chance.choice(drivers)
                    teller = replace(story, environment=replace(story.environment, driver=driver))
                    teller.put(run, case, device=board)
                    ran.setdefault(run, {})[case, board] = driver
        if state is not RunState.RUNNING:
            store.runs.end(run, state)
        counted[run] = state is not RunState.RUNNING and not dirty
    named = dict(map(tuple, story.execute("SELECT variant, lineage_id FROM cases")))
    lineages = {case: named[case.variant] for case in cases}
    devices = dict(map(tuple, story.execute("SELECT uuid, id FROM devices")))
    with transaction(store.database.engine, writes=False) as connection:
        for run, here in ran.items():
            found = segment_starts(connection, lineages.values(), run)
            assert found == {
                (lineages[case], devices[board], CacheState.COLD): max(elsewhere)
                for (case, board), driver in here.items()
                if (
                    elsewhere := [
                        earlier
                        for earlier, there in ran.items()
                        if earlier < run and counted[earlier] and there.get((case, board), driver) != driver
                    ]
                )
            }
