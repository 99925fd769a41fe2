"""Files are written whole or not at all, and no link below a folder is followed."""

import errno
import fcntl
import itertools
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest

from perfsvc import files
from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.files import Folder, is_inside, write, write_output

KILLED = """
import os, signal, sys
from pathlib import Path
from perfsvc import files

os.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
files.write(Path(sys.argv[1]), b"new")
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "site"
    path.mkdir()
    with Folder.open(path) as opened:
        yield opened


@pytest.fixture
def victim(tmp_path):
    """A folder outside ``folder``, with a file."""
    path = tmp_path / "victim"
    path.mkdir()
    (path / "file").write_text("precious")
    return path


@contextmanager
def longest_file(size_bytes):
    """No file can become longer: a write that would make it so fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# --- in a folder -----------------------------------------------------------------------------------------------------


def test_a_file_is_written_with_its_folders_and_read_again(folder, tmp_path):
    folder.write("a/b/c", b"text")
    assert folder.read("a/b/c") == b"text"
    assert names(folder.path) == ["a", "a/b", "a/b/c"]
    (tmp_path / "link").symlink_to(folder.path)  # the folder that the user names may be a link
    with Folder.open(tmp_path / "link", make=True) as opened:
        assert opened.read("a/b/c") == b"text"


def test_a_new_file_has_the_permissions_of_open_and_a_replaced_one_keeps_its_own(folder):
    old = os.umask(0o027)
    try:
        folder.write("new", b"1")
        assert stat.S_IMODE((folder.path / "new").stat().st_mode) == 0o640
        (folder.path / "new").chmod(0o604)
        folder.write("new", b"2")
        assert stat.S_IMODE((folder.path / "new").stat().st_mode) == 0o604
        folder.write("private", b"", mode=0o600)
        assert stat.S_IMODE((folder.path / "private").stat().st_mode) == 0o600
    finally:
        os.umask(old)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_replaced_file_keeps_its_owner(folder):
    folder.write("file", b"1")
    os.chown(folder.path / "file", 65534, 65533)
    folder.write("file", b"2")
    replaced = (folder.path / "file").stat()
    assert (replaced.st_uid, replaced.st_gid) == (65534, 65533)


def test_an_existing_file_is_kept_if_it_must_not_be_replaced(folder):
    folder.write("file", b"1", replace=False)
    with pytest.raises(FileExistsError):
        folder.write("file", b"2", replace=False)
    assert folder.read("file") == b"1"
    assert names(folder.path) == ["file"]


OUTSIDE = ("", ".", "/etc/passwd", "..", "../x", "a/../../x", "a\0b", "\ud800")


def test_a_name_outside_the_folder_is_refused(folder):
    for name, use in itertools.product(OUTSIDE, (folder.read, folder.remove, lambda name: folder.write(name, b""))):
        try:
            use(name)
        except OSError:
            continue
        assert use == folder.remove  # removing nothing is no error
    assert names(folder.path) == []


def test_a_name_is_inside_its_folder_if_it_is_the_only_name_of_a_file_there():
    names = {"a": True, "a/b": True, "..a": True, "a/b/c.html": True}
    names |= dict.fromkeys(("./a", "a/./b", "a//b", "a/", *OUTSIDE), False)
    assert {name: is_inside(name) for name in names} == names


def test_a_link_to_a_folder_is_not_followed(folder, victim):
    (folder.path / "x").symlink_to(victim)
    for use in (folder.read, lambda name: folder.write(name, b"bad")):
        with pytest.raises(NotADirectoryError, match="links to folders are not followed") as refused:
            use("x/file")
        assert refused.value.filename == str(folder.path / "x")
    folder.remove("x/file")
    assert (victim / "file").read_text() == "precious"
    assert names(victim) == ["file"]
    (victim / "file").unlink()
    folder.remove("x/file")
    assert victim.is_dir()
    assert (folder.path / "x").is_symlink()


