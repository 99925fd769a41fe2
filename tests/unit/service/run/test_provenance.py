import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsvc.service.run.provenance import Revision, collect, revision_of, scope_of
from perfsvc.suite import Selection

ALL = Selection()


def test_the_scope_of_a_whole_suite_is_the_name_of_its_folder(tmp_path: Path) -> None:
    assert scope_of(tmp_path / "kernels", ALL, None) == "kernels"
    assert scope_of(tmp_path / "elsewhere" / "kernels", ALL, None) == "kernels"


def test_a_relative_folder_has_the_scope_of_its_real_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path / "kernels")
    assert scope_of(Path(), ALL, None) == "kernels"


def test_the_order_of_globs_does_not_change_the_scope() -> None:
    scope = scope_of(Path("kernels"), Selection(("dot", "a*"), ("x", "b")), "smoke")
    assert scope == scope_of(Path("kernels"), Selection(("a*", "dot"), ("b", "x")), "smoke")
    assert scope == "kernels --points=smoke '--select=a*' --select=dot --exclude=b --exclude=x"


@pytest.mark.parametrize(
    ("selection", "points"), [(Selection(("dot",)), None), (Selection((), ("dot",)), None), (ALL, "full")]
)
def test_a_different_selection_is_a_different_scope(selection: Selection, points: str | None) -> None:
    assert scope_of(Path("kernels"), selection, points) != scope_of(Path("kernels"), ALL, None)


def test_a_run_remembers_its_scope(tmp_path: Path) -> None:
    origin = collect(tmp_path, command_line="perfsvc run", label="", scope="kernels", seed=1, replicas=3)
    assert origin.scope == "kernels"
    assert (origin.commit, origin.dirty) == ("", False)


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., str]:
    """Runs git in a repository without a commit yet, with a file of a suite."""

    def run(*words: str) -> str:
        who = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("init", "--quiet", "--initial-branch", "main")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.cu").write_text("one\n")
    return run


def test_a_repository_without_a_commit_has_no_revision(tmp_path: Path, checkout: Callable[..., str]) -> None:
    assert revision_of(tmp_path / "kernels") == Revision()


def test_a_revision_is_the_commit_with_its_branch(tmp_path: Path, checkout: Callable[..., str]) -> None:
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    commit = checkout("rev-parse", "HEAD")
    assert revision_of(tmp_path / "kernels") == Revision(commit, dirty=False, branch="main")
    checkout("checkout", "--quiet", "--detach")
    assert revision_of(tmp_path / "kernels") == Revision(commit, dirty=False, branch="")


def test_dirty_is_what_could_change_a_binary(tmp_path: Path, checkout: Callable[..., str]) -> None:
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    (tmp_path / "notes").write_text("beside the suite\n")
    assert not revision_of(tmp_path / "kernels").dirty
    (tmp_path / "kernels" / "new.cu").write_text("untracked\n")
    assert revision_of(tmp_path / "kernels").dirty
    (tmp_path / "kernels" / "new.cu").unlink()
    (tmp_path / "kernels" / "k.cu").write_text("two\n")
    assert revision_of(tmp_path / "kernels").dirty


def test_a_folder_that_its_repository_ignores_has_no_revision(tmp_path: Path, checkout: Callable[..., str]) -> None:
    (tmp_path / ".gitignore").write_text("installed/\n")
    checkout("add", "--all")
    checkout("commit", "--quiet", "--message", "Begin")
    (tmp_path / "installed").mkdir()
    assert revision_of(tmp_path / "installed") == Revision()
