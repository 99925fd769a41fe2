"""Find the run that the user names: by number, label, ``latest``, ``latest~1`` or git revision."""

import re
import shlex
import tempfile
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from perfsvc import units
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.service.git import git, require_readable
from perfsvc.store import RunRow, RunState, Store

BASELINE = "@baseline"
KNOWN = "a run's number, a label, latest, latest~1, @baseline, or a git revision"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_LATEST = re.compile(r"latest(?:~(\d+))?")


def resolve(text: str, store: Store, folder: Path) -> RunRow:
    """Return the run that the user names, as ``choose`` does."""
    return choose(text, store, folder)[0]


def choose(text: str, store: Store, folder: Path, like: RunRow | None = None) -> tuple[RunRow, str]:
    """Return the run that the user names, and why it was chosen if a git revision has several runs.

    A git revision stands for the best run of its commit, such as a finished run with most cases, so that a quick run of
    one case does not hide a complete run. If git does not know it in ``folder``, the runs do: it is a commit that they
    measured, or the branch on which they measured.

    Args:
        text: what the user typed; not ``@baseline``, which is a different run for each series.
        store: holds the runs.
        folder: where git revisions are looked up.
        like: the run to compare with; among equally good runs of a revision, a run that shares a device with ``like``
            is preferred.

    Raises:
        NotMeasuredError: the text is valid, but no run matches; the cure says how to measure one.
        UsageError: the text is not valid.
    """
    if text.isdecimal():
        return store.runs.get(int(text)), ""
    if latest := _LATEST.fullmatch(text):
        return _newest(int(latest[1] or 0), text, store), ""
    labelled = store.runs.labelled(text)
    if labelled is not None:
        return labelled, ""
    commit = git(folder, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if not commit and (found := _known_by_runs(text, store, like)):
        return found
    if not commit:
        require_readable(folder)
        raise _not_valid(text, folder)
    runs = store.runs.of_commit(commit, like.devices if like else ())
    if not runs:
        raise NotMeasuredError(
            f"{text} ({commit[:10]}) was never measured",
            cure=f"measure it: {_measure_command(commit, store.location, folder)}",
        )
    return runs[0], _why(runs)


def _known_by_runs(text: str, store: Store, like: RunRow | None) -> tuple[RunRow, str] | None:
    """Return what ``choose`` returns for a commit or a branch that git does not know; None if no run has it."""
    if _COMMIT.fullmatch(text) and (runs := store.runs.of_commit(text, like.devices if like else ())):
        return runs[0], _why(runs)
    newest = store.runs.of_branch(text)
    if newest is None:
        return None
    runs = store.runs.of_commit(newest.provenance.commit, like.devices if like else ()) or [newest]
    return runs[0], f"the newest of the branch {text}" if runs[0].id == newest.id else _why(runs)


def _why(runs: Sequence[RunRow]) -> str:
    """Return why the first of a revision's runs is chosen rather than the newest; empty if it is the only run."""
    chosen, newest = runs[0], max(runs, key=attrgetter("id"))
    if chosen is newest:
        return f"the newest of its {len(runs)} runs" if len(runs) > 1 else ""
    if newest.provenance.dirty and not chosen.provenance.dirty:
        reason = "has uncommitted changes"
    elif newest.state is not RunState.FINISHED and chosen.state is RunState.FINISHED:
        reason = "did not finish"
    elif newest.cases < chosen.cases:
        reason = f"has only {newest.cases} of {units.count(chosen.cases, 'case')}"
    elif newest.devices != chosen.devices:
        reason = "measured on other devices"
    else:
        reason = "has fewer cases"
    return f"rather than run {newest.id}, which {reason}"


def require_judged(store: Store, run: int) -> None:
    """Raise ``UsageError`` if a run is excluded from judging as a whole."""
    for exclusion in store.exclusions.of_runs([run]):
        if not exclusion.case:
            raise UsageError(
                f"run {run} is excluded from judging, by {exclusion.by}: {exclusion.reason}",
                cure=f"name another run, or include this run in judging again: perfsvc runs include {run}",
            )


def _not_valid(text: str, folder: Path) -> UsageError:
    """Return the error for a text that names no run; its cure depends on whether the folder is in a repository."""
    if git(folder, "rev-parse", "--git-dir"):
        return UsageError(
            f"{text!r} is no run, label or git revision", cure=f"give {KNOWN}; perfsvc runs lists the runs"
        )
    return UsageError(
        f"{text!r} is no run, no label, and no commit or branch of a run; the suite is in no git repository",
        cure=f"name the suite of your repository (--suite, now {folder}), or give {KNOWN}; perfsvc runs lists the runs",
    )


def _newest(back: int, text: str, store: Store) -> RunRow:
    """Return the newest run for ``back`` 0, the one before for 1, and so on; ``text`` is shown in the error."""
    run = store.runs.newest(back)
    if run is None:
        raise NotMeasuredError(f"{text}: the database does not hold that many runs", cure="measure: perfsvc run")
    return run


def _measure_command(commit: str, database: str, folder: Path) -> str:
    """Return a shell command that checks the suite out at a commit into a temporary worktree and measures it."""
    tree = Path(tempfile.gettempdir()) / f"perfsvc-{commit[:10]}"
    suite = tree / (git(folder, "rev-parse", "--show-prefix") or "")
    checkout = ["git", "-C", str(folder), "worktree", "add", "--detach", str(tree), commit[:10]]
    measure = ["perfsvc", "run", "--suite", str(suite), "--db", database]
    return " && ".join(shlex.join(words) for words in ([measure] if tree.exists() else [checkout, measure]))
