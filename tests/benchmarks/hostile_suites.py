"""Run suites whose benchmark files are hostile: each costs its benchmark, and nothing else.

    python tests/benchmarks/hostile_suites.py [--files 500] [--seed 7] [--jobs 1]

Each ``bench.py`` comes from a grammar: one or two hostile statements, each at one of the places at which perfsvc runs
code of a benchmark file. Some end their process, some hang, some print, fork, start threads or change their process,
some replace what they can reach. Ten such files and an ordinary one are a suite, which ``perfsvc list`` and
``perfsvc run`` read on the fake device. The claims: the ordinary benchmark is always measured, a file that cannot be
used fails and one that is only odd does not, exit codes are right, standard output is JSON, nothing is called a fault
of perfsvc, and no process is left.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import CASES_FAILED, Claim, finish, parsed, processes_with, table

GROUP = 10
"""Hostile files of a suite."""
LIMIT_S = 4
"""Seconds that reading a file, making its arrays, or measuring its case may take."""
COMMAND = f"""
from perfsvc.suite import isolated
isolated.READ_LIMIT_S, isolated.ARRAYS_LIMIT = {LIMIT_S}.0, 1
from perfsvc.cli import main
main()
"""
COMMAND_LIMIT_S = 300
LEFT_LIMIT_S = 10
MARK = "PERFSVC_HOSTILE"

BENCH = """
import atexit, builtins, ctypes, gc, json, os, resource, signal, socket, subprocess, sys, threading, time, types
import numpy as np
from perfsvc.suite import *
{top}
def inputs(rng, n):
    {inputs}
    return {{"x": rng.random(n)}}
def reference(x):
    {reference}
    return 2 * x
def extent(n):
    {extent}
    return n
def grid(n):
    {grid}
    return 1
def only(n):
    {only}
    return True
def tolerance(n):
    {tolerance}
    return Tolerance(0, 0)
def work(n):
    {work}
    return Work(read_bytes=8)
def report(arrays, stream):
    {step}
    np.asarray(arrays["y"])[:] = 2 * np.asarray(arrays["x"])
    return {{"level": 1.0}}
