"""What git knows of the commits between two: who made them, what their files are, which of those they changed."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.model import Commit
from perfsvc.service.repository.git import git, run
from perfsvc.service.repository.worktree import commit_of

_BETWEEN = "\x01"  # in no name, and no white space, which is stripped
_WORDS = _BETWEEN.join(("%H", "%P", "%an <%ae>", "%aI", "%s"))


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
        InfrastructureError: there is no git.
    """
    _require_repository(folder)
    oldest, newest = commit_of(folder, good), commit_of(folder, bad)
    if oldest == newest:
        raise UsageError(f"{good} and {bad} are the same commit, {oldest[:10]}", cure="name two: --good REV --bad REV")
    if git(folder, "merge-base", "--is-ancestor", oldest, newest) is None:
        raise UsageError(f"{good} is no ancestor of {bad}", cure=_cure(folder, oldest, newest))
    between = _log(folder, "--ancestry-path", "--topo-order", "--reverse", f"{oldest}..{newest}")
    return (*_log(folder, "--no-walk", oldest), *between)


def objects(folder: Path, commits: Iterable[str], paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What some files and folders of a repository are at each commit: equal names for equal contents.

    Args:
        folder: any folder of the repository.
        commits: their hashes.
        paths: from the repository's root; ``""`` is all of it. One that is not there has a name that says so.
    """
    wanted = [(commit, path) for commit in dict.fromkeys(commits) for path in paths]
    typed = "".join(f"{commit}:{path}\n" for commit, path in wanted)
    answers = (git(folder, "cat-file", "--batch-check=%(objectname)", typed=typed) or "").splitlines()
    found: dict[str, tuple[str, ...]] = {}
    for (commit, _), answer in zip(wanted, answers, strict=True):
        there = "" if answer.endswith(" missing") else answer
        found[commit] = (*found.get(commit, ()), there)
    return found


def changed(folder: Path, before: str, after: str, paths: Collection[str]) -> tuple[str, ...]:
    """Which files below some paths of a repository differ between two commits, from the repository's root."""
    if not paths:
        return ()
    pathspecs = [f":(top,literal){path}" for path in paths]
    told = git(folder, "diff", "--name-only", "--no-ext-diff", "-z", before, after, "--", *pathspecs) or ""
    return tuple(name for name in told.split("\0") if name)


def _require_repository(folder: Path) -> None:
    try:
        done = run(folder, "rev-parse", "--git-dir")
    except OSError as error:
        raise InfrastructureError(f"git cannot be started: {error.strerror}", cure="install git") from error
    if done.returncode:
        said = done.stderr.strip().partition("\n")[0].removeprefix("fatal: ")
        raise UsageError(
            f"{folder} is in no git repository that can be read: {said}",
            cure="name the suite's folder in its repository: --suite FOLDER",
        )


def _log(folder: Path, *arguments: str) -> tuple[Commit, ...]:
    told = git(folder, "log", "--no-show-signature", "--no-color", f"--format={_WORDS}", *arguments) or ""
    return tuple(_commit(*line.split(_BETWEEN, 4)) for line in told.split("\n") if line)


def _commit(name: str, parents: str, author: str, date: str, subject: str) -> Commit:
    return Commit(name, subject, author, datetime.fromisoformat(date), tuple(parents.split()))


def _cure(folder: Path, good: str, bad: str) -> str:
    if git(folder, "merge-base", "--is-ancestor", bad, good) is not None:
        return "they are the wrong way round: --good names the earlier one"
    shared = git(folder, "merge-base", good, bad)
    if shared is None:
        return "name two of one history; a shallow clone lacks what came before (git fetch --unshallow)"
    return f"name one that is: where they part, {shared[:10]}, if the case was good there"
