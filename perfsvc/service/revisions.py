"""What a run may be called: its number, its label, ``latest``, ``latest~1``, a git revision; and ``@baseline``."""

import re
import shlex
import tempfile
from pathlib import Path

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.service.git import git
from perfsvc.store import RunRow, Store

BASELINE = "@baseline"
KNOWN = "a run's number, a label, latest, latest~1, @baseline, or a git revision"
_LATEST = re.compile(r"latest(?:~(\d+))?")


def run_of(text: str, store: Store, folder: Path) -> int:
    """The number of the run that a person means; see ``resolve``."""
    return resolve(text, store, folder).id


def resolve(text: str, store: Store, folder: Path) -> RunRow:
    """The run that a person means.

    Args:
        text: what was typed; not ``@baseline``, which is a run for each series.
        store: where the runs are.
        folder: where git revisions are looked up.

    Raises:
        NotMeasuredError: the words are understood but no such run is there; the cure makes one.
        UsageError: the words are not understood.
    """
    if text.isdecimal():
        return store.runs.get(int(text))
    if latest := _LATEST.fullmatch(text):
        return _newest(int(latest[1] or 0), text, store)
    labelled = store.runs.labelled(text)
    if labelled is not None:
        return labelled
    commit = git(folder, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if not commit:
        raise _not_understood(text, folder)
    measured = store.runs.of_commit(commit)
    if measured is None:
        raise NotMeasuredError(
            f"{text} ({commit[:10]}) was never measured",
            cure=f"measure it: {_measuring(commit, store.location, folder)}",
        )
    return measured


def _not_understood(text: str, folder: Path) -> UsageError:
    if git(folder, "rev-parse", "--git-dir"):
        return UsageError(
            f"{text!r} is no run, label or git revision", cure=f"give {KNOWN}; perfsvc runs lists the runs"
        )
    return UsageError(
        f"{text!r} is no run or label, and the suite {folder} lies in no git repository where it could be a revision",
        cure=f"name the suite of your repository (--suite FOLDER), or give {KNOWN}; perfsvc runs lists the runs",
    )


def _newest(back: int, text: str, store: Store) -> RunRow:
    run = store.runs.newest(back)
    if run is None:
        raise NotMeasuredError(f"{text}: the database does not hold that many runs", cure="measure: perfsvc run")
    return run


def _measuring(commit: str, database: str, folder: Path) -> str:
    """The command line that measures a suite as it was at a commit: what a person may type without a thought."""
    tree = Path(tempfile.gettempdir()) / f"perfsvc-{commit[:10]}"
    suite = tree / (git(folder, "rev-parse", "--show-prefix") or "")
    checkout = ["git", "-C", str(folder), "worktree", "add", "--detach", str(tree), commit[:10]]
    measure = ["perfsvc", "run", "--suite", str(suite), "--db", database]
    return " && ".join(shlex.join(words) for words in ([measure] if tree.exists() else [checkout, measure]))
