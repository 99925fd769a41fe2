"""Git: revisions, worktrees of other commits, and the history between two commits.

Functions that read a history have no time limit, because a large repository may take minutes. They raise an error if
git fails, because the caller would take an empty history for the real one.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.model import Commit
from perfsvc.temporary import PREFIX, remove_abandoned, temporary_folder

LIMIT_S = 30
"""Seconds for a short answer; commands that write files or read history have no limit."""
OF_ONE_CHECKOUT = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"})
"""Variables by which git tells its hooks where they run; they would point our commands to the wrong folder."""
OF_ONE_COMMAND = frozenset(
    {"GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"}
)
"""Variables that change how git reads paths; an editor may set them for the commands that it starts."""

IN_ENGLISH = {"LANGUAGE": "en"}
"""The language of git's messages, some of which perfsvc reads."""

_SEPARATOR = "\x01"  # not in any name, and no white space, which is stripped
_LOG_FORMAT = _SEPARATOR.join(("%H", "%P", "%an <%ae>", "%at", "%s"))
_COMMITS = re.compile(r"(?:([0-9a-f]{7,40})\.\.)?([0-9a-f]{7,40})")
"""The part of a root cause that names commits."""
_NO = 1
"""Git's exit code if the answer to a question is no; if it cannot answer, the code is higher."""
_FATAL = "fatal: "
_NO_REPOSITORY = "not a git repository"


def git(folder: Path, *arguments: str, limit_s: float | None = None) -> str | None:
    """Return a git command's stripped output; None if it fails, takes longer than the limit, or git is missing.

    The limit is ``LIMIT_S`` if none is given.
    """
    try:
        completed = run_git(folder, *arguments, limit_s=LIMIT_S if limit_s is None else limit_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.strip() if completed.returncode == 0 else None


def unreadable(folder: Path, limit_s: float | None = None) -> str:
    """Return why git cannot read the repository that holds a folder; empty if it can, or if there is no repository.

    Git has ``limit_s`` seconds to answer, by default ``LIMIT_S``.

    Git refuses the repositories of other users ("dubious ownership"), for example to root's cron.
    """
    if _repository(folder) is None:
        return ""
    limit_s = LIMIT_S if limit_s is None else limit_s
    try:
        completed = run_git(folder, "rev-parse", "--git-dir", limit_s=limit_s)
    except OSError as error:
        return f"git cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"git did not answer within {limit_s:g} s"
    if completed.returncode == 0:
        return ""
    failure = _failure(completed)
    return "" if failure.startswith(_NO_REPOSITORY) else failure


def unreadable_cure(folder: Path) -> str:
    """Return the cure for a repository that git cannot read."""
    if shutil.which("git") is None:
        return "install git, or add its folder to PATH"
    repository = _repository(folder) or folder
    return (
        f"run perfsvc as the owner of {repository}; or, if you trust all of its files, let git read it: "
        f"git config --global --add safe.directory {shlex.quote(str(repository))}"
    )


def _repository(folder: Path) -> Path | None:
    """Return the top folder of the repository that holds a folder, without git; None if there is no repository."""
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if os.path.lexists(parent / ".git")), None)


def require_readable(folder: Path) -> None:
    """Raise ``InfrastructureError`` if a folder is in a repository that git cannot read."""
    if why := unreadable(folder):
        raise InfrastructureError(f"git cannot read the repository of {folder}: {why}", cure=unreadable_cure(folder))


