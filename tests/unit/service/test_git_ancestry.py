"""What git is asked of the commits between two."""

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.service import git
from perfsvc.service.git import ancestry, changed, objects

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
        """A commit whose date stands in it as given, which ``git commit`` would not do."""
        told = f"tree {self.git('write-tree')}\nparent {self.git('rev-parse', 'HEAD')}\n"
        told += f"author Ada <ada@example.com> {when}\ncommitter Ada <ada@example.com> 1 +0000\n\nodd\n"
        command = ["git", "-C", self.root, "hash-object", "-t", "commit", "--literally", "-w", "--stdin"]
        name = subprocess.run(command, check=True, capture_output=True, text=True, input=told).stdout.strip()
        self.git("reset", "-q", "--hard", name)
        return name


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def failing(tmp_path_factory, monkeypatch):
    """Makes git fail at one of its commands, as a partial clone does without its remote."""

    def fail(command):
        folder = tmp_path_factory.mktemp("bin")
        path = folder / "git"
        path.write_text(GIT_THAT_FAILS_AT.format(command, shutil.which("git")))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return fail


def test_commits_come_with_all_that_is_told_of_them_oldest_first(repository):
    good = repository.commit("good")
    middle = repository.commit("middle: é")
    bad = repository.commit("")
    found = ancestry(repository.root, "HEAD~2", "main")
    assert [(one.hash, one.subject, one.parents) for one in found] == [
        (good, "good", ()),
        (middle, "middle: é", (good,)),
        (bad, "", (middle,)),
    ]
    assert {one.author for one in found} == {"Ada <ada@example.com>"}
    assert all(one.date.tzinfo for one in found)


@pytest.mark.parametrize(
    ("when", "moment"),
    [
        ("1234567890 +051800", datetime(2009, 2, 13, 23, 31, 30, tzinfo=UTC)),
        ("1234567890 -0500", datetime(2009, 2, 13, 23, 31, 30, tzinfo=UTC)),
        ("99999999999999999999999 +0000", datetime(1970, 1, 1, tzinfo=UTC)),
        ("someday", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_commit_may_have_a_date_that_no_calendar_knows(repository, when, moment):
    repository.commit("good")
    odd = repository.commit_written(when)
    found = ancestry(repository.root, "HEAD~1", "HEAD")[-1]
    assert (found.hash, found.subject, found.date) == (odd, "odd", moment)


@pytest.mark.parametrize("command", ["merge-base", "log"])
def test_a_history_that_git_cannot_read_is_no_empty_one(repository, failing, command):
    repository.commit("good")
    repository.commit("bad")
    failing(command)
    with pytest.raises(InfrastructureError, match=r"cannot read the history of .*: could not fetch 1234") as raised:
        ancestry(repository.root, "HEAD~1", "HEAD")
    assert "partial clone" in raised.value.cure


@pytest.mark.parametrize(
    ("command", "ask"),
    [
        ("cat-file", lambda folder, one, two: objects(folder, [one, two], ["k.cu"])),
        ("diff", lambda folder, one, two: changed(folder, one, two, ["k.cu"])),
    ],
)
def test_files_that_git_cannot_read_are_neither_gone_nor_unchanged(repository, failing, command, ask):
    one = repository.commit("one", k_cu="a")
    two = repository.commit("two", k_cu="b")
    failing(command)
    with pytest.raises(InfrastructureError, match="could not fetch 1234"):
        ask(repository.root, one, two)


def test_history_is_read_however_long_it_takes(repository, monkeypatch):
    limits, run_git = [], git.run_git

    def recorded(folder, command, *arguments, limit_s=None, **options):
        if command != "rev-parse":  # looks a revision up and reads no history
            limits.append(limit_s)
        return run_git(folder, command, *arguments, limit_s=limit_s, **options)

    monkeypatch.setattr(git, "run_git", recorded)
    one = repository.commit("one", k_cu="a")
    two = repository.commit("two", k_cu="b")
    ancestry(repository.root, one, two)
    assert objects(repository.root, [one], ["k.cu"]) != objects(repository.root, [two], ["k.cu"])
    assert changed(repository.root, one, two, ["k.cu"]) == ("k.cu",)
    assert len(limits) > 3
    assert set(limits) == {None}


def test_only_what_descends_from_the_good_commit_is_between_them(repository):
    root = repository.commit("root")
    good = repository.commit("good")
    repository.git("checkout", "-q", "-b", "old", root)
    repository.commit("beside")
    repository.git("checkout", "-q", "-b", "new", good)
    new = repository.commit("new")
    repository.git("checkout", "-q", "main")
    main = repository.commit("main")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "new", "old")
    found = ancestry(repository.root, good, "HEAD")
    assert {one.hash for one in found} == {good, new, main, repository.git("rev-parse", "HEAD")}
    assert (found[0].hash, found[-1].subject) == (good, "merge")


def test_a_good_commit_that_is_later_or_elsewhere_has_its_cure(repository):
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
    one = repository.commit("one", suite__k_cu="a", elsewhere_txt="1")
    two = repository.commit("two", elsewhere_txt="2")
    three = repository.commit("three", suite__k_cu="b")
    found = objects(repository.root / "suite", [one, two, three, one], ("suite", "", "nowhere/at all"))
    assert found[one][0] == found[two][0] != found[three][0]
    assert len({names[1] for names in found.values()}) == 3
    assert {names[2] for names in found.values()} == {""}
    assert objects(repository.root, [one], ()) == {}


def test_the_files_that_changed_are_named_from_the_root_whatever_their_names_are(repository):
    one = repository.commit("one", suite__k_cu="a", elsewhere_txt="1")
    (repository.root / "suite" / "é *.cu").write_text("odd")
    two = repository.commit("two", suite__k_cu="b", elsewhere_txt="2")
    inside = repository.root / "suite"
    assert changed(inside, one, two, ["suite"]) == ("suite/k.cu", "suite/é *.cu")
    assert changed(inside, one, two, [""]) == ("elsewhere.txt", "suite/k.cu", "suite/é *.cu")
    assert changed(inside, one, two, []) == ()


def test_a_folder_outside_a_repository_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="is in no git repository"):
        ancestry(tmp_path, "HEAD~1", "HEAD")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot change to"):
        ancestry(tmp_path / "nowhere", "HEAD~1", "HEAD")


def test_without_git_there_is_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="git cannot be started"):
        ancestry(tmp_path, "HEAD~1", "HEAD")
