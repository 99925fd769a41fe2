"""What git knows of the commits between two: who made them, what their files are, which of those they changed.

History takes as long as it takes to read: that of a large repository more than a minute. Where git cannot tell it, that
is an error, for an answer that is empty would be taken for one.
"""

import subprocess
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.model import Commit
from perfsvc.service.repository.git import git, run
from perfsvc.service.repository.worktree import commit_of

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
            f"{folder} is in no git repository that can be read: {_reason(done)}",
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
        return run(folder, *arguments, typed=typed)
    except OSError as error:
        raise InfrastructureError(f"git cannot be started: {error.strerror}", cure="install git") from error


def _unread(folder: Path, done: subprocess.CompletedProcess[str]) -> InfrastructureError:
    return InfrastructureError(
        f"git cannot read the history of {folder}: {_reason(done)}",
        cure="see what git fsck says of it; a partial clone must reach its remote",
    )


def _reason(done: subprocess.CompletedProcess[str]) -> str:
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
