"""Locks of devices: one run holds a lock at a time, whichever user runs it and however it ends."""

import os
import stat
import subprocess
import sys

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.lock import DeviceLock

HOLDER = """
import sys
from perfsvc.measure.host.lock import DeviceLock

lock = DeviceLock("GPU-1")
print(lock.take(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def holder(folder):
    """Another process that holds the lock of GPU-1."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_a_device_has_one_holder_until_it_is_released(folder):
    first, second = DeviceLock("GPU-1"), DeviceLock("GPU-1")
    assert (first.take(), second.take()) == (True, False)
    assert (first.held, second.held) == (True, False)
    first.release()
    assert (first.held, second.take()) == (False, True)
    second.release()


def test_taking_a_lock_that_is_held_already_changes_nothing(folder):
    lock = DeviceLock("GPU-1")
    assert lock.take()
    assert lock.take()
    lock.release()
    lock.release()
    assert not lock.held


def test_every_device_has_its_own_lock(folder):
    locks = [DeviceLock(uuid) for uuid in ("GPU-1", "GPU-2", "MIG-1/2", "..")]
    assert all(lock.take() for lock in locks)
    assert sorted(path.name for path in folder.iterdir()) == ["...lock", "GPU-1.lock", "GPU-2.lock", "MIG-1%2F2.lock"]
    for lock in locks:
        lock.release()


def test_the_holder_of_a_lock_is_known(holder):
    lock = DeviceLock("GPU-1")
    assert not lock.take()
    assert lock.holder() == holder.pid


def test_the_lock_of_a_killed_process_is_free(holder):
    holder.kill()
    holder.wait()
    lock = DeviceLock("GPU-1")
    assert lock.take()
    assert lock.holder() == os.getpid()
    lock.release()
    assert lock.holder() is None


def test_every_user_of_the_host_can_use_a_lock(folder):
    before = os.umask(0o077)
    try:
        lock = DeviceLock("GPU-1")
        lock.take()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "GPU-1.lock").stat().st_mode) == 0o666
    lock.release()
    assert (folder / "GPU-1.lock").exists()  # deleting it could leave two locks on two files


def test_another_users_file_is_never_opened_with_o_creat(folder, monkeypatch):
    """The kernel refuses that in /tmp (fs.protected_regular). The file may be read-only as well."""
    lock = DeviceLock("GPU-1")
    lock.take()
    lock.release()
    real = os.open

    def guarded(path, flags, cache=0o777):
        if flags & os.O_CREAT or flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, cache)

    monkeypatch.setattr(os, "open", guarded)
    assert lock.take()
    lock.release()


def test_a_lock_file_that_was_deleted_and_created_anew_is_not_mistaken_for_the_lock(folder, monkeypatch):
    first, second = DeviceLock("GPU-1"), DeviceLock("GPU-1")
    real = os.open

    def opened_and_deleted(path, flags, cache=0o777):
        descriptor = real(path, flags, cache)
        monkeypatch.setattr(os, "open", real)
        path.unlink()
        assert second.take()
        return descriptor

    monkeypatch.setattr(os, "open", opened_and_deleted)
    assert not first.take()
    second.release()


@pytest.mark.parametrize("kind", ["folder", "link", "fifo", "place"])
def test_a_lock_that_cannot_be_used_is_reported_with_a_cure(folder, kind, monkeypatch):
    folder.mkdir()
    path = folder / "GPU-1.lock"
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(folder / "elsewhere")
        case "fifo":
            os.mkfifo(path)
        case "place":
            path.write_text("")
            monkeypatch.setenv("PERFSVC_LOCKS", str(path))
    before = open_files()
    with pytest.raises(NoDeviceError, match=r"GPU-1\.lock, which keeps two runs from sharing") as raised:
        DeviceLock("GPU-1").take()
    assert "PERFSVC_LOCKS" in raised.value.cure
    assert open_files() == before


def test_the_content_of_a_lock_file_is_ignored_unless_it_is_a_process_id(folder):
    folder.mkdir()
    (folder / "GPU-1.lock").write_text("rm -rf /")
    assert DeviceLock("GPU-1").holder() is None
    assert DeviceLock("GPU-2").holder() is None


def open_files():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, no paths
