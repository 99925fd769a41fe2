import os
from datetime import UTC, datetime, timedelta, timezone

import pytest

from perfsvc.errors import DatabaseError, NotMeasuredError, UsageError
from perfsvc.model import CacheState, Provenance, Status
from perfsvc.store import RunState, Store


def test_a_run_is_read_with_its_provenance(story):
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
    assert row.provenance == origin
    assert row.state is RunState.RUNNING
    assert row.finished is None
    assert (row.counts, row.cases, row.devices) == ({}, 0, ())
    assert story.store.runs.list() == [row]


def test_the_end_of_a_run_is_stored_with_its_time_in_utc(story):
    run = story.begin()
    story.store.runs.end(run, RunState.FINISHED)
    row = story.store.runs.get(run)
    assert row.state is RunState.FINISHED
    assert row.finished.tzinfo is UTC
    assert timedelta() <= datetime.now(UTC) - row.finished < timedelta(minutes=1)


def test_a_local_time_is_read_as_the_same_moment_in_utc(story):
    started = datetime(2025, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    row = story.store.runs.get(story.begin(started=started))
    assert row.provenance.started == started
    assert row.provenance.started.tzinfo is UTC
    assert row.provenance.started.isoformat() == "2024-12-31T23:30:00+00:00"


def test_a_label_that_is_no_valid_text_does_not_end_the_run(story):
    row = story.store.runs.get(story.begin(label="nul\0 lone \udcff"))
    assert row.provenance.label == "nul\N{REPLACEMENT CHARACTER} lone \\udcff"


def test_a_time_without_a_zone_is_refused(story):
    with pytest.raises(DatabaseError, match="no time zone"):
        story.begin(started=datetime(2025, 1, 1))  # noqa: DTZ001 - the fault under test
    assert story.store.runs.list() == []


def test_runs_are_listed_newest_first_with_their_counts(story):
    first = story.run()
    second = story.begin()
    story.put(second, story.tiled, replica=0)
    story.put(second, story.tiled, replica=1)
    story.put(second, story.naive, status=Status.FAILED)
    rows = story.store.runs.list()
    assert [row.id for row in rows] == [second, first]
    assert rows[0].counts == {Status.OK: 2, Status.FAILED: 1}
    assert rows[0].cases == 2
    assert rows[0].devices == ("GPU-1",)
    assert [row.id for row in story.store.runs.list(limit=1)] == [second]


def test_an_unknown_run_is_an_error(story):
    for ask in (
        story.store.runs.get,
        story.store.series.levels,
        lambda run: story.store.runs.end(run, RunState.FINISHED),
    ):
        with pytest.raises(NotMeasuredError, match="there is no run 7"):
            ask(7)


def test_a_run_that_measured_nothing_has_no_levels(story):
    assert story.store.series.levels(story.begin()) == {}


def test_the_newest_run_is_the_last_that_ended_with_measurements(story):
    first, second = story.run(state=RunState.INTERRUPTED), story.run(state=RunState.FAILED)
    story.put(story.begin(), story.tiled)  # still running
    story.store.runs.end(story.begin(), RunState.FINISHED)  # empty
    assert story.store.runs.newest().id == second
    assert story.store.runs.newest(1).id == first
    assert story.store.runs.newest(2) is None


def test_a_failed_run_is_found_by_label_commit_and_age(story):
    run = story.run(label="nightly", commit="abc1", state=RunState.FAILED)
    assert (
        story.store.runs.labelled("nightly").id
        == story.store.runs.of_commit("abc")[0].id
        == story.store.runs.newest().id
        == run
    )


def test_a_label_names_its_newest_run(story):
    story.run(label="before")
    again = story.run(label="before")
    story.run(label="after")
    assert story.store.runs.labelled("before").id == again
    assert story.store.runs.labelled("between") is None
    assert story.store.runs.labelled("") is None


def test_a_commit_names_its_newest_clean_run(story):
    story.run(commit="abc1")
    clean = story.run(commit="abc1")
    story.run(commit="abc1", dirty=True)
    dirty = story.run(commit="def2", dirty=True)
    story.run(commit="")
    assert story.store.runs.of_commit("abc")[0].id == clean
    assert story.store.runs.of_commit("def2")[0].id == dirty
    assert story.store.runs.of_commit("fff") == []
    assert story.store.runs.of_commit("") == []
    assert story.store.runs.of_commit("a%1") == []


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


def test_a_prefix_of_two_commits_is_ambiguous(story):
    story.run(commit="abc1")
    story.run(commit="abc2")
    with pytest.raises(UsageError, match="abc stands for 2 commits: abc1, abc2"):
        story.store.runs.of_commit("abc")


def test_text_that_no_database_can_store_is_stored_readably(story):
    run = story.begin(command_line="perfsvc run \udcff \0")
    assert story.store.runs.get(run).provenance.command_line == "perfsvc run \\udcff \N{REPLACEMENT CHARACTER}"


def test_two_paths_that_differ_in_a_byte_that_is_no_text_stay_different(story):
    runs = [story.begin(suite=os.fsdecode(folder)) for folder in (b"caf\xe8", b"caf\xe9")]
    suites = {story.store.runs.get(run).provenance.suite for run in runs}
    assert suites == {r"caf\udce8", r"caf\udce9"}


def test_the_id_of_a_deleted_run_is_not_used_again(story):
    last = story.begin()
    story.execute("DELETE FROM runs WHERE id = :run", run=last)
    assert story.begin() == last + 1


def test_a_store_is_closed_by_its_with_block(place):
    with Store.open(place) as store:
        store.runs.begin(Provenance(datetime.now(UTC), "perfsvc run", "kernels"))
    with Store.open(place) as again:
        assert len(again.runs.list()) == 1


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
