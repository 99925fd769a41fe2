"""The command line on a GPU: the starter suite, and every fault costing its case alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
FAULTY = ROOT / "tests" / "e2e" / "suites" / "faulty"
LETHAL = Path(__file__).parent / "suites" / "lethal"


@pytest.fixture
def run(boards, tmp_path):
    def start(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "perfsvc", "run", "--device", boards[0].spec, "--format", "json", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PERFSVC_DB": str(tmp_path / "perfsvc.db")},
            capture_output=True,
            text=True,
            timeout=115,
            check=False,
        )
        assert done.stdout, done.stderr
        return done.returncode, {
            row["case"].split("/")[1].split("[")[0]: row for row in json.loads(done.stdout)["results"]
        }

    return start


def test_every_case_of_the_starter_suite_is_right_and_timed(run):
    code, rows = run("--suite", ROOT / "kernels", "--points", "smoke", "--replicas", "2", "--samples", "20")
    assert code == 0
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert all(row["median_s"] > 0 for row in rows.values())


def test_a_hang_an_overrun_a_wrong_result_and_a_compile_error_cost_their_cases_alone(run):
    code, rows = run("--suite", FAULTY, "--limit", "8", "--replicas", "1")
    assert code == 4
    reasons = {
        "endless": "time limit",
        "overrun": "'out', up to 10 elements (40 bytes) from its end",
        "wrong": "out[77] is",
        "uncompilable": "undeclared_name",
    }
    for name, reason in reasons.items():
        assert reason in rows[name]["reason"]
    assert {name for name, row in rows.items() if row["status"] == "ok"} == {"good", "also_good"}


def test_a_lost_context_and_a_refused_launch_cost_their_cases_alone(run):
    code, rows = run("--suite", LETHAL, "--replicas", "2")
    assert code == 4
    reasons = {
        "stray": "illegal memory access",
        "crooked": "misaligned address",
        "trap": "launch failure",
        "greedy": "invalid argument",
        "crowded": "invalid argument",
    }
    said = {name: row["reason"] for name, row in rows.items() if row["status"] != "ok"}
    assert set(said) == set(reasons)
    assert {name: reasons[name] in said[name] for name in reasons} == dict.fromkeys(reasons, True), said
    assert all(row["cure"] for row in rows.values() if row["status"] != "ok")
