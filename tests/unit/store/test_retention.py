"""Retention removes old data that is not needed; verdicts, alerts and findings of later nights stay the same."""

import random
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.config.settings import RetentionSettings
from perfsvc.errors import InfrastructureError
from perfsvc.model import (
    Cause,
    Confirmation,
    Direction,
    Environment,
    FindingState,
    Profile,
    ProfileResult,
    Status,
    Verdict,
)
from perfsvc.service.exclusions import exclude, include
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.nightly.log import LOG
from perfsvc.service.nightly.retention import prune as prune_store
from perfsvc.store import RunState, Store
from perfsvc.store.keeping.backup import vacuum
from perfsvc.store.retention import Removed
from tests.unit.store.conftest import BENCH, ON_BOTH, suspect

DAY = timedelta(days=1)
BEGAN = datetime(2025, 1, 1, tzinfo=UTC)
AFTER = BEGAN + 400 * DAY
SHORT = RetentionSettings(**dict.fromkeys(RetentionSettings.model_fields, 1.0))
SAMPLES = RetentionSettings(samples=1.0)


@pytest.fixture(autouse=True)
def _one_watched_run(monkeypatch):
    """Only the newest run of each scope keeps its code because changes may still be found there."""
    monkeypatch.setattr("perfsvc.service.nightly.retention.HISTORY_RUNS", 1)


def night(story, number, *cases, scope="all", **given):
    """Store the run of one night of a year, whose cases have code of their own, and return its id."""
    run = story.begin(scope=scope, started=BEGAN + number * DAY, **given)
    for case in cases or (story.tiled, story.naive):
        story.put(run, case, binary=story.binary(case, b"%s %d" % (case.variant.encode(), run)))
    story.store.runs.end(run, RunState.FINISHED)
    return run


def nights(story, numbers, **given):
    return [night(story, number, **given) for number in numbers]


def prune(store, retention=SHORT, **given):
    return prune_store(store, retention, AFTER, **{"force": True, **given})


def with_samples(story, column="samples"):
    """Return the runs that still have samples, by case."""
    where = f"WHERE {column} IS NOT NULL ORDER BY run_id"
    rows = story.execute(f"SELECT cases.variant, run_id FROM measurements JOIN cases ON cases.id = case_id {where}")  # noqa: S608 - no input
    return {variant: [run for name, run in rows if name == variant] for variant in ("tiled", "naive")}


def with_code(story):
    """Return the runs whose binaries can still be measured again, by case."""
    return with_samples(story, "binary_id")


def both(runs):
    return {"tiled": runs, "naive": runs}


@ON_BOTH
def test_samples_are_removed_and_levels_stay(story):
    runs = nights(story, range(9))
    story.execute("UPDATE measurements SET batches = samples")
    for kept in (RetentionSettings(), RetentionSettings(samples=1e300)):  # longer than the calendar
        pruned = prune(story.store, kept)
        assert (pruned.samples.count, pruned.nights, pruned.size_bytes) == (0, (), 0)
    assert with_samples(story) == both(runs)
    tried = prune(story.store, SAMPLES, dry_run=True)
    assert with_samples(story) == both(runs)
    pruned = prune(story.store, SAMPLES)
    assert pruned.samples == tried.samples
    assert pruned.samples.count == 2 * 9
    assert pruned.samples.size_bytes > 0
    assert with_samples(story) == with_samples(story, "batches") == both([])
    assert with_code(story) == both(runs)
    assert story.store.series.rebuild() == []
    level = story.store.series.levels(runs[1])[story.series(story.tiled)]
    assert (level.run, level.status, list(level.medians)) == (runs[1], Status.OK, [2e-3])
    assert (level.spread > 0, level.step) == (True, pytest.approx(1e-3))  # of the samples that were removed
    assert prune(story.store).samples.count == 0
    assert min(vacuum(story.store.database)) > 0
    assert [row.id for row in story.store.runs.list()] == runs[::-1]


def test_samples_younger_than_the_retention_stay(story):
    runs = nights(story, (0, 1, 380, 398, 399))
    prune(story.store, RetentionSettings(samples=30 * 86400.0))
    assert with_samples(story) == both(runs[2:])


