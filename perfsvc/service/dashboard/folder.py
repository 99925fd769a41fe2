"""The folder of a site: whole pages or none, nothing of anybody else's touched, nothing of ours left behind.

A hidden file names all that perfsvc wrote there. It is written before the first page and after the last: whenever a
build is killed, the next one knows what is its own.
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
def writing(folder: Path, names: Sequence[str]) -> Iterator["Folder"]:
    """The folder to write some files into; at the end, those that it held of ours and that were not named are removed.

    Another process that writes to it is waited for.

    Raises:
        UsageError: it is no folder, or one of the files is there and is not ours.
        InfrastructureError: it cannot be written to, or the disk is full.
    """
    with _said(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            held = _held(folder)
            _refuse_foreign(folder, set(names) - held)
            opened = Folder(folder)
            opened.write(MANIFEST, _manifest(held | set(names)))
            yield opened
            opened.remove(held - set(names))
            opened.write(MANIFEST, _manifest(names))


class Folder:
    """A folder that pages are written into."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: bytes) -> Path:
        """Replaces a file at once, unless it is as it should be."""
        path = self.path / name
        if not _is(path, content):
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
        """Removes files, and the folders that are empty without them."""
        for name in sorted(names):
            path = self.path / name
            path.unlink(missing_ok=True)
            if path.parent != self.path and path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the kernel's lock of the folder itself, which leaves no file behind."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _said(folder: Path) -> Iterator[None]:
    """Makes what the system refuses an error with a cure."""
    try:
        yield
    except (NotADirectoryError, FileExistsError) as error:
        raise UsageError(f"{folder} is no folder", cure="name one for the pages") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise InfrastructureError(
            f"the pages cannot be written to {folder}: {why}", cure="make room there, or name another folder"
        ) from error


def _held(folder: Path) -> set[str]:
    """What the manifest says is ours; nothing where it is damaged, since then nobody knows."""
    try:
        names = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return set()
    return {name for name in names if isinstance(name, str) and _is_inside(name)} if isinstance(names, list) else set()


def _is_inside(name: str) -> bool:
    """Whether a name stays below the folder, so that no manifest can have anything else removed."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _manifest(names: Iterable[str]) -> bytes:
    return json.dumps({"written by": "perfsvc dashboard build", "files": sorted(names)}, indent=1).encode()


def _refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Raises where files are in the way that perfsvc did not write."""
    foreign = sorted(name for name in names if os.path.lexists(folder / name))
    if foreign:
        more = f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else ""
        raise UsageError(
            f"{folder} holds files that perfsvc did not write: {', '.join(foreign[:NAMED])}{more}",
            cure="name an empty folder, or remove them",
        )


def _is(path: Path, content: bytes) -> bool:
    """Whether a file holds that already: it is then left alone, with its time, for whoever copies what is new."""
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False