def test_a_link_with_the_name_of_the_file_is_replaced_and_its_target_stays(folder, victim):
    (folder.path / "page").symlink_to(victim / "file")
    with pytest.raises(OSError, match="it is a link, and links are not followed"):
        folder.read("page")
    folder.remove("page")
    assert (folder.path / "page").is_symlink()
    folder.write("page", b"new")
    assert not (folder.path / "page").is_symlink()
    assert folder.read("page") == b"new"
    assert (victim / "file").read_text() == "precious"


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND])
def test_only_a_regular_file_is_opened(folder, flags):
    os.mkfifo(folder.path / "fifo")
    (folder.path / "folder").mkdir()
    for name in ("fifo", "folder"):
        with pytest.raises(OSError, match=r"no regular file|No such device|Is a directory"):
            folder.open_file(name, flags)


def test_removing_a_file_removes_the_folders_that_are_empty_without_it(folder):
    for name in ("a/b/1", "a/2", "3"):
        folder.write(name, b"")
    folder.remove("a")  # a folder is not removed as a file
    assert len(names(folder.path)) == 5
    folder.remove("a/b/1")
    assert names(folder.path) == ["3", "a", "a/2"]
    for name in ("a/2", "3", "missing", "a/missing", "x" * 300):
        folder.remove(name)
    assert names(folder.path) == []


def test_temporary_files_of_killed_processes_are_removed_and_others_stay(folder, victim):
    left, link, fifo = (f".perfsvc-new-{number:032}" for number in range(3))
    (folder.path / left).touch()
    (folder.path / link).symlink_to(victim / "file")
    os.mkfifo(folder.path / fifo)
    (folder.path / ".perfsvc-new-mine").touch()
    with folder.writing("file"):
        folder.remove_abandoned()
    assert set(names(folder.path)) == {".perfsvc-new-mine", link, fifo, "file"}
    assert names(victim) == ["file"]


def test_a_temporary_file_that_another_process_removed_before_it_was_locked_is_made_again(folder, monkeypatch):
    really, calls = fcntl.flock, []

    def lock(descriptor, kind):
        if not calls:
            (temporary,) = folder.path.glob(".perfsvc-new-*")
            temporary.unlink()
        calls.append(kind)
        really(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", lock)
    folder.write("file", b"1")
    assert len(calls) == 2
    assert folder.read("file") == b"1"


def test_a_file_system_without_locks_is_written_to(folder, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "no locks")))
    (folder.path / f".perfsvc-new-{32 * '0'}").touch()
    folder.remove_abandoned()
    folder.write("file", b"1")
    assert names(folder.path) == [f".perfsvc-new-{32 * '0'}", "file"]


# --- whole or not at all ---------------------------------------------------------------------------------------------


def test_an_error_in_the_block_or_a_full_disk_leaves_the_old_file_and_no_other(folder):
    folder.write("file", b"old")
    stopped = folder.writing("file")
    stopped.__enter__().write(b"half")
    assert not stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    with longest_file(1 << 16), pytest.raises(OSError, match="File too large"):
        folder.write("file", bytes(1 << 17))
    assert folder.read("file") == b"old"
    assert names(folder.path) == ["file"]


def test_a_kill_before_the_last_step_leaves_the_old_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert file.read_text() == "old"
    assert len(names(tmp_path)) == 2
    write(file, b"new")
    assert names(tmp_path) == ["file"]


def test_two_writers_of_one_file_do_not_mix(folder):
    contents = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: folder.write("file", content), contents))
    assert folder.read("file") in contents
    assert names(folder.path) == ["file"]


def test_the_name_of_a_temporary_file_cannot_be_predicted(folder):
    seen = set()
    for _ in range(3):
        with folder.writing("file") as file:
            seen.add(file.name)
    assert len(seen) == 3
    assert {Path(name).parent for name in seen} == {folder.path}


def test_a_file_is_on_the_disk_before_it_has_its_name(folder, monkeypatch):
    done = []
    for name in ("fsync", "rename"):
        spy = Mock(side_effect=lambda *_, name=name, **__: done.append(name) or DEFAULT, wraps=getattr(os, name))
        monkeypatch.setattr(os, name, spy)
    folder.write("file", b"1", sync=True)
    assert done == ["fsync", "rename"]
    assert folder.read("file") == b"1"


