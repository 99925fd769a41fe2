"""Locks of this machine: one for nights, and one for each device, so that two runs never share a device.

A lock is a kernel lock (``flock``) on a file that all users of the machine share. The kernel releases the lock when the
process that holds it ends, however the process ends. The file itself stays: if it were deleted, two processes could
hold locks on two different files of the same name.

Another user may have prepared the folder, so no link is followed: not for the folder, and not for a file in it.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from perfsvc.errors import InfrastructureError, NoDeviceError
from perfsvc.files import Folder, user_name

FOLDER = Path("/tmp/perfsvc-locks")  # noqa: S108 - the same for every user, unlike ``tempfile.gettempdir``
"""The folder of the lock files, unless ``PERFSVC_LOCKS`` names another."""
LIKE_TMP = 0o1777
"""The permissions of the folder: every user may create files in it, and delete only their own."""
EVERY_USER = 0o666
"""The permissions of a lock file: every user may lock it and write the holder's process id into it."""
PID_BYTES = 20
"""How many bytes of a lock file are read."""


class _RefusedError(Exception):
    """A lock file or its folder may be another user's trap; the error holds why, and the cure."""

    def __init__(self, why: str, cure: str) -> None:
        super().__init__(why)
        self.cure = cure


class HostLock:
    """A lock that all users of the machine share.

    Args:
        name: what is locked.
        purpose: what the lock prevents, as the error message words it: ``two runs from sharing a GPU``.
        folder: where the lock file is: a folder that the user trusts, whatever its owner. None for the folder of this
            machine's locks, which must belong to this user or root, or be like /tmp.
    """

    _error: type[InfrastructureError] = InfrastructureError

    def __init__(self, name: str, purpose: str, folder: Path | None = None) -> None:
        self._any_owner = folder is not None
        self._folder = folder or Path(os.environ.get("PERFSVC_LOCKS") or FOLDER)
        self._path = self._folder / f"{quote(os.fsencode(name), safe='')}.lock"
        self._purpose = purpose
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def take(self) -> bool:
        """Take the lock; returns False if another process holds it.

        Raises:
            InfrastructureError: the lock file cannot be used.
        """
        try:
            while not self.held:
                with _opened(self._folder, any_owner=self._any_owner) as folder:
                    descriptor = _open(self._path.name, folder)
                if not _lock(descriptor):
                    return False
                if _is_current(self._path, descriptor):
                    self._descriptor = descriptor
                    _write(descriptor, str(os.getpid()))
                else:
                    os.close(descriptor)  # the file was deleted meanwhile: lock the new file
        except _RefusedError as error:
            raise self._unusable(str(error), error.cure) from error
        except OSError as error:
            raise self._unusable(str(error.strerror), f"let every user make files in {self._folder}") from error
        return True

    def _unusable(self, why: str, cure: str) -> InfrastructureError:
        """Return the error to raise when the lock cannot be used."""
        other = "" if self._any_owner else ", or set PERFSVC_LOCKS, the same for all users, to a folder like /tmp"
        what = f"the lock {self._path}, which keeps {self._purpose}, cannot be used: {why}"
        return self._error(what, cure=cure + other)

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock; None if it is unknown."""
        try:
            with _opened(self._folder, any_owner=self._any_owner) as folder:
                descriptor = folder.open_file(self._path.name, os.O_RDONLY)
        except (OSError, _RefusedError):
            return None
        try:
            text = os.read(descriptor, PID_BYTES).strip()
        finally:
            os.close(descriptor)
        return int(text) if text.isdigit() else None

    def release(self) -> None:
        """Release the lock if this object holds it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _write(descriptor, "")
            os.close(descriptor)


class DeviceLock(HostLock):
    """The lock of one device. ``take`` raises ``NoDeviceError`` if the lock file cannot be used.

    Args:
        uuid: the UUID of the device.
    """

    _error: type[InfrastructureError] = NoDeviceError

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, "two runs from sharing a GPU")


