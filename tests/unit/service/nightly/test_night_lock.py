"""The locks of a night: one for the database on this host, and one beside the file of SQLite."""

import os
from contextlib import ExitStack

import pytest

from perfsvc.errors import InfrastructureError
from perfsvc.service.nightly.night import _locked
from perfsvc.store import Store


@pytest.fixture
def locked(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "locks"))
    return lambda store: _locked(store, "box", 0.0, print, lambda: False)


def test_the_path_of_a_database_need_not_be_utf_8(tmp_path, monkeypatch, locked):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Store.open("perfsvc.db") as store, locked(store) as taken:
        assert taken == "taken at once"
        assert (folder / "perfsvc.db-night-box.lock").exists()


def test_a_database_behind_a_link_has_one_lock(tmp_path, monkeypatch, locked):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link.db").symlink_to("real.db")
    (tmp_path / "here").symlink_to(tmp_path / "data")
    with Store.open(tmp_path / "data" / "real.db") as store, locked(store):
        monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "other"))
        with (
            Store.open(tmp_path / "here" / "link.db") as other,
            ExitStack() as stack,
            pytest.raises(InfrastructureError, match="another night is under way"),
        ):
            stack.enter_context(locked(other))
    assert [path.name for path in (tmp_path / "data").glob("*.lock")] == ["real.db-night-box.lock"]