@pytest.mark.parametrize("is_renamed", [False, True])
def test_verdicts_histories_and_exclusions_are_the_same_after_all_samples_were_removed(story, tmp_path, is_renamed):
    told = []
    with Store.open(tmp_path / "whole.db") as whole:
        for each, prunes in ((story, True), (replace(story, store=whole), False)):
            for number, factor in enumerate((1.0, 1.01, 0.9, 0.9, 1.2)):
                run = each.begin(scope="all", started=BEGAN + number * DAY)
                for case in (each.tiled, each.naive):
                    each.put_replicas(run, case, factor * 1e-3, (0.0, 0.002, -0.003))
                if number < 4:
                    each.end_and_judge(run)
            if prunes:
                assert prune(each.store, SAMPLES).samples.count == 4 * 2 * 3
            tiled = each.tiled
            if is_renamed:
                tiled = replace(tiled, variant="tiles", formerly=("tiled",))
                each.store.series.register([tiled])
            each.end_and_judge(run)
            changed = [exclude(each.store, 3, [], reason="noisy"), exclude(each.store, 4, [tiled.id], reason="noisy")]
            verdicts = [each.store.verdicts.of_run(number) for number in range(1, run + 1)]
            changed += [include(each.store, 3, []), include(each.store, 4, [])]
            verdicts += [each.store.verdicts.of_run(number) for number in range(1, run + 1)]
            history = each.store.series.case_history(tiled.id)
            told.append((changed, verdicts, history, each.store.series.rebuild()))
            levels = each.execute("SELECT * FROM levels ORDER BY run_id, series_id")
            told[-1] += (levels,)
    assert told[0] == told[1]
    changed, verdicts, history, differences, levels = told[0]
    assert changed[0].judged_again
    assert {each.verdict for of_run in verdicts for each in of_run} > {Verdict.REGRESSION, Verdict.IMPROVEMENT}
    assert (len(history), differences, len(levels)) == (5, [], 10)


def test_levels_pins_and_findings_keep_their_code(story):
    runs = nights(story, range(12))
    for run, verdict in enumerate([Verdict.NEW, Verdict.UNCHANGED, Verdict.IMPROVEMENT], start=1):
        story.judge(run, story.tiled, verdict)
    story.store.baselines.pin(runs[4], [story.series(story.naive)], by="me")
    story.raise_finding(8, [suspect(story.series(story.naive), baseline=6, run=8)], "")
    prune(story.store)
    assert with_code(story) == {"tiled": [1, 3, 12], "naive": [1, 5, 6, 8, 12]}


def test_a_resolved_finding_keeps_nothing_and_an_accepted_finding_keeps_its_level(story):
    runs = nights(story, range(8))
    for case, run in ((story.tiled, 3), (story.naive, 4)):
        story.raise_finding(run, [suspect(story.series(case), baseline=2)], "")
    tiled, naive = sorted(story.store.findings.active(), key=lambda finding: finding.id)
    story.recover(5, [(tiled.id, story.series(story.tiled))])
    story.store.findings.set_state(naive.id, FindingState.ACCEPTED, reason="meant", by="ann")
    states = {finding.state for finding in story.store.findings.all()}
    assert states == {FindingState.RESOLVED, FindingState.ACCEPTED}
    prune(story.store)
    assert with_code(story) == {"tiled": [1, runs[-1]], "naive": [1, 2, 4, runs[-1]]}


def test_the_first_run_after_a_change_of_the_environment_has_a_baseline_with_code(story):
    """In this order: a clean run, an experiment with uncommitted changes, pruning, and a new driver."""
    series = story.series(story.tiled)
    night(story, 0)
    night(story, 1, dirty=True)
    night(story, 2, scope="another", dirty=True)
    prune(story.store)
    run = night(replace(story, environment=Environment("590.1", "nvcc 13.1", 700.0)), 3)
    (baseline,) = story.store.series.levels_of(story.store.baselines.get([series], run)).values()
    assert baseline.run in with_code(story)["tiled"]


