"""The build commands of programs, and the files that they make."""

import os
import threading
import time
from pathlib import Path

import pytest

from perfsvc.build import program_files, read_programs
from perfsvc.build.toolchain import Binary
from perfsvc.errors import CompileError
from perfsvc.model import ProgramFile, digest


def made(folder, name="bench", build="", *, executable=True):
    return ProgramFile(folder / name, folder, build, executable)


def failure(file):
    outcome = read_programs([file])[file]
    assert isinstance(outcome, CompileError)
    assert outcome.cure
    return outcome.what


def test_a_command_makes_a_file_which_is_read(tmp_path):
    file = made(tmp_path, build="mkdir -p 'a b' && echo text > bench && chmod +x bench")
    binary = read_programs([file])[file]
    assert isinstance(binary, Binary)
    assert (binary.code, binary.digest, binary.cached) == (b"text\n", digest(b"text\n"), False)
    assert (tmp_path / "a b").is_dir()


def test_a_command_runs_once_for_all_its_files_and_again_in_another_run(tmp_path):
    build = "echo once >> log; touch a b"
    files = [made(tmp_path, name, build, executable=False) for name in ("a", "b")]
    seen = []
    read_programs(files, on_done=lambda file, _: seen.append(file.path.name))
    assert (tmp_path / "log").read_text() == "once\n"
    assert seen == ["a", "b"]
    read_programs(files)
    assert (tmp_path / "log").read_text() == "once\nonce\n"


def test_a_failed_command_is_named_with_the_end_of_its_output(tmp_path):
    what = failure(made(tmp_path, build="seq 100; echo undefined reference >&2; exit 2"))
    assert "failed (exit status 2):\n(71 lines before)\n72\n" in what
    assert what.endswith("undefined reference")


def test_one_failure_does_not_stop_the_others(tmp_path):
    bad, good = made(tmp_path, build="false"), made(tmp_path, "good", "touch good", executable=False)
    outcomes = read_programs([bad, good])
    assert isinstance(outcomes[bad], CompileError)
    assert isinstance(outcomes[good], Binary)


def test_a_command_that_hangs_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("perfsvc.process.programs.LIMIT_S", 0.3)
    assert "was still running after 0.3 s and was killed" in failure(made(tmp_path, build="sleep 100"))


def test_a_file_has_to_be_there_regular_executable_and_not_too_large(tmp_path, monkeypatch):
    assert failure(made(tmp_path)) == f"the program {tmp_path}/bench does not exist"
    assert failure(made(tmp_path, "data", executable=False)) == f"the file {tmp_path}/data of a program does not exist"
    assert "could not be started" in failure(made(tmp_path / "gone", build="make"))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in failure(made(tmp_path, "folder"))
    assert "is not a regular file" in failure(made(tmp_path, "pipe"))
    (tmp_path / "bench").write_text("text")
    assert failure(made(tmp_path)) == f"the program {tmp_path}/bench is not executable"
    assert isinstance(next(iter(read_programs([made(tmp_path, executable=False)]).values())), Binary)
    monkeypatch.setattr(program_files, "MOST_PROGRAM_BYTES", 1 << 20)
    (tmp_path / "bench").write_bytes(bytes(3 << 20))
    assert "has 3 MiB, and at most 1 MiB are stored" in failure(made(tmp_path))


def test_a_link_is_read_as_the_file_that_it_names(tmp_path):
    (tmp_path / "real").write_text("text")
    Path(tmp_path / "real").chmod(0o755)
    (tmp_path / "bench").symlink_to("real")
    assert isinstance(read_programs([made(tmp_path)])[made(tmp_path)], Binary)


@pytest.mark.parametrize("at_once", [1, 2])
def test_commands_of_several_trees_may_run_at_once(tmp_path, at_once):
    meet = "touch here; for i in $(seq 20); do [ -e ../%s/here ] && touch met; sleep 0.05; done; touch bench"
    trees = [tmp_path / "a", tmp_path / "b"]
    for tree in trees:
        tree.mkdir()
    files = [
        made(tree, build=meet % other.name, executable=False) for tree, other in zip(trees, trees[::-1], strict=True)
    ]
    assert all(isinstance(built, Binary) for built in read_programs(files, builds_at_once=at_once).values())
    assert (tmp_path / "a" / "met").exists() == (at_once == 2)


def test_an_interrupt_kills_the_command(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("perfsvc.process.programs._stopped", threading.Event())
    files = [made(tmp_path, "a", "touch a", executable=False), made(tmp_path, "b", "sleep 100", executable=False)]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read_programs(files, builds_at_once=2, on_done=interrupt)
    assert time.monotonic() - started < 30
