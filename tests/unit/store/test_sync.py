"""A sync copies everything that one database has and another lacks, whichever databases they are."""

import itertools
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from perfsvc.errors import DatabaseError, UsageError
from perfsvc.model import Case, FindingState, Verdict
from perfsvc.service.sync import sync
from perfsvc.store import RunState, Store
from perfsvc.store.keeping import tables
from perfsvc.store.keeping.sync import SyncAction
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.engine import transaction
from perfsvc.store.schema.judging_tables import Bisections

DUMP = Path(__file__).parents[2] / "data" / "schemas" / "0001.sql"
"""A database with rows in every table."""
SOFT = {("exclusions", "run_id"): "runs", ("finding_events", "night"): "nights"}
UNCOMPARED = {"lineages", *(table.__tablename__ for table in tables.LEFT_OUT)}
OWN_NUMBERS = {"id", "event_id", "lineage_id"}


class Quiet:
    """Progress that nobody watches."""

    def begin(self, stage, total):
        pass

    def step(self, what):
        pass

    def report(self, line):
        pass


def copy(source, target, **options):
    return sync(str(source), str(target), Quiet(), **options)


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
        if name not in UNCOMPARED
    }


@pytest.fixture
def full(tmp_path):
    """Return the path of a database with rows in every table."""
    path = tmp_path / "full.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP.read_text())
        connection.execute("UPDATE deliveries SET sent_at = tried_at")  # what was not sent is not copied
        connection.commit()
    return path


def test_each_table_is_copied_or_left_out_for_a_reason():
    parts = {part for parts in tables.PARTS.values() for part in parts}
    named = [
        *tables.IDENTITY,
        *(parts - tables.IDENTITY.keys()),
        *(set(tables.OF_RUN) - tables.IDENTITY.keys()),
        *tables.OF_RUN_REPLACED,
        *tables.BY_THEMSELVES,
        *tables.LEFT_OUT,
    ]
    assert Counter(table.__tablename__ for table in named) == Counter(list(metadata().tables))


def test_the_dump_has_rows_in_every_table_that_is_copied(full):
    assert [name for name, rows in contents(full).items() if not rows] == []


def test_everything_is_copied_and_a_second_sync_copies_nothing(full, place):
    assert copy(full, place).parts
    assert contents(place) == contents(full)
    assert copy(full, place).parts == []
    assert contents(place) == contents(full)


def test_everything_is_copied_back(full, place, tmp_path):
    copy(full, place)
    back = tmp_path / "back.db"
    copy(place, back)
    assert contents(back) == contents(full)
    assert copy(back, place).parts == []


def test_two_sources_keep_apart_and_runs_get_new_numbers(place, new_database, new_story):
    sources = [new_database(False), new_database(False)]
    for location, label in zip(sources, ("first", "second"), strict=True):
        with Store.open(location) as store:
            story = new_story(store)
            for _ in range(2):
                story.run(label=label)
    assert copy(sources[0], place).numbers == ((1, 1), (2, 2))
    assert copy(sources[1], place).numbers == ((1, 3), (2, 4))
    with Store.open(place) as store:
        assert {run.id: run.provenance.label for run in store.runs.list()} == {
            1: "first",
            2: "first",
            3: "second",
            4: "second",
        }


def test_what_is_added_to_a_run_is_copied_later(place, new_database, new_story):
    source = new_database(False)
    with Store.open(source) as store:
        story = new_story(store)
        run = story.run()
        copy(source, place)
        story.judge(run, story.tiled, Verdict.REGRESSION)
        assert copy(source, place).parts == ["1 changed run"]
        with Store.open(place) as target:
            assert [judgement.verdict for judgement in target.verdicts.of_run(1)] == [Verdict.REGRESSION]
        store.exclusions.exclude(run, None, reason="noisy", by="ann")
        copy(source, place)
        store.exclusions.include(run, None, by="bob")
        copy(source, place)
        with Store.open(place) as target:
            assert [(each.reason, each.included_by) for each in target.exclusions.all()] == [("noisy", "bob")]
    assert contents(place) == contents(source)


def test_a_run_under_way_waits(place, new_database, new_story):
    source = new_database(False)
    with Store.open(source) as store:
        run = new_story(store).begin()
        (planned,) = copy(source, place).of(SyncAction.UNDER_WAY)
        assert planned.number == run
        with Store.open(place) as target:
            assert target.runs.list() == []


def test_an_undelivered_message_is_copied_but_not_sent_again(full, place):
    with closing(sqlite3.connect(full)) as connection:
        connection.execute("UPDATE deliveries SET sent_at = NULL")
        connection.commit()
    copy(full, place)
    with Store.open(place) as store:
        (night,) = store.nights.list()
        assert store.messages.of_night(night.id)
        assert store.messages.undelivered(night.id) == []