def run_git(
    folder: Path, *arguments: str, stdin: str | None = None, limit_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a git command in a folder, with the repository's hooks disabled, and return its exit code and output.

    ``stdin`` is the text that the command reads from its standard input.

    Raises:
        OSError: git is missing.
        TimeoutExpired: the command took longer than the limit.
    """
    return subprocess.run(
        ["git", "-C", str(folder), "-c", f"core.hooksPath={os.devnull}", *arguments],
        env={name: value for name, value in os.environ.items() if name not in OF_ONE_CHECKOUT | OF_ONE_COMMAND}
        | IN_ENGLISH,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=limit_s,
        check=False,
    )


# --- worktrees -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree of a repository at a commit; the suite's folder may be missing in it."""

    root: Path
    suite: Path
    commit: str


def commit_of(suite: Path, revision: str) -> str:
    """Return the commit of a revision of the suite's repository.

    Raises:
        UsageError: there is no such revision.
        InfrastructureError: git cannot read the repository.
    """
    commit = git(suite, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not commit:
        require_readable(suite)
        raise UsageError(
            f"{revision!r} is no revision of the repository of {suite}",
            cure="name a branch, a tag or a commit of this clone; to complete a shallow clone: git fetch --unshallow",
        )
    return commit


@contextlib.contextmanager
def checked_out(suite: Path, revision: str) -> Iterator[Worktree]:
    """Check a suite out at a revision, in a temporary worktree that is removed at the end of the block.

    The whole repository is checked out, because sources may include files beside the suite. The suite's own checkout
    and its index stay untouched.

    Args:
        suite: the folder of benchmarks, in a git repository.
        revision: a branch, a tag, a commit, ``HEAD~3``.

    Raises:
        UsageError: there is no such revision, it cannot be checked out, or the suite's folder is missing in it.
        InfrastructureError: git cannot read the repository.
    """
    commit = commit_of(suite, revision)
    inside = git(suite, "rev-parse", "--show-prefix") or ""
    _remove_abandoned_worktrees(suite)
    with temporary_folder() as folder:
        tree = folder / commit[:10]
        try:
            _checkout(suite, commit, "worktree", "add", "--quiet", "--detach", str(tree), commit)
            if not (tree / inside).is_dir():
                raise UsageError(f"at {revision} there was no folder {inside}", cure="name a later revision")
            yield Worktree(tree, tree / inside, commit)
        finally:
            # --force twice removes even a locked worktree: git locks a worktree while it creates it.
            git(suite, "worktree", "remove", "--force", "--force", str(tree))


def _remove_abandoned_worktrees(folder: Path) -> None:
    """Remove the worktrees that killed commands left in a repository."""
    remove_abandoned()
    listed = git(folder, "worktree", "list", "--porcelain") or ""
    for line in listed.splitlines():
        tree = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and tree.parent.name.startswith(PREFIX) and not tree.parent.exists():
            git(folder, "worktree", "remove", "--force", "--force", str(tree))


def move_to(tree: Worktree, commit: str) -> Worktree:
    """Move a worktree to another commit, writing only the files that differ; raise ``UsageError`` if git cannot."""
    _checkout(tree.root, commit, "checkout", "--quiet", "--force", "--detach", commit)
    return Worktree(tree.root, tree.suite, commit)


def _checkout(folder: Path, commit: str, *arguments: str) -> None:
    """Run a git command that checks out a commit; raise ``UsageError`` if it fails."""
    completed = run_git(folder, *arguments)
    if completed.returncode:
        lines = completed.stderr.strip().splitlines() or [f"git ended with {completed.returncode}"]
        raise UsageError(f"{commit[:10]} cannot be checked out: {lines[-1]}", cure="fix what git reports")


# --- history ---------------------------------------------------------------------------------------------------------


def ancestry(folder: Path, good: str, bad: str) -> tuple[Commit, ...]:
    """Return the commits that descend from a good commit and are ancestors of a bad one, oldest first, with both.

    Of a branch that began before the good commit, only the commit that merged the branch is among them.

    Args:
        folder: any folder of the repository.
        good: a revision.
        bad: a later revision.

    Raises:
        UsageError: the folder is in no repository, a revision is missing, both revisions are the same commit, or
            ``good`` is no ancestor of ``bad``.
        InfrastructureError: git is missing, or cannot read the history.
    """
    _require_repository(folder)
    oldest, newest = commit_of(folder, good), commit_of(folder, bad)
    if oldest == newest:
        raise UsageError(f"{good} and {bad} are the same commit, {oldest[:10]}", cure="name two commits")
    if not _descends(folder, newest, ancestor=oldest):
        raise UsageError(f"{good} is no ancestor of {bad}", cure=_unrelated_cure(folder, oldest, newest))
    between = _log(folder, "--ancestry-path", "--topo-order", "--reverse", f"{oldest}..{newest}")
    return (*_log(folder, "--no-walk", oldest), *between)


def commit_ranges(root_cause: str) -> Iterator[tuple[str, str]]:
    """Yield the ranges of commits that a root cause names, in their order: the commit before them, and the last one.

    The commit before is empty if the root cause names a single commit.
    """
    for named in map(_COMMITS.fullmatch, root_cause.split(", ")):
        if named:
            yield named[1] or "", named[2]


def newest_commits(
    folder: Path, after: str, last: str, most: int, *, limit_s: float | None = None
) -> tuple[tuple[Commit, ...], int]:
    """Return the newest commits between ``after`` and ``last``, newest first, and how many there are in all.

    Returns no commits and 0 if git fails.

    Args:
        folder: any folder of the repository; it may be missing.
        after: the hash of a commit that is left out with all its ancestors; empty to return only ``last``.
        last: the hash of the newest commit.
        most: the largest number of commits to return.
        limit_s: the seconds for each of the two answers of git, by default ``LIMIT_S``.
    """
    revisions = f"{after}..{last}" if after else last
    limit = most if after else 1
    form = f"--format={_LOG_FORMAT}"
    options = ("--no-show-signature", "--no-color", form, f"--max-count={limit}")
    printed = git(folder, "log", *options, revisions, "--", limit_s=limit_s)
    count = git(folder, "rev-list", "--count", revisions, "--", limit_s=limit_s) if after and printed else "1"
    if not printed or not count:
        return (), 0
    return tuple(_commit(*line.split(_SEPARATOR, 4)) for line in printed.split("\n")), int(count)


def objects(folder: Path, commits: Iterable[str], paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return git's object names (hashes of the contents) of some files and folders at each commit.

    Args:
        folder: any folder of the repository.
        commits: commit hashes.
        paths: paths relative to the repository's root; ``""`` is the whole repository. A missing path has an empty
            name.

    Raises:
        InfrastructureError: git is missing, or cannot read the commits.
    """
    wanted = [(commit, path) for commit in dict.fromkeys(commits) for path in paths]
    stdin = "".join(f"{commit}:{path}\n" for commit, path in wanted)
    printed = _printed(folder, "cat-file", "--batch-check=%(objectname)", stdin=stdin)
    lines = printed.split("\n") if wanted else ()
    names: dict[str, tuple[str, ...]] = {}
    for (commit, _), line in zip(wanted, lines, strict=True):
        name = "" if line.endswith(" missing") else line
        names[commit] = (*names.get(commit, ()), name)
    return names


def changed(folder: Path, before: str, after: str, paths: Collection[str]) -> tuple[str, ...]:
    """Return the files below some paths that differ between two commits, relative to the repository's root.

    Raises:
        InfrastructureError: git is missing, or cannot read one of the commits.
    """
    if not paths:
        return ()
    pathspecs = [f":(top,literal){path}" for path in paths]
    # Otherwise settings of the user or of .gitmodules could hide files: diff.relative, submodule.NAME.ignore.
    options = ("--name-only", "--no-ext-diff", "--no-relative", "--ignore-submodules=none", "-z")
    printed = _printed(folder, "diff", *options, before, after, "--", *pathspecs)
    return tuple(name for name in printed.split("\0") if name)


def _require_repository(folder: Path) -> None:
    """Raise ``UsageError`` if a folder is in no git repository."""
    completed = _run(folder, "rev-parse", "--git-dir")
    if completed.returncode:
        raise UsageError(
            f"{folder} is in no git repository that can be read: {_failure(completed)}",
            cure="name the suite's folder in its repository: --suite FOLDER",
        )


def _log(folder: Path, *arguments: str) -> tuple[Commit, ...]:
    printed = _printed(folder, "log", "--no-show-signature", "--no-color", f"--format={_LOG_FORMAT}", *arguments)
    return tuple(_commit(*line.split(_SEPARATOR, 4)) for line in printed.split("\n") if line)


def _commit(name: str, parents: str, author: str, seconds: str, subject: str) -> Commit:
    return Commit(name, subject, author, _moment(seconds), tuple(parents.split()))


def _moment(seconds: str) -> datetime:
    """Return a commit's date from its seconds since 1970, in UTC; an impossible date becomes the start of 1970.

    The commit's time zone is not read, because a stored time zone may be impossible, such as +051800.
    """
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _descends(folder: Path, commit: str, *, ancestor: str) -> bool:
    """Return whether a commit descends from ``ancestor``; raise ``InfrastructureError`` if git cannot tell."""
    completed = _run(folder, "merge-base", "--is-ancestor", ancestor, commit)
    if completed.returncode not in (0, _NO):
        raise _unreadable(folder, completed)
    return completed.returncode == 0


def _printed(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run git without a time limit and return its stripped output; raise ``InfrastructureError`` if it fails."""
    completed = _run(folder, *arguments, stdin=stdin)
    if completed.returncode:
        raise _unreadable(folder, completed)
    return completed.stdout.strip()


def _run(folder: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a git command without a time limit; raise ``InfrastructureError`` if git is missing."""
    try:
        return run_git(folder, *arguments, stdin=stdin)
    except OSError as error:
        raise InfrastructureError(f"git cannot be started: {error.strerror}", cure="install git") from error


def _unreadable(folder: Path, completed: subprocess.CompletedProcess[str]) -> InfrastructureError:
    """Return the error for a git command that could not read a repository's history."""
    return InfrastructureError(
        f"git cannot read the history of {folder}: {_failure(completed)}",
        cure="run git fsck; a partial clone must reach its remote",
    )


def _failure(completed: subprocess.CompletedProcess[str]) -> str:
    """Return why a git command failed: its first line with ``fatal:``, else the first line of its error output."""
    lines = completed.stderr.strip().splitlines() or [f"it ended with {completed.returncode}"]
    fatal = [line for line in lines if line.startswith(_FATAL)]
    return (fatal or lines)[0].removeprefix(_FATAL)


def _unrelated_cure(folder: Path, good: str, bad: str) -> str:
    """Return the cure to show when the good commit is no ancestor of the bad one."""
    if _descends(folder, good, ancestor=bad):
        return "they are the wrong way round: --good names the earlier one"
    shared = git(folder, "merge-base", good, bad)
    if shared is None:
        return "name two commits of one history; a shallow clone lacks older commits (git fetch --unshallow)"
    return f"name an ancestor: {shared[:10]}, where the two histories part, if the case was good there"
