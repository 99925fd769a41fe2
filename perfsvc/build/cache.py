"""Compiled binaries, stored under the hash of everything that decides them.

What is in the cache runs with this user's rights, so only this user and root may be able to change it.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from perfsvc.errors import InfrastructureError
from perfsvc.files import Folder, user_name
from perfsvc.model import digest

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
"""The permissions of the folders and files of the cache: a umask that lets groups write does not matter."""
_DIGEST_LENGTH = 64


def default_folder() -> Path:
    """Return ``PERFSVC_CACHE`` if it is set, else the user's cache folder.

    Raises:
        InfrastructureError: the user has no home folder, for example in a container without an account for the user.
    """
    chosen = os.environ.get("PERFSVC_CACHE")
    if chosen:
        return Path(chosen)
    try:
        folder = platformdirs.user_cache_path("perfsvc")
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():  # without a home folder, older versions of platformdirs return ~/…
        raise InfrastructureError(
            "there is no folder for the build cache: this user has no home folder",
            cure="set PERFSVC_CACHE or HOME to a folder that you can write to",
        )
    return folder


def private_folder(folder: Path) -> Path:
    """Return a folder of the cache, after making it if it is missing.

    Raises:
        InfrastructureError: the folder cannot be made, or a user other than root and the current user may change it.
    """
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        _require_private(folder, folder.stat())
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


class Cache:
    """A content-addressed folder that any number of processes may read and write at once.

    An entry is the SHA-256 of the code followed by the code, so a truncated or altered entry is noticed and rebuilt.
    Entries appear under their names complete or not at all.

    Args:
        folder: by default ``default_folder()``; created if it is missing.

    Raises:
        InfrastructureError: the folder cannot be created or written, or users other than this one and root may change
            it, a folder in it or an entry; ``get`` and ``put`` raise it too.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = private_folder(folder or default_folder())
        try:
            tempfile.TemporaryFile(dir=self.folder).close()  # fails if the folder cannot be written
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def get(self, key: str) -> bytes | None:
        """Return the code stored under a key; None if the cache has no entry, or one that is damaged or unreadable.

        Raises ``InfrastructureError`` if other users may change the entry.
        """
        try:
            with self._opened(key[:2]) as folder, os.fdopen(folder.open_file(key, os.O_RDONLY), "rb") as file:
                _require_private(folder.path / key, os.fstat(file.fileno()))
                entry = file.read()
        except OSError:
            return None
        stored_digest, code = entry[:_DIGEST_LENGTH], entry[_DIGEST_LENGTH:]
        return code if digest(code).encode() == stored_digest else None

    def put(self, key: str, code: bytes) -> None:
        """Store code under a key, replacing an earlier entry."""
        try:
            with self._opened(key[:2], make=True) as folder:
                folder.write(key, digest(code).encode() + code, mode=PRIVATE_FILE)
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    @contextlib.contextmanager
    def _opened(self, name: str, *, make: bool = False) -> Iterator[Folder]:
        """Open a subfolder of the cache, after making it if ``make`` is True.

        Raises ``OSError`` if the subfolder cannot be opened, and ``InfrastructureError`` if other users may change it.
        """
        with Folder.open(self.folder) as cache:
            _require_private(cache.path, os.fstat(cache.descriptor))
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, PRIVATE_FOLDER, dir_fd=cache.descriptor)
            with cache.subfolder(name) as folder:
                _require_private(folder.path, os.fstat(folder.descriptor))
                yield folder


def _require_private(path: Path, state: os.stat_result) -> None:
    """Raise ``InfrastructureError`` if a user other than root and the current user may change a file or folder.

    Args:
        path: a file or folder of the build cache.
        state: the result of ``os.stat`` for the path.
    """
    if state.st_uid not in {os.geteuid(), 0}:
        raise InfrastructureError(
            f"the build cache holds code that you run, but {path} belongs to {user_name(state.st_uid)}",
            cure="set PERFSVC_CACHE to a folder of your own",
        )
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        owner = "you" if state.st_uid == os.geteuid() else user_name(state.st_uid)
        raise InfrastructureError(
            f"the build cache holds code that you run, but other users may write to {path} (it belongs to {owner})",
            cure=f"chmod go-w {path}, or set PERFSVC_CACHE to a folder that only you can write to",
        )


def _unwritable(folder: Path, error: OSError) -> InfrastructureError:
    """Return the error to raise when a folder of the cache cannot be written."""
    return InfrastructureError(
        f"the build cache {folder} cannot be written: {error.strerror}",
        cure="set PERFSVC_CACHE to a folder that you can write to",
    )