def test_a_deleted_run_and_a_pruned_night_do_not_come_back(place, new_database, new_story):
    source = new_database(False)
    with Store.open(source) as store:
        story = new_story(store)
        for _ in range(2):
            story.run()
            _night(store)
    copy(source, place)
    with Store.open(place) as store:
        assert store.retention.nights(datetime.now(UTC), dry_run=False) == [1]
        store.exclusions.delete(1, reason="wrong", by="ann")
    synced = copy(source, place)
    assert (synced.parts, [run.number for run in synced.of(SyncAction.REMOVED)]) == ([], [1])
    with Store.open(place) as store:
        assert [run.id for run in store.runs.list()] == [2]
        assert [night.id for night in store.nights.list()] == [2]


def _night(store):
    night = store.nights.begin(
        host="h", started=datetime(2025, 1, 1, tzinfo=UTC), suite="k", command_line="", settings={}
    )
    store.nights.end(night, RunState.FINISHED, exit_code=0)


def test_a_renamed_case_joins_the_history_of_its_former_name(place, new_database, new_story):
    source = new_database(False)
    old = Case("softmax", "old", (("n", 64),))
    with Store.open(place) as target:
        new_story(target).run(old)
    with Store.open(source) as store:
        new_story(store).run(Case("softmax", "new", (("n", 64),), formerly=("old",)))
    copy(source, place)
    with Store.open(place) as target:
        lineages = new_story(target).execute("SELECT DISTINCT lineage_id FROM cases")
    assert len(lineages) == 1


def test_the_newer_of_two_changed_findings_stays_with_the_events_of_both(full, place):
    copy(full, place)
    with Store.open(full) as source, Store.open(place) as target:
        (ours,) = [finding for finding in source.findings.active() if finding.moved][:1]
        (theirs,) = [finding for finding in target.findings.active() if finding.moved][:1]
        source.findings.comment(ours.id, "of the source", by="ann")
        target.findings.set_state(theirs.id, FindingState.RESOLVED, reason="fixed", by="bob")
    copy(full, place)
    with Store.open(place) as target:
        assert target.findings.get(theirs.id).state is FindingState.RESOLVED
        texts = [event.text for event in target.findings.events(finding=theirs.id)]
        assert "of the source" in texts
    with Store.open(full) as source:
        source.findings.comment(ours.id, "again", by="ann")
    copy(full, place)
    with Store.open(place) as target:
        assert target.findings.get(theirs.id).state is ours.state


def test_a_finding_whose_only_news_is_a_bisection_is_copied(full, place):
    copy(full, place)
    with Store.open(full) as source:
        (ours,) = [finding for finding in source.findings.active() if finding.moved][:1]
        had = source.findings.bisections(ours.id)
        with source.database.writing() as connection:
            row = {"finding_id": ours.id, "answer": "{}", "stored_at": datetime.now(UTC)}
            connection.execute(insert(Bisections), row)
    synced = copy(full, place)
    with Store.open(place) as target, target.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(Bisections)) == len(had) + 1
    assert synced.findings == 1
    assert copy(full, place).findings == 0


def test_a_newer_bisection_does_not_take_back_what_a_person_decided(full, place):
    copy(full, place)
    with Store.open(full) as source, Store.open(place) as target:
        ours, theirs = (next(f for f in store.findings.active() if f.moved) for store in (source, target))
        target.findings.set_state(theirs.id, FindingState.RESOLVED, reason="fixed", by="bob")
        with source.database.writing() as connection:
            row = {"finding_id": ours.id, "answer": "{}", "stored_at": datetime.now(UTC)}
            connection.execute(insert(Bisections), row)
    copy(full, place)
    with Store.open(place) as target:
        assert target.findings.get(theirs.id).state is FindingState.RESOLVED


def test_a_pruned_measurement_stays_pruned(place, new_database, new_story):
    source = new_database(False)
    with Store.open(source) as store:
        story = new_story(store)
        story.run()
        copy(source, place)
        with Store.open(place) as target:
            new_story(target).execute("UPDATE measurements SET samples = NULL")
        story.judge(1, story.tiled, Verdict.NEW)
    copy(source, place)
    with Store.open(place) as target:
        assert new_story(target).execute("SELECT count(*) FROM measurements WHERE samples IS NULL") == [(1,)]


def test_a_dry_run_makes_no_file(full, tmp_path):
    target = tmp_path / "new.db"
    assert copy(full, target, dry_run=True).parts
    assert not target.exists()
    copy(full, target)
    assert copy(full, target, dry_run=True).parts == []


def test_other_schema_revisions_are_refused(full, place, new_story):
    with Store.open(place) as store:
        new_story(store).execute("UPDATE alembic_version SET version_num = '0000'")
    for source, target in itertools.permutations((full, place)):
        with pytest.raises(DatabaseError, match="schema revision 0000"):
            copy(source, target)


def test_a_database_is_not_copied_to_itself(full):
    with pytest.raises(UsageError, match="to itself"):
        copy(full, full)


def test_a_damaged_run_costs_only_itself(place, new_database, new_story):
    source = new_database(False)
    with Store.open(source) as store:
        story = new_story(store)
        for _ in range(3):
            story.run()
        story.execute("UPDATE measurements SET status = 'gone' WHERE run_id = 2")
    synced = copy(source, place)
    assert [number for number, _ in synced.damaged] == [2]
    assert [number for number, _ in synced.numbers] == [1, 3]
