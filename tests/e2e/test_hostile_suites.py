"""Hostile benchmark files cost their benchmarks alone; ``tests/benchmarks/hostile_suites.py`` tries 500 of them."""

import importlib
import random
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("hostile_suites")


@pytest.mark.slow
def test_hostile_files_cost_their_benchmarks_alone(script):
    result = script.attack(script.GROUP, seed=4)
    assert result.problems == []
    assert sum(result.files.values()) == script.GROUP
    assert {ended for _, ended in result.files} == {"failed", "measured"}


@pytest.mark.slow
def test_the_script_finds_a_process_that_is_left_and_a_file_that_ends_otherwise_than_expected(
    script, monkeypatch, tmp_path
):
    """A command that starts a process which outlives it."""
    leaves = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    monkeypatch.setattr(script, "COMMAND", leaves + script.COMMAND)
    monkeypatch.setattr(script, "LEFT_LIMIT_S", 0.5)
    harmless = script.BENCH.format(**dict.fromkeys(script.PLACES, "pass"), host="")
    result = script.Result()
    script.try_suite(tmp_path, [script.Bench(harmless, (), fails=True)], result)
    assert sum("sleep 1000" in problem for problem in result.problems) == 2
    assert any(problem.startswith("measured: ()") for problem in result.problems)


def test_most_files_have_one_hostile_statement_and_a_known_end(script):
    chance = random.Random(1)
    benches = [script.bench(chance) for _ in range(300)]
    assert {place for bench in benches for place, _ in bench.statements} == set(script.PLACES)
    assert sum(bench.fails is not None for bench in benches) > 150
    assert len({bench.text for bench in benches}) > 200
    for bench in benches:
        compile(bench.text, "bench.py", "exec")
