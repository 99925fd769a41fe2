"""Locks of this machine: one for nights, and one for each device, so that two runs never share a device.

A lock is a kernel lock (``flock``) on a file that all users of the machine share. The kernel releases the lock when the
process that holds it ends, however the process ends. The file itself stays: if it were deleted, two processes could
hold locks on two different files of the same name.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from urllib.parse import quote

from perfsvc.errors import InfrastructureError, NoDeviceError

FOLDER = Path("/tmp/perfsvc-locks")  # noqa: S108 - the same for every user, unlike ``tempfile.gettempdir``
"""The folder of the lock files, unless ``PERFSVC_LOCKS`` names another."""
EVERY_USER = 0o666
"""The permissions of a lock file: every user may lock it and write the holder's process id into it."""
PID_BYTES = 20
"""How many bytes of a lock file are read."""


class HostLock:
    """A lock that all users of the machine share.

    Args:
        name: what is locked.
        purpose: what the lock prevents, as the error message words it: ``two runs from sharing a GPU``.
        folder: where the lock file is; None for the folder of this machine's locks.
    """

    _error: type[InfrastructureError] = InfrastructureError

    def __init__(self, name: str, purpose: str, folder: Path | None = None) -> None:
        folder = folder or Path(os.environ.get("PERFSVC_LOCKS") or FOLDER)
        self._path = folder / f"{quote(name, safe='')}.lock"
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
                descriptor = _open(self._path)
                if not _lock(descriptor):
                    return False
                if _is_current(self._path, descriptor):
                    self._descriptor = descriptor
                    _write(descriptor, str(os.getpid()))
                else:
                    os.close(descriptor)  # the file was deleted meanwhile: lock the new file
        except OSError as error:
            raise self._error(
                f"the lock {self._path}, which keeps {self._purpose}, cannot be used: {error.strerror}",
                cure="set PERFSVC_LOCKS to a folder in which every user of this host may make files",
            ) from error
        return True

    def holder(self) -> int | None:
        """Return the id of the process that holds the lock; None if it is unknown."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
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


def _open(path: Path) -> int:
    """Open the lock file, and create it if there is none.

    An existing file is opened without ``O_CREAT``: in a folder like /tmp the kernel refuses ``O_CREAT`` for another
    user's file, even to root (``fs.protected_regular``). Read permission is enough to lock a file.
    """
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            return _require_regular(os.open(path, os.O_RDWR | flags))
        except PermissionError:
            return _require_regular(os.open(path, os.O_RDONLY | flags))
        except FileNotFoundError:
            _make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, EVERY_USER)
            os.fchmod(descriptor, EVERY_USER)  # the umask may have removed permissions
            return descriptor


def _require_regular(descriptor: int) -> int:
    """Return the descriptor of an open file; close it and raise ``OSError`` unless it is a regular file."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(0, "it is no regular file")


def _make_folder(folder: Path) -> None:
    """Make the folder with the permissions of /tmp: every user may create files in it, and delete only their own."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)


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
