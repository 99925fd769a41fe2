"""benchmarks/sanitize.py on the fake device; compute-sanitizer is played by tests/data/sanitizer_stand_in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # compiles and runs every variant

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "data" / "sanitizer_stand_in"
SUITES = Path(__file__).parent / "suites"
ALPHA, BETA, GAMMA = (f"scale/{name}[n=100]" for name in ("alpha", "beta", "gamma"))
WRITE = ["Invalid __global__ write of size 4 bytes", "    at scale+0x90 in scale.cu:7", "    by thread (3,0,0)", ""]
READ = ["Invalid __global__ read of size 8 bytes", "    at scale+0x10 in scale.cu:3"]


@pytest.fixture
def sanitize(tmp_path):
    """Runs the script on a fake device with these faults; returns its status, what it printed and what it wrote."""

    def run(*arguments, faults=None, suite="scale", **stand_in):
        script, found = tmp_path / "script.json", tmp_path / "found.json"
        script.write_text(json.dumps({"cases": {case: {"fault": fault} for case, fault in (faults or {}).items()}}))
        where = ("--device", f"fake:{script}", "--suite", SUITES / suite, "--json", found)
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "benchmarks" / "sanitize.py", *where, *arguments],
            cwd=tmp_path,
            env=os.environ
            | {
                "PATH": f"{STAND_IN}{os.pathsep}{os.environ['PATH']}",
                "PERFSVC_CACHE": str(tmp_path / "cache"),
                "PERFSVC_LOCKS": str(tmp_path),
                "STAND_IN": json.dumps(stand_in),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.exists(), done.stdout + done.stderr
        return done.returncode, done.stdout, json.loads(found.read_text())

    return run


def test_a_suite_of_which_nothing_is_reported_is_clean(sanitize):
    code, printed, found = sanitize()
    assert code == 0, printed
    assert (found["clean"], found["reported"], found["skipped"]) == ([ALPHA, BETA, GAMMA], {}, {})
    assert "PASS  cases with a report: 0 (at most 0)" in printed


def test_a_report_is_told_of_the_case_that_was_running(sanitize):
    code, printed, found = sanitize(memcheck={BETA: [*WRITE, *READ]})
    assert code == 1
    assert found["reported"] == {BETA: [line for line in WRITE if line] + ["and 1 more"]}
    assert found["clean"] == [ALPHA, GAMMA]
    assert f"REPORTED  {BETA}\n          {WRITE[0]}\n          {WRITE[1]}\n" in printed


def test_the_tool_and_the_cases_are_chosen(sanitize):
    reports = {"racecheck": {GAMMA: READ}, "memcheck": {GAMMA: WRITE}}
    _, _, found = sanitize("--tool", "racecheck", "--select", "scale/g*", "--", "--racecheck-report", "all", **reports)
    assert (found["tool"], found["clean"], found["reported"]) == ("racecheck", [], {GAMMA: READ})


def test_what_is_reported_before_the_first_case_is_told_of_none(sanitize):
    code, _, found = sanitize(before=READ)
    assert (code, found["reported"]) == (1, {"outside of the cases": READ})
    assert found["clean"] == [ALPHA, BETA, GAMMA]


@pytest.mark.parametrize(("fault", "said"), [("illegal", "illegal address in scale"), ("crash", "its process died")])
def test_the_cases_after_a_faulty_one_are_checked(sanitize, fault, said):
    code, printed, found = sanitize(faults={ALPHA: "wrong", BETA: fault})
    assert (code, found["clean"]) == (1, [GAMMA]), printed
    assert "wrong result: out[" in found["reported"][ALPHA][0]
    assert said in found["reported"][BETA][0]


def test_a_process_that_comes_to_no_case_says_why(sanitize):
    code, printed, found = sanitize(refuses="no driver to be found")
    assert (code, found["clean"]) == (1, [])
    assert found["reported"] == {"outside of the cases": ["the process ended with 3", "no driver to be found"]}, printed


def test_steps_in_python_are_skipped_unless_asked_for(sanitize):
    _, _, found = sanitize("--select", "kinds", suite="kinds")
    in_python = {case for case, reason in found["skipped"].items() if "--python" in reason}
    assert in_python
    _, _, asked = sanitize("--select", "kinds", "--python", suite="kinds")
    assert set(asked["clean"]) | set(asked["reported"]) >= in_python
