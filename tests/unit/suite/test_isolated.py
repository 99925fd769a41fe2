"""Whatever a benchmark file does, it costs its benchmark: this process goes on, prints nothing and keeps no process."""

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import SuiteError
from perfsvc.process import child
from perfsvc.process.shared_memory import map_arrays
from perfsvc.suite import Selection, StoredBench, discover, isolated
from perfsvc.suite.arrays import make_arrays, make_fresh

BENCH = """
import ctypes, os, signal, sys, threading, time
import numpy as np
from perfsvc.suite import *
{top}
def inputs(rng, n):
    {inputs}
    return {{"x": rng.random(n)}}
def reference(x):
    {reference}
    return 2 * x
benchmark = Benchmark(
    axes={{"n": (8, 16)}}, smoke={{"n": 4}}, inputs=inputs, outputs={{"y": output("float64", lambda n: n)}},
    reference=reference, tolerance=Tolerance(0, 0),
    variants=[Variant("v", source="k.cu", entry="k", grid={grid}, block=1, args=("y", "x"))])
"""
PARTS = ("top", "inputs", "reference")
FREE = {"top": "", "inputs": "pass", "reference": "pass", "grid": "1"}
LIMIT_S = 3.0

CRASHES = {
    "sys.exit(0)": "SystemExit",
    "os._exit(0)": "ended the process that ran it (exit status 0)",
    "os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL",
    "os.kill(os.getpid(), 40)": "killed by signal 40",
    "ctypes.string_at(0)": "killed by SIGSEGV",
    "raise KeyboardInterrupt": "killed by SIGINT",
    "os.closerange(0, 100)": "",
    "[np.empty(1 << 28) for _ in range(1 << 20)]": "MemoryError",
    "raise type('Odd', (Exception,), {'__str__': lambda self: os._exit(3)})": "exit status 3",
    "sys.stdout.close(); sys.stderr.close(); os._exit(4)": "exit status 4",
}
HANGS = ["while True: pass", "time.sleep(1000)", "os.kill(os.getpid(), signal.SIGSTOP)", "threading.Event().wait()"]
HARMLESS = [
    "print('to standard output'); print('to standard error', file=sys.stderr)",
    "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "os.write(1, b'x' * 10_000_000)",
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
    "os.environ.clear()",
    "os.chdir('/')",
    "os.fork() or time.sleep(1000)",
    "sys.path.clear()",
]


def written(folder, name="hostile", **parts):
    place = folder / name
    place.mkdir(exist_ok=True)
    (place / "k.cu").write_text("")
    (place / "bench.py").write_text(BENCH.format(**FREE | parts))
    return folder


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left():
    """No process of a benchmark file outlives the end of perfsvc."""
    isolated._processes.end()
    mark = f"PERFSVC_TEST_ISOLATED={os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*mark.split("="))
        yield
    isolated._processes.end()
    ends = time.monotonic() + 10
    while left := marked(mark.encode() + b"\0"):
        assert time.monotonic() < ends, left
        time.sleep(0.05)