def test_excluded_data_keeps_its_code_because_it_may_be_included_again(story):
    runs = nights(story, range(6))
    story.judge(runs[2], story.tiled, Verdict.IMPROVEMENT)
    story.store.exclusions.exclude(runs[0], None, reason="noisy", by="ann")
    story.store.exclusions.exclude(runs[2], [story.tiled], reason="noisy", by="ann")
    prune(story.store)
    assert with_code(story) == {"tiled": [1, 2, 3, 4, 6], "naive": [1, 2, 6]}
    story.store.exclusions.include(runs[0], None, by="ann")
    story.store.exclusions.include(runs[2], [story.tiled], by="ann")
    prune(story.store)
    assert with_code(story) == {"tiled": [1, 3, 6], "naive": [1, 6]}


def test_a_case_over_budget_in_the_last_run_keeps_the_code_of_its_newest_measurement(story):
    nights(story, range(3))
    run = story.begin(scope="all", started=BEGAN + 4 * DAY)
    story.put(run, story.tiled)
    story.store.runs.put_over_budget(run, [("GPU-1", story.naive, story.judgement(story.naive).series.cache)])
    story.store.runs.end(run, RunState.FINISHED)
    prune(story.store)
    assert with_code(story) == {"tiled": [1], "naive": [1, 3]}


def test_a_run_that_may_be_resumed_keeps_its_samples(story):
    nights(story, range(3))
    under_way = story.begin(scope="all", started=BEGAN + 5 * DAY)
    story.put(under_way, story.tiled)
    number = story.store.nights.begin(host="here", started=BEGAN, suite="kernels", command_line="", settings={})
    cut_short = story.store.runs.begin(story.provenance(scope="other", started=BEGAN + 6 * DAY), night=number)
    story.put(cut_short, story.tiled)
    story.store.runs.end(cut_short, RunState.INTERRUPTED)
    story.store.nights.end(number, RunState.INTERRUPTED, None)
    night(story, 8)
    prune(story.store)
    assert with_samples(story)["tiled"] == [under_way, cut_short]


def test_the_newest_run_of_each_scope_and_a_named_run_keep_their_code(story):
    nights(story, range(2))
    named = night(story, 2, label="release")
    some = night(story, 3, scope="some")
    last = [night(story, number) for number in range(4, 8)][-1]
    prune(story.store, against="release")
    assert with_code(story) == both([1, named, some, last])
    prune(story.store, against="never measured")
    assert with_code(story) == both([1, some, last])


# --- code ------------------------------------------------------------------------------------------------------------


def coded(story, number, code, **given):
    """Store a night whose case has this code and return its run."""
    run = story.begin(scope=given.pop("scope", "all"), started=BEGAN + number * DAY, **given)
    story.put(run, story.tiled, binary=story.binary(story.tiled, code))
    story.store.runs.end(run, RunState.FINISHED)
    return run


def codes(story):
    """Return the runs whose binaries can be replayed, and the stored code."""
    rows = story.execute("SELECT run_id FROM measurements WHERE binary_id IS NOT NULL ORDER BY run_id")
    artifacts = story.execute("SELECT content FROM artifacts WHERE kind = 'module'")
    return [run for (run,) in rows], {zlib.decompress(content) for (content,) in artifacts}


@ON_BOTH
def test_binaries_that_no_watched_run_used_are_removed_with_their_own_artifacts(story, monkeypatch):
    monkeypatch.setattr("perfsvc.service.nightly.retention.HISTORY_RUNS", 3)
    for number, code in enumerate([b"level", b"old", b"older", b"back", b"new", b"new", b"back"]):
        coded(story, number, code)
    pruned = prune(story.store)
    assert (pruned.code.binaries, pruned.code.artifacts.count) == (2, 2)
    assert pruned.code.artifacts.size_bytes > 0
    assert codes(story) == ([1, 4, 5, 6, 7], {b"level", b"back", b"new"})
    assert story.execute("SELECT count(*) FROM binaries") == [(3,)]
    assert story.store.binaries.replay(story.tiled.id, 4)[2] == BENCH


def test_young_binaries_stay_whatever_run_used_them(story):
    for number, code in enumerate([b"level", b"old", b"tried"]):
        coded(story, number, code)
    coded(story, 399, b"young", dirty=True)
    coded(story, 399, b"new")
    prune(story.store, RetentionSettings(binaries=30 * 86400.0))
    assert codes(story)[1] == {b"level", b"young", b"new"}


