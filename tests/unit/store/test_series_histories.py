"""Histories over many runs, from which the pages are built."""

from dataclasses import replace
from math import nan, prod
from random import Random

import pytest

from perfsvc.model import TIME, CacheState, Case, Cause, Status, Verdict
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH


@ON_BOTH
def test_a_history_has_the_replicas_of_each_run_oldest_first(story, store):
    first = story.run()
    second = story.begin()
    for replica, time in enumerate((2e-3, 4e-3)):
        story.put(
            second, story.tiled, samples=(time,), replica=replica, metrics={"steps": 3.0 + replica}, max_error=1e-7
        )
    held = store.series.histories([first, second])
    times = held[story.series(story.tiled)]
    assert levels_by_run(times) == [(first, mean(2e-3)), (second, mean(2e-3, 4e-3))]
    (_, low), (_, high) = ends = times.low.tolist(), times.high.tolist()
    assert [end[0] for end in ends] == [1e-3, 3e-3]  # the interval of the samples of one replica
    assert 0 < low < 2e-3
    assert high > 4e-3
    steps = held[story.series(story.tiled, metric="steps")]
    assert levels_by_run(steps) == [(second, mean(3.0, 4.0))]
    assert steps.low[0] < 3
    assert steps.high[0] > 4
    assert levels_by_run(store.series.histories([second])[story.series(story.tiled)]) == levels_by_run(times)[1:]
    error = story.series(story.tiled, metric="max_error")
    assert error not in held
    assert store.series.histories([second], errors=[error])[error].level.tolist() == [1e-7]


def test_a_case_with_a_wrong_replica_has_a_reason_and_no_values(story, store):
    run = story.begin()
    story.put(run, story.tiled)
    story.put(run, story.tiled, replica=1, status=Status.WRONG, reason="9 of 10 elements are beyond the tolerance")
    history = store.series.histories([run])[story.series(story.tiled)]
    assert levels_by_run(history) == [(run, mean())]
    assert history.bad == {0: (Status.WRONG, "9 of 10 elements are beyond the tolerance")}
    assert store.series.samples([run]).keys() == {story.series(story.tiled)}


@ON_BOTH
def test_the_measured_series_of_a_run_are_those_of_its_histories(story, store):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run()
    story.run(renamed)
    store.series.register([story.tiled, renamed])
    run = story.begin()
    story.put(run, story.tiled, metrics={"steps": 3.0, "sm_cycles": 9.0})  # its name is now that of a new variant
    story.put(run, renamed, metrics={"steps": 3.0})
    story.put(run, renamed, replica=1, status=Status.WRONG, metrics={"steps": 3.0})
    story.put(run, story.tiled, cache=CacheState.WARM)
    measured = store.series.measured([run])
    assert measured == store.series.histories([run]).keys()
    assert {(series.case.variant, series.metric, series.cache.value) for series in measured} == {
        ("tiled", "time", "cold"),
        ("tiled", "steps", "cold"),
        ("tiled", "time", "warm"),
        ("shared", "time", "cold"),
    }
    assert {series.case.variant for series in store.series.unsuccessful(run)} == {"shared"}
    assert store.series.measured([run + 1]) == set()
    assert store.series.unsuccessful(run + 1) == {}


@ON_BOTH
def test_a_renamed_case_keeps_its_history_events_and_samples(story, store):
    first = story.run()
    story.judge(first, story.tiled, Verdict.REGRESSION, metric="time")
    heir = Case("transpose", "blocked", story.tiled.point, formerly=("tiled",))
    second = story.run(heir)
    series = story.series(replace(heir, formerly=()))
    assert store.series.histories([first, second])[series].runs.tolist() == [first, second]
    assert [one.run for one in store.verdicts.events([first, second])[series]] == [first]
    assert store.series.samples([first])[series][first][0] == pytest.approx((1e-3, 2e-3, 3e-3))


def test_only_verdicts_that_are_events_are_read_with_their_cause_and_ratio(story, store):
    runs = [story.run() for _ in range(4)]
    verdicts = Verdict.NEW, Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.BROKEN
    for run, verdict in zip(runs, verdicts, strict=True):
        story.judge(run, story.tiled, verdict)
    (told,) = store.verdicts.events(runs)[story.series(story.tiled)]
    assert (told.run, told.verdict, told.cause) == (runs[-1], Verdict.BROKEN, None)
    run = story.run()
    judged = replace(story.judgement(story.tiled, Verdict.REGRESSION), ratio=1.25, cause=Cause.KERNEL)
    store.verdicts.put(run, [judged])
    (told,) = store.verdicts.events([run])[story.series(story.tiled)]
    assert (told.ratio, told.cause) == (1.25, Cause.KERNEL)


