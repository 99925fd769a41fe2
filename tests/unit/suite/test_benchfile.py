import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfsvc.errors import SuiteError
from perfsvc.model import digest
from perfsvc.suite import functions
from perfsvc.suite.benchfile import load, load_text

PYTHON = Path(__file__).parents[2] / "data" / "suites" / "good" / "python" / "bench.py"


def test_a_file_is_named_by_its_folder_or_in_itself_and_knows_its_digest():
    assert load(PYTHON).name == "python"
    assert load(PYTHON).digest == digest(PYTHON.read_bytes())
    text = "from perfsvc.suite import Benchmark\nbenchmark = Benchmark(name='mine')\n"
    assert load_text(text, "folder").name == "mine"


def test_an_error_in_stored_text_names_its_benchmark():
    with pytest.raises(SuiteError, match=r"old/bench\.py:1: no module 'gone_for_good'"):
        load_text("import gone_for_good\n", "old")


def test_stored_text_imports_the_stored_modules_and_others_of_today(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first", "second"):
        (tmp_path / f"{name}_of_mine.py").write_text("NAME = 'today'\n")
    today = __import__("first_of_mine")
    text = (
        "from perfsvc.suite import Benchmark\nimport second_of_mine\nfrom first_of_mine import NAME\n"
        "from package_of_then.inner import WHERE\n"
        "benchmark = Benchmark(name=f'{NAME} {second_of_mine.NAME} {WHERE}')\n"
    )
    stored = {
        "first_of_mine": "NAME = 'then'\n",
        "package_of_then": "",
        "package_of_then.inner": "from . import other\nWHERE = other.WHERE\n",
        "package_of_then.other": "WHERE = __name__\n",
    }
    assert load_text(text, "old", stored).name == "then today package_of_then.other"
    assert sys.modules["first_of_mine"] is today
    assert "package_of_then" not in sys.modules
    with pytest.raises(SuiteError, match="no module 'package_of_then'"):
        load_text(text, "old")
    for name in ("first_of_mine", "second_of_mine"):
        sys.modules.pop(name)


def test_functions_are_returned_by_name_from_a_path_or_a_text():
    for source in (PYTHON, PYTHON.read_text(encoding="utf-8")):
        found = functions(source, ["halves", "metrics"])
        assert {name: function.__name__ for name, function in found.items()} == {name: name for name in found}
        assert list(found) == ["halves", "metrics"]


def test_functions_share_what_their_file_keeps():
    found = functions(
        "kept = []\ndef put():\n    kept.append(1)\ndef count():\n    return len(kept)\n", ["put", "count"]
    )
    found["put"]()
    assert found["count"]() == 1


def test_the_source_of_a_function_can_be_read_though_it_is_in_no_file():
    text = "def outer():\n    def inner():\n        return 1\n    return inner\n"
    found = functions(text, ["outer"])["outer"]
    assert inspect.getsource(found()) == "    def inner():\n        return 1\n"


def test_a_function_or_a_file_that_is_not_there_and_a_broken_text_are_suite_errors(tmp_path):
    for name in ("nothing", "benchmark"):
        with pytest.raises(SuiteError, match=f"no function '{name}'") as caught:
            functions(PYTHON, ["halves", name])
        assert "define it" in caught.value.cure
    with pytest.raises(SuiteError, match="cannot be read"):
        functions(tmp_path / "bench.py", ["f"])
    with pytest.raises(SuiteError, match="syntax error"):
        functions("def f(:\n", ["f"])


def test_files_can_be_read_by_several_threads_at_once():
    text = (
        "import dataclasses, sys, time\n"
        "from perfsvc.suite import Benchmark\n"
        "time.sleep(0.01)\n"
        "mine = sys.modules[__name__].Benchmark\n"
        "benchmark = Benchmark(version={})\n"
    )
    with ThreadPoolExecutor(4) as threads:
        read = list(threads.map(lambda version: load_text(text.format(version), "b"), range(1, 13)))
    assert [file.benchmark.version for file in read] == list(range(1, 13))
    assert "perfsvc_bench" not in sys.modules
