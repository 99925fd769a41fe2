"""The command ``perfsvc dashboard build``."""

import pytest


@pytest.fixture
def measured(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    return perfsvc


def test_the_command_builds_a_site_and_names_its_first_page(measured):
    ended = measured("dashboard", "build", measured.folder / "pages", code=0)
    assert ended.out == f"{measured.folder / 'pages' / 'index.html'}: 8 pages\n"
    assert "3</b> new" in (measured.folder / "pages" / "index.html").read_text()


def test_the_settings_name_the_folder_of_the_site(measured):
    (measured.folder / "perfsvc.toml").write_text('[dashboard]\nfolder = "public"\n')
    measured("dashboard", "build", code=0)
    assert (measured.folder / "public" / "index.html").exists()


def test_without_settings_the_site_is_built_beside_the_database(measured):
    measured("dashboard", "build", code=0)
    assert (measured.folder / "site" / "index.html").exists()


def test_without_a_database_no_folder_is_made(perfsvc):
    ended = perfsvc("dashboard", "build", perfsvc.folder / "pages", code=5)
    assert "there is no database" in ended.err
    assert not (perfsvc.folder / "pages").exists()


def test_a_folder_with_foreign_files_is_refused_with_a_cure(measured):
    (measured.folder / "pages").mkdir()
    (measured.folder / "pages" / "index.html").write_text("mine")
    ended = measured("dashboard", "build", measured.folder / "pages", code=2)
    assert "did not write: index.html" in ended.err
    assert "cure: name an empty folder" in ended.err