def test_code_stays_while_a_run_is_running_unless_it_has_been_running_for_weeks(story):
    for number in range(3):
        coded(story, number, b"%d" % number)
    story.begin(started=AFTER - 8 * DAY, host="gone")
    under_way = story.begin(started=AFTER)
    assert prune(story.store).code is None
    assert len(codes(story)[1]) == 3
    story.store.runs.end(under_way, RunState.FINISHED)
    assert prune(story.store).code.binaries == 1


def test_unused_artifacts_are_always_removed(story):
    coded(story, 0, b"code")
    story.execute("INSERT INTO artifacts (sha256, kind, size_bytes, content) VALUES ('ab', 'source', 3, x'00')")
    assert prune(story.store, RetentionSettings()).code.artifacts.count == 1
    assert story.execute("SELECT count(*) FROM artifacts WHERE kind = 'source'") == [(0,)]
    assert codes(story)[1] == {b"code"}


def profiled(story, run):
    """Return a profile of the case of a run."""
    return ProfileResult(
        story.tiled,
        run=run,
        binary=1,
        device=story.gpu.uuid,
        device_model=story.gpu.model,
        profiler="ncu",
        sections="full",
        profile=Profile("transpose_tiled", {"duration_s": 1e-4}, (), story.gpu.model, "sm_90", "2025.3.1"),
        launch=0,
        wall_s=7.0,
    )


@ON_BOTH
def test_profiler_reports_that_no_profile_needs_are_removed_and_their_metrics_stay(story):
    for number in range(4):
        coded(story, number, b"code")
    story.store.profiles.put([profiled(story, run) for run in (1, 2, 3)], report=b"the level of run 1 needs it")
    story.store.profiles.put([profiled(story, 2), profiled(story, 3)], report=b"nothing needs it")
    story.store.profiles.put([profiled(story, 4)], report=b"the last run needs it")
    story.execute("UPDATE profiles SET profiled_at = (SELECT started_at FROM runs WHERE runs.id = run_id)")
    assert prune(story.store).code.reports == 4
    profiles = story.store.profiles.of_binary(1)
    assert [one.run for one in profiles] == [4, 3, 2, 3, 2, 1]
    assert all(one.profile.metrics == {"duration_s": 1e-4} for one in profiles)
    assert story.execute("SELECT run_id FROM profiles WHERE report_sha256 IS NOT NULL ORDER BY 1") == [(1,), (4,)]
    assert story.store.profiles.report(1) == b"the level of run 1 needs it"
    assert story.execute("SELECT count(*) FROM artifacts WHERE kind = 'report'") == [(2,)]


# --- nights ----------------------------------------------------------------------------------------------------------


def ended_night(story, number, host="here", state=RunState.FINISHED):
    """Store a night that has ended and return its number."""
    began = {"host": host, "started": BEGAN + number * DAY, "suite": "kernels", "command_line": "", "settings": {}}
    night = story.store.nights.begin(**began)
    story.store.nights.end(night, state, 0)
    return night


def test_old_nights_are_removed_with_their_files_except_the_last_of_each_host(story, tmp_path):
    folder = tmp_path / "nights"
    days = {0: "here", 1: "there", 2: "here", 395: "here", 399: "here"}
    nights = [ended_night(story, day, host) for day, host in days.items()]
    for name in (*map(str, nights), "7x", "notes"):
        (folder / name).mkdir(parents=True)
        (folder / name / LOG).write_text("{}\n")
    (folder / "3000").symlink_to(folder / "notes")
    retention = RetentionSettings(nights=30 * 86400.0)
    tried = prune(story.store, retention, nights=folder, dry_run=True)
    assert len(story.store.nights.list()) == 5
    pruned = prune(story.store, retention, nights=folder)
    assert pruned.nights == tried.nights == (1, 3)
    assert {night.id for night in story.store.nights.list()} == {2, 4, 5}
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "3", "3000", "4", "5", "7x", "notes"]
    later = prune_store(story.store, retention, datetime.now(UTC) + 31 * DAY, nights=folder, force=True)
    assert later.files.count == 3  # their files were too young before
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3000", "5", "7x", "notes"]


