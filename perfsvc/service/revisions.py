"""What a run may be called: its number, its label, ``latest``, ``latest~1``, a git revision; and ``@baseline``."""

import re
from pathlib import Path

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.service.provenance import git
from perfsvc.store import Store

BASELINE = "@baseline"
KNOWN = "a run's number, a label, latest, latest~1, @baseline, or a git revision"
_LATEST = re.compile(r"latest(?:~(\d+))?")


def run_of(text: str, store: Store, folder: Path) -> int:
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
        return store.run(int(text)).id
    if latest := _LATEST.fullmatch(text):
        return _newest(int(latest[1] or 0), text, store)
    labelled = store.labelled(text)
    if labelled is not None:
        return labelled.id
    commit = git(folder, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if not commit:
        raise UsageError(
            f"{text!r} is no run, label or git revision", cure=f"give {KNOWN}; perfsvc runs lists the runs"
        )
    measured = store.of_commit(commit)
    if measured is None:
        raise NotMeasuredError(
            f"{text} ({commit[:10]}) was never measured",
            cure=f"measure it: git worktree add /tmp/{commit[:10]} {commit[:10]} && "
            f"perfsvc run --suite /tmp/{commit[:10]}/{_suite_in(folder)}",
        )
    return measured.id


def _newest(back: int, text: str, store: Store) -> int:
    run = store.newest(back)
    if run is None:
        raise NotMeasuredError(f"{text}: the database does not hold that many runs", cure="measure: perfsvc run")
    return run.id


def _suite_in(folder: Path) -> str:
    """The suite's folder relative to the top of its repository."""
    return (git(folder, "rev-parse", "--show-prefix") or "").rstrip("/") or "kernels"
