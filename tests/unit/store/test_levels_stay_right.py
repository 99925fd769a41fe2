"""Levels after renamings, damage, exclusions and deletions: they are what the measurements say, and verdicts follow."""

from dataclasses import replace

import pytest

from perfsvc.model import Status, Verdict
from perfsvc.service.compare.compare import judge_run
from perfsvc.store import RunState, Store
from tests.unit.store.conftest import ENVIRONMENT, GPU


def nights(story, *of_nights):
    """Store and judge a night for each factor by which its times are longer than usual; return their verdicts."""
    runs, judged = [], []
    for factor in of_nights:
        runs.append(story.begin(scope="all"))
        samples = tuple(1e-3 * factor * share for share in (0.9, 1.1, 0.95, 1.05, 1.0, 0.85, 1.15))
        story.put_entries(
            runs[-1], [story.entry(story.tiled, replica=replica, samples=samples) for replica in range(3)]
        )
        judged.append(story.end_and_judge(runs[-1]))
    return runs, judged


def test_a_case_that_gets_its_old_name_back_keeps_what_it_measured_under_the_other_name(story, store):
    old, new = (replace(story.tiled, variant=name) for name in ("old", "new"))
    for case in (old, new, replace(old, formerly=("new",))):
        run = story.begin(scope="all")
        store.series.register([case, story.naive])
        for each in (case, story.naive):
            story.put_replicas(run, each, 1e-3)
        judged = story.end_and_judge(run)  # the second run misses the old name and has a new one
    assert {row.verdict for row in judged} == {Verdict.UNCHANGED}
    assert store.series.rebuild() == []
    assert [row.run for row in store.series.case_history(old.id)] == [1, 2, 3]


def test_damaged_samples_change_no_verdict_after_a_rebuild_or_a_copy(story, store):
    (_, run), (_, judged) = nights(story, 1.0, 1.013)
    assert [row.verdict for row in judged] == [Verdict.INCONCLUSIVE]
    story.execute("UPDATE measurements SET samples = X'00'")
    assert store.series.rebuild() == []
    assert [(row.verdict, row.low, row.high) for row in judge_run(store, run, threshold=None)] == [
        (row.verdict, row.low, row.high) for row in judged
    ]


def test_the_metrics_of_a_case_have_the_segments_of_its_time_though_the_case_fails(story):
    other = replace(ENVIRONMENT, driver="590")
    for environment, factor in (
        (ENVIRONMENT, 1.0),
        (other, 1.0),
        (ENVIRONMENT, 1.1),
        (other, None),
        (ENVIRONMENT, 1.1),
    ):
        run = story.begin(scope="all")
        given = {"status": Status.FAILED, "reason": "boom"}
        if factor is not None:
            given = {"samples": (1e-3 * factor,) * 5, "metrics": {"steps": 5.0 * factor}}
        entries = [story.entry(story.tiled, replica=replica, **given) for replica in range(3)]
        story.put_entries(run, [replace(entry, environment=environment) for entry in entries])
        judged = story.end_and_judge(run)
    assert {(row.series.metric, row.verdict, row.baseline_run) for row in judged} == {
        ("time", Verdict.REGRESSION, 1),
        ("steps", Verdict.REGRESSION, 1),
    }


def test_a_damaged_dead_run_stops_no_new_run_and_a_check_names_its_missing_levels(story, store, place, caplog):
    dead = story.begin(scope="all")
    story.put(dead, story.tiled)
    story.execute("UPDATE runs SET pid = 999999, process_start = ''")
    story.execute("DELETE FROM levels")
    story.execute("UPDATE measurements SET status = 'bogus'")
    assert story.begin(scope="all") == dead + 1
    assert f"run {dead} has no levels: the Status 'bogus' is damaged" in caplog.text
    assert store.runs.get(dead).state is RunState.INTERRUPTED
    assert f"run {dead} has no levels; perfsvc db rebuild computes them" in Store.check(place).problems
    story.execute("UPDATE measurements SET status = 'ok'")
    assert [run for run, *_ in store.series.rebuild()] == [dead]
    assert store.series.rebuild() == []


def test_a_rebuild_leaves_missing_series_of_an_excluded_run_excluded(story, store):
    for cases in ((story.tiled, story.naive), (story.tiled,)):
        run = story.begin(scope="all")
        for case in cases:
            story.put_replicas(run, case, 1e-3)
        story.end_and_judge(run)
    store.exclusions.exclude(run, None, reason="noisy", by="me")
    story.execute("UPDATE levels SET excluded = NULL")
    assert [what for _, _, what in store.series.rebuild()] == ["stored otherwise: excluded"] * 2
    assert store.verdicts.of_run(run) == []


def test_a_verdict_on_a_baseline_that_was_deleted_meanwhile_names_no_run(story, store):
    (first, second), _ = nights(story, 1.0, 1.0)
    judged = judge_run(store, second, threshold=None)
    store.exclusions.delete(first, reason="a test", by="me")
    store.verdicts.put(second, judged)
    assert [row.baseline_run for row in store.verdicts.of_run(second)] == [None]


@pytest.mark.parametrize("metrics", [{}, {"steps": 2.0}])
def test_a_skipped_time_is_compared_with_no_value_of_another_metric(story, metrics):
    run = story.begin(scope="all")
    given = {"samples": (1e-3,) * 5, "metrics": metrics, "max_error": 1e-7}
    story.put_entries(run, [story.entry(story.tiled, replica=replica, **given) for replica in range(3)])
    story.end_and_judge(run)
    run = story.begin(scope="all")
    story.put(run, story.tiled, status=Status.SKIPPED, reason="too old a GPU")
    (missing,) = story.end_and_judge(run)
    assert (missing.series.device, missing.series.metric, missing.verdict) == (GPU.uuid, "time", Verdict.MISSING)
    assert missing.baseline_s == pytest.approx(1e-3)


@pytest.mark.parametrize("damage", ["""statuses = '{"okk": 3}'""", "statuses = '[1]'"])
def test_damaged_counts_of_a_run_are_one_error_and_a_rebuild_computes_them(story, store, place, damage):
    run = story.run()
    story.execute(f"UPDATE run_devices SET {damage}")  # noqa: S608 - our own
    with pytest.raises(Exception, match="is damaged in the database"):
        store.runs.list()
    assert any("run_devices.statuses" in problem for problem in Store.check(place).problems)
    assert store.series.rebuild() == [(run, "its devices", "stored otherwise")]
    assert len(store.runs.list()) == 1
