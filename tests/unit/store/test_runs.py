import os
from datetime import UTC, datetime, timedelta, timezone

import pytest

from perfsvc.errors import DatabaseError, NotMeasuredError, UsageError
from perfsvc.model import CacheState
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH

pytestmark = ON_BOTH


def test_a_run_is_read_with_its_provenance_and_its_end_in_utc(story):
    origin = story.provenance(
        label="nightly",
        commit="a" * 40,
        dirty=True,
        scope="kernels --select=dot",
        packages={"numpy": "2.4"},
        seed=2**62,
        replicas=3,
    )
    run = story.store.runs.begin(origin)
    row = story.store.runs.get(run)
    assert (row.provenance, row.state, row.finished) == (origin, RunState.RUNNING, None)
    assert (row.counts, row.cases, row.devices) == ({}, 0, ())
    assert story.store.runs.list() == [row]
    assert story.store.series.levels(run) == {}
    story.store.runs.end(run, RunState.FINISHED)
    row = story.store.runs.get(run)
    assert row.state is RunState.FINISHED
    assert row.finished.tzinfo is UTC
    assert timedelta() <= datetime.now(UTC) - row.finished < timedelta(minutes=1)
    story.execute("DELETE FROM runs")
    assert story.begin() == run + 1  # ids are not used again


def test_a_local_time_is_read_as_the_same_moment_in_utc_and_one_without_a_zone_is_refused(story):
    started = datetime(2025, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    row = story.store.runs.get(story.begin(started=started))
    assert row.provenance.started == started
    assert row.provenance.started.tzinfo is UTC
    assert row.provenance.started.isoformat() == "2024-12-31T23:30:00+00:00"
    with pytest.raises(DatabaseError, match="no time zone"):
        story.begin(started=datetime(2025, 1, 1))  # noqa: DTZ001 - the fault under test
    assert len(story.store.runs.list()) == 1


def test_an_unknown_run_is_an_error(story):
    for ask in (
        story.store.runs.get,
        story.store.series.levels,
        lambda run: story.store.runs.end(run, RunState.FINISHED),
    ):
        with pytest.raises(NotMeasuredError, match="there is no run 7"):
            ask(7)


def test_the_newest_run_is_the_last_that_ended_with_measurements(story):
    first, second = story.run(state=RunState.INTERRUPTED), story.run(state=RunState.FAILED)
    story.put(story.begin(), story.tiled)  # still running
    story.store.runs.end(story.begin(), RunState.FINISHED)  # empty
    assert story.store.runs.newest().id == second
    assert story.store.runs.newest(1).id == first
    assert story.store.runs.newest(2) is None


def test_a_label_and_a_commit_name_their_newest_run_even_a_failed_one(story):
    runs = story.store.runs
    failed = story.run(label="nightly", commit="fed1", state=RunState.FAILED)
    assert runs.labelled("nightly").id == runs.of_commit("fed")[0].id == runs.newest().id == failed
    story.run(label="before", commit="abc1")
    clean = story.run(label="before", commit="abc1")
    story.run(label="after", commit="abc1", dirty=True)
    dirty = story.run(commit="def2", dirty=True)
    story.run(commit="")
    assert runs.labelled("before").id == clean
    assert runs.labelled("between") is runs.labelled("") is None
    assert (runs.of_commit("abc")[0].id, runs.of_commit("def2")[0].id) == (clean, dirty)
    assert [run for prefix in ("fff", "", "a%1") for run in story.store.runs.of_commit(prefix)] == []
    story.run(commit="abc2")
    with pytest.raises(UsageError, match="abc stands for 2 commits: abc1, abc2"):
        story.store.runs.of_commit("abc")


def test_the_best_run_of_a_commit_is_clean_finished_whole_on_the_devices_asked_for_and_new(story):
    def on(*devices, cases=(story.tiled, story.naive), **given):
        run = story.begin(commit="abc1", **given)
        for device in devices:
            for case in cases:
                story.put(run, case, device=device)
        story.store.runs.end(run, RunState.FINISHED)
        return run

    whole, elsewhere = on("GPU-1"), on("GPU-2")
    small = on("GPU-1", cases=(story.tiled,))
    short = on("GPU-1", cases=(story.tiled,))
    story.store.runs.put_over_budget(short, [("GPU-1", story.naive, CacheState.COLD)])
    cut = story.run(story.tiled, story.naive, commit="abc1", state=RunState.INTERRUPTED)
    dirty = on("GPU-1", "GPU-2", dirty=True)

    def order(*devices):
        return [run.id for run in story.store.runs.of_commit("abc", devices)]

    assert order() == [short, elsewhere, whole, small, cut, dirty]
    assert order("GPU-2") == [elsewhere, short, whole, small, cut, dirty]
    both = on("GPU-1", "GPU-2")
    assert order("GPU-2")[0] == order()[0] == both


def test_text_that_no_database_can_store_is_stored_readably(story):
    run = story.begin(command_line="perfsvc run \udcff \0", label="nul\0 lone \udcff")
    stored = story.store.runs.get(run).provenance
    assert stored.command_line == "perfsvc run \\udcff \N{REPLACEMENT CHARACTER}"
    assert stored.label == "nul\N{REPLACEMENT CHARACTER} lone \\udcff"
    runs = [story.begin(suite=os.fsdecode(folder)) for folder in (b"caf\xe8", b"caf\xe9")]
    assert {story.store.runs.get(run).provenance.suite for run in runs} == {r"caf\udce8", r"caf\udce9"}


def test_the_neighbours_of_a_run_selected_the_same_cases_and_measured_something(story):
    def run(scope="kernels", *, ended=True, measured=True):
        number = story.begin(scope=scope)
        if measured:
            story.put(number, story.tiled)
        if ended:
            story.store.runs.end(number, RunState.FINISHED)
        return number

    first, judged_run = run(), run()
    run("kernels --select=dot")
    run(measured=False)
    run(ended=False)
    later = run()
    run()
    assert story.store.runs.neighbours(judged_run, None) == (first, later)
    assert story.store.runs.neighbours(judged_run, first) == (None, later)
    assert story.store.runs.neighbours(first, None) == (None, judged_run)
    assert story.store.runs.neighbours(first, later) == (None, later + 1)
    assert story.store.runs.neighbours(0, None) == (None, None)
