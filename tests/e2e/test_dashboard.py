"""``perfsvc dashboard build`` as it is typed."""

import pytest


@pytest.fixture
def measured(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    return perfsvc


def test_a_site_is_built_and_its_first_page_named(measured):
    ended = measured("dashboard", "build", measured.folder / "pages", code=0)
    assert ended.out == f"{measured.folder / 'pages' / 'index.html'}: 6 pages\n"
    assert "3</b> new" in (measured.folder / "pages" / "index.html").read_text()


def test_the_settings_say_where_it_is_built(measured):
    (measured.folder / "perfsvc.toml").write_text('[dashboard]\nfolder = "public"\n')
    measured("dashboard", "build", code=0)
    assert (measured.folder / "public" / "index.html").exists()


def test_without_settings_it_is_built_beside_the_database(measured):
    measured("dashboard", "build", code=0)
    assert (measured.folder / "site" / "index.html").exists()


def test_no_database_is_an_error_and_makes_no_folder(perfsvc):
    ended = perfsvc("dashboard", "build", perfsvc.folder / "pages", code=5)
    assert "there is no database" in ended.err
    assert not (perfsvc.folder / "pages").exists()


def test_a_folder_of_somebody_else_is_refused_with_its_cure(measured):
    (measured.folder / "pages").mkdir()
    (measured.folder / "pages" / "index.html").write_text("mine")
    ended = measured("dashboard", "build", measured.folder / "pages", code=2)
    assert "did not write: index.html" in ended.err
    assert "cure: name an empty folder" in ended.err