class DeviceLocks:
    """The locks of all GPUs of a device: it takes all of them or none, so two groups never wait for each other.

    Args:
        uuids: the UUIDs of the GPUs, more than one for a group.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self._locks = [DeviceLock(uuid) for uuid in sorted(set(uuids))]
        self._busy: DeviceLock | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the locks."""
        return all(lock.held for lock in self._locks)

    def take(self) -> bool:
        """Take all locks; returns False, and holds none, if another process or queue holds one of them.

        Raises:
            NoDeviceError: a lock file cannot be used.
        """
        try:
            self._busy = next((lock for lock in self._locks if not lock.take()), None)
        except NoDeviceError:
            self.release()
            raise
        if self._busy:
            self.release()
        return self._busy is None

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock which could not be taken; None if it is unknown."""
        return self._busy.holder() if self._busy else None

    def release(self) -> None:
        """Release the locks that this object holds."""
        for lock in self._locks:
            lock.release()


@contextlib.contextmanager
def _opened(path: Path, *, any_owner: bool) -> Iterator[Folder]:
    """Open the folder of a lock file; make it if there is none.

    Args:
        path: the path of the folder.
        any_owner: whether every user's folder is accepted.

    Raises:
        _RefusedError: the folder is a link, or the folder of another user and not like /tmp.
        OSError: the folder cannot be made or opened.
    """
    if path.is_symlink():
        raise _RefusedError(f"{path} is a symbolic link", f"delete {path}")
    descriptor = _open_folder(path)
    try:
        state = os.fstat(descriptor)
        if not (any_owner or state.st_uid in {os.geteuid(), 0} or state.st_mode & stat.S_ISVTX):
            owner = user_name(state.st_uid)
            raise _RefusedError(f"{path} belongs to {owner}", f"let {owner} run chmod 1777 {path}")
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def _open_folder(path: Path) -> int:
    """Open a folder; make it with the permissions of /tmp if there is none."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            path.mkdir(LIKE_TMP, parents=True)
            descriptor = os.open(path, flags)
            os.fchmod(descriptor, LIKE_TMP)  # the umask may have removed permissions
            return descriptor


def _open(name: str, folder: Folder) -> int:
    """Open a lock file, and create it if there is none.

    An existing file is opened without ``O_CREAT``: in a folder like /tmp the kernel refuses ``O_CREAT`` for another
    user's file, even to root (``fs.protected_regular``). Read permission is enough to lock a file.

    Raises:
        _RefusedError: the file has a second name, is a link, or is no regular file.
        OSError: the file cannot be created or opened.
    """
    while True:
        try:
            return _open_existing(name, folder)
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileExistsError):
            descriptor = folder.open_file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, EVERY_USER)
            os.fchmod(descriptor, EVERY_USER)  # the umask may have removed permissions
            return descriptor


def _open_existing(name: str, folder: Folder) -> int:
    """Open a lock file that exists, for reading alone if this user may not write.

    Raises ``_RefusedError`` for a link, a file with a second name, or a file that is not regular.
    """
    try:
        try:
            descriptor = folder.open_file(name, os.O_RDWR)
        except PermissionError:
            descriptor = folder.open_file(name, os.O_RDONLY)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EINVAL, errno.EISDIR}:
            raise _RefusedError("it is a link, or no regular file", f"delete {folder.path / name}") from error
        raise
    if os.fstat(descriptor).st_nlink > 1:  # writing to it would change a file elsewhere
        os.close(descriptor)
        raise _RefusedError("the file has another name too (a hard link)", f"delete {folder.path / name}")
    return descriptor


def _lock(descriptor: int) -> bool:
    """Lock an open file; if another process holds the lock, close the file and return False."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except BaseException:
        os.close(descriptor)
        raise
    return True


def _is_current(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the file at the path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write(descriptor: int, text: str) -> None:
    """Replace the content of the lock file; do nothing if this user may only read it."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
