"""Locks of a host: one a GPU, so that no two perfsvc runs ever measure on it at once, and one for nights.

The lock is the kernel's (``flock``) on a file that all users of the host share: it goes with the process that holds
it, however that ends. The file itself stays, for whoever deleted it could lock a file that another has just opened.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from urllib.parse import quote

from perfsvc.errors import InfrastructureError, NoDeviceError

FOLDER = Path("/tmp/perfsvc-locks")  # noqa: S108 - not ``tempfile.gettempdir``: the same for every user
"""Where the files lie, unless ``PERFSVC_LOCKS`` says otherwise."""
ANYBODY = 0o666
"""A lock file's cache state: every user may lock it, and write who holds it."""
PID_BYTES = 20
"""How much of a lock file is read."""


class HostLock:
    """A lock that all users of the host share.

    Args:
        name: what it is of.
        purpose: what it keeps two of from doing what, for the message where there is no file to lock.
    """

    _refused: type[InfrastructureError] = InfrastructureError

    def __init__(self, name: str, purpose: str) -> None:
        folder = os.environ.get("PERFSVC_LOCKS")
        self._path = (Path(folder) if folder else FOLDER) / f"{quote(name, safe='')}.lock"
        self._purpose = purpose
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether it is held here."""
        return self._descriptor is not None

    def take(self) -> bool:
        """Takes the lock; false where another holds it.

        Raises:
            InfrastructureError: there is no file to lock.
        """
        try:
            while not self.held:
                descriptor = _opened(self._path)
                if not _locked(descriptor):
                    return False
                if _is_still(self._path, descriptor):
                    self._descriptor = descriptor
                    _write(descriptor, str(os.getpid()))
                else:
                    os.close(descriptor)  # somebody deleted it meanwhile: what counts is the file that lies there now
        except OSError as error:
            raise self._refused(
                f"the lock {self._path}, which keeps {self._purpose}, cannot be used: {error.strerror}",
                cure="set PERFSVC_LOCKS to a folder in which every user of this host may make files",
            ) from error
        return True

    def holder(self) -> int | None:
        """The process that holds it; None where nobody can tell."""
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
        """Gives it back, if it is held here."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _write(descriptor, "")
            os.close(descriptor)


class DeviceLock(HostLock):
    """The lock of one GPU; where it cannot be used, neither can the GPU: ``NoDeviceError``.

    Args:
        uuid: of the GPU.
    """

    _refused: type[InfrastructureError] = NoDeviceError

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, "two runs from sharing a GPU")


def _opened(path: Path) -> int:
    """A descriptor of the lock file, which is made where there is none.

    A file that is there is opened without ``O_CREAT``: in a folder like /tmp the kernel refuses that for another
    user's file, even to root (``fs.protected_regular``). To lock it, to read it is enough.
    """
    safely = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            return _regular(os.open(path, os.O_RDWR | safely))
        except PermissionError:
            return _regular(os.open(path, os.O_RDONLY | safely))
        except FileNotFoundError:
            _make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | safely, ANYBODY)
            os.fchmod(descriptor, ANYBODY)  # the umask may have taken something away
            return descriptor


def _regular(descriptor: int) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(0, "it is no regular file")


def _make_folder(folder: Path) -> None:
    """Makes the folder like /tmp: every user may make files in it, and delete only their own."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)


def _locked(descriptor: int) -> bool:
    """Locks an open file; closes it where another holds the lock, and on any error."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except BaseException:
        os.close(descriptor)
        raise
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write(descriptor: int, text: str) -> None:
    """Says who holds the lock; a user who may only read the file says nothing."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
