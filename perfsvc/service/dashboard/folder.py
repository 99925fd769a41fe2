"""The folder of a site: pages are whole, files of others are never touched, and no page of an old build is left.

A hidden file, the manifest, lists all files that perfsvc wrote there. It is written before the first page and after the
last, so that after a build that was killed the next build knows its files.
"""

import fcntl
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.files import Folder, is_inside

MANIFEST = ".perfsvc-dashboard.json"

NAMED = 3
"""How many foreign files an error names."""


@contextmanager
def writing(folder: Path, names: Sequence[str]) -> Iterator["SiteFolder"]:
    """Open a folder to write files into; at the end, remove the files of the last build that were not written again.

    If another process writes to the folder, wait for it. The folder may be a link; links below it are not followed.

    Raises:
        UsageError: the path is no folder, a folder below it is a link, or one of the files exists and was not written
            by perfsvc.
        InfrastructureError: the folder cannot be written to, or the disk is full.
    """
    try:
        with Folder.open(folder, make=True) as opened:
            fcntl.flock(opened.descriptor, fcntl.LOCK_EX)  # a lock on the folder itself: no lock file is needed
            site = SiteFolder(opened)
            ours = site.listed_in_manifest()
            site.refuse_foreign(names, ours)
            site.write(MANIFEST, _manifest(ours | set(names)))
            site.remove_abandoned(names)
            try:
                yield site
            finally:  # this process may fail
                site.remove_abandoned(names)
            site.remove(ours - set(names))
            site.write(MANIFEST, _manifest(names))
    except NotADirectoryError as error:
        raise UsageError(
            f"{error.filename or folder} is no folder, or is a link", cure="remove it, or name another folder"
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise InfrastructureError(
            f"the pages cannot be written to {folder}: {why}", cure="make room there, or name another folder"
        ) from error


class SiteFolder:
    """A folder that pages are written into."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Replace a file in a single step. An equal file keeps its time, so that tools that copy changes skip it."""
        if self._read(name) != content:
            self._folder.write(name, content)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are empty without them."""
        for name in sorted(names):
            self._folder.remove(name)

    def remove_abandoned(self, names: Iterable[str]) -> None:
        """Remove, from the folders of these files, the temporary files that killed processes left behind."""
        for folder in {str(PurePosixPath(name).parent) for name in names}:
            with suppress(FileNotFoundError), self._folder.subfolder(folder) as opened:
                opened.remove_abandoned()

    def listed_in_manifest(self) -> set[str]:
        """Return the files that the manifest lists as written by perfsvc; none if it is missing, damaged or a link."""
        try:
            names = json.loads(self._read(MANIFEST) or b"")["files"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return set()
        return (
            {name for name in names if isinstance(name, str) and is_inside(name)} if isinstance(names, list) else set()
        )

    def refuse_foreign(self, names: Iterable[str], ours: Collection[str]) -> None:
        """Raise ``UsageError`` if a file exists and is not in ``ours``, and ``OSError`` if its folder is a link."""
        foreign = sorted({name for name in names if self._folder.exists(name)} - set(ours))
        if foreign:
            more = f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else ""
            raise UsageError(
                f"{self._folder.path} holds files that perfsvc did not write: {', '.join(foreign[:NAMED])}{more}",
                cure="name an empty folder, or remove these files",
            )

    def _read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it is missing, is a link, or cannot be read."""
        try:
            return self._folder.read(name)
        except OSError:
            return None


def _manifest(names: Iterable[str]) -> bytes:
    return json.dumps({"written by": "perfsvc dashboard build", "files": sorted(names)}, indent=1).encode()
