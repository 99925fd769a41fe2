"""How a module of perfsvc is started: no module of the working directory takes the place of Python's."""

import sys

from perfsvc.process.programs import python_module


def test_a_module_is_not_imported_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert python_module("perfsvc") == [sys.executable, "-P", "-m", "perfsvc"]


def test_a_module_is_imported_from_the_working_directory_if_perfsvc_may_lie_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert python_module("perfsvc") == [sys.executable, "-m", "perfsvc"]


def test_a_working_directory_that_was_removed_is_no_error(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert python_module("perfsvc") == [sys.executable, "-P", "-m", "perfsvc"]
