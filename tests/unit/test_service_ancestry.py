"""What git is asked of the commits between two."""

import subprocess
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.service.bisecting.ancestry import ancestry, changed, objects


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


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


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
