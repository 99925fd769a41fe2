"""The folder of a site: pages are whole, files of others are never touched, and no page of an old build is left.

A hidden file, the manifest, lists all files that perfsvc wrote there. It is written before the first page and after the
last, so that after a build that was killed the next build knows its files.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from perfsvc.errors import InfrastructureError, UsageError

MANIFEST = ".perfsvc-dashboard.json"

NAMED = 3
"""How many foreign files an error names."""


@contextmanager
def writing(folder: Path, names: Sequence[str]) -> Iterator["SiteFolder"]:
    """Open a folder to write files into; at the end, remove the files of the last build that were not written again.

    If another process writes to the folder, wait for it.

    Raises:
        UsageError: the path is no folder, or one of the files exists and was not written by perfsvc.
        InfrastructureError: the folder cannot be written to, or the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            ours = _listed_in_manifest(folder)
            _refuse_foreign(folder, set(names) - ours)
            opened = SiteFolder(folder)
            opened.write(MANIFEST, _manifest(ours | set(names)))
            yield opened
            opened.remove(ours - set(names))
            opened.write(MANIFEST, _manifest(names))
    except (NotADirectoryError, FileExistsError) as error:
        raise UsageError(f"{folder} is no folder", cure="name one for the pages") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise InfrastructureError(
            f"the pages cannot be written to {folder}: {why}", cure="make room there, or name another folder"
        ) from error


class SiteFolder:
    """A folder that pages are written into."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: bytes) -> Path:
        """Replace a file in a single step. An equal file keeps its time, so that tools that copy changes skip it."""
        path = self.path / name
        if not _has_content(path, content):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            try:
                part.write_bytes(content)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        return path

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are empty without them."""
        for name in sorted(names):
            path = self.path / name
            path.unlink(missing_ok=True)
            if path.parent != self.path and path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself during the block; no lock file is needed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _listed_in_manifest(folder: Path) -> set[str]:
    """Return the names in the manifest, the files that perfsvc wrote; none if the manifest is missing or damaged."""
    try:
        names = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return set()
    return {name for name in names if isinstance(name, str) and _is_inside(name)} if isinstance(names, list) else set()


def _is_inside(name: str) -> bool:
    """Return whether a name stays inside the folder, so that a manifest cannot remove files outside it."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _manifest(names: Iterable[str]) -> bytes:
    return json.dumps({"written by": "perfsvc dashboard build", "files": sorted(names)}, indent=1).encode()


def _refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Raise ``UsageError`` if any of these names exists in the folder; perfsvc wrote none of them."""
    foreign = sorted(name for name in names if os.path.lexists(folder / name))
    if foreign:
        more = f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else ""
        raise UsageError(
            f"{folder} holds files that perfsvc did not write: {', '.join(foreign[:NAMED])}{more}",
            cure="name an empty folder, or remove them",
        )


def _has_content(path: Path, content: bytes) -> bool:
    """Return whether a file exists and has exactly this content."""
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False
