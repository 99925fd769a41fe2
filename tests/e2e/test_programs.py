"""Executables as variants: what they print is judged, confirmed and bisected, and what they do wrong costs one case."""

import contextlib
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.history import git
from tests.e2e.processes import alive, wait_for

GOOD = {"good": 1.5e-3, "spaces": 2.5e-3, "machine": 7e-3, "json": 1.5e-3, "picked": 1.5e-3, "status": 1e-3}
GOOD |= {"stdin": 1e-3, "built": 4e-3}

FAILURES = {
    "hangs": "time limit: ./tool.py was still running after 1 s, so it was killed; it printed to "
    "standard output: waiting for a lock",
    "crashes": "./tool.py failed: killed by SIGSEGV; it printed to standard error: about to crash",
    "exits": "./tool.py failed: exit status 3; it printed to standard error: no licence",
    "nonsense": "its standard output: nothing matches",
    "zero": "its standard output: the group 'time_ms' is '0', which is no time",
    "huge": "./tool.py failed: it printed more than 64 MiB, so it was killed",
    "stops": "time limit: ./tool.py was still running after 1 s, so it was killed",
    "kills_its_parent": "the worker process died (killed by SIGKILL)",
    "leaves": "left 2 processes running, which perfsvc has killed: sleep, sleep",
    "missing": "programs/no_such_program does not exist",
    "not_executable": "programs/not_executable.sh is not executable",
    "text": "./text cannot be started: Exec format error",
    "no_tool": "this machine has no program 'no-such-program-here'",
    "unbuilt": "failed (exit status 2):\nno rule to make target",
    "broken_json": "its standard output is not in the format nvbench",
    "several": "its file 'out.json' has 2 results that fit the case: BM_a/google-benchmark, BM_b/google-benchmark",
    "other_point": "has no result that fits the case [n=7], only BM_a/google-benchmark[n=8]",
    "no_file": "it wrote no file 'out.json'",
    "no_metric": "the result has no metric 'bytes'",
}


def started(workplace):
    """The process ids that the programs have noted."""
    with contextlib.suppress(FileNotFoundError):
        return [int(pid) for pid in Path(workplace.environment["PIDS"]).read_text().split()]
    return []


@pytest.fixture(scope="module")
def first(new_workplace):
    """A workplace in which the whole suite was measured once, and how that ended."""
    workplace = new_workplace()
    workplace.environment |= {"PIDS": str(workplace.folder / "pids"), "PYTHONDONTWRITEBYTECODE": "1"}
    suite = workplace.own("programs")
    return workplace, workplace.cpu("--format", "json", "--replicas", "2", suite=suite, code=4)


def results(ended):
    return {row["case"].split("/")[1].split("[")[0]: row for row in ended.json["results"]}


def test_the_times_that_a_program_prints_are_the_times_of_its_case(first):
    good = {variant: row for variant, row in results(first[1]).items() if variant not in FAILURES}
    assert {(row["status"], row["reason"], row["verdict"]) for row in good.values()} == {("ok", "", "new")}
    assert {variant: row["median_s"] for variant, row in good.items()} == pytest.approx(GOOD, rel=1e-6)


def test_a_program_that_does_wrong_fails_its_own_case_with_the_reason(first):
    bad = {variant: row for variant, row in results(first[1]).items() if variant not in GOOD}
    assert {(row["status"], row["verdict"]) for row in bad.values()} == {("failed", "broken")}
    assert bad.keys() == FAILURES.keys()
    assert {variant: row["reason"] for variant, row in bad.items() if FAILURES[variant] not in row["reason"]} == {}
    assert all(row["cure"] and len(row["reason"]) < 5000 for row in bad.values())


def test_nothing_that_a_program_started_keeps_running(first):
    workplace, _ = first
    pids = started(workplace)
    assert len(pids) > 20
    assert [pid for pid in pids if alive(pid)] == []


def test_each_replica_runs_the_program_once_and_its_files_and_metrics_are_stored(first):
    workplace, ended = first
    rows = workplace.rows(
        "select replica, sample_count from measurements join cases on cases.id = case_id where variant = 'good'"
    )
    assert rows == [(0, 3), (1, 3)]
    (metric,) = results(ended)["good"]["metrics"]
    assert (metric["metric"], metric["value"], metric["verdict"]) == ("peak_kb", 2048, "new")
    rows = workplace.rows(
        "select count(distinct sha256) from binary_files join measurements using (binary_id) "
        "join cases on cases.id = case_id where role = 'module' and variant in ('good', 'status', 'spaces')"
    )
    assert rows == [(3,)]  # tool.py, a tool.sh, the time.txt


