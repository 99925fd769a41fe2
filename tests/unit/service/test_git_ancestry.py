"""Reading the commits between second from git."""

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.service import git
from perfsvc.service.git import ancestry, changed, newest_commits, objects

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
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        command = ["git", "-C", self.root, *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

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

    def fail(command):
        folder = tmp_path_factory.mktemp("bin")
        path = folder / "git"
        path.write_text(GIT_THAT_FAILS_AT.format(command, shutil.which("git")))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return fail


def test_commits_come_with_all_their_fields_oldest_first(repository):
    good = repository.commit("good")
    middle = repository.commit("middle: é")
    bad = repository.commit("")
    commits = ancestry(repository.root, "HEAD~2", "main")
    assert [(commit.hash, commit.subject, commit.parents) for commit in commits] == [
        (good, "good", ()),
        (middle, "middle: é", (good,)),
        (bad, "", (middle,)),
    ]
    assert {commit.author for commit in commits} == {"Ada <ada@example.com>"}
    assert all(commit.date.tzinfo for commit in commits)


@pytest.mark.parametrize(
    ("when", "moment"),
    [
        ("1234567890 +051800", datetime(2009, 2, 13, 23, 31, 30, tzinfo=UTC)),
        ("1234567890 -0500", datetime(2009, 2, 13, 23, 31, 30, tzinfo=UTC)),
        ("99999999999999999999999 +0000", datetime(1970, 1, 1, tzinfo=UTC)),
        ("someday", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_impossible_commit_date_becomes_the_start_of_1970(repository, when, moment):
    repository.commit("good")
    odd = repository.commit_written(when)
    commit = ancestry(repository.root, "HEAD~1", "HEAD")[-1]
    assert (commit.hash, commit.subject, commit.date) == (odd, "odd", moment)


@pytest.mark.parametrize("command", ["merge-base", "log"])
def test_an_unreadable_history_is_an_error(repository, failing, command):
    repository.commit("good")
    repository.commit("bad")
    failing(command)
    with pytest.raises(InfrastructureError, match=r"cannot read the history of .*: could not fetch 1234") as raised:
        ancestry(repository.root, "HEAD~1", "HEAD")
    assert "partial clone" in raised.value.cure


@pytest.mark.parametrize(
    ("command", "ask"),
    [
        ("cat-file", lambda folder, first, second: objects(folder, [first, second], ["k.cu"])),
        ("diff", lambda folder, first, second: changed(folder, first, second, ["k.cu"])),
    ],
)
def test_unreadable_files_are_an_error(repository, failing, command, ask):
    first = repository.commit("one", k_cu="a")
    second = repository.commit("two", k_cu="b")
    failing(command)
    with pytest.raises(InfrastructureError, match="could not fetch 1234"):
        ask(repository.root, first, second)


def test_reading_history_has_no_time_limit(repository, monkeypatch):
    limits, run_git = [], git.run_git

    def recorded(folder, command, *arguments, limit_s=None, **options):
        if command != "rev-parse":  # looks a revision up and reads no history
            limits.append(limit_s)
        return run_git(folder, command, *arguments, limit_s=limit_s, **options)

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


def test_a_folder_outside_a_repository_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="is in no git repository"):
        ancestry(tmp_path, "HEAD~1", "HEAD")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot change to"):
        ancestry(tmp_path / "nowhere", "HEAD~1", "HEAD")


def test_without_git_there_is_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="git cannot be started"):
        ancestry(tmp_path, "HEAD~1", "HEAD")


def test_the_newest_commits_of_a_range_come_with_their_count(repository):
    names = [repository.commit(f"commit {number}") for number in range(8)]
    commits, count = newest_commits(repository.root, names[1][:9], names[7][:9], 5)
    assert ([commit.hash for commit in commits], count) == (names[:2:-1], 6)
    (only,), count = newest_commits(repository.root, "", names[3], 5)
    assert (only.hash, count) == (names[3], 1)


def test_commits_that_are_not_here_are_none(repository, tmp_path_factory):
    name = repository.commit("one")
    assert newest_commits(repository.root, "0" * 9, name, 5) == ((), 0)
    assert newest_commits(repository.root, "", "f" * 9, 5) == ((), 0)
    assert newest_commits(repository.root / "gone", "", name, 5) == ((), 0)
    assert newest_commits(tmp_path_factory.mktemp("elsewhere"), "", name, 5) == ((), 0)


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
