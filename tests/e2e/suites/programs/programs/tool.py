#!/usr/bin/env python3
# ruff: noqa: PTH123, PTH208, T201
"""Does what its first argument says, after noting its process id in the file that the variable PIDS names."""

import json
import os
import signal
import subprocess
import sys
import time

TIMES_S = (1.5e-3, 1.6e-3, 1.4e-3)


def note(pid):
    if "PIDS" in os.environ:
        with open(os.environ["PIDS"], "a", encoding="utf-8") as file:
            file.write(f"{pid}\n")


def start(*, session):
    """Start a process that sleeps, in this session or in one of its own."""
    note(subprocess.Popen(["sleep", "300"], start_new_session=session).pid)


def google_benchmark(*names):
    rows = [
        {"name": name, "run_name": name, "run_type": "iteration", "real_time": 1000 * time_s, "time_unit": "ms"}
        for name in names
        for time_s in TIMES_S
    ]
    return json.dumps({"context": {}, "benchmarks": rows})


note(os.getpid())
mode, *rest = sys.argv[1:]
match mode:
    case "good":
        for time_s in TIMES_S:
            print(f"n={rest[0]} took {1000 * time_s} ms, peak {2048} kB")
    case "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("waiting for a lock", flush=True)
        start(session=False)
        start(session=True)
        time.sleep(300)
    case "crash":
        start(session=True)
        print("about to crash", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    case "exit":
        print("took 1 ms")
        print("no licence", file=sys.stderr)
        sys.exit(int(rest[0]))
    case "nonsense":
        print("hello \x1b[31m\0 w\u00f6rld")
    case "zero":
        print("took 0 ms")
    case "huge":
        while True:
            print("took 1 ms " * 10_000)
    case "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    case "parent":
        start(session=True)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(300)
    case "left":
        start(session=False)
        start(session=True)
        print("took 1 ms")
    case "environment":
        print(f"took {os.environ['LEVEL']} ms" if os.environ["CUDA_VISIBLE_DEVICES"] == "" else "a GPU is visible")
    case "json":
        with open(rest[0].partition("=")[2], "w", encoding="utf-8") as file:
            file.write(google_benchmark(*rest[1:]))
    case "stdin":
        print(f"took {1 + len(sys.stdin.read())} ms")
    case "folder":
        print(f"{sorted(os.listdir())} took 1 ms, {sorted(os.listdir('..'))}")
    case "threads":
        print(f"took 1 ms with OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')}")