def test_the_program_runs_in_an_empty_folder_with_the_environment_of_perfsvc(perfsvc):
    suite = perfsvc.own("programs")
    bench = suite / "programs" / "bench.py"
    text = bench.read_text().partition("    variants=[")[0]
    bench.write_text(
        f"{text}    variants=[\n"
        '        run("folder", "./tool.py folder", regex("^..tool.py.. took (?P<time_ms>1) ms, ..run..$")),\n'
        '        run("threads", "./tool.py threads", regex(r"took (?P<time_ms>1) ms with OMP_NUM_THREADS=None")),\n'
        "    ],\n)\n"
    )
    perfsvc.environment.pop("OMP_NUM_THREADS", None)
    perfsvc.cpu("--replicas", "1", suite=suite, code=0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("signals", [(signal.SIGKILL,), (signal.SIGINT, signal.SIGINT)])
def test_a_program_ends_when_perfsvc_is_killed_or_stopped_twice(perfsvc, signals):
    perfsvc.environment["PIDS"] = str(perfsvc.folder / "pids")
    suite = perfsvc.own("programs")
    bench = suite / "programs" / "bench.py"
    bench.write_text(bench.read_text().replace("limit_s=1)", "limit_s=100)"))
    arguments = ("run", "--device", "cpu", "--suite", suite, "--select", "programs/hangs")
    with perfsvc.start(*arguments) as process:
        try:
            wait_for(lambda: len(started(perfsvc)) == 3, 90)
            for number in signals:
                process.send_signal(number)
                time.sleep(0.5)
            process.communicate(timeout=60)
        finally:
            process.kill()
    wait_for(lambda: not any(map(alive, started(perfsvc))), 10)


# --- judged, confirmed, bisected -------------------------------------------------------------------------------------

SOURCE = """#include <cstdio>
const double TIME_MS = {time_ms};
int main() {{
    for (int sample = 0; sample < 5; sample++) std::printf("took %g ms\\n", TIME_MS);
}}
// {comment}
"""
BENCH = """from perfsvc.suite import Benchmark, Variant, program, regex

benchmark = Benchmark(
    variants=[
        Variant(
            "built",
            run=program(
                "../build/timer",
                parse=regex(r"took (?P<time_ms>[0-9.]+) ms"),
                build="mkdir -p ../build && g++ -o ../build/timer timer.cpp",
            ),
        )
    ],
)
"""
CASE = "timer/built"


def write(suite, time_ms, comment=""):
    (suite / "timer").mkdir(parents=True, exist_ok=True)
    (suite / "timer" / "bench.py").write_text(BENCH)
    (suite / "timer" / "timer.cpp").write_text(SOURCE.format(time_ms=time_ms, comment=comment))


def test_a_slower_program_is_confirmed_with_its_old_executable(perfsvc):
    suite = perfsvc.folder / "suite"
    write(suite, 1)
    assert "program" in perfsvc("list", "--suite", suite, code=0).out
    perfsvc.cpu(suite=suite, code=0)
    write(suite, 2)
    ended = perfsvc.cpu("--confirm", "--format", "json", suite=suite, code=1)
    (found,) = ended.json["confirmations"]
    assert (found["case"], found["cause"], found["same_code"]) == (CASE, "kernel", False)
    assert found["ratio"] == pytest.approx(2)
    assert found["drift"] == pytest.approx(1)
    assert [turn["median_s"] for turn in found["baseline"]] == pytest.approx([1e-3] * 3)


def test_a_program_of_equal_code_is_the_same_code(perfsvc):
    suite = perfsvc.folder / "suite"
    write(suite, 1)
    perfsvc.cpu(suite=suite, code=0)
    (suite / "timer" / "bench.py").write_text(f"# another text\n{BENCH}".replace("-o ../", "-g -o ../"))
    assert perfsvc.cpu("--format", "json", suite=suite, code=0).json["results"][0]["verdict"] == "unchanged"
    rows = perfsvc.rows(
        "select count(distinct sha256) from binary_files join measurements using (binary_id) where role = 'module'"
    )
    assert rows == [(2,)]  # the debug information differs
    confirmed = perfsvc("confirm", CASE, "--device", "cpu", "--format", "json", code=0).json
    assert [found["same_code"] for found in confirmed] == [True]


def test_a_script_or_a_file_that_changed_is_other_code_at_the_same_place(perfsvc):
    suite = perfsvc.own("programs")
    script = suite / "programs" / "tool.py"
    select = ("--select", "programs/machine", "--select", "programs/spaces", "--format", "json")
    perfsvc.cpu(*select, suite=suite, code=0)
    script.write_text(script.read_text().replace("took {os.environ['LEVEL']} ms", "took {os.environ['LEVEL']}1 ms"))
    (suite / "shared" / "the time.txt").write_text("10")
    ended = perfsvc.cpu("--confirm", *select, suite=suite, code=1)
    found = {one["case"]: one for one in ended.json["confirmations"]}
    assert {(one["cause"], one["same_code"]) for one in found.values()} == {("kernel", False)}
    ratios = {"programs/machine": 71 / 7, "programs/spaces": 4}
    assert {case.partition("[")[0]: one["ratio"] for case, one in found.items()} == pytest.approx(ratios)


def test_the_commit_that_made_a_program_slower_is_found(perfsvc):
    root = perfsvc.folder / "repository"
    suite = root / "suite"
    write(suite, 1)
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("build\n")
    for number, time_ms in enumerate((1, 1, 1, 2, 2)):
        write(suite, time_ms, str(number))
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"commit {number}")
    places = ("--suite", suite, "--device", "cpu", "--format", "json")
    found = perfsvc("bisect", CASE, "--good", "HEAD~4", "--bad", "HEAD", *places, code=1).json
    assert [commit["subject"] for commit in found["culprits"]] == ["commit 3"]
    assert (found["builds"], found["codes"], found["changed"]) == (5, 2, ["binary"])
    assert found["proof"]["ratio"] == pytest.approx(2)
    assert not (suite / "build").exists()


