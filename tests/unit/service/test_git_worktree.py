import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfsvc.errors import UsageError
from perfsvc.service.git import checked_out, move_to


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    command = ["git", "-C", folder, *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def suite(tmp_path):
    """A suite in a folder of its repository, whose first commit lacks it, and whose second differs from the third."""
    folder = tmp_path / "repository" / "kernels"
    folder.mkdir(parents=True)
    git(folder.parent, "init", "-q", "-b", "main")
    (folder.parent / "beside.cuh").write_text("// beside\n")
    commit(folder.parent, "no suite yet")
    for text in ("old", "new"):
        (folder / "k.cu").write_text(text)
        commit(folder.parent, text)
    return folder


def commit(repository, message):
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", message)


def worktrees(suite):
    return git(suite, "worktree", "list", "--porcelain").count("worktree ")


def test_the_suite_is_checked_out_with_the_whole_repository(suite):
    (suite / "k.cu").write_text("being edited")
    with checked_out(suite, "HEAD~1") as tree:
        assert (tree.suite / "k.cu").read_text() == "old"
        assert (tree.suite.parent / "beside.cuh").exists()
        assert tree.commit == git(suite, "rev-parse", "HEAD~1")
    assert (suite / "k.cu").read_text() == "being edited"


def test_a_worktree_moves_to_a_commit_without_the_suite_and_back(suite):
    with checked_out(suite, "main") as tree:
        assert not move_to(tree, git(suite, "rev-parse", "HEAD~2")).suite.exists()
        assert (move_to(tree, git(suite, "rev-parse", "HEAD~1")).suite / "k.cu").read_text() == "old"
    assert (suite / "k.cu").read_text() == "new"


def test_the_index_of_a_calling_hook_stays_untouched(suite, monkeypatch):
    index = suite.parent / ".git" / "index"
    before = index.read_bytes()
    monkeypatch.setenv("GIT_DIR", str(suite.parent / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    with checked_out(suite, "HEAD~1") as tree:
        assert (tree.suite / "k.cu").read_text() == "old"
    assert index.read_bytes() == before


@pytest.mark.parametrize("ending", [KeyboardInterrupt, RuntimeError])
def test_the_worktree_is_removed_however_the_block_ends(suite, ending):
    seen = []

    def use():
        with checked_out(suite, "main") as tree:
            seen.append((tree.suite, worktrees(suite)))
            raise ending

    with pytest.raises(ending):
        use()
    ((folder, during),) = seen
    assert during == 2
    assert not folder.exists()
    assert worktrees(suite) == 1


def test_a_hook_of_the_repository_does_not_run(suite):
    hook = suite.parent / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {suite.parent}/ran\n")
    hook.chmod(0o755)
    with checked_out(suite, "main"):
        assert not (suite.parent / "ran").exists()


def test_an_unknown_revision_is_named_and_one_without_the_suite_is_refused_and_leaves_nothing(suite):
    for revision in ("nowhere", "--force", ""):
        with pytest.raises(UsageError, match="is no revision"), checked_out(suite, revision):
            pass
    with pytest.raises(UsageError, match="there was no folder kernels/"), checked_out(suite, "HEAD~2"):
        pass
    assert worktrees(suite) == 1


def test_a_folder_outside_a_repository_has_no_revisions(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="is no revision"), checked_out(tmp_path, "HEAD"):
        pass


HELD = """
import sys, time
from pathlib import Path
from perfsvc.service.git import checked_out

with checked_out(Path(sys.argv[1]), "HEAD~1") as tree:
    print(tree.root, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("folder_is_gone", [False, True])
def test_the_worktree_of_a_killed_command_is_removed_by_the_next_one(suite, tmp_path, monkeypatch, folder_is_gone):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    command = [sys.executable, "-c", HELD, str(suite)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        root = Path(killed.stdout.readline().strip())
        killed.kill()
    assert root.exists()
    assert worktrees(suite) == 2
    if folder_is_gone:
        shutil.rmtree(root.parent)
    with checked_out(suite, "HEAD~1"):
        assert worktrees(suite) == 2
    assert worktrees(suite) == 1
    assert list((tmp_path / "tmp").iterdir()) == []
