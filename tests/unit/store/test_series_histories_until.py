"""Histories of the series of a run."""

from dataclasses import replace
from math import isnan

from perfsvc.model import TIME, CacheState, Status
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH


def values_by_run(nights):
    """The runs of a history, each with the values of its replicas."""
    rows = zip(nights.runs.tolist(), nights.values.tolist(), strict=True)
    return [(run, tuple(value for value in values if not isnan(value))) for run, values in rows]


def times(story, run, last=9):
    """The histories of the times by device, case and cache state."""
    return {
        (series.device, series.case, series.cache): history
        for series, history in story.store.series.histories_until(run, last).items()
        if series.metric == TIME
    }


@ON_BOTH
def test_a_history_has_the_medians_of_replicas_through_renames(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled, samples=(1e-3,) * 3)
    story.put(first, story.tiled, samples=(2e-3,) * 3, replica=1)
    story.store.runs.end(first, RunState.FINISHED)
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    second = story.run(renamed, scope="all")
    ((place, nights),) = times(story, second).items()
    assert place == ("GPU-1", renamed, CacheState.COLD)
    assert values_by_run(nights) == [(first, (1e-3, 2e-3)), (second, (2e-3,))]


def test_a_reused_name_has_its_own_history(story):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    runs = [story.run(*cases, scope="all") for cases in ([story.tiled], [renamed], [renamed, story.tiled])]
    last = story.begin(scope="all")
    story.put(last, story.tiled, samples=(5e-3,) * 3)
    story.put(last, renamed, samples=(1e-3,) * 3)
    story.store.runs.end(last, RunState.FINISHED)
    histories = {case.variant: values_by_run(nights) for (_, case, _), nights in times(story, last).items()}
    assert histories == {
        "shared": [*((run, (2e-3,)) for run in runs), (last, (1e-3,))],
        "tiled": [(runs[-1], (2e-3,)), (last, (5e-3,))],
    }


def test_a_run_with_a_wrong_replica_has_no_time(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled)
    story.put(first, story.tiled, replica=1, status=Status.WRONG)
    story.store.runs.end(first, RunState.FINISHED)
    ((_, nights),) = times(story, story.run(scope="all")).items()
    assert values_by_run(nights)[0] == (first, ())


def test_uncommitted_changes_other_scopes_and_unmeasured_cases_are_not_in_a_history(story):
    first = story.run(story.tiled, story.naive, scope="all")
    story.run(dirty=True, scope="all")
    story.run(scope="some")
    last = story.run(scope="all")
    nights = times(story, last)
    assert {case.variant: of_case.runs.tolist() for (_, case, _), of_case in nights.items()} == {"tiled": [first, last]}


def test_each_run_is_in_the_segment_of_its_environment_and_a_history_begins_with_the_present_one(story):
    elsewhere = replace(story, environment=replace(story.environment, driver="590.1"))
    first = story.run(scope="all")
    second, third = (elsewhere.run(scope="all") for _ in range(2))
    ((_, nights),) = times(story, third).items()
    assert nights.runs.tolist() == [second, third]
    last = story.run(scope="all")
    ((_, nights),) = times(story, last).items()
    assert nights.runs.tolist() == [first, second, third, last]
    before, there, still_there, after = nights.segments
    assert before == after != there == still_there
    ((_, nights),) = times(story, story.run(scope="all"), 2).items()  # limited to the newest runs
    assert nights.runs.tolist() == [last, last + 1]


def test_all_runs_count_while_one_device_has_its_old_environment(story):
    elsewhere = replace(story, environment=replace(story.environment, driver="590.1"))
    runs = [story.begin(scope="all") for _ in range(3)]
    for run in runs:
        (story if run == runs[0] else elsewhere).put(run, story.tiled)
        story.put(run, story.tiled, device="GPU-2")
        story.store.runs.end(run, RunState.FINISHED)
    nights = times(story, runs[-1])
    assert [of_board.runs.tolist() for of_board in nights.values()] == [runs, runs]
    (first, second, third), unchanged = (of_board.segments.tolist() for of_board in nights.values())
    assert first != second == third
    assert len(set(unchanged)) == 1


def test_each_judged_metric_has_a_history(story):
    joules = [{"energy_j": value, "sm_cycles": 1e5} for value in (0.25, 0.5)]
    first = story.begin(scope="all")
    for replica, metrics in enumerate(joules):
        story.put(first, story.tiled, replica=replica, metrics=metrics, max_error=1e-7)
    story.store.runs.end(first, RunState.FINISHED)
    last = story.begin(scope="all")
    story.put(last, story.tiled, metrics={"energy_j": 0.5})
    story.store.runs.end(last, RunState.FINISHED)
    by_metric = {
        series.metric: values_by_run(history) for series, history in story.store.series.histories_until(last, 9).items()
    }
    assert by_metric["energy_j"] == [(first, (0.25, 0.5)), (last, (0.5,))]
    assert by_metric["max_error"][0] == (first, (1e-7, 1e-7))
    assert by_metric.keys() == {"time", "energy_j", "max_error"}


def test_measurements_of_a_resumed_run_and_those_after_its_end_are_read(story):
    first = story.run(scope="all")
    story.put(first, story.tiled, samples=(1e-3,) * 3, replica=1)
    story.store.runs.resume(first)
    story.put(first, story.tiled, samples=(4e-3,) * 3, replica=2)
    story.store.runs.end(first, RunState.FINISHED)
    ((_, nights),) = times(story, story.run(scope="all")).items()
    assert values_by_run(nights)[0] == (first, (2e-3, 1e-3, 4e-3))


def test_a_run_that_was_cut_short_is_read_too(story):
    first = story.begin(scope="all")
    story.put(first, story.tiled)
    story.execute("UPDATE runs SET process_start = '1'")  # as if another process had executed it, which is gone
    last = story.run(scope="all")
    assert story.store.runs.get(first).state is RunState.INTERRUPTED
    ((_, history),) = times(story, last).items()
    assert values_by_run(history) == [(first, (2e-3,)), (last, (2e-3,))]
