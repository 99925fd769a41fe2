"""Files that perfsvc writes.

A file appears under its name whole or not at all. Its content goes to a temporary file beside it, which then takes the
name in a single step. A full disk or a kill leaves an earlier file as it was.

A process holds a kernel lock (``flock``) on each of its temporary files. The kernel releases the lock when the process
ends, so an unlocked file was left behind by a process that was killed.

The folder that a user names may be a link. Links below this folder are not followed, because a clone may bring them.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO, Self

from perfsvc.errors import InfrastructureError, UsageError

EVERYONE = 0o666
"""The permissions of a new file before the umask, as with ``open``."""

_TEMPORARY = ".perfsvc-new-"
_TEMPORARY_NAME = re.compile(re.escape(_TEMPORARY) + "[0-9a-f]{32}")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FIXED = {errno.EACCES, errno.EPERM, errno.EBUSY}  # EBUSY: the file itself is mounted, as in a container
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@cache
def checkout_of(folder: Path) -> Path | None:
    """Return the top folder of the git checkout that holds a folder; None outside every checkout."""
    above = (folder, *folder.parents)
    return next((parent for parent in above if os.path.exists(parent / ".git")), None)  # noqa: PTH110 - never raises


def file_digest(path: Path) -> str:
    """Return the SHA-256 hex digest of a file; empty if it is no file, or cannot be read."""
    try:
        state = path.stat()
        return _file_digest(path, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except OSError:
        return ""


@lru_cache(1 << 16)  # many cases use the same files
def _file_digest(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Folder:
    """An open folder. Names are relative to it, such as ``series/a.html``, and no link in them is followed.

    All methods raise ``OSError`` if a name is not valid (``is_inside``), or if a part of it is a link.

    Args:
        path: the folder.
        descriptor: the open folder.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, *, make: bool = False) -> Iterator[Self]:
        """Open a folder that the user named; the folder itself may be a link.

        Args:
            path: the folder.
            make: make the folder if it is missing.
        """
        if make:
            with contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
        folder = cls(path, os.open(path, _FOLDER))
        try:
            yield folder
        finally:
            os.close(folder.descriptor)

    @contextlib.contextmanager
    def subfolder(self, name: str, *, make: bool = False) -> Iterator["Folder"]:
        """Open a folder below this folder.

        Args:
            name: the folder; ``.`` for this folder.
            make: make all folders that are missing.
        """
        folder = Folder(self.path, os.dup(self.descriptor))
        try:
            for part in _parts(name):
                folder._enter(part, make=make)
            yield folder
        finally:
            os.close(folder.descriptor)

    def _enter(self, part: str, *, make: bool) -> None:
        """Change this object to its subfolder ``part``."""
        path = self.path / part
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=self.descriptor)
        try:
            descriptor = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            why = "it is no folder, and links to folders are not followed"
            raise NotADirectoryError(errno.ENOTDIR, why, str(path)) from error
        os.close(self.descriptor)
        self.path, self.descriptor = path, descriptor

    def open_file(self, name: str, flags: int, mode: int = EVERYONE) -> int:
        """Open a regular file, and return its descriptor; if the flags create a file, its folders are made too.

        Args:
            name: the file.
            flags: the flags of ``os.open``.
            mode: the permissions of a new file, before the umask.
        """
        above, last = _split(name)
        with self.subfolder(above, make=bool(flags & os.O_CREAT)) as folder:
            # O_NONBLOCK: opening a FIFO does not wait for its other end.
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(last, flags, mode, dir_fd=folder.descriptor)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                why = "it is a link, and links are not followed"
                raise OSError(errno.ELOOP, why, str(self.path / name)) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file", str(self.path / name))
        return descriptor

    def exists(self, name: str) -> bool:
        """Return whether there is a file, folder or link of this name."""
        above, last = _split(name)
        try:
            with self.subfolder(above) as folder:
                os.stat(last, dir_fd=folder.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes:
        """Return the content of a regular file."""
        with os.fdopen(self.open_file(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def write(
        self,
        name: str,
        content: bytes | memoryview | str,
        *,
        mode: int = EVERYONE,
        replace: bool = True,
        sync: bool = False,
    ) -> None:
        """Write a file in a single step, after making its folders; ``writing`` explains the arguments.

        A text is written as UTF-8, with escapes for the characters that UTF-8 lacks.
        """
        with self.writing(name, mode=mode, replace=replace, sync=sync) as file:
            file.write(_encoded(content))

    @contextlib.contextmanager
    def writing(
        self, name: str, *, mode: int = EVERYONE, replace: bool = True, sync: bool = False
    ) -> Iterator[BinaryIO]:
        """Open a temporary file that becomes the file ``name`` at the end of the block; its folders are made.

        The temporary file's own path is its attribute ``name``. If the block raises an error, the temporary file is
        removed, and an earlier file stays as it was.

        Args:
            name: the file.
            mode: the permissions of a new file, before the umask. A replaced file keeps its permissions.
            replace: replace an earlier file; otherwise raise ``FileExistsError``.
            sync: return only after the disk has stored the content.
        """
        above, last = _split(name)
        with self.subfolder(above, make=True) as folder:
            at = folder.descriptor
            created, temporary = _create(mode, at)
            try:
                with open(folder.path / temporary, "wb", opener=lambda _path, _flags: os.dup(created)) as file:
                    if replace:
                        _keep_permissions(created, last, at)
                    yield file
                    if sync:
                        file.flush()
                        os.fsync(created)
                # The file is closed first: some file systems report a full disk only then.
                if replace:
                    os.rename(temporary, last, src_dir_fd=at, dst_dir_fd=at)
                else:
                    os.link(temporary, last, src_dir_fd=at, dst_dir_fd=at)  # fails if the file exists
            finally:
                with contextlib.suppress(OSError):  # after the rename the temporary file is gone
                    os.unlink(temporary, dir_fd=at)
                os.close(created)

    def remove(self, name: str) -> None:
        """Remove a regular file, and the folders that are empty without it; keep everything else.

        A file below a link is not in this folder, so it stays.
        """
        above, last = _split(name)
        try:
            with self.subfolder(above) as folder:
                if stat.S_ISREG(os.stat(last, dir_fd=folder.descriptor, follow_symlinks=False).st_mode):
                    os.unlink(last, dir_fd=folder.descriptor)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
        with contextlib.suppress(OSError):  # the folder has other content, is missing, or is a link
            while above != ".":
                above, last = _split(above)
                with self.subfolder(above) as folder:
                    os.rmdir(last, dir_fd=folder.descriptor)

    def remove_abandoned(self) -> None:
        """Remove the temporary files in this folder that killed processes left behind."""
        with os.scandir(self.descriptor) as entries:
            names = [entry.name for entry in entries if _TEMPORARY_NAME.fullmatch(entry.name)]
        for name in names:
            with contextlib.suppress(OSError):  # it is in use, was just removed, or is another user's
                descriptor = self.open_file(name, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=self.descriptor)
                finally:
                    os.close(descriptor)


def is_inside(name: str) -> bool:
    """Return whether a name is a relative path in its shortest form: ``a/b``, but not ``/a``, ``a/../b`` or ``./a``."""
    try:
        return bool(name) and "/".join(_parts(name)) == name
    except OSError:
        return False


Content = bytes | str | Callable[[BinaryIO], object]
"""What a file shall hold, or a function that writes it into the open file. The function may be called twice."""


def write(path: Path, content: Content, *, mode: int = EVERYONE, replace: bool = True, sync: bool = False) -> None:
    """Write a file in a single step into a folder that exists; raise ``OSError`` if that fails.

    A link with the name of the file is replaced, not followed. ``Folder.writing`` explains the other arguments.
    """
    with Folder.open(path.parent) as folder:
        folder.remove_abandoned()
        with folder.writing(path.name, mode=mode, replace=replace, sync=sync) as file:
            _fill(file, content)


def write_output(destination: Path, content: Content) -> None:
    """Write a file that the user named, for example with ``--output``.

    A link is followed, and its target replaced in a single step. These are written directly: a device, a FIFO, the file
    that standard output goes to, and a file in a folder that may not be changed.

    Raises:
        UsageError: the file cannot be written.
        InfrastructureError: the disk is full.
    """
    with reporting(destination):
        _write_output(destination, content)


@contextlib.contextmanager
def reporting(destination: Path) -> Iterator[None]:
    """Turn an ``OSError`` of a block that writes a file into ``UsageError``; a ``BrokenPipeError`` stays as it is.

    If the disk is full, the block's error becomes ``InfrastructureError``.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of a pipe has ended, which is no error of the user
        raise
    except OSError as error:
        what = f"{destination} cannot be written: {error.strerror or error}"
        if error.errno in _NO_ROOM:
            cure = "make room on its disk, or name a file on another disk"
            raise InfrastructureError(what, cure=cure) from error
        raise UsageError(what, cure="name a file in a folder that exists and may be written") from error


def user_name(number: int) -> str:
    """Return the name of a user; ``the user 1234`` for a user without an account."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"the user {number}"


def _write_output(destination: Path, content: Content) -> None:
    """Write a file, following a link, or write into the device, FIFO or standard stream that the path names."""
    if destination.is_symlink() and not destination.exists():  # a link to a file that is missing: make the file
        os.close(os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, EVERYONE))
    try:
        # The kernel follows the link, and refuses another user's link in a folder such as /tmp.
        opened = os.open(destination, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        write(destination, content)
        return
    try:
        state, target = os.fstat(opened), Path(f"/proc/self/fd/{opened}").readlink()
    finally:
        os.close(opened)
    own_stream = _own_stream(state)
    if own_stream is None and stat.S_ISREG(state.st_mode) and state.st_nlink:
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        try:
            write(target, content)
            return
        except OSError as error:
            if error.errno not in _FIXED:
                raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    direct = os.open(destination, flags, EVERYONE) if own_stream is None else os.dup(own_stream)
    with os.fdopen(direct, "wb") as file:
        _fill(file, content)


def _fill(file: BinaryIO, content: Content) -> None:
    if callable(content):
        content(file)
    else:
        file.write(_encoded(content))


def _encoded(content: bytes | memoryview | str) -> bytes | memoryview:
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


def _own_stream(state: os.stat_result) -> int | None:
    """Return the descriptor of standard output or standard error if that stream writes to a file; else None.

    Args:
        state: the state of the file.
    """
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # the stream is closed
            if os.path.samestat(state, os.fstat(descriptor)):
                return descriptor
    return None


def _parts(name: str) -> list[str]:
    """Return the parts of a relative name; raise ``OSError`` if the name is not valid."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if name.startswith("/") or ".." in parts or "\0" in name or not _is_encodable(name):
        raise OSError(errno.EINVAL, "it is no name of a file in this folder", name)
    return parts


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _split(name: str) -> tuple[str, str]:
    """Return the folder of a relative name, ``.`` for none, and the last part of the name."""
    *above, last = _parts(name) or [""]
    return "/".join(above) or ".", last


def _create(mode: int, folder: int) -> tuple[int, str]:
    """Create and lock a temporary file in an open folder; return its descriptor and its name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f"{_TEMPORARY}{secrets.token_hex(16)}"
        descriptor = os.open(name, flags, mode, dir_fd=folder)
        with contextlib.suppress(OSError):  # some file systems have no locks: there, no process removes the file
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)  # another process saw the file before it was locked, and removed it


def _keep_permissions(descriptor: int, name: str, folder: int) -> None:
    """Give a new file the owner, group and permissions of the regular file that it will replace, as far as possible."""
    try:
        replaced = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(replaced.st_mode):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
        os.fchmod(descriptor, replaced.st_mode & 0o777)
