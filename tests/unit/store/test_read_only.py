"""What analysts read: some rows of a database that refuses changes, on SQLite and on PostgreSQL."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfsvc.errors import DatabaseError
from perfsvc.model import CacheState, Status
from perfsvc.store import Store
from tests.unit.store.conftest import ON_BOTH

OTHER = "GPU-2"


def measured(story: Any) -> tuple[int, int]:
    """Two runs: two cases on one device, then one case on two devices, warm on the second."""
    first = story.run(story.tiled, story.naive)
    second = story.begin()
    story.put(second, story.tiled, samples=(4e-3, 5e-3))
    story.put(second, story.tiled, samples=(6e-3,), device=OTHER, cache=CacheState.WARM)
    story.put(second, story.naive, status=Status.FAILED, reason="crashed")
    return first, second


def keys(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(columns["run"], columns["variant"], columns["device"], strict=True))


@ON_BOTH
def test_columns_are_of_the_chosen_runs_cases_and_devices(
    store: Store, story: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = measured(story)
    read = store.measurements.columns
    everything = keys(read())
    assert len(everything) == 5
    assert keys(read([first])) == [row for row in everything if row[0] == first]
    assert keys(read(None, {story.tiled.id})) == [row for row in everything if row[1] == "tiled"]
    assert keys(read(None, None, {OTHER})) == [(second, "tiled", OTHER)]
    assert len(read(None, None, {story.gpu.model})["run"]) == 5
    assert keys(read([first], {story.naive.id}, {OTHER})) == []
    assert read([])["run"] == []
    at_once = store.measurements.columns()
    monkeypatch.setattr("perfsvc.store.measurements.columns.PART", 2)
    assert store.measurements.columns() == at_once


@ON_BOTH
def test_samples_are_of_the_chosen_cases_and_devices(store: Store, story: Any) -> None:
    first, second = measured(story)
    assert [len(stored.times_s) for stored in store.measurements.samples(first)] == [3, 3]
    (tiled, warm) = store.measurements.samples(second)
    assert (tiled.case, tiled.device, tiled.cache) == (story.tiled.id, story.gpu.uuid, CacheState.COLD)
    assert tiled.times_s.tolist() == np.array([4e-3, 5e-3], np.float32).tolist()
    assert (warm.device, warm.cache, warm.replica) == (OTHER, CacheState.WARM, 0)
    assert store.measurements.samples(second, devices={OTHER})[0].device == OTHER
    assert store.measurements.samples(second, cases={story.naive.id}) == []


@ON_BOTH
def test_a_database_that_is_opened_to_read_refuses_changes(store: Store, story: Any, place: str) -> None:
    run = story.run(story.tiled)
    with Store.open(place, create=False, read_only=True) as reader:
        assert reader.runs.get(run).id == run
        with pytest.raises(DatabaseError, match=r"read-?only"):
            reader.devices.put(replace(story.gpu, uuid=OTHER))
        assert reader.devices.all().keys() == {story.gpu.uuid}


@ON_BOTH
def test_an_empty_database_that_is_opened_to_read_gets_no_tables(empty: str, new_story: Callable[[Store], Any]) -> None:
    if "://" not in empty:
        Path(empty).touch()
    with pytest.raises(DatabaseError, match="is empty"):
        Store.open(empty, create=False, read_only=True)
    with Store.open(empty) as opened:
        assert new_story(opened).run() == 1
