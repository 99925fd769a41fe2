"""Begin a night, or resume the one that was stopped, with the same suite."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.service.nightly.request import NightRequest, restored, with_absolute_paths
from perfsvc.store import NightRow, StageState, Store

LAST_WITH_SUITE = "run"
"""The last stage that needs the suite unchanged."""


def begin(store: Store, host: str, request: NightRequest, report: Callable[[str], object]) -> NightRow:
    """Begin a night. An earlier night that was stopped and not resumed stays interrupted."""
    stopped = store.nights.unfinished(host)
    if stopped:
        report(f"night {stopped.id} was stopped after {last_stage(stopped)} and was not resumed: it stays interrupted")
    settings = with_absolute_paths(request.settings)
    number = store.nights.begin(
        host=host,
        started=datetime.now(UTC),
        suite=str(settings.suite),
        command_line=request.command_line,
        settings=settings.public(),
    )
    return store.nights.get(number)


def resume(store: Store, host: str, request: NightRequest) -> NightRow:
    """Resume the newest night of this host.

    Raises:
        UsageError: there is none, it was not stopped before its end, its suite has changed before it was measured, or
            another version of perfsvc stored its settings.
    """
    night = store.nights.unfinished(host)
    if night is None:
        newest = next((night.id for night in store.nights.list() if night.host == host), None)
        what = f"night {newest} is the newest of this host, and was not stopped before its end"
        what = "no night was begun on this host" if newest is None else what
        raise UsageError(f"{what}: there is none to resume", cure="begin one: perfsvc nightly")
    if LAST_WITH_SUITE not in _ended_stages(night):
        require_same_suite(night, Path(night.suite))
    restored(night.settings, request.settings.database)  # raises before the night is changed
    store.nights.resume(night.id)
    return night


def last_stage(night: NightRow) -> str:
    """Return how far a night got, in words: ``its stage run``."""
    ended = _ended_stages(night)
    return f"its stage {ended[-1]}" if ended else "its first moment"


def _ended_stages(night: NightRow) -> list[str]:
    return [stage.name for stage in night.stages if stage.state is not StageState.RUNNING]


def require_same_suite(night: NightRow, suite: Path) -> None:
    """Raise ``UsageError`` if the files of a suite have changed since the night began."""
    if not night.suite_digest or suite_digest(suite) == night.suite_digest:
        return
    clean = night.commit and not night.dirty
    back = f"bring it back (git checkout {night.commit[:10]})" if clean else "bring its files back"
    raise UsageError(
        f"{suite} has changed since night {night.id} began",
        cure=f"{back} and perfsvc nightly --resume, or leave that night as it is and begin another: perfsvc nightly",
    )


def suite_digest(suite: Path) -> str:
    """Return the SHA-256 of all files of a folder with their names, without the files of Python and git.

    Raises:
        UsageError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for file in sorted(_files(suite)):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{content} {file.relative_to(suite).as_posix()}\n".encode(errors="surrogateescape"))
    except OSError as error:
        what = f"{error.filename or suite} cannot be read: {error.strerror}"
        raise UsageError(what, cure="name the folder of benchmarks: suite in perfsvc.toml") from error
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry)
        elif entry.is_file():
            yield entry
