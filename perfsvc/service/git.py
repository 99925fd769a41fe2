"""Git: revisions, worktrees of other commits, and the history between two commits."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.model import Commit

LIMIT_S = 30
"""Seconds for an answer; what writes files takes as long as it takes."""
OF_ONE_CHECKOUT = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"})
"""The variables by which git tells its hooks where they are: another folder than the one that is meant here."""


def git(folder: Path, *arguments: str, typed: str | None = None) -> str | None:
    """What a git command prints, stripped; None where it fails or there is no git. ``typed`` is its standard input."""
    try:
        done = run_git(folder, *arguments, typed=typed, limit_s=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def run_git(
    folder: Path, *arguments: str, typed: str | None = None, limit_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a git command in a folder, and none of the hooks of its repository: they are meant for a person's commands.

    Raises:
        OSError: there is no git.
        TimeoutExpired: it took longer than the limit.
    """
    return subprocess.run(
        ["git", "-C", str(folder), "-c", f"core.hooksPath={os.devnull}", *arguments],
        env={name: value for name, value in os.environ.items() if name not in OF_ONE_CHECKOUT},
        input=typed,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=limit_s,
        check=False,
    )


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
    done = run_git(folder, *arguments)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"git ended with {done.returncode}"]
        raise UsageError(f"{commit[:10]} cannot be checked out: {said[_LAST_LINE]}", cure="see what git says of it")


_BETWEEN = "\x01"  # in no name, and no white space, which is stripped
_WORDS = _BETWEEN.join(("%H", "%P", "%an <%ae>", "%at", "%s"))
_NO = 1
"""How git ends where it answers a question with no; where it cannot answer, it ends with more."""
_FATAL = "fatal: "


def ancestry(folder: Path, good: str, bad: str) -> tuple[Commit, ...]:
    """Every commit that descends from a good one and that a bad one descends from, both included, oldest first.

    Where histories were merged, what was committed beside the good one's descendants is not among them: it came to
    them with its merge.

    Args:
        folder: any folder of the repository.
        good: a revision.
        bad: a later one.

    Raises:
        UsageError: the folder is in no repository, one of the revisions is not there, or the one is no ancestor of the
            other.
        InfrastructureError: there is no git, or it cannot read the history.
    """
    _require_repository(folder)
    oldest, newest = commit_of(folder, good), commit_of(folder, bad)
    if oldest == newest:
        raise UsageError(f"{good} and {bad} are the same commit, {oldest[:10]}", cure="name two: --good REV --bad REV")
    if not _descends(folder, newest, of=oldest):
        raise UsageError(f"{good} is no ancestor of {bad}", cure=_cure(folder, oldest, newest))
    between = _log(folder, "--ancestry-path", "--topo-order", "--reverse", f"{oldest}..{newest}")
    return (*_log(folder, "--no-walk", oldest), *between)


def objects(folder: Path, commits: Iterable[str], paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What some files and folders of a repository are at each commit: equal names for equal contents.

    Args:
        folder: any folder of the repository.
        commits: their hashes.
        paths: from the repository's root; ``""`` is all of it. One that is not there has an empty name.

    Raises:
        InfrastructureError: there is no git, or it cannot read what the commits hold.
    """
    wanted = [(commit, path) for commit in dict.fromkeys(commits) for path in paths]
    typed = "".join(f"{commit}:{path}\n" for commit, path in wanted)
    told = _told(folder, "cat-file", "--batch-check=%(objectname)", typed=typed)
    answers = told.split("\n") if wanted else ()
    found: dict[str, tuple[str, ...]] = {}
    for (commit, _), answer in zip(wanted, answers, strict=True):
        there = "" if answer.endswith(" missing") else answer
        found[commit] = (*found.get(commit, ()), there)
    return found


def changed(folder: Path, before: str, after: str, paths: Collection[str]) -> tuple[str, ...]:
    """Which files below some paths of a repository differ between two commits, from the repository's root.

    Raises:
        InfrastructureError: there is no git, or it cannot read one of the commits.
    """
    if not paths:
        return ()
    pathspecs = [f":(top,literal){path}" for path in paths]
    told = _told(folder, "diff", "--name-only", "--no-ext-diff", "-z", before, after, "--", *pathspecs)
    return tuple(name for name in told.split("\0") if name)


def _require_repository(folder: Path) -> None:
    done = _asked(folder, "rev-parse", "--git-dir")
    if done.returncode:
        raise UsageError(
            f"{folder} is in no git repository that can be read: {_git_reason(done)}",
            cure="name the suite's folder in its repository: --suite FOLDER",
        )


def _log(folder: Path, *arguments: str) -> tuple[Commit, ...]:
    told = _told(folder, "log", "--no-show-signature", "--no-color", f"--format={_WORDS}", *arguments)
    return tuple(_commit(*line.split(_BETWEEN, 4)) for line in told.split("\n") if line)


def _commit(name: str, parents: str, author: str, seconds: str, subject: str) -> Commit:
    return Commit(name, subject, author, _moment(seconds), tuple(parents.split()))


def _moment(seconds: str) -> datetime:
    """When a commit was written; what stands there may be no moment at all, which git shows as the start of 1970.

    The time zone is left out: git hands on whatever stands there, such as +051800, of which no clock knows.
    """
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _descends(folder: Path, commit: str, *, of: str) -> bool:
    done = _asked(folder, "merge-base", "--is-ancestor", of, commit)
    if done.returncode not in (0, _NO):
        raise _unread(folder, done)
    return done.returncode == 0


def _told(folder: Path, *arguments: str, typed: str | None = None) -> str:
    """What git prints, stripped, however long it takes; raises ``InfrastructureError`` where it fails."""
    done = _asked(folder, *arguments, typed=typed)
    if done.returncode:
        raise _unread(folder, done)
    return done.stdout.strip()


def _asked(folder: Path, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return run_git(folder, *arguments, typed=typed)
    except OSError as error:
        raise InfrastructureError(f"git cannot be started: {error.strerror}", cure="install git") from error


def _unread(folder: Path, done: subprocess.CompletedProcess[str]) -> InfrastructureError:
    return InfrastructureError(
        f"git cannot read the history of {folder}: {_git_reason(done)}",
        cure="see what git fsck says of it; a partial clone must reach its remote",
    )


def _git_reason(done: subprocess.CompletedProcess[str]) -> str:
    said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
    fatal = [line for line in said if line.startswith(_FATAL)]
    return (fatal or said)[0].removeprefix(_FATAL)


def _cure(folder: Path, good: str, bad: str) -> str:
    if _descends(folder, good, of=bad):
        return "they are the wrong way round: --good names the earlier one"
    shared = git(folder, "merge-base", good, bad)
    if shared is None:
        return "name two of one history; a shallow clone lacks what came before (git fetch --unshallow)"
    return f"name one that is: where they part, {shared[:10]}, if the case was good there"
