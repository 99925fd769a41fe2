"""Which night is executed: a new one, or the one that was stopped."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.service.nightly.request import NightRequest, placed, restored
from perfsvc.service.run.provenance import Revision, revision_of
from perfsvc.store import NightRow, StageState, Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A suite as it is now."""

    revision: Revision
    digest: str


def snapshot_of(suite: Path) -> Snapshot:
    """Reads a suite; raises ``UsageError`` where it cannot be read."""
    return Snapshot(revision_of(suite), _digest(suite))


def refuse_changed(night: NightRow, suite: Path) -> None:
    """Raises ``UsageError`` where a suite is not what it was when the night took its snapshot."""
    if not night.suite_digest or _digest(suite) == night.suite_digest:
        return
    clean = night.commit and not night.dirty
    back = f"bring it back (git checkout {night.commit[:10]})" if clean else "bring its files back"
    raise UsageError(
        f"{suite} is not what it was when night {night.id} took its snapshot",
        cure=f"{back} and perfsvc nightly --resume, or leave that night as it is and begin another: perfsvc nightly",
    )


def _digest(suite: Path) -> str:
    """The SHA-256 of all files of a folder, each with its name; what Python and git keep beside them is left out."""
    whole = hashlib.sha256()
    try:
        for file in sorted(_files(suite)):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{content} {file.relative_to(suite).as_posix()}\n".encode(errors="surrogateescape"))
    except OSError as error:
        what = f"{error.filename or suite} cannot be read: {error.strerror}"
        raise UsageError(what, cure="name the folder of benchmarks: suite in perfsvc.toml") from error
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry)
        elif entry.is_file():
            yield entry


MEASURES = "run"
"""The last stage that needs the suite as it was."""


def begin(store: Store, host: str, request: NightRequest, say: Callable[[str], object]) -> NightRow:
    """Begins a night; one that was stopped and that nobody went on with stays interrupted, and that is said."""
    left = store.nights.unfinished(host)
    if left:
        say(f"night {left.id} was stopped after {last(left)}, and nobody went on with it: it stays interrupted")
    settings = placed(request.settings)
    number = store.nights.begin(
        host=host,
        started=datetime.now(UTC),
        suite=str(settings.suite),
        command_line=request.command_line,
        settings=settings.public(),
    )
    return store.nights.get(number)


def go_on(store: Store, host: str, request: NightRequest) -> NightRow:
    """Goes on with the newest night of this host.

    Raises:
        UsageError: it has ended by itself, there is none, its suite is another one by now than it has measured, or
            another perfsvc stored its settings.
    """
    night = store.nights.unfinished(host)
    if night is None:
        newest = next((one.id for one in store.nights.list() if one.host == host), None)
        what = f"night {newest} is the newest of this host, and was not stopped before its end"
        what = "no night was begun on this host" if newest is None else what
        raise UsageError(f"{what}: there is none to go on with", cure="begin one: perfsvc nightly")
    if MEASURES not in ended(night):
        refuse_changed(night, Path(night.suite))
    restored(night.settings, request.settings.database)  # what refuses them leaves the night as it is
    store.nights.resume(night.id)
    return night


def last(night: NightRow) -> str:
    """How far a night came."""
    done = [stage.name for stage in night.stages if stage.name in ended(night)]
    return f"its stage {done[-1]}" if done else "its first moment"


def ended(night: NightRow) -> set[str]:
    """The stages of a night that need not be done any more."""
    return {stage.name for stage in night.stages if stage.state is not StageState.RUNNING}
