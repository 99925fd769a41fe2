"""Compiled binaries, stored under the hash of everything that decides them."""

import contextlib
import os
import tempfile
from pathlib import Path

import platformdirs

from perfsvc.errors import InfrastructureError
from perfsvc.model import digest

_DIGEST_LENGTH = 64


def default_folder() -> Path:
    """Return ``PERFSVC_CACHE`` if it is set, else the user's cache folder.

    Raises:
        InfrastructureError: the user has no home folder, such as a user of a container that has no account.
    """
    chosen = os.environ.get("PERFSVC_CACHE")
    try:
        return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("perfsvc"))
    except RuntimeError as error:
        raise InfrastructureError(
            "there is no folder for the build cache: this user has no home folder",
            cure="set PERFSVC_CACHE or HOME to a folder that you can write to",
        ) from error


class Cache:
    """A content-addressed folder that any number of processes may read and write at once.

    An entry is the SHA-256 of the code followed by the code, so a truncated or altered entry is noticed and rebuilt.
    Entries appear under their names complete or not at all.

    Args:
        folder: by default ``default_folder()``; created if it is missing.

    Raises:
        InfrastructureError: the folder cannot be created or written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise self._unwritable(error) from error

    def get(self, key: str) -> bytes | None:
        """Return the code stored under a key; None if there is none, or if its entry is damaged."""
        try:
            entry = self._path(key).read_bytes()
        except OSError:
            return None
        stored_digest, code = entry[:_DIGEST_LENGTH], entry[_DIGEST_LENGTH:]
        return code if digest(code).encode() == stored_digest else None

    def put(self, key: str, code: bytes) -> None:
        """Store code under a key, replacing an earlier entry; raises ``InfrastructureError`` if that fails."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as entry:
                self._fill(Path(entry.name), path, digest(code).encode() + code)
        except OSError as error:
            raise self._unwritable(error) from error

    def _fill(self, temporary: Path, path: Path, entry: bytes) -> None:
        """Write an entry to a temporary file and rename it to its path; delete the temporary file on failure."""
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
        """Return the error to raise when the cache cannot be written."""
        return InfrastructureError(
            f"the build cache {self.folder} cannot be written: {error.strerror}",
            cure="set PERFSVC_CACHE to a folder that you can write to",
        )
