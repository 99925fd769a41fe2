"""Compiled binaries by the hash of everything that decides them."""

import contextlib
import os
import tempfile
from pathlib import Path

import platformdirs

from perfsvc.errors import InfrastructureError
from perfsvc.model import digest

_DIGEST_LENGTH = 64


def default_folder() -> Path:
    """``PERFSVC_CACHE`` if it is set, else the user's cache folder."""
    chosen = os.environ.get("PERFSVC_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("perfsvc"))


class Cache:
    """A content-addressed folder: any number of processes may read and write it at once.

    An entry is the SHA-256 of the code followed by the code, so that one which was cut short or altered is seen and
    built anew. It appears under its name complete or not at all.

    Args:
        folder: where it lies; by default ``default_folder()``. Made if it is not there.

    Raises:
        InfrastructureError: the folder cannot be made or written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise self._unwritable(error) from error

    def get(self, key: str) -> bytes | None:
        """The code kept under a key; None where there is none, or where what is there is not what was written."""
        try:
            entry = self._path(key).read_bytes()
        except OSError:
            return None
        written, code = entry[:_DIGEST_LENGTH], entry[_DIGEST_LENGTH:]
        return code if digest(code).encode() == written else None

    def put(self, key: str, code: bytes) -> None:
        """Keeps code under a key, in place of whatever was there; raises ``InfrastructureError`` if that fails."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as entry:
                self._fill(Path(entry.name), path, digest(code).encode() + code)
        except OSError as error:
            raise self._unwritable(error) from error

    def _fill(self, temporary: Path, path: Path, entry: bytes) -> None:
        try:
            temporary.write_bytes(entry)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _path(self, key: str) -> Path:
        return self.folder.joinpath(key[:2], key)

    def _unwritable(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"the build cache {self.folder} cannot be written: {error.strerror}",
            cure="set PERFSVC_CACHE to a folder that you can write to",
        )
