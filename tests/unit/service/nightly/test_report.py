"""The page with the measurements of a night."""

from unittest.mock import Mock

import pandas as pd
import pytest

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.report.export import files, frames
from perfsvc.service.nightly import stages
from perfsvc.service.nightly.log import REPORT


@pytest.fixture
def night(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "frame", lambda _: pd.DataFrame())
    monkeypatch.setattr(files, "content", lambda *_: "<html>")
    night = Mock(number=3)
    night.settings.nightly.folder = tmp_path / "nights"
    return night


def test_the_page_is_in_the_folder_of_the_night(night, tmp_path):
    page = tmp_path / "nights" / "3" / REPORT
    assert stages.report(night).text == str(page)
    assert page.read_text() == "<html>"


def test_a_folder_of_a_night_that_is_a_link_is_not_followed(night, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "nights").mkdir()
    (tmp_path / "nights" / "3").symlink_to("../victim")
    with pytest.raises(UsageError, match="links to folders are not followed"):
        stages.report(night)
    assert not list((tmp_path / "victim").iterdir())


def test_a_full_disk_keeps_the_earlier_page(night, tmp_path, full_disk):
    page = tmp_path / "nights" / "3" / REPORT
    page.parent.mkdir(parents=True)
    page.write_text("old")
    with pytest.raises(InfrastructureError, match="No space left on device"):
        stages.report(night)
    assert [(file.name, file.read_text()) for file in page.parent.iterdir()] == [(page.name, "old")]
