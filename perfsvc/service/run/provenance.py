"""Begin or resume a run in the store, with its provenance: commit, host, versions."""

import platform
import shlex
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perfsvc import __version__, installation
from perfsvc.device.cpu import processor_model
from perfsvc.model import Measurement, Peak, Provenance
from perfsvc.service.git import git
from perfsvc.service.run.request import RunRequest, seed_of
from perfsvc.store import Store
from perfsvc.suite import Selection

_UNBORN, _DETACHED = "(initial)", "(detached)"
"""What git says of a repository without a commit, and of one that has no branch checked out."""
_ASKED = (
    ("status", "--porcelain=v2", "--branch", "--untracked-files=no"),
    ("check-ignore", "-q", "."),
    ("ls-files", "--others", "--exclude-standard", "."),
)
"""What git is asked of a folder, all at once: to start git takes longer than to answer."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What git says of a folder; empty outside a repository."""

    commit: str = ""
    dirty: bool = False
    branch: str = ""


def collect(suite: Path, *, command_line: str, label: str, scope: str, seed: int, replicas: int) -> Provenance:
    """Everything a run starting now should remember."""
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
    """How the cases of a run are chosen: equal for two runs that would measure the same cases of an unchanged suite.

    It is the name of the suite's folder (its path differs between checkouts) and the options of a command line, sorted.
    """
    chosen = [f"--select={glob}" for glob in sorted(selection.select)]
    over_budget = [f"--exclude={glob}" for glob in sorted(selection.exclude)]
    return shlex.join([suite.resolve().name, *([f"--points={points}"] if points else []), *chosen, *over_budget])


def revision_of(folder: Path) -> Revision:
    """The commit that a folder's files belong to, and whether they differ from it.

    Dirty is what could change a binary: a changed tracked file anywhere, or an untracked one inside the folder. A
    folder that its repository ignores (an installed suite) has no revision.
    """
    with ThreadPoolExecutor(len(_ASKED)) as at_once:
        status, ignored, untracked = at_once.map(lambda words: git(folder, *words), _ASKED)
    if status is None or ignored is not None:
        return Revision()
    lines = status.splitlines()
    told = dict(line.removeprefix("# branch.").split(" ", 1) for line in lines if line.startswith("# branch."))
    if told["oid"] == _UNBORN:
        return Revision()
    changed = any(not line.startswith("#") for line in lines)
    branch = "" if told["head"] == _DETACHED else told["head"]
    return Revision(told["oid"], changed or bool(untracked), branch)


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that is under way.

    Attributes:
        run: its number.
        seed: decides the order of its cases.
        started: when it was begun first.
        held: what it had measured when it was cut short.
        peaks: what it knew of its GPUs then, by UUID.
    """

    run: int
    seed: int
    started: datetime
    held: tuple[Measurement, ...] = ()
    peaks: Mapping[str, Peak] = field(default_factory=dict)


def begin(store: Store, request: RunRequest, *, night: int | None = None) -> Begun:
    """Begins a run, as a night's where it is one."""
    root_cause = _origin(request)
    return Begun(store.begin_run(root_cause, night=night), root_cause.seed, root_cause.started)


def go_on(store: Store, run: int) -> Begun:
    """Goes on with a run that was cut short; its seed puts the cases that are left into the order they had.

    Raises:
        NotMeasuredError: there is no such run.
    """
    store.resume_run(run)
    root_cause = store.run(run).provenance
    return Begun(run, root_cause.seed, root_cause.started, tuple(store.measured(run)), store.peaks(run))


def _origin(request: RunRequest) -> Provenance:
    return collect(
        request.suite,
        command_line=request.command_line,
        label=request.label,
        scope=scope_of(request.suite, request.selection, request.points),
        seed=seed_of(request.seed),
        replicas=request.replicas,
    )
