import os
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.build import Cache, default_folder
from perfsvc.errors import InfrastructureError
from perfsvc.model import digest

KEY = digest(b"key")


@given(code=st.binary(max_size=300))
def test_get_returns_what_was_put(tmp_path_factory, code):
    cache = Cache(tmp_path_factory.mktemp("cache"))
    cache.put(KEY, code)
    assert cache.get(KEY) == code


def test_an_unknown_key_has_no_entry(tmp_path):
    assert Cache(tmp_path).get(KEY) is None


def entry_of(folder):
    (entry,) = [path for path in folder.rglob("*") if path.is_file()]
    return entry


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:-1] + b"?"])
def test_a_damaged_entry_counts_as_absent_and_can_be_put_again(tmp_path, damage):
    cache = Cache(tmp_path)
    cache.put(KEY, b"some code")
    entry = entry_of(tmp_path)
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get(KEY) is None
    cache.put(KEY, b"some code")
    assert cache.get(KEY) == b"some code"


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
    monkeypatch.setattr("platformdirs.user_cache_dir", no_home)
    with pytest.raises(InfrastructureError, match="this user has no home folder") as error:
        Cache()
    assert "PERFSVC_CACHE" in error.value.cure
