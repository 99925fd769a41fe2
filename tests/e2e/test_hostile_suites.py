"""Hostile benchmark files cost their benchmarks alone; ``tests/benchmarks/hostile_suites.py`` tries 500 of them."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("hostile_suites")


def test_hostile_files_cost_their_benchmarks_alone(script):
    result = script.attack(script.GROUP, seed=4)
    assert result.problems == []
    assert sum(result.files.values()) == script.GROUP
    assert {ended for _, ended in result.files} == {"failed", "measured"}
