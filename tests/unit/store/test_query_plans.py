"""The queries of each night find measurements through an index: history must not slow them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import event

from perfsvc.model import Kind, ReplayRecord, digest
from perfsvc.store import CaseCode
from tests.unit.store.conftest import BENCH, counted

GROWING = ("measurements", "metrics", "levels")
"""The tables that grow with every night."""


SHARED = ("(device_id=?)", "(environment_id=?)")
"""Values that all measurements of years may share: to search by nothing else reads nearly everything."""


ACCEPTED_ALONE = {"SCAN levels USING INDEX ix_levels_accepted"}
"""Accepting verdicts are few, and their index has no others."""


def steps_of(store, work):
    """Return the steps of SQLite's query plans for the queries that ``work`` makes."""
    with counted(store) as statements:
        work()
    queries = [(text, given) for text, given in statements if text.lstrip().startswith(("SELECT", "WITH"))]
    assert queries
    with store.database.reading() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all() for text, given in queries]
    return [step for plan in plans for *_, step in plan]


def scans(store, work):
    """Return the steps that read most of a growing table while ``work`` runs."""
    return [
        step
        for step in steps_of(store, work)
        if step.split()[1] in GROWING and (step.startswith("SCAN") or any(shared in step for shared in SHARED))
    ]


NIGHTLY = {
    "levels of series": lambda story, run, series: story.store.series.levels_of(dict.fromkeys(series, run)),
    "levels": lambda story, run, _series: story.store.series.levels(run),
    "histories": lambda story, run, _series: story.store.series.histories_until(run, 200),
    "baselines": lambda story, run, series: story.store.baselines.get(series, run),
    "nights of baselines": lambda story, run, series: story.store.baselines.nights(dict.fromkeys(series, 1), run),
    "expected series": lambda story, run, _series: story.store.baselines.expected(run),
    "costs": lambda story, run, _series: story.store.measurements.costs(
        [story.tiled, story.naive], ["GPU-1", "GPU-2"], before=run
    ),
    "rows of a run": lambda story, run, _series: story.store.measurements.columns([run]),
    "history of a case": lambda story, _run, _series: story.store.series.case_history(story.tiled.id),
    "newest history of a case": lambda story, _run, _series: story.store.series.case_history(story.tiled.id, last=2),
    "number of runs of a case": lambda story, _run, _series: story.store.series.count_runs(story.tiled.id),
    "neighbours of a run": lambda story, run, _series: story.store.runs.neighbours(run, None),
    "newest run": lambda story, _run, _series: story.store.runs.newest(1),
}


def test_no_query_of_each_night_scans_a_table_that_grows(story):
    for _ in range(2):
        story.run(story.naive)
    story = replace(story, environment=replace(story.environment, driver="999"))
    run = story.run(story.tiled, story.naive)  # a new case, in a new environment
    series = list(story.store.series.levels(run))
    scanned = {name: scans(story.store, lambda ask=ask: ask(story, run, series)) for name, ask in NIGHTLY.items()}
    assert set(scanned.pop("baselines")) == ACCEPTED_ALONE
    assert {name: steps for name, steps in scanned.items() if steps} == {}


def test_stored_binaries_are_found_with_one_query(story):
    record = ReplayRecord(story.tiled, Kind.KERNEL, (), (), (digest(b"code"),), digest(BENCH), seed=0)
    codes = [CaseCode(replace(record, seed=seed), {digest(b"code"): b"code"}, BENCH, {}) for seed in range(30)]
    ids = story.store.binaries.put(codes)
    with counted(story.store) as statements:
        assert story.store.binaries.put(codes) == ids
    assert len([text for text, _ in statements if "FROM binaries" in text]) == 1


def effort(store, work):
    """Return how many instructions of SQLite's virtual machine ``work`` takes, in units of ten."""
    counted = []
    engine = store.database.engine

    def count(connection, *_rest):
        connection.connection.driver_connection.set_progress_handler(lambda: counted.append(1), 10)

    event.listen(engine, "before_cursor_execute", count)
    work()
    event.remove(engine, "before_cursor_execute", count)
    with store.database.reading() as connection:
        connection.connection.driver_connection.set_progress_handler(None, 10)
    return len(counted)


def test_the_environment_before_a_run_is_found_as_quickly_after_many_nights(story):
    cases, efforts = {story.tiled, story.naive}, []
    for nights in (5, 40):
        for _ in range(nights):
            last = story.run(story.tiled, story.naive)
        efforts.append(effort(story.store, lambda: story.store.devices.environment_before(last + 1, "GPU-1", cases)))  # noqa: B023 - called at once
    assert 0 < efforts[1] < 1.5 * efforts[0]


def test_measurements_samples_and_events_are_found_in_indices_alone(story):
    runs = [story.run(story.tiled, story.naive) for _ in range(3)]
    store = story.store
    assert not [step for step in steps_of(store, store.runs.list) if "measurements" in step]
    samples = [step for step in steps_of(store, store.retention.prunable) if "measurements" in step]
    assert samples == ["SCAN measurements USING INDEX ix_measurements_with_samples"]
    (events,) = [step for step in steps_of(store, lambda: store.verdicts.events(runs)) if "levels" in step]
    assert "USING INDEX ix_levels_events" in events


def test_pruning_looks_only_at_old_measurements_that_still_have_samples(story):
    began = datetime(2025, 1, 1, tzinfo=UTC)
    for number in range(4):
        story.run(story.tiled, started=began + timedelta(days=number))
    before = began + timedelta(days=3)
    removed = []
    assert scans(story.store, lambda: removed.append(story.store.retention.samples(before, dry_run=False))) == []
    assert [of.count for of in removed] == [3]