@pytest.mark.parametrize("seed", range(2))
def test_the_newest_points_of_each_series_are_those_of_whole_histories(story, store, seed):
    random = Random(seed)
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    runs = [story.run()]
    store.series.register([story.tiled, story.naive, renamed])
    for _ in range(14):
        run = story.begin()
        runs.append(run)
        for case in random.sample([story.tiled, story.naive, renamed], random.randint(0, 3)):
            for replica in range(random.choice((1, 3))):
                status = random.choice([Status.OK] * 9 + [Status.WRONG])
                metrics = {name: random.random() for name in ("steps", "joules") if random.random() < 0.6}
                samples = (random.random(),) if random.random() < 0.8 else ()
                error = random.choice((None, 1e-7))
                story.put(run, case, replica=replica, status=status, metrics=metrics, samples=samples, max_error=error)
        store.runs.end(run, RunState.FINISHED)
    store.exclusions.exclude(runs[2], None, by="me", reason="a hot GPU")
    for most in (1, 2, 5, 100):
        errors = store.series.measured(runs)
        whole = store.series.histories(runs, errors=errors)
        newest = store.series.newest_histories(runs, most, errors=errors)
        assert list(map(str, sorted(newest, key=str))) == list(map(str, sorted(whole, key=str)))
        for series, history in whole.items():
            assert _listed(newest[series], most) == _listed(history, most)


def _listed(history, most):
    """What lists show of the newest points of a history."""
    points = [
        (run, history.bad.get(at), history.excluded.get(at), str(history.level[at]))
        for at, run in enumerate(history.runs.tolist())
    ]
    return points[-most:]


# --- histories of the series of a run --------------------------------------------------------------------------------


def levels_by_run(history):
    """The runs of a history, each with its level and its number of replicas."""
    found = zip(history.runs.tolist(), history.level.tolist(), history.replicas.tolist(), strict=True)
    return [(run, (_digits(level), replicas)) for run, level, replicas in found]


def mean(*values):
    """The level of replicas with these values, and their number."""
    return _digits(prod(values) ** (1 / len(values)) if values else nan), len(values)


def _digits(level):
    return f"{level:.9g}"


def times(story, run, last=9):
    """The histories of the times by device, case and cache state."""
    return {
        (series.device, series.case, series.cache): history
        for series, history in story.store.series.histories_until(run, last).items()
        if series.metric == TIME
    }


@ON_BOTH
def test_a_reused_name_has_its_own_history(story):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    runs = [story.run(*cases, scope="all") for cases in ([story.tiled], [renamed], [renamed, story.tiled])]
    last = story.begin(scope="all")
    story.put(last, story.tiled, samples=(5e-3,) * 3)
    story.put(last, renamed, samples=(1e-3,) * 3)
    story.store.runs.end(last, RunState.FINISHED)
    histories = {case.variant: levels_by_run(nights) for (_, case, _), nights in times(story, last).items()}
    assert histories == {
        "shared": [*((run, mean(2e-3)) for run in runs), (last, mean(1e-3))],
        "tiled": [(runs[-1], mean(2e-3)), (last, mean(5e-3))],
    }


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
    found = story.store.series.histories_until(last, 9)
    by_metric = {series.metric: levels_by_run(history) for series, history in found.items()}
    assert by_metric["energy_j"] == [(first, mean(0.25, 0.5)), (last, mean(0.5))]
    assert by_metric["max_error"][0] == (first, mean(1e-7, 1e-7))
    assert by_metric.keys() == {"time", "energy_j", "max_error"}


def test_measurements_of_a_resumed_run_and_those_after_its_end_are_read(story):
    first = story.run(scope="all")
    story.put(first, story.tiled, samples=(1e-3,) * 3, replica=1)
    story.store.runs.resume(first)
    story.put(first, story.tiled, samples=(4e-3,) * 3, replica=2)
    story.store.runs.end(first, RunState.FINISHED)
    ((_, nights),) = times(story, story.run(scope="all")).items()
    assert levels_by_run(nights)[0] == (first, mean(2e-3, 1e-3, 4e-3))
