"""Migrations alone make the schema, and a different schema is recognised (past ones: test_upgrades.py)."""

import re
import shutil
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.installation import data_folder, upgrade_command
from perfsvc.model import Batch, CaseExplanation, Conditions, Profile, ProfileResult, Slowdown
from perfsvc.store import Store
from perfsvc.store.keeping import upgrades
from perfsvc.store.keeping.backup import copy_file
from perfsvc.store.schema.all_tables import metadata
from tests.unit.store.conftest import ON_BOTH

pytestmark = ON_BOTH

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{head}"


def upgrade():
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("weather", sa.Text(), server_default="fine"))
        runs.alter_column("label", existing_type=sa.Text(), nullable=True)
    {more}
"""


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """Return a function that makes this perfsvc one revision newer, or resets it."""

    def switch(on, more=""):
        migrations = tmp_path / "migrations"
        shutil.copytree(data_folder("migrations"), migrations, dirs_exist_ok=True)
        (migrations / "versions" / "next.py").write_text(NEXT.format(head=head, more=more))
        monkeypatch.setattr(upgrades, "data_folder", lambda name: tmp_path / name if on else data_folder(name))

    head = upgrades.head()
    return switch


@pytest.fixture
def path(template_sqlite, tmp_path):
    """A SQLite file with our tables and no rows."""
    return shutil.copy(template_sqlite, tmp_path / "perfsvc.db")


def test_the_schema_is_checked_and_a_missing_index_is_reported(story, place):
    state = Store.check(place)
    assert (state.revision, state.problems, state.ok) == (upgrades.head(), (), True)
    story.execute("DROP INDEX ix_runs_label")
    (problem,) = Store.check(place).problems
    assert "ix_runs_label" in problem


def test_an_empty_database_is_reported(empty):
    if not empty.startswith("postgresql"):
        Path(empty).touch()
    state = Store.check(empty)
    assert state.revision == ""
    assert "it is empty" in state.problems[0]


def test_an_older_schema_asks_for_its_upgrade_and_keeps_every_row(story, place, newer):
    run = story.begin()
    story.put(run, story.tiled, metrics={"overlap": 1.0})
    before, head = story.store.measurements.columns(), upgrades.head()
    newer(True)
    with pytest.raises(DatabaseError, match="this perfsvc needs next") as error:
        Store.open(place)
    assert error.value.cure == "perfsvc db upgrade"
    assert not Store.check(place).ok
    done = Store.upgrade(place)
    assert (done.before, done.after) == (head, "next")
    with Store.open(place) as store:
        assert store.measurements.columns() == before
    assert story.execute("SELECT weather FROM runs") == [("fine",)]


def test_a_sqlite_file_is_copied_before_its_upgrade(path, tmp_path, newer):
    assert Store.upgrade(path).backup is None
    newer(True)
    backup = Store.upgrade(path).backup
    assert backup.parent == tmp_path
    assert Store.check(path).revision == "next"
    newer(False)
    assert Store.check(backup).ok


def test_a_copy_follows_no_link_keeps_the_permissions_and_removes_what_a_killed_one_left(path, tmp_path, newer):
    victim = tmp_path / "victim"
    path.chmod(0o600)
    head = Store.check(path).revision
    victim.write_text("mine")
    (tmp_path / f"perfsvc.db.{head}.backup.part").symlink_to(victim)
    (tmp_path / f".perfsvc-new-{32 * '0'}").touch()
    newer(True)
    backup = Store.upgrade(path).backup
    assert victim.read_text() == "mine"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in tmp_path.glob(".*")} == set()


def test_a_copy_that_is_not_complete_is_one_file_and_one_that_fails_is_an_error(path, tmp_path, monkeypatch):
    class Watched(sqlite3.Connection):
        def backup(self, target):
            super().backup(target, pages=1, progress=lambda *_: seen.update(file.name for file in tmp_path.glob(".*")))

    seen = set()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    copy_file(path, tmp_path / "copy.db")
    (partial_copy,) = seen
    assert re.fullmatch(r"\.perfsvc-new-[0-9a-f]{32}", partial_copy)
    with pytest.raises(DatabaseError, match="cannot be copied to") as error:
        copy_file(tmp_path / "no" / "perfsvc.db", tmp_path / "another.db")
    assert "free disk space" in error.value.cure


def test_a_newer_schema_asks_for_a_newer_perfsvc(place, newer):
    newer(True)
    Store.upgrade(place)
    newer(False)
    for ask in (Store.open, Store.upgrade):
        with pytest.raises(DatabaseError, match="written by a newer perfsvc") as error:
            ask(place)
        assert error.value.cure == upgrade_command()
    assert "newer perfsvc" in Store.check(place).problems[0]


def test_an_upgrade_that_fails_changes_nothing(story, place, newer):
    story.run()
    newer(True, more='op.execute("SELECT no FROM nothing")')
    with pytest.raises(DatabaseError, match="nothing"):
        Store.upgrade(place)
    newer(False)
    assert Store.check(place).ok
    assert len(story.store.runs.list()) == 1


def test_an_upgrade_that_leaves_rows_without_their_references_fails(path, newer):
    newer(True, more="op.execute(\"INSERT INTO metrics VALUES (7, 'x', 1.0)\")")
    with pytest.raises(DatabaseError, match="would leave 1 rows without"):
        Store.upgrade(path)
    newer(False)
    assert Store.check(path).ok


def test_the_path_of_an_installation_may_hold_a_percent_sign(tmp_path, monkeypatch):
    shutil.copytree(data_folder("migrations"), tmp_path / "100%s" / "migrations")
    monkeypatch.setattr(upgrades, "data_folder", lambda name: tmp_path / "100%s" / name)
    Store.open(tmp_path / "perfsvc.db").close()
    assert Store.check(tmp_path / "perfsvc.db").ok


def test_the_section_of_each_table_documents_its_columns():
    reference = Path(__file__).parents[3] / "docs" / "reference"
    pages = "\n".join(page.read_text(encoding="utf-8") for page in reference.glob("database*.md"))
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |^# |\Z)", pages, re.MULTILINE | re.DOTALL))
    lacking = [
        f"{name}.{column.name}"
        for name, table in metadata().tables.items()
        for column in table.columns
        if column.name != "id" and f"`{column.name}`" not in sections[name]
    ]
    assert lacking == []


def test_every_query_of_the_page_runs_on_both_databases(story):
    page = (Path(__file__).parents[3] / "docs" / "reference" / "database.md").read_text(encoding="utf-8")
    batches = (Batch((1.0,)), Batch((9.0,), rejected="hot", conditions=Conditions(slowdowns=(Slowdown.THERMAL,))))
    story.put(story.begin(), replace(story.naive, point=(("n", 4096),)), samples=(1.0,), batches=batches)
    first, second = story.run(), story.run()
    place = (story.tiled, story.gpu.uuid, story.gpu.model)
    for run, registers in ((first, 32.0), (second, 40.0)):
        profile = Profile("tiled", {"registers": registers, "duration_s": 1e-4}, (), story.gpu.model, "sm_90", "2025.3")
        result = ProfileResult(story.tiled, run, None, *place[1:], "ncu", "full", profile=profile, launch=0)
        story.store.profiles.put([result])
    explanation = CaseExplanation(*place, first, second, sentence="more registers", profiles=(1, 2))
    story.store.profiles.put_explanation(explanation)
    queries = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [len(story.execute(query)) for query in queries] == [1, 1, 1]
