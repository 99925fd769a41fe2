"""Temporary folders end with their process, and those of killed processes are removed by the next one."""

import os
import signal
import subprocess
import sys

import pytest

from perfsvc.temporary import PREFIX, remove_abandoned, temporary_folder

HELD = """
import sys, time
from perfsvc.temporary import temporary_folder

with temporary_folder() as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def parent(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def holder():
    """Start a process that holds a temporary folder."""
    process = subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_folder_is_private_and_ends_with_its_block(parent):
    with temporary_folder() as folder:
        assert folder.parent == parent
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("")
    assert list(parent.iterdir()) == []


def test_a_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_stays(parent):
    with holder() as live, holder() as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(list(parent.iterdir())) == 2
        remove_abandoned()
        assert len(list(parent.iterdir())) == 1
        live.send_signal(signal.SIGKILL)
        live.wait()
        with temporary_folder() as folder:
            assert list(parent.iterdir()) == [folder]


def test_links_and_folders_of_other_names_or_other_users_stay(parent):
    for name in ("mine", "perfsvc-locks", *([f"{PREFIX}other"] if os.geteuid() == 0 else [])):
        (parent / name).mkdir()
    (parent / f"{PREFIX}link").symlink_to(parent / "mine")
    if os.geteuid() == 0:  # only root may give folders away
        os.chown(parent / f"{PREFIX}other", 65534, 65534)
    before = set(parent.iterdir())
    remove_abandoned()
    assert set(parent.iterdir()) == before


def test_a_worktree_file_that_names_another_folder_removes_nothing(parent):
    victim = parent / "victim" / "worktrees" / "one"
    victim.mkdir(parents=True)
    (victim / "gitdir").write_text("/elsewhere/.git")
    tree = parent / f"{PREFIX}old" / "tree"
    tree.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {victim}\n")
    remove_abandoned()
    assert victim.exists()
    assert not tree.exists()
