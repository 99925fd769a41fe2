"""Which suite a night measures: its revision, and a digest of its files by which a changed one is told."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.service.run.provenance import Revision, revision_of
from perfsvc.store import NightRow


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
