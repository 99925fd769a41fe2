import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfsvc.build import Binary, Cache, compile_all, toolchain, toolchain_for
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.errors import CompileError, InfrastructureError, NoCompilerError, UnsupportedError, UsageError
from perfsvc.model import Unit, digest
from perfsvc.process import programs


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def source(tmp_path):
    def write(name, text="int x;\n"):
        path = tmp_path / name
        path.write_text(text)
        return Unit(path, ("f",))

    return write


def test_one_unit_that_does_not_compile_does_not_stop_the_others(cache, source):
    good, bad, gone = source("good.cu"), source("bad.cu", "int x;\n  #error no such luck\n"), Unit(Path("gone.cu"), ())
    built = compile_all([bad, good, gone], FakeToolchain(), cache)
    assert list(built) == [bad, good, gone]
    assert isinstance(built[bad], CompileError)
    assert "bad.cu:2: error: #error no such luck" in built[bad].what
    assert isinstance(built[gone], CompileError)
    assert isinstance(built[good], Binary)
    assert built[good].digest == digest(built[good].code)


def test_a_second_build_comes_from_the_cache_and_a_changed_source_does_not(cache, source):
    unit = source("k.cu")
    first = compile_all([unit], FakeToolchain(), cache)[unit]
    second = compile_all([unit], FakeToolchain(), cache)[unit]
    assert (first.cached, second.cached) == (False, True)
    assert first.code == second.code
    changed = compile_all([source("k.cu", "int y;\n")], FakeToolchain(), cache)[unit]
    assert not changed.cached
    assert changed.code != first.code


def test_a_compiler_that_compiles_nothing_is_an_error_of_the_machine_and_not_of_each_kernel(cache, source):
    def act(unit):
        if unit.source.name != "good.cu":
            raise CompileError("empty.cu does not compile:\nc++: fatal error: cannot execute 'cc1plus'")
        return b"code"

    bad, good = source("bad.cu"), source("good.cu")
    assert compile_all([bad, good], Scripted(act), cache)[good].code == b"code"
    with pytest.raises(NoCompilerError, match=r"not even an empty kernel: c.*cannot execute 'cc1plus'") as raised:
        compile_all([bad, good], Scripted(act), cache)  # the good one comes from the cache, and says nothing
    assert "CXX" in raised.value.cure


@dataclass
class Scripted:
    """A compiler that does what a test scripts."""

    act: object
    target: str = "fake"
    version: str = "scripted 1"

    def preimage(self, unit):
        return f"{unit.source} {unit.defines}".encode()

    def dependencies(self, unit):
        return (unit.source.name,)

    def compile(self, unit):
        return self.act(unit)


UNITS = [Unit(Path(__file__).parents[2] / "gpu" / "kernels.cu", (), (("N", n),)) for n in range(4)]


def test_equal_units_are_compiled_once(cache):
    seen = []

    def act(unit):
        seen.append(unit)
        return b"code"

    assert list(compile_all([UNITS[0]] * 3, Scripted(act), cache)) == [UNITS[0]] == seen


def test_a_unit_that_the_target_cannot_run_is_unsupported(cache):
    def act(unit):
        raise UnsupportedError("inline PTX")

    (built,) = compile_all(UNITS[:1], Scripted(act), cache).values()
    assert isinstance(built, UnsupportedError)


def test_each_outcome_is_reported_once_in_the_calling_thread(cache):
    reported = []
    compile_all(
        UNITS, Scripted(lambda unit: b"code"), cache, on_done=lambda u, b: reported.append((u, threading.get_ident()))
    )
    assert len(reported) == len(UNITS)
    assert set(reported) == {(unit, threading.get_ident()) for unit in UNITS}


def test_no_compiler_at_all_ends_the_build(cache):
    def act(unit):
        raise NoCompilerError("no compiler")

    with pytest.raises(NoCompilerError):
        compile_all(UNITS, Scripted(act), cache)


@pytest.mark.usefixtures("full_disk")
def test_a_cache_that_cannot_be_written_ends_the_build(cache):
    with pytest.raises(InfrastructureError, match="No space left"):
        compile_all(UNITS[:1], Scripted(lambda unit: b"code"), cache)
    assert not [path for path in cache.folder.rglob("*") if path.is_file()]


SLOW_BUILD = """
import sys
from pathlib import Path
from perfsvc.build import Cache, compile_all
from perfsvc.process import programs
from perfsvc.model import Unit

class Slow:
    target, version = "fake", "slow 1"
    def preimage(self, unit):
        return repr(unit.defines).encode()
    def dependencies(self, unit):
        return (unit.source.name,)
    def compile(self, unit):
        programs.run(["sh", "-c", f"sleep 300 & echo $! > {sys.argv[1]}/{unit.defines[0][1]}.pid; wait"], folder=Path())
        return b"code"

folder = Path(sys.argv[1])
(folder / "k.cu").write_text("")
compile_all([Unit(folder / "k.cu", (), (("N", n),)) for n in range(6)], Slow(), Cache(folder), workers=2)
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(*pids):
    deadline = time.monotonic() + 10
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_an_interrupt_kills_the_compilers_and_what_they_started(tmp_path):
    build = subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, str(tmp_path)], stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 30
        while len(pids := [p.read_text().strip() for p in tmp_path.glob("*.pid")]) < 2 or "" in pids:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(build.pid, signal.SIGINT)
        _, printed = build.communicate(timeout=30)
    finally:
        build.kill()
    assert b"KeyboardInterrupt" in printed
    started = [path.read_text().strip() for path in tmp_path.glob("*.pid")]
    assert len(started) < 6, "what had not started must not start any more"
    wait_until_gone(*started)


INTERRUPTED_START = """
import threading

