"""Locks of devices: one run holds a lock at a time, whichever user runs it and however it ends."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.lock import DeviceLock, HostLock

STRANGER = 43210
"""The number of a user without an account."""
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
    assert (first.take(), first.take(), second.take()) == (True, True, False)
    assert (first.held, second.held) == (True, False)
    first.release()
    first.release()
    assert (first.held, second.take()) == (False, True)
    second.release()


def test_every_device_has_its_own_lock(folder):
    locks = [DeviceLock(uuid) for uuid in ("GPU-1", "GPU-2", "MIG-1/2", "..", os.fsdecode(b"\xe9"))]
    assert all(lock.take() for lock in locks)
    names = ["%E9.lock", "...lock", "GPU-1.lock", "GPU-2.lock", "MIG-1%2F2.lock"]
    assert sorted(path.name for path in folder.iterdir()) == names
    for lock in locks:
        lock.release()


def test_the_holder_of_a_lock_is_known_and_the_lock_of_a_killed_process_is_free(holder):
    lock = DeviceLock("GPU-1")
    assert not lock.take()
    assert lock.holder() == holder.pid
    holder.kill()
    holder.wait()
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

    def guarded(path, flags, mode=0o777, *, dir_fd=None):
        if flags & os.O_CREAT or flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", guarded)
    assert lock.take()
    lock.release()


def test_a_lock_file_that_was_deleted_and_created_anew_is_not_mistaken_for_the_lock(folder, monkeypatch):
    first, second = DeviceLock("GPU-1"), DeviceLock("GPU-1")
    real = os.open

    def opened_and_deleted(path, flags, mode=0o777, *, dir_fd=None):
        descriptor = real(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            monkeypatch.setattr(os, "open", real)
            (folder / path).unlink()
            assert second.take()
        return descriptor

    monkeypatch.setattr(os, "open", opened_and_deleted)
    assert not first.take()
    second.release()


@pytest.mark.parametrize("kind", ["folder", "link", "second name", "fifo", "place"])
def test_a_lock_that_cannot_be_used_is_reported_with_a_cure(folder, kind, monkeypatch):
    folder.mkdir()
    path = folder / "GPU-1.lock"
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(folder / "elsewhere")
        case "second name":
            (folder / "elsewhere").write_text("precious")
            path.hardlink_to(folder / "elsewhere")
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
    assert kind != "second name" or (folder / "elsewhere").read_text() == "precious"


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_is_a_link_is_refused_and_nothing_is_made_behind_it(tmp_path, folder, exists):
    target = tmp_path / "elsewhere"
    if exists:
        target.mkdir()
        (target / "GPU-1.lock").write_text("1234")
    folder.symlink_to(target)
    with pytest.raises(NoDeviceError, match=rf"cannot be used: {folder} is a symbolic link") as raised:
        DeviceLock("GPU-1").take()
    assert raised.value.cure.startswith(f"delete {folder}, or set PERFSVC_LOCKS")
    assert DeviceLock("GPU-1").holder() is None
    assert target.exists() == exists
    assert not exists or (target / "GPU-1.lock").read_text() == "1234"


def test_a_link_that_appears_after_the_look_is_not_followed(tmp_path, folder, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    with pytest.raises(NoDeviceError, match="cannot be used"):
        DeviceLock("GPU-1").take()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_folder_of_another_user_must_be_like_tmp(folder, monkeypatch):
    folder.mkdir()
    folder.chmod(0o777)
    owner = give_away(folder, monkeypatch)
    with pytest.raises(NoDeviceError, match=rf"cannot be used: {folder} belongs to ") as raised:
        DeviceLock("GPU-1").take()
    assert f"chmod 1777 {folder}, or set PERFSVC_LOCKS" in raised.value.cure
    assert str(owner) in str(raised.value)
    assert not list(folder.iterdir())
    folder.chmod(0o1777)
    lock = DeviceLock("GPU-1")
    assert lock.take()
    lock.release()


def test_a_folder_that_the_caller_names_may_belong_to_any_user(tmp_path, monkeypatch):
    """The lock of a night is also beside its database, which users may share by a group."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    give_away(tmp_path / "data", monkeypatch)
    lock = HostLock("night", "two nights from sharing a database", tmp_path / "data")
    assert lock.take()
    lock.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
@pytest.mark.parametrize("first", [0, STRANGER])
def test_two_users_share_the_lock_of_a_gpu(monkeypatch, first):
    with tempfile.TemporaryDirectory() as outside:  # pytest's folders are for root alone
        Path(outside).chmod(0o777)
        monkeypatch.setenv("PERFSVC_LOCKS", f"{outside}/locks")
        locks = {user: DeviceLock("GPU-1") for user in (0, STRANGER)}
        second = STRANGER - first
        assert acting_as(first, locks[first].take)
        assert not acting_as(second, locks[second].take)
        assert acting_as(second, locks[second].holder) == os.getpid()
        acting_as(first, locks[first].release)
        assert acting_as(second, locks[second].take)
        assert not acting_as(first, locks[first].take)
        acting_as(second, locks[second].release)


def test_the_content_of_a_lock_file_is_ignored_unless_it_is_a_process_id(folder):
    folder.mkdir()
    (folder / "GPU-1.lock").write_text("rm -rf /")
    assert DeviceLock("GPU-1").holder() is None
    assert DeviceLock("GPU-2").holder() is None


def give_away(path, monkeypatch):
    """Make a path another user's, and return the number of that user."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
        return STRANGER
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    return owner


def acting_as(user, action):
    """Return the result of an action of another user."""
    os.seteuid(user)
    try:
        return action()
    finally:
        os.seteuid(0)


def open_files():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, no paths
