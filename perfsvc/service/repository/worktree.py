"""The suite as it was at another revision: a git worktree in a temporary folder, gone however its user ends."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.service.repository.git import git, run

_LAST_LINE = -1


@dataclass(frozen=True, slots=True)
class Tree:
    """A suite's folder at a commit, which may lack it, in a worktree of its repository."""

    root: Path
    suite: Path
    commit: str


def commit_of(suite: Path, revision: str) -> str:
    """The commit that a revision of the suite's repository stands for; raises ``UsageError`` where there is none."""
    commit = git(suite, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not commit:
        raise UsageError(
            f"{revision!r} is no revision of the repository of {suite}",
            cure="name a branch, a tag or a commit that is here; a shallow clone lacks most (git fetch --unshallow)",
        )
    return commit


@contextlib.contextmanager
def checked_out(suite: Path, revision: str) -> Iterator[Tree]:
    """A suite as it was at a revision of its repository, for as long as the block runs.

    The whole repository is checked out, since sources may include what lies beside the suite. Neither the checkout that
    the suite lies in nor its index is touched.

    Args:
        suite: the folder of benchmarks, in a git repository.
        revision: a branch, a tag, a commit, ``HEAD~3``.

    Raises:
        UsageError: there is no such revision, or the suite's folder was not there.
    """
    commit = commit_of(suite, revision)
    inside = git(suite, "rev-parse", "--show-prefix") or ""
    with tempfile.TemporaryDirectory(prefix="perfsvc-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder, commit[:10])
        try:
            _add(suite, tree, commit)
            if not (tree / inside).is_dir():
                raise UsageError(f"at {revision} there was no folder {inside}", cure="name a later revision")
            yield Tree(tree, tree / inside, commit)
        finally:
            git(suite, "worktree", "remove", "--force", "--force", str(tree))  # twice: git locks one that it makes


def moved(tree: Tree, commit: str) -> Tree:
    """The same worktree at another commit: only the files that differ are written; raises ``UsageError``."""
    _checkout(tree.root, commit, "checkout", "--quiet", "--force", "--detach", commit)
    return Tree(tree.root, tree.suite, commit)


def _add(suite: Path, tree: Path, commit: str) -> None:
    _checkout(suite, commit, "worktree", "add", "--quiet", "--detach", str(tree), commit)


def _checkout(folder: Path, commit: str, *arguments: str) -> None:
    done = run(folder, *arguments)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"git ended with {done.returncode}"]
        raise UsageError(f"{commit[:10]} cannot be checked out: {said[_LAST_LINE]}", cure="see what git says of it")
