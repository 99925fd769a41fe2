"""A sync copies everything that one database has and another lacks, whichever databases they are."""

import gzip
import io
import itertools
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert, select

from perfsvc.errors import DatabaseError, UsageError
from perfsvc.model import Case, FindingState, Verdict
from perfsvc.service.sync import sync
from perfsvc.service.transfer.body import receive, written
from perfsvc.store import RunState, Store
from perfsvc.store.keeping import tables
from perfsvc.store.keeping.sync import SyncAction
from perfsvc.store.remote.rows import Scope
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.engine import transaction
from perfsvc.store.schema.judging_tables import Bisections
from tests.unit.store.conftest import ON_BOTH, QUIET

SOFT = {("exclusions", "run_id"): "runs", ("finding_events", "night"): "nights"}
COPIED_BY_THEMSELVES = {"gpu_peaks", "pins", "cases", "former_names"}
LEFT_OUT = {
    "expectations": "the nights of the source report what is missing; the target would report it again",
    "tokens": "a token is for the server of one database",
    "received_runs": "a host sends its runs to the server of one database",
    "audit": "the log is about the server of one database",
    "removed_uids": "each database decides for itself what it removes",
}
"""Tables that are not copied, with the reason."""
OWN_NUMBERS = {"id", "event_id", "until_run"}


def copy(source, target, **options):
    return sync(str(source), str(target), QUIET, **options)


def contents(location):
    """Return the rows of each table, with references replaced by what they refer to."""
    by_table = metadata().tables
    with Store.open(location, create=False) as store, transaction(store.database.engine, writes=False) as connection:
        rows = {name: [dict(row._mapping) for row in connection.execute(select(by_table[name]))] for name in by_table}
    identities = {cls.__tablename__: names for cls, names in tables.IDENTITY.items()}
    identities["cases"] = ("benchmark", "variant", "point", "version")
    by_number = {
        name: {row["id"]: row for row in of_table} for name, of_table in rows.items() if "id" in by_table[name].c
    }

    def named(table, row, names):
        return tuple((name, cell(table, name, row[name])) for name in names)

    def cell(table, name, value):
        keys = list(by_table[table].c[name].foreign_keys)
        referred = SOFT.get((table, name)) or (keys[0].column.table.name if keys else None)
        if referred in by_number and value is not None:
            return named(referred, by_number[referred][value], identities[referred])
        return repr(value)

    return {
        name: Counter(named(name, row, [n for n in row if n not in OWN_NUMBERS]) for row in of_table)
        for name, of_table in rows.items()
        if name not in LEFT_OUT
    }


@pytest.fixture
def elsewhere(new_database):
    """Return the path or URL of another database, which is copied to that of the test."""
    return new_database(False)


@pytest.fixture
def source(elsewhere, new_story):
    """Return a story in the other database."""
    with Store.open(elsewhere) as store:
        yield new_story(store)


@pytest.fixture
def full(full):
    """Return the path of a database with rows in every table."""
    with closing(sqlite3.connect(full)) as connection, connection:
        connection.execute("UPDATE deliveries SET sent_at = tried_at")  # what was not sent is not copied
    return full


def with_standing(store):
    """The first active finding with series."""
    return next(finding for finding in store.findings.active() if finding.moved)


def test_each_table_is_copied_or_left_out_for_a_reason():
    parts = {part for parts in tables.PARTS.values() for part in parts}
    named = [
        *tables.IDENTITY,
        *(parts - tables.IDENTITY.keys()),
        *(set(tables.OF_RUN) - tables.IDENTITY.keys()),
        *tables.OF_RUN_REPLACED,
    ]
    names = [*(table.__tablename__ for table in named), *COPIED_BY_THEMSELVES, *LEFT_OUT]
    assert Counter(names) == Counter(list(metadata().tables))


def test_the_dump_has_rows_in_every_table_that_is_copied(full):
    assert [name for name, rows in contents(full).items() if not rows] == []