def test_files_that_no_night_wrote_stay(story, tmp_path):
    """An attacker can add nights to the database, so that folders of any number belong to nights."""
    for number in range(3):
        ended_night(story, number)
    for name in ("1", "2", "3", "2024"):  # no night has the last number
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / LOG).write_text("precious")
    (tmp_path / "2" / LOG).write_text("{}\n")
    later = datetime.now(UTC) + 400 * DAY
    pruned = prune_store(story.store, RetentionSettings(nights=30 * 86400.0), later, nights=tmp_path, force=True)
    assert pruned.files == Removed(1, 3)
    assert set(tmp_path.rglob(LOG)) == {tmp_path / number / "deep" / LOG for number in ("1", "2", "3", "2024")}


@ON_BOTH
def test_a_night_with_an_undelivered_message_stays(story):
    for number in range(3):
        ended_night(story, number)
    columns = "id, night_id, key, title, body, created_at"
    values = "id, id, 'key ' || id, '', '', started_at"
    message = f"INSERT INTO messages ({columns}) SELECT {values} FROM nights WHERE id < 3"  # noqa: S608 - no input
    delivery = "INSERT INTO deliveries SELECT id, 'mail', 1, '', created_at, CASE id WHEN 2 THEN created_at END"
    story.execute(message)
    story.execute(f"{delivery} FROM messages")
    assert prune(story.store).nights == (2,)
    assert story.execute("SELECT id FROM messages") == [(1,)]


# --- clocks and shares -----------------------------------------------------------------------------------------------

MONTHS = RetentionSettings(samples=90 * 86400.0)
AHEAD = 463 * DAY


def year(story, **given):
    """Store a night every four days for a year, and return the time after the last one."""
    nights(story, range(0, 100, 4), **given)
    return BEGAN + 97 * DAY


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [("box",), ("box", "other")])
def test_a_clock_that_is_ahead_for_one_night_prunes_nothing_more(story, hosts):
    for host in hosts:
        now = year(story, host=host)
    before = with_samples(story)
    assert (
        prune(story.store, MONTHS, force=False, dry_run=True).counted_from
        == BEGAN + (96 + 7 - 8 * (len(hosts) < 2)) * DAY
    )
    ahead = now + AHEAD
    story.run(story.tiled, scope="all", started=ahead, host="box")
    pruned = prune_store(story.store, MONTHS, ahead)
    assert pruned.counted_from < now + 7 * DAY
    assert pruned.samples.count <= 2 * 4 * len(hosts)  # of the days 0, 4, 8 and 12
    assert len(with_samples(story)["tiled"]) > len(before["tiled"]) - 4 * len(hosts)
    assert prune_store(story.store, MONTHS, ahead, force=True).samples.count > 2 * 16 * len(hosts)


def test_the_clock_counts_once_runs_on_three_days_confirm_it(story):
    now = year(story, host="box")
    for number in range(3):
        story.run(story.tiled, scope="all", started=now + AHEAD + number * DAY, host="box")
    assert story.store.retention.confirmed_time(now + AHEAD + 2 * DAY) == now + AHEAD + 2 * DAY


@ON_BOTH
def test_the_clock_of_the_database_limits_the_clock_of_the_host(story):
    began = datetime.now(UTC)
    assert story.store.retention.confirmed_time(long_ago := datetime(2020, 1, 1, tzinfo=UTC)) == long_ago
    for number in range(3):
        story.run(story.tiled, started=began + number * DAY)
    confirmed = story.store.retention.confirmed_time(began + 2 * DAY)
    if story.store.location.startswith("postgresql"):
        assert began - DAY < confirmed < began + DAY
    else:
        assert confirmed == began + 2 * DAY


def test_more_than_half_is_not_removed_at_once_without_force(story, monkeypatch):
    monkeypatch.setattr("perfsvc.service.nightly.retention.FEW", 3)
    nights(story, range(8))
    whole = with_samples(story)
    days = RetentionSettings(samples=3 * 86400.0)
    with pytest.raises(InfrastructureError, match="more than half of a kind of data at once") as refused:
        prune_store(story.store, days, BEGAN + 9 * DAY)
    assert "the samples of 12 of 16 measurements" in refused.value.cure
    assert not any(map(str.isdigit, refused.value.what))  # the same in the next night, whose message then omits it
    assert with_samples(story) == whole
    assert "of 16 measurements" in prune_store(story.store, days, BEGAN + 9 * DAY, dry_run=True).excess
    assert prune_store(story.store, days, BEGAN + 9 * DAY, force=True).samples.count == 12
    assert with_samples(story) == both([7, 8])


