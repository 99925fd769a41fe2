"""Many clients at once while nights are written: a small version of tests/benchmarks/server_load.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import programs

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "server_load.py"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_clients_and_nights_at_once_meet_no_error(kind, tmp_path):
    if kind == "postgresql" and programs() is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    small = ["--cases", "20", "--nights", "4", "--clients", "20", "--rate", "40", "--seconds", "3"]
    command = [sys.executable, SCRIPT, *small, "--json", tmp_path / "found.json"]
    if kind == "postgresql":
        command.append("--postgresql")
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=380)
    assert ended.returncode in {0, 1}, ended.stderr  # 1 if this machine was too slow
    assert (tmp_path / "found.json").exists(), ended.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    values = {claim["what"]: claim["value"] for claim in found["claims"]}
    assert (values["failed requests"], values["faults of the nights"]) == (0, 0), ended.stdout + ended.stderr
    assert found["requests"] == 120
    assert found["measurements"] > 0
