"""The nights of a run's series, as the store hands them out to be watched."""

from dataclasses import replace
from math import isnan

from perfsvc.model import TIME, CacheState, Status
from perfsvc.store import State


def told(nights):
    """The nights of a series with the values of their replicas."""
    rows = zip(nights.runs.tolist(), nights.values.tolist(), strict=True)
    return [(run, tuple(value for value in values if not isnan(value))) for run, values in rows]


def times(story, run, last=9):
    """The nights of each place's time."""
    return {place: nights for (place, metric), nights in story.store.nights(run, last).items() if metric == TIME}


def test_each_night_has_the_medians_of_its_replicas_through_renames(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled, samples=(1e-3,) * 3)
    story.put(first, story.tiled, samples=(2e-3,) * 3, replica=1)
    story.store.end_run(first, State.FINISHED)
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    second = story.run(renamed, scope="all")
    ((place, nights),) = times(story, second).items()
    assert place == ("GPU-1", renamed, CacheState.COLD)
    assert told(nights) == [(first, (1e-3, 2e-3)), (second, (2e-3,))]


def test_a_former_name_given_anew_has_nights_of_its_own(story):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    runs = [story.run(*cases, scope="all") for cases in ([story.tiled], [renamed], [renamed, story.tiled])]
    last = story.begin(scope="all")
    story.put(last, story.tiled, samples=(5e-3,) * 3)
    story.put(last, renamed, samples=(1e-3,) * 3)
    story.store.end_run(last, State.FINISHED)
    found = {case.variant: told(nights) for (_, case, _), nights in times(story, last).items()}
    assert found == {
        "shared": [*((run, (2e-3,)) for run in runs), (last, (1e-3,))],
        "tiled": [(runs[-1], (2e-3,)), (last, (5e-3,))],
    }


def test_a_night_on_which_any_replica_was_wrong_has_no_time(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled)
    story.put(first, story.tiled, replica=1, status=Status.WRONG)
    story.store.end_run(first, State.FINISHED)
    ((_, nights),) = times(story, story.run(scope="all")).items()
    assert told(nights)[0] == (first, ())


def test_experiments_and_other_scopes_are_no_nights_and_what_tonight_did_not_measure_has_none(story):
    first = story.run(story.tiled, story.naive, scope="all")
    story.run(dirty=True, scope="all")
    story.run(scope="some")
    last = story.run(scope="all")
    nights = times(story, last)
    assert {case.variant: of_case.runs.tolist() for (_, case, _), of_case in nights.items()} == {"tiled": [first, last]}


def test_only_the_newest_nights_are_looked_at(story):
    runs = [story.run(scope="all") for _ in range(4)]
    ((_, nights),) = times(story, runs[2], 2).items()
    assert nights.runs.tolist() == runs[1:3]


def test_a_night_is_in_the_segment_of_its_environment(story):
    story.run(scope="all")
    elsewhere = replace(story, environment=replace(story.environment, driver="590.1"))
    elsewhere.run(scope="all")
    last = story.run(scope="all")
    ((_, nights),) = times(story, last).items()
    first, second, third = nights.segments
    assert first == third != second


def test_nights_before_the_first_in_an_environment_of_tonight_tell_nothing(story):
    elsewhere = replace(story, environment=replace(story.environment, driver="590.1"))
    story.run(scope="all")
    second = elsewhere.run(scope="all")
    last = elsewhere.run(scope="all")
    ((_, nights),) = times(story, last).items()
    assert nights.runs.tolist() == [second, last]


def test_all_nights_count_as_long_as_one_board_has_its_old_environment(story):
    elsewhere = replace(story, environment=replace(story.environment, driver="590.1"))
    runs = [story.begin(scope="all") for _ in range(3)]
    for run in runs:
        (story if run == runs[0] else elsewhere).put(run, story.tiled)
        story.put(run, story.tiled, device="GPU-2")
        story.store.end_run(run, State.FINISHED)
    nights = times(story, runs[-1])
    assert [of_board.runs.tolist() for of_board in nights.values()] == [runs, runs]
    (first, second, third), unchanged = (of_board.segments.tolist() for of_board in nights.values())
    assert first != second == third
    assert len(set(unchanged)) == 1


def test_each_metric_that_is_judged_has_its_nights(story):
    joules = [{"energy_j": value, "sm_cycles": 1e5} for value in (0.25, 0.5)]
    first = story.begin(scope="all")
    for replica, metrics in enumerate(joules):
        story.put(first, story.tiled, replica=replica, metrics=metrics, max_error=1e-7)
    story.store.end_run(first, State.FINISHED)
    last = story.begin(scope="all")
    story.put(last, story.tiled, metrics={"energy_j": 0.5})
    story.store.end_run(last, State.FINISHED)
    by_metric = {metric: told(nights) for (_, metric), nights in story.store.nights(last, 9).items()}
    assert by_metric["energy_j"] == [(first, (0.25, 0.5)), (last, (0.5,))]
    assert by_metric["max_error"][0] == (first, (1e-7, 1e-7))
    assert by_metric.keys() == {"time", "energy_j", "max_error"}


def nights_of(story, run, last=9):
    """All that the store hands out of the nights up to a run, in lists."""
    return {
        watched: (nights.runs.tolist(), nights.segments.tolist(), told(nights))
        for watched, nights in story.store.nights(run, last).items()
    }


def test_a_run_without_summaries_tells_the_same(story):
    runs = [story.begin(scope="all") for _ in range(3)]
    for run in runs:
        for replica in range(3):
            value = run + replica / 8
            story.put(run, story.tiled, samples=(value,) * 3, replica=replica, metrics={"energy_j": value})
            story.put(run, story.naive, samples=(2 * value,) * 3, replica=replica, max_error=value)
        story.store.end_run(run, State.FINISHED)
    with_all = nights_of(story, runs[-1])
    assert {metric for _, metric in with_all} == {"time", "energy_j", "max_error"}
    story.execute("DELETE FROM summaries WHERE run_id = (SELECT min(run_id) FROM summaries)")
    assert nights_of(story, runs[-1]) == with_all
    story.execute("DELETE FROM summaries")
    assert nights_of(story, runs[-1]) == with_all


def test_what_a_run_measures_after_it_has_ended_is_read(story):
    first = story.run(scope="all")
    story.put(first, story.tiled, samples=(1e-3,) * 3, replica=1)
    last = story.run(scope="all")
    ((_, nights),) = times(story, last).items()
    assert told(nights)[0] == (first, (2e-3, 1e-3))


def test_a_run_that_went_on_is_read_as_it_ended(story):
    first = story.run(scope="all")
    story.store.resume_run(first)
    story.put(first, story.tiled, samples=(1e-3,) * 3, replica=1)
    story.store.end_run(first, State.FINISHED)
    ((_, nights),) = times(story, story.run(scope="all")).items()
    assert told(nights)[0] == (first, (2e-3, 1e-3))


def test_a_run_that_was_cut_short_has_its_summaries_too(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled)
    story.execute("UPDATE runs SET process_start = '1'")  # as if another process had been at it, which is gone
    last = story.run(scope="all")
    assert story.store.run(first).state is State.INTERRUPTED
    before = nights_of(story, last)
    story.execute("UPDATE measurements SET median_s = 9")  # which is not what is read
    assert nights_of(story, last) == before


def test_the_modes_keep_their_places():
    assert [cache.value for cache in CacheState] == ["cold", "warm"], (
        "summaries are stored with them: a new one comes last"
    )