# --- dry run and vacuum -----------------------------------------------------------------------------------------------


def test_a_dry_run_reports_the_same_and_changes_nothing(story):
    for number in range(5):
        coded(story, number, b"%d" % number)
        ended_night(story, number)
    before = (with_samples(story), codes(story), len(story.store.nights.list()))
    tried = prune(story.store, dry_run=True)
    assert (with_samples(story), codes(story), len(story.store.nights.list())) == before
    assert tried.size_bytes > 0
    assert prune(story.store) == tried


# --- later nights ----------------------------------------------------------------------------------------------------

CASES = 4


class Twin:
    """A service with its own store, which sees the same nights as the other twin."""

    def __init__(self, story, *, prunes):
        self.story, self.prunes = story, prunes
        self.cases = [replace(story.tiled, variant=f"v{number}") for number in range(CASES)]

    def live(self, number, factors, environment):
        story = replace(self.story, environment=environment)
        run = story.begin(scope="all", started=BEGAN + number * DAY)
        chance = random.Random(number)
        for case, (factor, code) in zip(self.cases, factors, strict=True):
            binary = story.binary(case, b"%s %d" % (case.variant.encode(), code))
            for replica in range(3):
                wild = chance.gauss(1.0, 0.002)
                samples = [1e-3 * factor * wild * chance.gauss(1.0, 0.003) for _ in range(9)]
                story.put(run, case, replica=replica, samples=samples, binary=binary)
        story.end_and_judge(run)
        suspects = suspects_of(story.store, run)
        for each in suspects:
            story.store.confirmations.put(confirmed(each))
        update.update_findings(story.store, run)
        if number == 8:
            last = story.store.findings.active()[-1].id
            story.store.findings.set_state(last, FindingState.ACCEPTED, reason="meant", by="ann")
        if self.prunes:
            prune_store(story.store, SHORT, BEGAN + (number + 1) * DAY)
        return run, [(one.series.case.variant, one.judgement.baseline_run, one.evidence) for one in suspects]


def confirmed(moved):
    """Return the confirmation of a suspect that really changed."""
    verdict = Verdict.REGRESSION if moved.direction is Direction.SLOWER else Verdict.IMPROVEMENT
    known = {"threshold": 0.01, "seed": 1, "budget_s": 20.0, "verdict": verdict, "ratio": moved.judgement.ratio}
    return Confirmation(moved, Cause.KERNEL, "measured again", **known)


def factors_of(number):
    """Return each case's slowness in a night and its code: a step, a reverted step, a drift, a gain."""
    return [
        (1.05, 1) if number >= 3 else (1.0, 0),
        (1.05, 1) if 4 <= number < 7 else (1.0, 0),
        (1.0 + 0.02 * max(0, number - 8), number),
        (0.9, 1) if number >= 6 else (1.0, 0),
    ]


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_later_nights_are_the_same_with_and_without_retention(story, tmp_path):
    """Everything that is not needed is removed every night; one night changes the driver."""
    with Store.open(tmp_path / "twin.db") as other:
        twins = Twin(story, prunes=True), Twin(replace(story, store=other), prunes=False)
        for number in range(11):
            environment = Environment("580.1" if number < 9 else "590.1", "nvcc 13.0.88", 700.0)
            (run, suspects), (_, others) = (twin.live(number, factors_of(number), environment) for twin in twins)
            assert suspects == others
            assert story.store.verdicts.of_run(run) == other.verdicts.of_run(run)
        told = [[replace(one, at=None) for one in twin.story.store.findings.all()] for twin in twins]
    assert told[0] == told[1]
    assert {one.state for one in told[0]} >= {FindingState.OPEN, FindingState.ACCEPTED, FindingState.RESOLVED}
    ((kept, lost),) = story.execute("SELECT count(samples), count(*) - count(samples) FROM measurements")
    assert lost > kept
    assert story.store.series.rebuild() == []
