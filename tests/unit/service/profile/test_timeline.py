"""The file of a timeline: named by the user, or after the case."""

from unittest.mock import Mock

import pytest

from perfsvc.model import Case
from perfsvc.service.profile import profile

NAME = "norm-two-n=8.nsys-rep"


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Return a function that records a timeline; Nsight Systems writes ``new``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profile, "run_nsys", lambda _, report, **__: report.write_text("new"))
    subject, profiler = Mock(case=Case("norm", "two", (("n", 8),))), Mock()
    subject.device.kind = "cuda"
    profiler.run_once = lambda _, folder, run: run()
    return lambda output: profile._timeline(profiler, subject, output)


def test_a_link_with_the_name_after_the_case_is_replaced_and_its_target_stays(record, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / NAME).symlink_to("victim")
    assert record(None).name == NAME
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / NAME).read_text() == "new"


def test_a_link_that_the_user_names_is_followed(record, tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "mine").symlink_to("target")
    assert record(tmp_path / "mine") == tmp_path / "mine"
    assert (tmp_path / "target").read_text() == "new"
