"""What retention keeps, compared with a slow and simple search of the whole history, in random histories."""

import random
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.config.settings import RetentionSettings
from perfsvc.model import MAX_ERROR, TIME, Status
from perfsvc.service.nightly.retention import prune
from perfsvc.store import RunState

BEGAN = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
RUNS = 27
GPUS = ("GPU-1", "GPU-2")
DRIVERS = ("580.1", "590.1", "600.1")
STATES = (RunState.FINISHED, RunState.FINISHED, RunState.FINISHED, RunState.INTERRUPTED)


def put_run(story, chance, number, cases):
    """Store a run of some cases on two GPUs; the driver changes seldom, and some results are wrong or missing."""
    dirty = chance.random() < 0.3
    run = story.begin(scope="all", started=BEGAN + number * DAY, dirty=dirty)
    story.store.series.register(cases)
    usual = DRIVERS[number // 9]
    for case in cases:
        binary = story.binary(case, b"%d" % run)
        for gpu in GPUS:
            driver = usual if chance.random() < 0.95 else chance.choice(DRIVERS)
            here = replace(story, environment=replace(story.environment, driver=driver))
            for replica in range(2 if chance.random() < 0.7 else 0):
                here.put(
                    run,
                    case,
                    device=gpu,
                    replica=replica,
                    binary=binary,
                    status=Status.FAILED if chance.random() < 0.05 else Status.OK,
                    max_error=chance.choice((None, 1e-6)),
                    metrics={"overlap": 0.5} if chance.random() < 0.3 else {},
                )
    story.store.runs.end(run, chance.choice(STATES))
    measured = story.store.exclusions.cases(run)
    if measured and chance.random() < 0.2:
        excluded = None if chance.random() < 0.5 else [chance.choice(measured)]
        story.store.exclusions.exclude(run, excluded, reason="noisy", by="ann")
    return run


def levels_of(story):
    """Return the first result of each series, and its first clean one in its present environment, read row by row."""
    dirty = {run: bool(is_dirty) for run, is_dirty in story.execute("SELECT id, git_dirty FROM runs")}
    excluded = set(map(tuple, story.execute("SELECT run_id, case_id FROM exclusions WHERE included_at IS NULL")))
    metrics = defaultdict(set)
    for measurement, name in story.execute("SELECT measurement_id, name FROM metrics WHERE value IS NOT NULL"):
        metrics[measurement].add(name)
    columns = "run_id, case_id, device_id, cache, environment_id, status, max_error, id"
    rows = story.execute(f"SELECT {columns} FROM measurements")  # noqa: S608 - no input
    rows = [row for row in rows if not {(row.run_id, None), (row.run_id, row.case_id)} & excluded]
    correct = defaultdict(set)  # the runs of each series
    newest = defaultdict(dict)  # the newest run of each series in each environment
    wrong = {row[:4] for row in rows if row.status != "ok"}
    for row in rows:
        key = (row.case_id, row.device_id, row.cache)
        is_correct = row[:4] not in wrong
        names = metrics[row.id] | ({MAX_ERROR} if row.max_error is not None else set()) if is_correct else set()
        for name in {TIME} | names:
            if is_correct:
                correct[key, name].add(row.run_id)
            if not dirty[row.run_id]:  # a run that is not correct has no other series than the time
                of_series = newest[key, name]
                of_series[row.environment_id] = max(row.run_id, of_series.get(row.environment_id, 0))
    kept = set()
    for (key, name), runs in correct.items():
        starts = sorted(newest[key, name].values())[-2:-1]
        for start in (0, *starts):
            later = [run for run in runs if run > start and not (start and dirty[run])]
            kept |= {(min(later, key=lambda run: (dirty[run], run)), key[0]) for _ in later[:1]}
    return kept


def with_code(story):
    """Return the pairs of a run and a case whose code can be measured again."""
    query = "SELECT DISTINCT run_id, case_id FROM measurements WHERE binary_id IS NOT NULL"
    return set(map(tuple, story.execute(query)))


def history(story, seed):
    """Yield after each run of a random history; one case is renamed, and its old name is given to a new case."""
    chance = random.Random(seed)
    renamed = replace(story.tiled, variant="renamed", formerly=(story.tiled.variant,))
    for number in range(RUNS):
        cases = [story.tiled, story.naive] if number < 10 else [renamed, story.naive]
        if number > 18:
            cases = [renamed, story.tiled]  # no more of naive, and the old name is another case
        yield put_run(story, chance, number, cases)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_pruning_often_leaves_every_later_run_a_baseline_with_code(story, seed, monkeypatch):
    monkeypatch.setattr("perfsvc.service.nightly.retention.HISTORY_RUNS", 1)
    settings = RetentionSettings(binaries=DAY.total_seconds())
    removed = 0
    for run in history(story, seed):
        measured = with_code(story)
        ids = dict(map(tuple, story.execute("SELECT name, id FROM cases")))
        series = [one for one in story.store.series.levels(run).series if one.metric == TIME]
        baselines = story.store.baselines.get(series, run)
        assert {(before, ids[of.case.id]) for of, before in baselines.items()} <= measured
        if run % 2 == 0:
            levels = levels_of(story)
            prune(story.store, settings, BEGAN + run * DAY, force=True)
            lost = measured - with_code(story)
            assert not lost & levels
            removed += len(lost)
    assert removed >= 10