benchmark = Benchmark(
    axes={{"n": (8,)}}, smoke={{"n": 8}}, inputs=inputs, outputs={{"y": output("float64", extent)}},
    reference=reference, tolerance=tolerance, work=work,
    variants=[Variant("v", source="k.cu", entry="k", grid=grid, block=1, args=("y", "x"), only=only){host}])
{bottom}
"""
HOST = ', Variant("h", kind="host", run=report)'
PLACES = ("top", "inputs", "reference", "extent", "grid", "only", "tolerance", "work", "step", "bottom")

FATAL = (
    *("sys.exit(0)", "sys.exit(4)", "raise SystemExit", "os._exit(0)", "os._exit(5)", "os.abort()"),
    *("os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGSEGV)", "ctypes.string_at(0)"),
    *(
        "raise KeyboardInterrupt",
        "raise GeneratorExit",
        "raise StopIteration",
        "raise MemoryError",
        "1 / 0",
        "undeclared",
    ),
    "raise BaseException('odd')",
    "raise type('Odd', (Exception,), {'__str__': lambda self: os._exit(3)})",
    "raise type('Odd', (Exception,), {'__str__': lambda self: 7})",
    "raise Exception('\\x1b[31m\\udcff\\0' * 1000)",
    "raise ExceptionGroup('many', [ValueError(str(n)) for n in range(1000)])",
    *("(lambda f: f(f))(lambda f: f(f))", "[bytearray(1 << 30) for _ in range(1 << 20)]"),
    "sys.stdout.close(); sys.stderr.close(); os._exit(4)",
    "os.kill(os.getppid(), signal.SIGKILL) if False else os._exit(9)",
)
"""Statements after which a file cannot be used."""
HANGS = (
    *("while True: pass", "time.sleep(1000)", "threading.Event().wait()", "signal.pause()"),
    *("os.kill(os.getpid(), signal.SIGSTOP)", "sum(1 for _ in iter(int, 1))", "os.read(os.pipe()[0], 1)"),
    "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(1000)",
)
"""Statements that never end."""
HARMLESS = (
    *("print('::error::printed')", "print('{}', file=sys.stderr)", "sys.stdin = None", "sys.argv[:] = ['--help']"),
    *("os.write(1, b'\\x1b[2J\\xff\\0' * 1000)", "os.write(1, b'x' * 3_000_000)", "time.sleep(0.1)", "os.umask(0o777)"),
    "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    *("subprocess.Popen(['sleep', '1000'])", "os.fork() or time.sleep(1000)"),
    "os.fork() or (os.setsid(), time.sleep(1000))",
    "os.fork() or (os.setsid(), os.fork() and os._exit(0), time.sleep(1000))",
    *("atexit.register(time.sleep, 1000)", "atexit.register(os._exit, 5)", "socket.socketpair()"),
    *("os.environ.clear()", "sys.path.clear()", "sys.setrecursionlimit(10_000)", "gc.disable()"),
)
"""Statements after which a file can still be used."""
ODD = (
    "os.chdir('/')",
    "sys.stdout = None",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)",  # inputs run in threads, which cannot do this
    "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "os.closerange(0, 100)",
    "os.closerange(3, 1000)",
    "[os.write(n, b'garbage') for n in range(3, 20) if os.path.exists(f'/proc/self/fd/{n}')]",
    "sys.stdout.close()",
    "sys.modules.clear()",
    "builtins.len = None",
    "builtins.__import__ = None",
    "json.dumps = os._exit",
    "np.ndarray.__class__",
    "sys.settrace(lambda *_: os._exit(6))",
    "signal.alarm(1)",
    "threading.Timer(0.5, os._exit, [8]).start()",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "gc.collect(); [setattr(o, '__dict__', {}) for o in gc.get_objects() if isinstance(o, types.SimpleNamespace)]",
    "import perfsvc.process.frames as f; f.send = lambda *_: None",
    "import perfsvc.process.frames as f; f.send = lambda peer, *_: peer.sendall(b'\\xff' * 100)",
    "import perfsvc.model.codec as c; c.encode = lambda _: b'{}'",
    "import perfsvc.model.codec as c; c.encode = lambda _: b'[' * 100_000",
    "os.dup2(os.open('/dev/null', os.O_RDWR), 3)",
    "ctypes.memset(id(None), 0, 4)",
    "raise type('E', (Exception,), {'__class__': property(lambda self: os._exit(2))})",
)
"""Statements whose effect depends on where they are: they may cost their benchmark."""


@dataclass(frozen=True)
class Bench:
    """A hostile benchmark file.

    Attributes:
        text: the file.
        statements: its hostile statements, each with its place.
        fails: whether it must fail; None if it may.
    """

    text: str
    statements: tuple[tuple[str, str], ...]
    fails: bool | None


def bench(chance: random.Random) -> Bench:
    """Return a hostile benchmark file."""
    statements = tuple(_statement(chance) for _ in range(chance.choice((1, 1, 1, 2))))
    parts = dict.fromkeys(PLACES, "pass")
    for place, statement, _ in statements:
        parts[place] = statement
    used = [kind for place, statement, kind in statements if parts[place] == statement]
    fails = True if used == [True] else None if len(used) > 1 or used == [None] else False
    text = BENCH.format(**parts, host=HOST if parts["step"] != "pass" else "")
    return Bench(text, tuple((place, statement) for place, statement, _ in statements), fails)


def _statement(chance: random.Random) -> tuple[str, str, bool | None]:
    """Return a place, a statement, and whether it makes the file fail; None if it may."""
    place = chance.choice(PLACES)
    statements, fails = chance.choices(((FATAL, True), (HANGS, True), (HARMLESS, False), (ODD, None)), (35, 8, 32, 25))[
        0
    ]
    return place, chance.choice(statements), fails


# --- suites ----------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What became of the files.

    Attributes:
        files: how many ended in which way, by the kind of their statements.
        problems: what must not happen, with examples.
    """

    files: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def try_suite(folder: Path, benches: Sequence[Bench], result: Result) -> None:
    """List and run a suite of hostile files and an ordinary one in an empty folder, and note what must not happen."""
    ordinary = BENCH.format(**dict.fromkeys(PLACES, "pass"), host="")
    texts = {f"b{number}": hostile.text for number, hostile in enumerate(benches)} | {"ordinary": ordinary}
    for name, text in texts.items():
        (folder / "suite" / name).mkdir(parents=True)
        (folder / "suite" / name / "bench.py").write_text(text)
        (folder / "suite" / name / "k.cu").write_text('extern "C" __global__ void k() {}\n')
    (folder / "script.json").write_text('{"cases": {"*": {"seconds": 1e-4}}}')
    listed = _perfsvc(folder, result, "list", "--suite", "suite", "--format", "json")
    ran = _perfsvc(
        *(folder, result, "run", "--suite", "suite", "--device", "fake:script.json", "--format", "json"),
        *("--replicas", "1", "--limit", str(LIMIT_S)),
    )  # fmt: skip
    if listed is None or ran is None:
        result.problems.append(f"in the suite of {[hostile.statements for hostile in benches]}")
        return
    rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in texts}
    for row in ran.document["results"]:
        rows[row["case"].split("/")[0]].append(row)
    failed = {name for name in texts if not rows[name] or any(row["status"] != "ok" for row in rows[name])}
    for number, hostile in enumerate(benches):
        ended = "failed" if f"b{number}" in failed else "measured"
        kind = {True: "fatal or endless", False: "harmless", None: "odd"}[hostile.fails]
        result.files[kind, ended] += 1
        if hostile.fails is not None and (ended == "failed") is not hostile.fails:
            reasons = [row["reason"] for row in rows[f"b{number}"]]
            problems = [row for row in ran.document["problems"] if f"/b{number}/" in row["path"]]
            result.problems.append(f"{ended}: {hostile.statements} {reasons} {problems}")
    if "ordinary" in failed:
        result.problems.append(f"the ordinary benchmark failed: {rows['ordinary']}")
    if ran.code != (CASES_FAILED if failed else 0):
        result.problems.append(f"run ended with {ran.code}, and {len(failed)} benchmarks failed: {ran.error[-1500:]}")
    if listed.code not in {0, CASES_FAILED, 2}:
        result.problems.append(f"list ended with {listed.code}: {listed.error[-1500:]}")


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, its JSON, and its standard error."""

    code: int
    document: Any
    error: str


def _perfsvc(folder: Path, result: Result, *arguments: str) -> Ended | None:
    """Run perfsvc in a folder; return None if it did not end as it should."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("PERFSVC_")}
    environment = known | {
        MARK: str(folder),
        "PERFSVC_DB": str(folder / "perfsvc.db"),
        "PERFSVC_CACHE": str(folder / "cache"),
        "PERFSVC_LOCKS": str(folder / "locks"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
        # files, and no pipes: a process that is left could keep a pipe open
        command = [sys.executable, "-c", COMMAND, *arguments]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        try:
            code = process.wait(COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        out.seek(0)
        err.seek(0)
        output, error = out.read(), err.read().decode(errors="replace")
    left = _left(str(folder))
    what = f"{arguments[0]} in {folder}"
    if left:
        result.problems.append(f"{what} left {left}")
    if code is None:
        result.problems.append(f"{what} did not end in {COMMAND_LIMIT_S} s: {error[-1500:]}")
        return None
    if "fault of perfsvc" in error or "report this error" in error:
        result.problems.append(f"{what} is a fault of perfsvc: {error[-3000:]}")
    try:
        return Ended(code, json.loads(output), error)
    except ValueError:
        result.problems.append(f"{what} ended with {code} and printed no JSON: {output[-300:]!r} {error[-1500:]}")
        return None


def _left(folder: str) -> list[str]:
    """Return the processes of a folder's commands that do not end soon, and kill them."""
    ends = time.monotonic() + LEFT_LIMIT_S
    while (left := processes_with(MARK, folder)) and time.monotonic() < ends:
        time.sleep(0.05)
    shown = []
    for process in left:
        with contextlib.suppress(OSError):
            shown.append((process / "cmdline").read_text().replace("\0", " ")[:200])
            os.kill(int(process.name), 9)
    return shown


def attack(files: int, seed: int, jobs: int = 1) -> Result:
    """List and run suites of so many hostile files."""
    chance = random.Random(seed)
    benches = [bench(chance) for _ in range(files)]
    result = Result()

    def attempt(group: Sequence[Bench]) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try_suite(Path(folder), group, result)

    with ThreadPoolExecutor(jobs) as threads:
        groups = [benches[start : start + GROUP] for start in range(0, files, GROUP)]
        for done, _ in enumerate(threads.map(attempt, groups), 1):
            print(f"{done} of {len(groups)} suites, {len(result.problems)} problems", file=sys.stderr, flush=True)
    return result


def main() -> int:
    options = parsed(__doc__, ("--files", 500), ("--seed", 7), ("--jobs", 1))
    result = attack(options.files, options.seed, options.jobs)
    kinds = sorted({kind for kind, _ in result.files})
    rows = [(kind, *(f"{result.files[kind, ended]}" for ended in ("failed", "measured"))) for kind in kinds]
    print(table(("statements", "failed", "measured"), rows))
    claims = [
        Claim("files that were not tried", options.files - sum(result.files.values()), 0),
        Claim("what must not happen", len(result.problems), 0),
    ]
    return finish(claims, options.json, problems=result.problems)


if __name__ == "__main__":
    sys.exit(main())
