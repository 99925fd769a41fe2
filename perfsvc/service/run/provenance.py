"""Begin or resume a run in the store, with its provenance: commit, host, versions."""

import platform
import shlex
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perfsvc import __version__, installation
from perfsvc.device.cpu import processor_model
from perfsvc.model import Measurement, Peak, Provenance
from perfsvc.selection import Selection
from perfsvc.service.git import LIMIT_S, git, unreadable, unreadable_cure
from perfsvc.service.prepare.targets import seed_of
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store

_UNBORN, _DETACHED = "(initial)", "(detached)"
"""What git prints for a repository without a commit, and for one that has no branch checked out."""
_FIELDS = {"1": 8, "2": 9, "u": 10}
"""By the kind of a line of ``git status --porcelain=v2``, how many fields are before the path."""
_QUESTIONS = (
    # --ignore-submodules: a clone may bring a .gitmodules that hides the changes in a submodule (ignore = all).
    ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=untracked"),
    ("check-ignore", "-q", "."),
    ("ls-files", "--others", "--exclude-standard", "."),
)
"""The git commands that ``revision_of`` needs, started at once: starting git takes longer than its answer."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run in the store that is being measured.

    Attributes:
        run: the number of the run.
        seed: decides the order of the run's cases.
        started: when the run was begun for the first time.
        measurements: the measurements that a resumed run already has.
        peaks: the measured peaks that a resumed run already has, by device UUID.
    """

    run: int
    seed: int
    started: datetime
    measurements: tuple[Measurement, ...] = ()
    peaks: Mapping[str, Peak] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Revision:
    """The git revision of a folder; empty outside a repository.

    Attributes:
        commit: the commit that is checked out.
        dirty: whether files differ from the commit, or whether that is unknown because git cannot read the repository.
        branch: the branch; empty if none is checked out.
        unknown: why git cannot read the repository; empty if it can.
        changed: the files that differ from the commit, and the untracked files, relative to the folder. Git quotes
            paths with special characters.
    """

    commit: str = ""
    dirty: bool = False
    branch: str = ""
    unknown: str = ""
    changed: tuple[str, ...] = ()


def begin(store: Store, request: RunRequest, report: Callable[[str], object], *, night: int | None = None) -> OpenRun:
    """Begin a run; ``night`` is the night that it belongs to. A repository that git cannot read is reported."""
    if why := unreadable(request.suite):
        report(
            f"git cannot read the repository of {request.suite} ({why}): "
            f"the run counts as one with uncommitted changes; {unreadable_cure(request.suite)}"
        )
    provenance = collect(
        request.suite,
        command_line=request.command_line,
        label=request.label,
        scope=scope_of(request.suite, request.selection, request.points),
        seed=seed_of(request.seed),
        replicas=request.replicas,
    )
    return OpenRun(store.runs.begin(provenance, night=night), provenance.seed, provenance.started)


def resume(store: Store, run: int) -> OpenRun:
    """Resume an interrupted run. The stored seed is used again, so that the remaining cases keep their order.

    Raises:
        NotMeasuredError: there is no such run.
    """
    store.runs.resume(run)
    provenance = store.runs.get(run).provenance
    return OpenRun(
        run, provenance.seed, provenance.started, tuple(store.measurements.of_run(run)), store.devices.peaks(run)
    )


def collect(suite: Path, *, command_line: str, label: str, scope: str, seed: int, replicas: int) -> Provenance:
    """Return the provenance of a run that starts now."""
    revision = revision_of(suite)
    return Provenance(
        started=datetime.now(UTC),
        command_line=command_line,
        suite=str(suite),
        commit=revision.commit,
        dirty=revision.dirty,
        branch=revision.branch,
        host=socket.gethostname(),
        cpu=processor_model(),
        perfsvc_version=__version__,
        python_version=platform.python_version(),
        packages=installation.versions((*installation.REQUIRED, *installation.OPTIONAL)),
        seed=seed,
        replicas=replicas,
        label=label,
        scope=scope,
    )


def scope_of(suite: Path, selection: Selection, points: str | None) -> str:
    """Return the scope of a run: the name of its suite's folder, and the sorted options that select cases.

    Two runs of equal scope select the same cases of an unchanged suite. The folder's path is left out, because the path
    differs between checkouts.
    """
    selected = [f"--select={glob}" for glob in sorted(selection.select)]
    excluded = [f"--exclude={glob}" for glob in sorted(selection.exclude)]
    return shlex.join([suite.resolve().name, *([f"--points={points}"] if points else []), *selected, *excluded])


def revision_of(folder: Path) -> Revision:
    """Return the commit that a folder is checked out at, its branch, and whether files differ from the commit.

    The revision is dirty if anything that could change a binary differs: a changed tracked file anywhere, or an
    untracked file inside the folder. A folder that its repository ignores (an installed suite) has no revision.

    If git is missing, slow, or refuses to read the repository, the revision is dirty: otherwise uncommitted work could
    become an accepted level.
    """
    with ThreadPoolExecutor(len(_QUESTIONS)) as threads:
        status, ignored, untracked = threads.map(lambda arguments: git(folder, *arguments), _QUESTIONS)
    if ignored is not None:
        return Revision()
    if status is None or untracked is None:
        why = unreadable(folder)
        if not why and git(folder, "rev-parse", "--is-inside-work-tree") == "true":
            why = f"git could not report its changes within {LIMIT_S} s"
        return Revision(dirty=bool(why), unknown=why)
    lines = status.splitlines()
    headers = dict(line.removeprefix("# branch.").split(" ", 1) for line in lines if line.startswith("# branch."))
    if headers["oid"] == _UNBORN:
        return Revision()
    # The path is the last field. A renamed file has its old path after a tab; an unmerged file has more fields.
    tracked = [line.split(" ", _FIELDS[line[:1]])[-1].split("\t")[0] for line in lines if line[:1] in _FIELDS]
    changed = (*tracked, *untracked.splitlines())
    branch = "" if headers["head"] == _DETACHED else headers["head"]
    return Revision(headers["oid"], bool(changed), branch, changed=changed)
