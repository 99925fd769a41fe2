import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfsvc.build import Cache, default_folder, known_shapes
from perfsvc.errors import InfrastructureError
from perfsvc.files import user_name
from perfsvc.model import digest

KEY = digest(b"key")
STRANGER = 43210
"""The number of a user without an account."""


def test_get_returns_what_was_put_and_a_damaged_entry_counts_as_absent(tmp_path):
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    for code in (b"", b"some code", bytes(range(256)) * 400):
        cache.put(KEY, code)
        assert cache.get(KEY) == code
    entry = entry_of(tmp_path)
    whole = entry.read_bytes()
    for damaged in (whole[:-1], whole[:10], b"", whole[:-1] + b"?"):
        entry.write_bytes(damaged)
        assert cache.get(KEY) is None
        cache.put(KEY, code)
        assert cache.get(KEY) == code


def entry_of(folder):
    (entry,) = [path for path in folder.rglob("*") if path.is_file()]
    return entry


PUT_MANY = """
import sys
from pathlib import Path

from perfsvc.build import Cache

cache, key, code = Cache(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3]).read_bytes()
for _ in range(50):
    cache.put(key, code)
"""


def test_two_processes_may_put_one_key_at_once(tmp_path):
    code = bytes(range(256)) * 400
    (tmp_path / "code").write_bytes(code)
    cache = Cache(tmp_path / "cache")
    command = [sys.executable, "-c", PUT_MANY, tmp_path / "cache", KEY, tmp_path / "code"]
    writers = [subprocess.Popen(command) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        assert cache.get(KEY) in {None, code}
    assert [writer.returncode for writer in writers] == [0, 0]
    assert cache.get(KEY) == code
    entry_of(tmp_path / "cache")  # and no temporary file is left


def test_a_folder_that_cannot_be_made_is_an_error_with_its_cure(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InfrastructureError, match="cannot be written") as raised:
        Cache(tmp_path / "file" / "cache")
    assert "PERFSVC_CACHE" in raised.value.cure


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error_with_its_cure(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(InfrastructureError, match="cannot be written"):
        Cache(tmp_path)


def test_the_folder_is_that_of_the_environment_when_it_names_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "mine"))
    assert default_folder() == Cache().folder == tmp_path / "mine"
    monkeypatch.delenv("PERFSVC_CACHE")
    assert "perfsvc" in default_folder().parts


def test_a_user_without_a_home_folder_is_told_to_name_a_cache(monkeypatch):
    def no_home(_name):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("PERFSVC_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", no_home)
    with pytest.raises(InfrastructureError, match="this user has no home folder") as error:
        Cache()
    assert "PERFSVC_CACHE" in error.value.cure


def test_a_tilde_that_stands_for_no_home_folder_makes_no_folder_of_that_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFSVC_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: Path("~/.cache/perfsvc"))
    with pytest.raises(InfrastructureError, match="this user has no home folder"):
        Cache()
    assert not list(tmp_path.iterdir())


# --- who may change the cache ----------------------------------------------------------------------------------------


def put(folder):
    """Return a cache with one entry, its folder in the cache, and the file of the entry."""
    cache = Cache(folder)
    cache.put(KEY, b"some code")
    entry = entry_of(folder)
    return cache, entry.parent, entry


PARTS = ["cache", "folder", "entry"]


@pytest.mark.parametrize("part", PARTS)
def test_what_belongs_to_another_user_is_refused(tmp_path, monkeypatch, part):
    cache, folder, entry = put(tmp_path / "cache")
    path = {"cache": cache.folder, "folder": folder, "entry": entry}[part]
    owner = give_away(path, monkeypatch)
    with pytest.raises(InfrastructureError, match="belongs to") as raised:
        cache.get(KEY)
    assert f"{path} belongs to {user_name(owner)}" in raised.value.what or os.geteuid() != 0
    assert "PERFSVC_CACHE" in raised.value.cure
    if part != "entry":
        with pytest.raises(InfrastructureError, match="belongs to"):
            cache.put(KEY, b"other code")
    if part == "cache":
        with pytest.raises(InfrastructureError, match="belongs to"):
            Cache(cache.folder)


@pytest.mark.parametrize("part", PARTS)
def test_what_other_users_may_write_to_is_refused(tmp_path, part):
    cache, folder, entry = put(tmp_path / "cache")
    path = {"cache": cache.folder, "folder": folder, "entry": entry}[part]
    private = path.stat().st_mode
    for writers in (stat.S_IWGRP, stat.S_IWOTH):
        path.chmod(private | writers)
        with pytest.raises(InfrastructureError, match="other users may write to") as raised:
            cache.get(KEY)
        assert f"{path} (it belongs to you)" in raised.value.what
        assert f"chmod go-w {path}" in raised.value.cure
    path.chmod(private)
    assert Cache(cache.folder).get(KEY) == b"some code"


def test_a_cache_that_was_made_under_a_umask_for_groups_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "above" / "cache"))
    before = os.umask(0o002)
    try:
        known_shapes()
        cache, folder, entry = put(tmp_path / "above" / "cache")
    finally:
        os.umask(before)
    assert cache.get(KEY) == b"some code"
    assert known_shapes().is_dir()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (cache.folder, folder, entry, known_shapes())]
    assert modes == [0o700, 0o700, 0o600, 0o700]


def test_the_folder_of_shapes_must_be_private_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path))
    known_shapes().chmod(0o777)
    with pytest.raises(InfrastructureError, match="other users may write to"):
        known_shapes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without an account")
def test_a_user_without_an_account_has_a_cache():
    with tempfile.TemporaryDirectory() as folder:  # pytest's folders are for root alone
        os.chown(folder, STRANGER, -1)
        path = Path(folder, "cache")
        os.seteuid(STRANGER)
        try:
            cache, _, _ = put(path)
            assert cache.get(KEY) == b"some code"
        finally:
            os.seteuid(0)
        with pytest.raises(InfrastructureError, match=rf"belongs to the user {STRANGER}"):
            Cache(path)


def test_a_link_in_the_cache_is_not_followed_but_the_cache_itself_may_be_one(tmp_path):
    _, folder, entry = put(tmp_path / "elsewhere")
    cache = Cache(tmp_path / "cache")
    (tmp_path / "cache" / folder.name).symlink_to(folder)
    assert cache.get(KEY) is None
    (tmp_path / "cache" / folder.name).unlink()
    (tmp_path / "cache" / folder.name).mkdir(0o700)
    (tmp_path / "cache" / folder.name / KEY).symlink_to(entry)
    assert cache.get(KEY) is None
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert Cache(tmp_path / "link").get(KEY) == b"some code"


def give_away(path, monkeypatch):
    """Make a path another user's, and return the number of that user."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
        return STRANGER
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    return owner
