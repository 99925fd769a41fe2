"""What is read from git: the commits between two revisions, and the suite of an earlier revision in a worktree."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.service import git
from perfsvc.service.git import ancestry, changed, checked_out, move_to, newest_commits, objects
from tests.e2e.history import git as run_git

GIT_THAT_FAILS_AT = """#!/bin/sh
case " $* " in
  *" {} "*) echo "warning: no network" >&2; echo "fatal: could not fetch 1234 from promisor remote" >&2; exit 128;;
esac
exec {} "$@"
"""


class Repository:
    def __init__(self, root):
        self.root = root
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        return run_git(self.root, *arguments)

    def commit(self, subject, **files):
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def commit_written(self, when):
        """Write a commit with exactly this date, which ``git commit`` would refuse."""
        commit = f"tree {self.git('write-tree')}\nparent {self.git('rev-parse', 'HEAD')}\n"
        commit += f"author Ada <ada@example.com> {when}\ncommitter Ada <ada@example.com> 1 +0000\n\nodd\n"
        command = ["git", "-C", self.root, "hash-object", "-t", "commit", "--literally", "-w", "--stdin"]
        name = subprocess.run(command, check=True, capture_output=True, text=True, input=commit).stdout.strip()
        self.git("reset", "-q", "--hard", name)
        return name


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def failing(tmp_path_factory, monkeypatch):
    """Make git fail at a command, as a partial clone does without its remote."""

    @contextmanager
    def fail(command):
        path = tmp_path_factory.mktemp("bin") / "git"
        path.write_text(GIT_THAT_FAILS_AT.format(command, shutil.which("git")))
        path.chmod(0o755)
        with monkeypatch.context() as patched:
            patched.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
            yield

    return fail


def test_commits_come_with_all_their_fields_oldest_first(repository):
    good = repository.commit("good")
    middle = repository.commit("middle: é")
    bad = repository.commit("")
    commits = ancestry(repository.root, "HEAD~2", "main")
    found = [(commit.hash, commit.subject, commit.parents) for commit in commits]
    assert found == [(good, "good", ()), (middle, "middle: é", (good,)), (bad, "", (middle,))]
    assert {commit.author for commit in commits} == {"Ada <ada@example.com>"}
    assert all(commit.date.tzinfo for commit in commits)


def test_an_impossible_commit_date_becomes_the_start_of_1970(repository):
    moments = {
        "1234567890 +051800": datetime(2009, 2, 13, 23, 31, 30, tzinfo=UTC),
        "1234567890 -0500": datetime(2009, 2, 13, 23, 31, 30, tzinfo=UTC),
        "99999999999999999999999 +0000": datetime(1970, 1, 1, tzinfo=UTC),
        "someday": datetime(1970, 1, 1, tzinfo=UTC),
    }
    good = repository.commit("good")
    odd = [(repository.commit_written(when), "odd", moment) for when, moment in moments.items()]
    commits = ancestry(repository.root, good, "HEAD")[1:]
    assert [(commit.hash, commit.subject, commit.date) for commit in commits] == odd


UNREADABLE = {
    "merge-base": ("cannot read the history of .*: could not fetch 1234", ancestry),
    "log": ("cannot read the history of .*: could not fetch 1234", ancestry),
    "cat-file": ("could not fetch 1234", lambda folder, *commits: objects(folder, commits, ["k.cu"])),
    "diff": ("could not fetch 1234", lambda folder, *commits: changed(folder, *commits, ["k.cu"])),
}


def test_an_unreadable_history_and_unreadable_files_are_errors(repository, failing):
    commits = repository.commit("one", k_cu="a"), repository.commit("two", k_cu="b")
    for command, (message, ask) in UNREADABLE.items():
        with failing(command), pytest.raises(InfrastructureError, match=message) as raised:
            ask(repository.root, *commits)
        assert ask is not ancestry or "partial clone" in raised.value.cure


def test_reading_history_has_no_time_limit(repository, monkeypatch):
    limits, really = [], git.run_git

    def recorded(folder, command, *arguments, limit_s=None, **options):
        if command != "rev-parse":  # looks a revision up and reads no history
            limits.append(limit_s)
        return really(folder, command, *arguments, limit_s=limit_s, **options)

    monkeypatch.setattr(git, "run_git", recorded)
    first = repository.commit("one", k_cu="a")
    second = repository.commit("two", k_cu="b")
    ancestry(repository.root, first, second)
    assert objects(repository.root, [first], ["k.cu"]) != objects(repository.root, [second], ["k.cu"])
    assert changed(repository.root, first, second, ["k.cu"]) == ("k.cu",)
    assert len(limits) > 3
    assert set(limits) == {None}


def test_only_descendants_of_the_good_commit_are_between_them(repository):
    root = repository.commit("root")
    good = repository.commit("good")
    repository.git("checkout", "-q", "-b", "old", root)
    repository.commit("beside")
    repository.git("checkout", "-q", "-b", "new", good)
    new = repository.commit("new")
    repository.git("checkout", "-q", "main")
    main = repository.commit("main")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "new", "old")
    commits = ancestry(repository.root, good, "HEAD")
    assert {commit.hash for commit in commits} == {good, new, main, repository.git("rev-parse", "HEAD")}
    assert (commits[0].hash, commits[-1].subject) == (good, "merge")


def test_a_good_commit_that_is_no_ancestor_is_refused_with_a_cure(repository):
    first = repository.commit("first")
    repository.git("branch", "side")
    repository.commit("second")
    with pytest.raises(UsageError, match="no ancestor") as raised:
        ancestry(repository.root, "HEAD", "HEAD~1")
    assert "wrong way round" in raised.value.cure
    repository.git("checkout", "-q", "side")
    repository.commit("beside")
    with pytest.raises(UsageError, match="no ancestor") as raised:
        ancestry(repository.root, "main", "side")
    assert first[:10] in raised.value.cure
    repository.git("checkout", "-q", "--orphan", "other")
    repository.commit("another history")
    with pytest.raises(UsageError, match="no ancestor") as raised:
        ancestry(repository.root, "main", "other")
    assert "shallow" in raised.value.cure


def test_equal_files_and_folders_have_equal_names(repository):
    first = repository.commit("one", suite__k_cu="a", elsewhere_txt="1")
    second = repository.commit("two", elsewhere_txt="2")
    third = repository.commit("three", suite__k_cu="b")
    objects_at = objects(repository.root / "suite", [first, second, third, first], ("suite", "", "nowhere/at all"))
    assert objects_at[first][0] == objects_at[second][0] != objects_at[third][0]
    assert len({names[1] for names in objects_at.values()}) == 3
    assert {names[2] for names in objects_at.values()} == {""}
    assert objects(repository.root, [first], ()) == {}


def test_changed_files_are_named_from_the_root_even_with_odd_names(repository):
    first = repository.commit("one", suite__k_cu="a", elsewhere_txt="1")
    (repository.root / "suite" / "é *.cu").write_text("odd")
    second = repository.commit("two", suite__k_cu="b", elsewhere_txt="2")
    inside = repository.root / "suite"
    assert changed(inside, first, second, ["suite"]) == ("suite/k.cu", "suite/é *.cu")
    assert changed(inside, first, second, [""]) == ("elsewhere.txt", "suite/k.cu", "suite/é *.cu")
    assert changed(inside, first, second, []) == ()


def test_a_folder_outside_a_repository_a_missing_folder_and_no_git_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="is in no git repository"):
        ancestry(tmp_path, "HEAD~1", "HEAD")
    with pytest.raises(UsageError, match="cannot change to"):
        ancestry(tmp_path / "nowhere", "HEAD~1", "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="git cannot be started"):
        ancestry(tmp_path, "HEAD~1", "HEAD")


def test_the_newest_commits_of_a_range_come_with_their_count_if_they_are_here(repository, tmp_path_factory):
    names = [repository.commit(f"commit {number}") for number in range(8)]
    commits, count = newest_commits(repository.root, names[1][:9], names[7][:9], 5)
    assert ([commit.hash for commit in commits], count) == (names[:2:-1], 6)
    (only,), count = newest_commits(repository.root, "", names[3], 5)
    assert (only.hash, count) == (names[3], 1)
    elsewhere, gone = tmp_path_factory.mktemp("elsewhere"), repository.root / "gone"
    unknown = [(repository.root, "0" * 9, names[3]), (repository.root, "", "f" * 9)]
    for where in (*unknown, (gone, "", names[3]), (elsewhere, "", names[3])):
        assert newest_commits(*where, 5) == ((), 0)


def test_no_setting_hides_a_changed_file(repository, monkeypatch):
    (repository.root / "suite").mkdir()
    repository.git("init", "-q", "lib")
    library = Repository(repository.root / "lib")
    library.commit("one", k_cu="1")
    (repository.root / ".gitmodules").write_text('[submodule "lib"]\npath = lib\nurl = ../lib\nignore = all\n')
    first = repository.commit("one", elsewhere_txt="1")
    library.commit("two", k_cu="2")
    repository.git("add", "--force", "lib")
    second = repository.commit("two", elsewhere_txt="2")
    repository.git("config", "diff.relative", "true")
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    assert changed(repository.root / "suite", first, second, ["elsewhere.txt", "lib"]) == ("elsewhere.txt", "lib")


# --- worktrees -------------------------------------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path):
    """A suite in a folder of its repository, whose first commit lacks it, and whose second differs from the third."""
    folder = tmp_path / "repository" / "kernels"
    folder.mkdir(parents=True)
    history = Repository(folder.parent)
    history.commit("no suite yet", beside_cuh="// beside")
    for text in ("old", "new"):
        history.commit(text, kernels__k_cu=text)
    return folder


def worktrees(suite):
    return run_git(suite, "worktree", "list", "--porcelain").count("worktree ")


def test_the_suite_is_checked_out_with_the_whole_repository(suite):
    (suite / "k.cu").write_text("being edited")
    with checked_out(suite, "HEAD~1") as tree:
        assert (tree.suite / "k.cu").read_text() == "old"
        assert (tree.suite.parent / "beside.cuh").exists()
        assert tree.commit == run_git(suite, "rev-parse", "HEAD~1")
    assert (suite / "k.cu").read_text() == "being edited"


def test_a_worktree_moves_to_a_commit_without_the_suite_and_back(suite):
    with checked_out(suite, "main") as tree:
        assert not move_to(tree, run_git(suite, "rev-parse", "HEAD~2")).suite.exists()
        assert (move_to(tree, run_git(suite, "rev-parse", "HEAD~1")).suite / "k.cu").read_text() == "old"
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