start = threading.Thread.start

def interrupted(thread):
    start(thread)
    raise KeyboardInterrupt

threading.Thread.start = interrupted
"""


def test_an_interrupt_while_a_thread_starts_kills_the_compiler_that_the_thread_runs(tmp_path):
    build = [sys.executable, "-c", INTERRUPTED_START + SLOW_BUILD, str(tmp_path)]
    # The compiler would run for 300 s.
    ended = subprocess.run(build, stderr=subprocess.PIPE, timeout=30, check=False)
    assert b"KeyboardInterrupt" in ended.stderr


def test_programs_run_again_after_a_build_that_an_error_ended(cache, tmp_path):
    def fail(*_):
        raise InfrastructureError("the progress cannot be shown")

    with pytest.raises(InfrastructureError):
        compile_all(UNITS, Scripted(lambda unit: b"code"), cache, on_done=fail)
    assert programs.run(["true"], folder=tmp_path).code == 0


def test_a_program_returns_its_output_and_exit_code(tmp_path):
    finished = programs.run(["sh", "-c", "echo out; echo err >&2; pwd; exit 3"], folder=tmp_path)
    assert finished == programs.Finished(3, f"out\nerr\n{tmp_path.resolve()}\n")


def test_built_and_cached_binaries_have_their_source_texts(cache, tmp_path):
    (tmp_path / "deep").mkdir()
    for name, text in {"k.cu": '#include "deep/k.cu"\n', "deep/k.cu": "int deep;\n"}.items():
        (tmp_path / name).write_text(text)
    unit = Unit(tmp_path / "k.cu", ())
    for _ in ("built", "cached"):
        binary = compile_all([unit], FakeToolchain(), cache)[unit]
        assert binary.sources == {"k.cu": b'#include "deep/k.cu"\n', "deep/k.cu": b"int deep;\n"}
    assert binary.cached


def test_a_header_that_many_units_include_is_stored_once(cache, source):
    units = [source(name, '#include "h.cuh"\n') for name in ("a.cu", "b.cu")]
    (units[0].source.parent / "h.cuh").write_text("int h;\n")
    first, second = compile_all(units, FakeToolchain(), cache).values()
    assert first.sources["h.cuh"] is second.sources["h.cuh"]


def test_units_are_preprocessed_and_compiled_at_the_same_time(cache):
    together = threading.Barrier(len(UNITS), timeout=20)
    compiling = threading.Barrier(len(UNITS), timeout=20)

    class Preprocessing(Scripted):
        def preimage(self, unit):
            together.wait()
            return super().preimage(unit)

    for cached in (False, True):
        preprocessing = Preprocessing(lambda unit: (compiling.wait(), b"code")[1])
        built = compile_all(UNITS, preprocessing, cache, workers=len(UNITS))
        assert {binary.cached for binary in built.values()} == {cached}


def test_a_source_that_is_edited_while_it_is_compiled_fails_and_is_not_kept(cache, source):
    unit = source("k.cu")

    def act(unit):
        unit.source.write_text("int edited;\n")
        return b"code of who knows which text"

    built = compile_all([unit], Scripted(act), cache)[unit]
    assert isinstance(built, CompileError)
    assert "k.cu changed while it was compiled" in built.what
    assert not [path for path in cache.folder.rglob("*") if path.is_file()]


def test_a_compiler_that_hangs_is_killed_with_its_children(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "LIMIT_S", 0.5)
    finished = programs.run(["sh", "-c", "echo so far; sleep 300 & echo $! > pid; wait"], folder=tmp_path)
    assert (finished.timed_out, finished.output) == (True, "so far\n")
    wait_until_gone((tmp_path / "pid").read_text().strip())


@pytest.mark.skipif(shutil.which("setsid") is None, reason="starts a daemon with setsid")
@pytest.mark.parametrize(("then", "timed_out"), [("exit 3", False), ("sleep 300", True)])
def test_a_daemon_that_a_compiler_leaves_behind_is_not_waited_for(tmp_path, then, timed_out):
    daemon = "setsid sh -c 'echo $$ > pid; exec sleep 20' & until [ -s pid ]; do sleep 0.02; done"
    finished = programs.run(["sh", "-c", f"{daemon}; echo done; {then}"], folder=tmp_path, limit_s=1)
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert finished == programs.Finished(-signal.SIGKILL if timed_out else 3, "done\n", timed_out)


def test_the_children_of_a_compiler_end_with_it(tmp_path):
    finished = programs.run(["sh", "-c", "sleep 20 & echo $! > pid"], folder=tmp_path, limit_s=3)
    assert finished == programs.Finished(0, "")
    wait_until_gone((tmp_path / "pid").read_text().strip())


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="Linux alone limits other processes")
def test_the_system_limits_the_processor_time_of_a_compiler(tmp_path):
    limit = programs._ORPHAN_LIMIT_S
    finished = programs.run(["sh", "-c", f"until [ $(ulimit -t) = {limit} ]; do sleep 0.05; done"], folder=tmp_path)
    assert finished.code == 0


def test_a_long_message_is_cut_to_its_first_errors():
    warnings, errors = [f"k.cu:{n}: warning: w" for n in range(100)], [f"k.cu:{n}: error: e" for n in range(500)]
    lines = toolchain.compile_failure(Unit(Path("k.cu"), ()), "\n".join(warnings + errors)).what.splitlines()
    assert lines[0] == "k.cu does not compile:"
    assert lines[1:5] == [*warnings[-3:], errors[0]]
    assert lines[-2:] == [errors[26], "(570 more lines left out)"]


def test_the_target_decides_the_compiler():
    assert toolchain_for("fake").target == "fake"
    with pytest.raises(UsageError, match="rv64"):
        toolchain_for("rv64")