@ON_BOTH
def test_everything_is_copied_there_and_back_and_a_second_sync_copies_nothing(full, place, tmp_path):
    whole = contents(full)
    assert copy(full, place).parts
    assert contents(place) == whole
    assert copy(full, place).parts == []
    assert contents(place) == whole
    back = tmp_path / "back.db"
    copy(place, back)
    assert contents(back) == whole
    assert copy(back, place).parts == []


def test_two_sources_keep_apart_and_runs_get_new_numbers(place, store, new_database, new_story):
    sources = [new_database(False), new_database(False)]
    for location, label in zip(sources, ("first", "second"), strict=True):
        with Store.open(location) as source:
            for _ in range(2):
                new_story(source).run(label=label)
    assert copy(sources[0], place).numbers == ((1, 1), (2, 2))
    assert copy(sources[1], place).numbers == ((1, 3), (2, 4))
    assert [run.provenance.label for run in reversed(store.runs.list())] == ["first"] * 2 + ["second"] * 2


def test_what_is_added_to_a_run_is_copied_later_and_a_pruned_measurement_stays_pruned(place, story, source, elsewhere):
    run = source.run()
    copy(elsewhere, place)
    source.judge(run, source.tiled, Verdict.REGRESSION)
    assert copy(elsewhere, place).parts == ["1 changed run"]
    assert [judgement.verdict for judgement in story.store.verdicts.of_run(1)] == [Verdict.REGRESSION]
    source.store.exclusions.exclude(run, None, reason="noisy", by="ann")
    copy(elsewhere, place)
    source.store.exclusions.include(run, None, by="bob")
    copy(elsewhere, place)
    assert [(each.reason, each.included_by) for each in story.store.exclusions.all()] == [("noisy", "bob")]
    assert contents(place) == contents(elsewhere)
    story.execute("UPDATE measurements SET samples = NULL")
    source.judge(run, source.tiled, Verdict.NEW)
    copy(elsewhere, place)
    assert story.execute("SELECT count(*) FROM measurements WHERE samples IS NULL") == [(1,)]


def test_a_run_under_way_waits(place, store, source, elsewhere):
    run = source.begin()
    (planned,) = copy(elsewhere, place).of(SyncAction.UNDER_WAY)
    assert planned.number == run
    assert store.runs.list() == []


def test_an_undelivered_message_is_copied_but_not_sent_again(full, place, store):
    with closing(sqlite3.connect(full)) as connection, connection:
        connection.execute("UPDATE deliveries SET sent_at = NULL")
    copy(full, place)
    (night,) = store.nights.list()
    assert store.messages.of_night(night.id)
    assert store.messages.undelivered(night.id) == []


@ON_BOTH
def test_a_deleted_run_and_a_pruned_night_do_not_come_back(place, store, source, elsewhere):
    began = {"host": "h", "started": datetime(2025, 1, 1, tzinfo=UTC), "suite": "k", "command_line": "", "settings": {}}
    for _ in range(2):
        source.run()
        source.store.nights.end(source.store.nights.begin(**began), RunState.FINISHED, exit_code=0)
    copy(elsewhere, place)
    assert store.retention.nights(datetime.now(UTC), dry_run=False) == [1]
    store.exclusions.delete(1, reason="wrong", by="ann")
    synced = copy(elsewhere, place)
    assert (synced.parts, [run.number for run in synced.of(SyncAction.REMOVED)]) == ([], [1])
    assert [run.id for run in store.runs.list()] == [2]
    assert [night.id for night in store.nights.list()] == [2]


def test_a_renamed_case_joins_the_history_of_its_former_name(place, story, source, elsewhere):
    story.run(Case("softmax", "old", (("n", 64),)))
    source.run(Case("softmax", "new", (("n", 64),), formerly=("old",)))
    copy(elsewhere, place)
    assert story.execute("SELECT name FROM cases WHERE benchmark = 'softmax'") == [("softmax/new[n=64]",)]


