"""The commits behind a finding, read from the suite's repository; or why they cannot be read."""

import time
from functools import cache
from pathlib import Path

from perfsvc.model import Commit
from perfsvc.report.pages.finding import CommitRange
from perfsvc.service.git import git, newest_commits, unreadable

MOST = 20
"""How many commits of a range are listed."""
LIMIT_S = 5.0
"""Seconds for one answer of git."""
BUDGET_S = 30.0
"""Seconds for all answers of git: a slow file system must not delay the pages of a night."""


class CommitReader:
    """Reads the commits of ranges; what is read is kept, because several findings may name the same range.

    Args:
        budget_s: the seconds after which git is not asked any more.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._left_s = budget_s
        self.read = cache(self._read)
        self._trouble_of = cache(_trouble_of)

    def _read(self, suite: str, good: str, bad: str) -> CommitRange:
        """Return the commits after ``good`` up to ``bad``, or the reason why they are not known.

        Args:
            suite: the folder of benchmarks, as the run recorded it.
            good: a hash; empty to read only the commit ``bad``.
            bad: a hash.
        """
        if self._left_s <= 0:
            return CommitRange(good, bad, why_not="git was too slow: the time for reading commits was used up")
        began = time.monotonic()
        try:
            commits, count, why_not = self._asked(Path(suite), good, bad)
        finally:
            self._left_s -= time.monotonic() - began
        return CommitRange(good, bad, commits, count, why_not)

    def _asked(self, folder: Path, good: str, bad: str) -> tuple[tuple[Commit, ...], int, str]:
        """Return the commits, how many there are, and why there are none."""
        if trouble := self._trouble_of(folder):
            return (), 0, trouble
        commits, count = newest_commits(folder, good, bad, MOST, limit_s=LIMIT_S)
        return commits, count, "" if commits else _why_none(folder, good, bad)


def _trouble_of(folder: Path) -> str:
    """Return why a folder's history cannot be read; empty if it can."""
    if not folder.is_dir():
        return f"the suite's folder {folder} is not on this machine"
    if why := unreadable(folder, limit_s=LIMIT_S):
        return f"git cannot read the repository of {folder}: {why}"
    if git(folder, "rev-parse", "--git-dir", limit_s=LIMIT_S) is None:
        return f"{folder} is in no git repository on this machine"
    return ""


def _why_none(folder: Path, good: str, bad: str) -> str:
    """Return why git listed no commits of a range."""
    for commit in filter(None, (good, bad)):
        name = f"{commit}^{{commit}}"
        if not git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name, limit_s=LIMIT_S):
            shallow = git(folder, "rev-parse", "--is-shallow-repository", limit_s=LIMIT_S) == "true"
            cure = "it is shallow: git fetch --unshallow" if shallow else "git fetch --all may bring it"
            return f"the clone {folder} has no commit {commit} ({cure})"
    return f"{bad} has no commit that {good} lacks: the run measured an older commit" if good else "git did not answer"
