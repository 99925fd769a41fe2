"""Temporary folders. If a process is killed, the next one that makes a temporary folder removes those it left behind.

A process holds a kernel lock (``flock``) on each of its temporary folders. The kernel releases the lock when the
process ends, however it ends, so an unlocked folder belongs to a process that is gone.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "perfsvc-tmp-"
"""The names of all temporary folders begin with this; no other files of perfsvc do."""
WORKTREES = "worktrees"
"""The folder in a git repository that describes its worktrees, a folder for each."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder that only this user can read, and remove it at the end of the block."""
    remove_abandoned()
    folder, lock = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove the temporary folders of this user's processes that were killed, with the git worktrees in them."""
    for folder in _folders(Path(tempfile.gettempdir())):
        try:
            lock = _lock(folder, fcntl.LOCK_EX)
        except OSError:  # the folder's process is running, or another process is removing the folder
            continue
        try:
            with contextlib.suppress(OSError):
                for tree in folder.iterdir():
                    _forget_worktree(tree)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _make() -> tuple[Path, int]:
    """Make and lock a temporary folder; return it with the descriptor that holds the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(OSError):  # another process removed the folder before the lock
            lock = _lock(folder, fcntl.LOCK_SH)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _folders(parent: Path) -> Iterator[Path]:
    """Yield the temporary folders of this user; links are ignored, because any user may make them."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                is_ours = entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)
                if is_ours and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield Path(entry.path)


def _lock(folder: Path, kind: int) -> int:
    """Lock a folder without waiting, and return the descriptor that holds the lock; ``OSError`` if it is locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _forget_worktree(tree: Path) -> None:
    """Remove the description of a worktree from its repository, as ``git worktree prune`` does for a missing folder."""
    link = tree / ".git"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        described = Path(link.read_text(encoding="utf-8").removeprefix("gitdir: ").strip())
        names_tree = (described / "gitdir").read_text(encoding="utf-8").strip() == str(link)
        if described.parent.name == WORKTREES and names_tree:
            shutil.rmtree(described, ignore_errors=True)