# --- the output that a user names ------------------------------------------------------------------------------------


def test_an_output_is_made_and_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_output(Path("report.csv"), b"1")
    write_output(Path("report.csv"), b"2")
    assert (tmp_path / "report.csv").read_bytes() == b"2"
    assert names(tmp_path) == ["report.csv"]
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing" / "file", b"1")


@pytest.mark.parametrize("name", ["file", "new"])
def test_a_link_that_the_user_names_stays_and_its_target_is_replaced(tmp_path, victim, name):
    link = tmp_path / "report.csv"
    link.symlink_to(Path("victim") / name)
    write_output(link, b"report")
    assert link.is_symlink()
    assert (victim / name).read_bytes() == b"report"
    assert names(victim) == sorted({"file", name})


def test_a_full_disk_keeps_the_target_of_a_link(tmp_path, victim):
    (tmp_path / "report.csv").symlink_to(victim / "file")
    with longest_file(1 << 16), pytest.raises(InfrastructureError, match=r"report\.csv cannot be written: File too"):
        write_output(tmp_path / "report.csv", bytes(1 << 17))
    assert (victim / "file").read_text() == "precious"
    assert names(victim) == ["file"]


def test_devices_are_written_directly():
    write_output(Path(os.devnull), b"nothing")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    with pytest.raises(InfrastructureError) as full:
        write_output(Path("/dev/full"), b"too much")
    assert "/dev/full cannot be written: No space left on device\n  cure: make room" in str(full.value)


def test_a_fifo_is_written_directly(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(target=write_output, args=(tmp_path / "fifo", b"text"))
    writer.start()
    assert (tmp_path / "fifo").read_bytes() == b"text"
    writer.join()
    assert (tmp_path / "fifo").is_fifo()


@pytest.mark.parametrize("to_file", [True, False])
def test_standard_output_is_written_at_its_end(tmp_path, to_file):
    code = "from pathlib import Path; from perfsvc.files import write_output; write_output(Path('/dev/stdout'), b'2')"
    shell = f'(printf 1; {sys.executable} -c "{code}"; printf 3)' + (" >> out" if to_file else " | cat")
    (tmp_path / "out").write_text("0")
    shown = subprocess.run(["sh", "-c", shell], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "out").read_text() + shown == "0123"


def test_an_impossible_output_is_a_usage_error(tmp_path):
    for name, why in {"missing/x": "No such file", ".": "Is a directory", "x" * 300: "too long"}.items():
        with pytest.raises(UsageError, match=f"cannot be written: .*{why}") as refused:
            write_output(tmp_path / name, b"")
        assert refused.value.cure == "name a file in a folder that exists and may be written"


def test_a_reader_that_has_ended_is_no_usage_error(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    reader = threading.Thread(target=lambda: os.close(os.open(tmp_path / "fifo", os.O_RDONLY)))
    reader.start()
    with pytest.raises(BrokenPipeError):
        write_output(tmp_path / "fifo", bytes(1 << 20))
    reader.join()


def test_a_read_only_output_is_refused(tmp_path, monkeypatch):
    (tmp_path / "report").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "report")  # root may write everything
    with pytest.raises(UsageError, match="Permission denied"):
        write_output(tmp_path / "report", b"new")
    assert (tmp_path / "report").read_text() == "old"


def test_a_file_that_cannot_be_replaced_is_written_in_place_unless_the_disk_is_full(tmp_path, monkeypatch):
    (tmp_path / "report").write_text("a long report")
    before = (tmp_path / "report").stat().st_ino
    for number in (errno.EACCES, errno.EPERM, errno.EBUSY):
        monkeypatch.setattr(files, "write", Mock(side_effect=OSError(number, "fixed")))
        write_output(tmp_path / "report", f"new {number}")
        assert (tmp_path / "report").read_text() == f"new {number}"
    assert (tmp_path / "report").stat().st_ino == before
    for number in (errno.ENOSPC, errno.EDQUOT):
        monkeypatch.setattr(files, "write", Mock(side_effect=OSError(number, "full")))
        with pytest.raises(InfrastructureError, match="full"):
            write_output(tmp_path / "x", b"")
