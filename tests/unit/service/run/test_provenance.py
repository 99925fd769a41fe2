from functools import partial
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError
from perfsvc.service.doctor import checkup
from perfsvc.service.git import commit_of, git
from perfsvc.service.run.provenance import Revision, collect, revision_of, scope_of
from perfsvc.suite import Selection
from tests.e2e import history

ALL = Selection()


def test_the_scope_of_a_whole_suite_is_the_name_of_its_real_folder(tmp_path, monkeypatch):
    assert scope_of(tmp_path / "kernels", ALL, None) == "kernels"
    assert scope_of(tmp_path / "elsewhere" / "kernels", ALL, None) == "kernels"
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path / "kernels")
    assert scope_of(Path(), ALL, None) == "kernels"


def test_the_order_of_globs_does_not_change_the_scope():
    scope = scope_of(Path("kernels"), Selection(("dot", "a*"), ("x", "b")), "smoke")
    assert scope == scope_of(Path("kernels"), Selection(("a*", "dot"), ("b", "x")), "smoke")
    assert scope == "kernels --points=smoke '--select=a*' --select=dot --exclude=b --exclude=x"


def test_a_different_selection_is_a_different_scope():
    for selection, points in ((Selection(("dot",)), None), (Selection((), ("dot",)), None), (ALL, "full")):
        assert scope_of(Path("kernels"), selection, points) != scope_of(Path("kernels"), ALL, None)


def test_a_run_remembers_its_scope(tmp_path):
    origin = collect(tmp_path, command_line="perfsvc run", label="", scope="kernels", seed=1, replicas=3)
    assert origin.scope == "kernels"
    assert (origin.commit, origin.dirty) == ("", False)


@pytest.fixture
def checkout(tmp_path):
    """Runs git in a repository without a commit yet, with a file of a suite."""
    history.git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.cu").write_text("one\n")
    return partial(history.git, tmp_path)


def test_a_revision_is_the_commit_with_its_branch(tmp_path, checkout):
    assert revision_of(tmp_path / "kernels") == Revision()  # there is no commit yet
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    commit = checkout("rev-parse", "HEAD")
    assert revision_of(tmp_path / "kernels") == Revision(commit, dirty=False, branch="main")
    checkout("checkout", "--quiet", "--detach")
    assert revision_of(tmp_path / "kernels") == Revision(commit, dirty=False, branch="")
    (tmp_path / ".gitignore").write_text("installed/\n")
    (tmp_path / "installed").mkdir()
    assert revision_of(tmp_path / "installed") == Revision()  # the repository ignores this folder


def test_dirty_is_what_could_change_a_binary(tmp_path, checkout):
    (tmp_path / "perfsvc.toml").write_text("replicas = 3\n")
    (tmp_path / "old name").write_text("one\n" * 9)
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    (tmp_path / "notes").write_text("beside the suite\n")
    assert not revision_of(tmp_path / "kernels").dirty
    (tmp_path / "kernels" / "new.cu").write_text("untracked\n")
    assert revision_of(tmp_path / "kernels").dirty
    assert revision_of(tmp_path / "kernels").changed == ("new.cu",)
    (tmp_path / "kernels" / "new.cu").unlink()
    (tmp_path / "kernels" / "k.cu").write_text("two\n")
    assert revision_of(tmp_path / "kernels").dirty
    (tmp_path / "perfsvc.toml").write_text("replicas = 5\n")
    checkout("mv", "old name", "new \x1b name")
    assert revision_of(tmp_path / "kernels").changed == ("k.cu", r'"../new \033 name"', "../perfsvc.toml")


def test_a_change_in_a_submodule_is_seen_though_gitmodules_hides_it(tmp_path, checkout):
    checkout("init", "--quiet", "lib")
    (tmp_path / "lib" / "lib.cuh").write_text("one\n")
    checkout("-C", "lib", "add", "--all")
    checkout("-C", "lib", "commit", "--quiet", "--message", "Begin")
    (tmp_path / ".gitmodules").write_text('[submodule "lib"]\npath = lib\nurl = ../lib\nignore = all\n')
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    (tmp_path / "lib" / "notes").write_text("untracked\n")
    assert not revision_of(tmp_path / "kernels").dirty
    (tmp_path / "lib" / "lib.cuh").write_text("two\n")
    assert revision_of(tmp_path / "kernels").dirty


@pytest.fixture
def committed(tmp_path, checkout) -> Path:
    """A suite without uncommitted changes."""
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    return tmp_path / "kernels"


@pytest.mark.parametrize("hindrance", ["another owner", "no git", "slow git"])
def test_a_repository_that_git_cannot_read_counts_as_uncommitted(committed, tmp_path, monkeypatch, hindrance):
    if hindrance == "another owner":
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        (tmp_path / "bin").mkdir()
    if hindrance == "slow git":
        program = tmp_path / "bin" / "git"
        program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
        program.chmod(0o755)
        monkeypatch.setattr("perfsvc.service.git.LIMIT_S", 0.1)
    revision = revision_of(committed)
    assert (revision.commit, revision.dirty) == ("", True)
    unknown = {"another owner": "dubious ownership", "no git": "git cannot be started", "slow git": "did not answer"}
    assert unknown[hindrance] in revision.unknown
    origin = collect(committed, command_line="perfsvc run", label="", scope="kernels", seed=1, replicas=3)
    assert origin.dirty
    (row,) = (row for row in checkup(None, suite=committed) if row.check == "repository")
    assert row.ok is False
    assert ("install git" if hindrance == "no git" else f"--add safe.directory {tmp_path}") in row.cure
    with pytest.raises(InfrastructureError, match="git cannot read the repository"):
        commit_of(committed, "main")


def test_a_status_that_is_late_counts_as_uncommitted(committed, monkeypatch):
    def late(folder: Path, *arguments: str) -> str | None:
        return None if arguments[0] in {"status", "check-ignore"} else git(folder, *arguments)

    monkeypatch.setattr("perfsvc.service.run.provenance.git", late)
    assert revision_of(committed) == Revision(dirty=True, unknown="git could not report its changes within 30 s")
    monkeypatch.undo()
    assert not [row for row in checkup(None, suite=committed) if row.check == "repository"]