def marked(mark):
    """Return the processes with a variable in their environment, zombies excepted."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            state = (environment.parent / "stat").read_text().rpartition(")")[2].split()[0]
            if mark in environment.read_bytes() and state != "Z":
                found.append((environment.parent / "cmdline").read_text())
    return found


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd):
    """Nothing that a benchmark file prints reaches standard output."""
    yield
    assert capfd.readouterr().out == ""


def written_in_each_part(folder, statements):
    """Write a benchmark for each statement in each part of a file, and return the statements by benchmark."""
    found = {}
    for part, (number, statement) in product(PARTS, enumerate(statements)):
        written(folder, f"{part}{number}", **{part: statement})
        found[f"{part}{number}"] = statement
    return found


@pytest.mark.slow
def test_a_file_that_ends_its_process_costs_its_benchmark_alone(tmp_path):
    hostile = written_in_each_part(tmp_path, CRASHES)
    written(tmp_path, "fine")
    suite = discover(tmp_path)
    assert "fine" in {listed.case.benchmark for listed in suite.cases}
    whats = {str(tmp_path / name / "bench.py"): [] for name in (*hostile, "fine")}
    for problem in suite.problems:
        whats[problem.path].append(problem.what)
    assert whats[str(tmp_path / "fine" / "bench.py")] == []
    for name, statement in hostile.items():
        if CRASHES[statement]:
            (what,) = whats[str(tmp_path / name / "bench.py")]
            assert CRASHES[statement] in what, (name, statement)


@pytest.mark.slow
@pytest.mark.parametrize("statement", HANGS)
def test_a_file_that_hangs_is_killed_after_its_time(tmp_path, monkeypatch, statement):
    monkeypatch.setattr(isolated, "READ_LIMIT_S", LIMIT_S)
    hanging = written_in_each_part(tmp_path, [statement])
    written(tmp_path, "fine")
    began = time.monotonic()
    suite = discover(tmp_path)
    assert time.monotonic() - began < len(hanging) * LIMIT_S + 8
    assert {listed.case.benchmark for listed in suite.cases} == {"fine"}
    assert sorted(Path(problem.path).parent.name for problem in suite.problems) == sorted(hanging)
    assert {problem.what for problem in suite.problems} == {"it took longer than 3s"}
    assert all("runs them once, at the smoke point, and may take 3s" in problem.cure for problem in suite.problems)


def test_a_file_that_prints_without_end_does_not_fill_the_disk(tmp_path, monkeypatch):
    discover(written(tmp_path, "fine"))  # starts the server, which would take part of the time
    monkeypatch.setattr(isolated, "READ_LIMIT_S", 0.4)
    monkeypatch.setattr(child, "OUTPUT_POLL_S", 0.01)
    monkeypatch.setattr(child, "MOST_OUTPUT_BYTES", 1000)
    written(tmp_path, top="while True: time.sleep(0.001); os.write(1, b'x' * 1000)")
    largest = 0
    with ThreadPoolExecutor(1) as threads:
        suite = threads.submit(discover, tmp_path / "hostile")
        while not suite.done():
            for file in Path("/proc/self/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(file.readlink()).endswith("(deleted)"):
                        largest = max(largest, file.stat().st_size)
            time.sleep(0.01)
    assert suite.result().problems[0].what == "it took longer than 0.4s"
    assert 0 < largest < 300_000


def test_prints_threads_and_changes_of_its_process_stay_there(tmp_path):
    environment, folder = dict(os.environ), Path.cwd()
    for number, statement in enumerate(HARMLESS):
        written(tmp_path, f"harmless{number}", **dict.fromkeys(PARTS, statement))
    suite = discover(tmp_path)
    assert suite.problems == ()
    specs, problems = suite.resolve(Selection(), "full")
    assert problems == ()
    assert len(specs) == 2 * len(HARMLESS)
    for spec in specs[::2]:
        isolated.make_arrays(spec).close()
    assert (dict(os.environ), Path.cwd()) == (environment, folder)


@pytest.mark.slow
def test_a_process_with_a_session_of_its_own_ends_with_the_process_that_started_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFSVC_TEST_SESSION", f"left by {os.getpid()}")
    isolated._processes.end()  # its server has another environment
    names = ("session", "daemon")
    for name, step in zip(names, ("", "os.fork() and os._exit(0), "), strict=True):
        written(tmp_path, name, top=f"os.fork() or (os.setsid(), {step}time.sleep(1000))")
    discover(tmp_path)
    mark = f"PERFSVC_TEST_SESSION=left by {os.getpid()}\0".encode()
    assert len(marked(mark)) > 4
    for name in names:
        with isolated._processes.process(str(tmp_path / name / "bench.py")) as child:
            child.end(kill=True)
    ends = time.monotonic() + 10
    while len(left := marked(mark)) > 1:  # the server
        assert time.monotonic() < ends, left
        time.sleep(0.05)
    isolated._processes.end()


def test_what_a_file_prints_is_shown_on_standard_error_with_its_path(tmp_path, capfd):
    discover(written(tmp_path, top="print('reading the weights')"))
    assert f"{tmp_path}/hostile/bench.py: reading the weights" in capfd.readouterr().err


@pytest.mark.slow
def test_a_hang_at_a_full_point_costs_its_case_and_not_the_run(tmp_path):
    suite = discover(written(tmp_path, reference="time.sleep(1000 * (len(x) == 16))"))
    (small, large), _ = suite.resolve(Selection(), "full")
    began = time.monotonic()
    with pytest.raises(SuiteError, match="it took longer than 2s"):
        isolated.make_arrays(large, limit_s=2.0)
    assert time.monotonic() - began < 8
    isolated.make_arrays(small).close()


def test_what_cannot_be_resolved_is_a_problem_of_its_benchmark(tmp_path):
    written(tmp_path, "fine")
    suite = discover(written(tmp_path, inputs="n == 16 and os._exit(5)"))
    specs, (problem,) = suite.resolve(Selection(), "full")
    assert {spec.case.benchmark for spec in specs} == {"fine"}
    assert "exit status 5" in problem.what


MEMORY = {
    "which may shrink": ("s.share = lambda *_: s.SharedArrays(memory(), 64, s.ArrayLayout())", "may still shrink"),
    "too small": ("s.share = lambda *_: s.SharedArrays(memory(True), 64, layout('float64', (9,)))", "in 64 bytes"),
    "of a negative size": (
        "s.share = lambda *_: s.SharedArrays(memory(True), 64, layout('int8', (-9,)))",
        "in 64 bytes",
    ),
    "of objects": ("s.share = lambda *_: s.SharedArrays(memory(True), 64, layout('O', (1,)))", "an array of O"),
    "of nonsense": ("s.share = lambda *_: s.SharedArrays(memory(True), 64, layout('odd', (1,)))", "an array of 'odd'"),
    "which is a pipe": ("s.share = lambda *_: s.SharedArrays(os.pipe()[0], 64, s.ArrayLayout())", "Invalid argument"),
}
FORGED = """
import fcntl
import perfsvc.process.shared_memory as s, perfsvc.suite.isolated.child as c
from perfsvc.model import Array
def memory(sealed=False):
    f = os.memfd_create("m", os.MFD_ALLOW_SEALING)
    os.ftruncate(f, 64)
    sealed and fcntl.fcntl(f, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return f
def layout(dtype, shape):
    return s.ArrayLayout((s.ArrayLocation(Array("x", dtype, shape), 0),))
"""


@pytest.mark.parametrize("memory", MEMORY)
def test_shared_memory_that_could_end_or_mislead_its_reader_is_refused(tmp_path, memory):
    statement, why = MEMORY[memory]
    suite = discover(written(tmp_path, top=f"{FORGED}{statement}; c.share = s.share"))
    (spec, _), _ = suite.resolve(Selection(), "full")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(SuiteError, match=f"a message that cannot be read: .*{why}"):
        isolated.make_arrays(spec)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_arrays_are_the_same_as_in_this_process(tmp_path):
    suite = discover(written(tmp_path))
    (spec, _), _ = suite.resolve(Selection(), "full")
    first = isolated.make_arrays(spec)
    fresh = isolated.make_fresh(spec, lambda: first)
    inputs, expected = make_arrays(spec)
    fresh_inputs, fresh_expected = make_fresh(spec, lambda: inputs)
    for shared, locations, arrays in (
        (first, first.layout.inputs, inputs),
        (first, first.layout.expected, expected),
        (fresh, fresh.layout.inputs, fresh_inputs),
        (fresh, fresh.layout.expected, fresh_expected),
    ):
        mapped = map_arrays(shared.descriptor, locations)
        assert mapped.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(mapped[name], array)
    first.close()
    fresh.close()


def test_a_copy_of_the_process_that_a_file_forks_answers_no_request(tmp_path):
    written_in_each_part(tmp_path, ["os.fork()"])
    specs, problems = discover(tmp_path).resolve(Selection(), "full")
    assert problems == ()
    for spec in (*specs, *specs):
        made = isolated.make_arrays(spec)
        assert made.layout.inputs[0].array.shape == (dict(spec.case.point)["n"],)
        made.close()


def test_inputs_that_differ_at_the_second_call_are_a_problem_and_nan_is_no_difference(tmp_path):
    for top, inputs in (
        ("", "return {'x': np.random.rand(n)}"),
        ("calls = []", "calls.append(0); return {'x': np.full(n, float(len(calls)))}"),
        ("calls = []", "calls.append(0); return {'x' if len(calls) == 1 else 'z': np.zeros(n)}"),
    ):
        (problem, *_) = discover(written(tmp_path, top=top, inputs=inputs)).problems
        assert problem.what == "inputs made another 'x' when it was called a second time"
        assert problem.line == 6
    assert discover(written(tmp_path, inputs="return {'x': np.full(n, np.nan)}")).problems == ()


def test_arrays_of_another_byte_order_arrive_in_that_of_this_machine(tmp_path):
    written(tmp_path, reference="return (2 * x).astype('>f8')")
    path = tmp_path / "hostile" / "bench.py"
    path.write_text(path.read_text().replace("rng.random(n)}", "rng.random(n).astype('>f8')}"))
    (spec, _), _ = discover(tmp_path).resolve(Selection(), "full")
    made = isolated.make_arrays(spec)
    (x,) = map_arrays(made.descriptor, made.layout.inputs).values()
    (y,) = map_arrays(made.descriptor, made.layout.expected).values()
    assert ((x > 0) & (x < 1)).all()
    np.testing.assert_array_equal(y, 2 * x)
    made.close()


def test_a_stored_file_is_replayed_in_a_process_of_its_own(tmp_path):
    text = (written(tmp_path) / "hostile" / "bench.py").read_text()
    bench = StoredBench(text, "hostile")
    made = isolated.replay_arrays(bench, (("n", 8),), 1)
    np.testing.assert_array_equal(
        isolated.replay_inputs(bench, (("n", 8),), 1)["x"], map_arrays(made.descriptor, made.layout.inputs)["x"]
    )
    made.close()
    assert isolated.replay_tolerance(bench, (("n", 8),)).max == 0
    with pytest.raises(SuiteError, match="exit status 7"):
        isolated.replay_arrays(StoredBench("import os; os._exit(7)", "hostile"), (), 1)


def test_a_process_is_kept_for_the_next_request_of_its_file(tmp_path):
    suite = discover(written(tmp_path, top="print(os.getpid(), file=open(__file__ + '.pids', 'a'))"))
    (spec, _), _ = suite.resolve(Selection(), "full")
    isolated.make_arrays(spec).close()
    pids = (tmp_path / "hostile" / "bench.py.pids").read_text().split()
    assert len(pids) == 3
    assert len(set(pids)) == 1


def test_requests_of_a_file_that_imports_for_long_share_its_process(tmp_path):
    top = "print(os.getpid(), file=open(__file__ + '.pids', 'a')); 'slow' in sys.modules or time.sleep(0.3); "
    suite = discover(written(tmp_path, top=top + "sys.modules['slow'] = None"))
    specs, _ = suite.resolve(Selection(), "full")
    with ThreadPoolExecutor(4) as threads:
        for made in threads.map(isolated.make_arrays, [*specs, *specs]):
            made.close()
    assert len(set((tmp_path / "hostile" / "bench.py.pids").read_text().split())) == 1


@pytest.mark.slow
def test_requests_of_a_file_that_makes_large_arrays_get_several_processes(tmp_path):
    top = "print(os.getpid(), file=open(__file__ + '.pids', 'a'))"
    suite = discover(written(tmp_path, top=top, inputs="time.sleep(1.0 * (n > 4))"))
    specs, _ = suite.resolve(Selection(), "full", tmp_path / "shapes")
    with ThreadPoolExecutor(2) as threads:
        for made in threads.map(isolated.make_arrays, specs):
            made.close()
    assert len(set((tmp_path / "hostile" / "bench.py.pids").read_text().split())) == 2


def test_a_process_that_died_meanwhile_is_replaced(tmp_path):
    wait = "lambda: [time.sleep(0.01) for _ in iter(lambda: os.path.exists(__file__ + '.go'), True)] and os._exit(1)"
    die = f"(print(os.getpid(), file=open(__file__ + '.pid', 'w')), threading.Thread(target={wait}).start())"
    suite = discover(written(tmp_path, top=f"os.path.exists(__file__ + '.pid') or {die}"))
    pid = int((tmp_path / "hostile" / "bench.py.pid").read_text())
    (tmp_path / "hostile" / "bench.py.go").touch()
    ends = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < ends
        time.sleep(0.01)
    specs, problems = suite.resolve(Selection(), "full")
    assert len(specs) == 2
    assert problems == ()


def test_a_process_takes_over_the_environment_folder_and_import_path_of_the_moment(tmp_path, monkeypatch):
    same = "os.environ['ODD'] == '\\udcff' and os.getcwd() == module_of_this_test.FOLDER"
    written(tmp_path, top=f"import module_of_this_test; assert {same}")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "module_of_this_test.py").write_text(f"FOLDER = {str(elsewhere)!r}")
    assert discover(tmp_path).problems
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.setenv("ODD", "\udcff")
    monkeypatch.chdir(elsewhere)
    assert discover(tmp_path).problems == ()


@pytest.mark.slow
def test_a_file_that_kills_the_server_fails_no_other_file(tmp_path):
    written(tmp_path, top="os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)")
    written(tmp_path, "fine")
    suite = discover(tmp_path)
    assert {listed.case.benchmark for listed in suite.cases} == {"fine"}
    (problem,) = suite.problems
    assert problem.path == str(tmp_path / "hostile" / "bench.py")


def test_text_that_is_not_unicode_is_a_problem_of_its_file(tmp_path):
    suite = discover(written(tmp_path, top="raise ValueError('\\udc80')"))
    assert "not Unicode" in suite.problems[0].what
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    written(folder)
    assert "not UTF-8" in "".join(problem.what for problem in discover(folder).problems)
