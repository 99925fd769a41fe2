"""The scripts of tests/benchmarks on the fake device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(tmp_path):
    """Return a function that runs a script and returns its exit status, its output and its JSON results."""

    def run(name, *arguments, **environment):
        path = tmp_path / "found.json"
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "benchmarks" / f"{name}.py", *map(str, arguments), "--json", path],
            cwd=tmp_path,
            env=os.environ | {"PERFSVC_CACHE": str(tmp_path / "cache"), "PERFSVC_LOCKS": str(tmp_path)} | environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert path.exists(), done.stdout
        return done.returncode, done.stdout, json.loads(path.read_text())

    return run


def claims(found):
    return {claim["what"]: (claim["value"], claim["holds"]) for claim in found["claims"]}


@pytest.mark.timeout(300)
def test_a_bad_night_is_confirmed_together_and_keeps_its_budget(benchmark):
    _, _, found = benchmark("bad_night", "--gpus", 4, "--sizes", 1, "--singly", 1, "--budget", 0.2)
    eight, many = found["results"]["eight cases"], found["results"]["a hundred cases"]
    assert (eight["suspects"], eight["causes"], eight["applied"]) == (4 * 8, {"kernel": 32}, 3 * 8)
    assert (many["suspects"], many["causes"], many["applied"]) == (10, {"kernel": 10}, 0)
    shown = claims(found)
    assert shown["suspects whose cause is not the kernel"] == (0, True)
    assert shown["a short budget: suspects neither confirmed nor reported"] == (0, True)
    assert shown["eight cases on 4 GPUs"][1]
    assert shown["eight cases: time together over time singly"][1]
    short = found["short_budget"]
    assert sum(short["causes"].values()) < short["suspects"] == 10
    assert short["over_budget"] > 0


@pytest.mark.timeout(300)  # every killed command works on a database of its own nights
def test_killed_commands_lose_nothing_and_leave_nothing(benchmark):
    # Killed runs, nights, syncs, backups and prunes have tests of their own.
    code, printed, found = benchmark("killed_commands", "--kills", 1, "--only", "import")
    assert code == 0, printed
    assert [kill["command"] for kill in found["kills"]] == ["import"]
    assert all(value == (0, True) for value in claims(found).values())
