"""The nights of a run's series, as the store hands them out to be watched."""

from dataclasses import replace

from perfsvc.model import Mode, Status
from perfsvc.store import State


def medians(nights):
    return [(night.run, night.medians_s) for night in nights]


def test_each_night_has_the_medians_of_its_replicas_through_renames(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled, samples=(1e-3,) * 3)
    story.put(first, story.tiled, samples=(2e-3,) * 3, replica=1)
    story.store.end_run(first, State.FINISHED)
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    second = story.run(renamed, scope="all")
    ((place, nights),) = story.store.nights(second, 9).items()
    assert place == ("GPU-1", renamed, Mode.COLD)
    assert medians(nights) == [(first, (1e-3, 2e-3)), (second, (2e-3,))]


def test_a_night_on_which_any_replica_was_wrong_has_no_time(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled)
    story.put(first, story.tiled, replica=1, status=Status.WRONG)
    story.store.end_run(first, State.FINISHED)
    ((_, nights),) = story.store.nights(story.run(scope="all"), 9).items()
    assert medians(nights)[0] == (first, ())


def test_experiments_and_other_scopes_are_no_nights_and_what_tonight_did_not_measure_has_none(story):
    first = story.run(story.tiled, story.naive, scope="all")
    story.run(dirty=True, scope="all")
    story.run(scope="some")
    last = story.run(scope="all")
    nights = story.store.nights(last, 9)
    assert {case.variant: [night.run for night in of_case] for (_, case, _), of_case in nights.items()} == {
        "tiled": [first, last]
    }


def test_only_the_newest_nights_are_looked_at(story):
    runs = [story.run(scope="all") for _ in range(4)]
    ((_, nights),) = story.store.nights(runs[2], 2).items()
    assert [night.run for night in nights] == runs[1:3]


def test_a_night_is_in_the_segment_of_its_environment(story):
    story.run(scope="all")
    elsewhere = replace(story, environment=replace(story.environment, driver="590.1"))
    elsewhere.run(scope="all")
    last = elsewhere.run(scope="all")
    ((_, nights),) = story.store.nights(last, 9).items()
    first, second, third = (night.segment for night in nights)
    assert first != second == third
