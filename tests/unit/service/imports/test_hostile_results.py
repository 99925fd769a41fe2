"""A damaged file is refused or imported as a whole; ``tests/benchmarks/hostile_results.py`` damages 10,000."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

pytestmark = pytest.mark.slow  # hundreds of imports


def test_no_damaged_file_is_imported_in_part_or_twice_or_with_a_traceback(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = importlib.import_module("hostile_results")
    result = script.attack(70, 5, tmp_path)
    assert +result.problems == {}
    assert sum(result.by_format.values()) == 70
    assert {name for name, imported in result.by_format if imported} == set(script.FILES), "some damage does no harm"
    assert {name for name, imported in result.by_format if not imported} == set(script.FILES)