def test_a_new_case_with_the_former_name_of_another_one_has_its_own_history_in_the_target(
    place, story, source, elsewhere
):
    old, new = Case("softmax", "old", (("n", 64),)), Case("softmax", "new", (("n", 64),))
    source.run(old)
    copy(elsewhere, place)
    source.run(replace(new, formerly=("old",)))
    source.run(old, new)
    copy(elsewhere, place)
    runs = {case.variant: [row.run for row in story.store.series.case_history(case.id)] for case in (old, new)}
    assert runs == {"new": [1, 2, 3], "old": [3]}


def test_the_newer_of_two_changed_findings_stays_with_the_events_of_both(full, place, store):
    copy(full, place)
    with Store.open(full) as source:
        ours, theirs = with_standing(source), with_standing(store)
        source.findings.comment(ours.id, "of the source", by="ann")
        store.findings.set_state(theirs.id, FindingState.RESOLVED, reason="fixed", by="bob")
        copy(full, place)
        assert store.findings.get(theirs.id).state is FindingState.RESOLVED
        assert "of the source" in [event.text for event in store.findings.events(finding=theirs.id)]
        source.findings.comment(ours.id, "again", by="ann")
        copy(full, place)
        assert store.findings.get(theirs.id).state is ours.state


def test_a_newer_bisection_is_copied_and_does_not_take_back_what_a_person_decided(full, place, story):
    def bisect():
        with Store.open(full) as source, source.database.writing() as connection:
            row = {"finding_id": with_standing(source).id, "answer": "{}", "stored_at": datetime.now(UTC)}
            connection.execute(insert(Bisections), row)

    copy(full, place)
    ((had,),) = story.execute("SELECT count(*) FROM bisections")
    bisect()
    assert copy(full, place).findings == 1
    assert story.execute("SELECT count(*) FROM bisections") == [(had + 1,)]
    decided = with_standing(story.store).id
    story.store.findings.set_state(decided, FindingState.RESOLVED, reason="fixed", by="bob")
    assert copy(full, place).findings == 0
    bisect()
    copy(full, place)
    assert story.store.findings.get(decided).state is FindingState.RESOLVED


def test_a_dry_run_makes_no_file_and_a_database_is_not_copied_to_itself(full, tmp_path):
    target = tmp_path / "new.db"
    assert copy(full, target, dry_run=True).parts
    assert not target.exists()
    copy(full, target)
    assert copy(full, target, dry_run=True).parts == []
    with pytest.raises(UsageError, match="to itself"):
        copy(full, full)


@ON_BOTH
def test_other_schema_revisions_are_refused(full, place, story):
    story.execute("UPDATE alembic_version SET version_num = '0000'")
    for source, target in itertools.permutations((full, place)):
        with pytest.raises(DatabaseError, match="schema revision 0000"):
            copy(source, target)


def test_a_damaged_run_costs_only_itself(place, source, elsewhere):
    for _ in range(3):
        source.run()
    source.execute("UPDATE measurements SET status = 'gone' WHERE run_id = 2")
    synced = copy(elsewhere, place)
    assert [number for number, _ in synced.damaged] == [2]
    assert [number for number, _ in synced.numbers] == [1, 3]


def test_a_new_case_with_the_former_name_of_another_one_has_its_own_history_where_it_is_sent(story, source):
    old, new = Case("softmax", "old", (("n", 64),)), Case("softmax", "new", (("n", 64),))
    token, _ = story.store.tokens.make("box", [Scope.WRITE], by="ann")
    runs = [source.run(old), source.run(replace(new, formerly=("old",))), source.run(old, new)]
    for run in runs:
        body = io.BytesIO(gzip.decompress(b"".join(written(source.store, run))))
        receive(story.store, body, digest=str(run), token=token.id, key=str(run))
    received = {case.variant: [row.run for row in story.store.series.case_history(case.id)] for case in (old, new)}
    assert received == {"new": [1, 2, 3], "old": [3]}