def test_the_guide_works_as_it_is_written(perfsvc):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "measure-a-program.md").read_text()
    files = re.findall(r"```(?:cpp|python)\n((?://|#) (myprograms/\S+)\n.*?)```", page, re.DOTALL)
    assert [path for _, path in files] == ["myprograms/adding/adding.cpp", "myprograms/adding/bench.py"]
    for text, path in files:
        (perfsvc.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (perfsvc.folder / path).write_text(text)
    assert "adding/simple[n=1000000]" in perfsvc("list", "--suite", "myprograms", code=0).out
    perfsvc("run", "--suite", "myprograms", "--device", "cpu", code=0)
    (change,) = re.findall(r"^sed -i '(.*)' (\S+)$", page, re.MULTILINE)
    subprocess.run(["sed", "-i", *change], check=True, cwd=perfsvc.folder)
    arguments = ("--suite", "myprograms", "--device", "cpu", "--confirm", "--format", "json")
    (found,) = perfsvc("run", *arguments, code=1).json["confirmations"]
    assert (found["case"], found["cause"]) == ("adding/simple[n=1000000]", "kernel")


def test_another_program_of_the_machine_is_named_as_the_toolchain(perfsvc):
    tool = perfsvc.folder / "bin" / "mytool"
    perfsvc.environment["PATH"] = f"{tool.parent}:{perfsvc.environment['PATH']}"
    suite = perfsvc.own("programs")
    bench = suite / "programs" / "bench.py"
    text = bench.read_text().partition("    variants=[")[0]
    bench.write_text(f'{text}    variants=[run("tool", "mytool tool.py", files="tool.py")],\n)\n')
    tool.parent.mkdir()
    for time_ms in (1, 2):
        tool.write_text(f"#!/bin/sh\necho took {time_ms} ms\n")
        tool.chmod(0o755)
        ended = perfsvc.cpu("--confirm", "--format", "json", suite=suite, code=time_ms - 1)
    (found,) = ended.json["confirmations"]
    assert (found["cause"], found["same_code"]) == ("toolchain", False)
    assert "mytool (sha256 " in found["reason"]


OWN = 'program("./own.sh", parse=regex(r"took (?P<time_ms>.+) ms"))'


def test_a_program_can_be_compared_with_a_kernel(perfsvc):
    suite = perfsvc.folder / "suite"
    shutil.copytree(perfsvc.suites / "scale" / "scale", suite / "scale")
    bench = suite / "scale" / "bench.py"
    text = bench.read_text().replace("    variants=[", f'    variants=[\n        Variant("own", run={OWN}),', 1)
    text = text.replace("variants=[", 'relative_to="alpha",\n    variants=[', 1)
    bench.write_text(f"from perfsvc.suite import program, regex\n{text}")
    (suite / "scale" / "own.sh").write_text("#!/bin/sh\necho took 1 ms\n")
    (suite / "scale" / "own.sh").chmod(0o755)
    rows = results(perfsvc.cpu("--format", "json", suite=suite, code=0))
    assert rows["own"]["median_s"] == pytest.approx(1e-3)
    assert rows["own"]["max_error"] is None
    assert rows["alpha"]["max_error"] is not None
    assert {row["status"] for row in rows.values()} == {"ok"}
