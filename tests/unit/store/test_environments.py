"""Environments as segments, and the full environments of runs: each stored once, however many runs have it."""

from dataclasses import replace

from perfsvc.model import FullEnvironment
from perfsvc.store.schema import environments
from perfsvc.store.schema.column_types import report_damaged
from tests.unit.store.conftest import ON_BOTH

FULL = FullEnvironment({"host.kernel": "6.1", "variable.CUDA_X": ""}, {"GPU-1": {"gpu.ecc": "on"}})
ODD = "nul\0 ' \" \u202e 🙂 \n" + "x" * 5000


@ON_BOTH
def test_a_run_has_the_full_environment_that_was_stored_last(story, store):
    first, second, third = story.run(), story.run(), story.run()
    store.devices.put_full_environment(first, FULL)
    store.devices.put_full_environment(second, FullEnvironment())
    store.devices.put_full_environment(second, FULL)
    assert store.devices.full_environments([first, second, third]) == {first: FULL, second: FULL}
    assert store.devices.full_environments([]) == {}


def test_runs_with_the_same_environment_share_a_row_which_is_deleted_with_the_last_of_them(story, store):
    first, second, other = (story.run() for _ in range(3))
    for run in (first, second):
        store.devices.put_full_environment(run, FULL)
    store.devices.put_full_environment(other, replace(FULL, common={"host.kernel": "6.2"}))
    assert story.execute("SELECT count(*) FROM full_environments") == [(2,)]
    store.exclusions.delete(first, reason="", by="ann")
    assert store.devices.full_environments([second]) == {second: FULL}
    store.exclusions.delete(second, reason="", by="ann")
    assert story.execute("SELECT count(*) FROM full_environments") == [(1,)]


def test_a_damaged_environment_is_read_as_an_empty_one_and_reported(story, store, caplog):
    run = story.run()
    store.devices.put_full_environment(run, FULL)
    for content in ("", "[]", '{"common": 1}', '{"common": {"a": 1}, "devices": {}}', "{"):
        report_damaged.cache_clear()
        environments._full.cache_clear()
        story.execute("UPDATE full_environments SET parts = :parts", parts=content)
        assert store.devices.full_environments([run]) == {run: FullEnvironment()}
        assert f"the full environment {content!r} is damaged" in caplog.text


@ON_BOTH
def test_other_parts_are_another_segment(story, store):
    measured = {}
    for value in ("on", "off", "on"):
        run = replace(story, environment=replace(story.environment, parts=(("gpu.ecc", value),))).run()
        (history,) = store.series.histories([run]).values()
        measured[run] = history[0].segment
    first, second, third = measured.values()
    assert first == third != second
    environments = store.devices.environments()
    assert environments[first].changes_to(environments[second]) == ("gpu.ecc on → off",)


@ON_BOTH
def test_each_device_has_its_newest_environment_in_each_run(story, store):
    first = story.run()
    older = story.environment
    second = story.begin()
    story.put(second, story.tiled)
    newer = replace(story, environment=replace(older, driver="999.9"))
    newer.put(second, story.naive)
    newer.put(second, story.naive, device="GPU-2")
    assert store.devices.environments_in([first, second, 99]) == {
        (first, "GPU-1"): older,
        (second, "GPU-1"): newer.environment,
        (second, "GPU-2"): newer.environment,
    }


@ON_BOTH
def test_a_part_may_hold_any_text_of_any_length(story, store):
    parts = tuple((f"variable.{number:03}", ODD) for number in range(200))
    story = replace(story, environment=replace(story.environment, parts=parts))
    run = story.run()
    assert store.devices.environment_before(run + 1, "GPU-1", {story.tiled}) == (run, story.environment)
    store.devices.put_full_environment(run, FullEnvironment({"variable.X": ODD}, {"GPU-1": {ODD: ODD}}))
    assert store.devices.full_environments([run])[run].devices == {"GPU-1": {ODD: ODD}}
    assert story.execute("SELECT count(*) FROM environments") == [(1,)]
