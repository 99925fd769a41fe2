"""The command ``perfsvc dashboard build``."""


def test_a_site_is_built_beside_the_database_or_in_the_folder_of_the_settings_and_in_no_other_site(perfsvc):
    assert "there is no database" in perfsvc("dashboard", "build", code=5).err
    assert not (perfsvc.folder / "site").exists()
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)
    perfsvc("dashboard", "build", code=0)
    assert (perfsvc.folder / "site" / "index.html").exists()
    (perfsvc.folder / "perfsvc.toml").write_text('[dashboard]\nfolder = "public"\n')
    perfsvc("dashboard", "build", code=0)
    assert (perfsvc.folder / "public" / "index.html").exists()
    (perfsvc.folder / "mine").mkdir()
    (perfsvc.folder / "mine" / "index.html").write_text("mine")
    ended = perfsvc("dashboard", "build", perfsvc.folder / "mine", code=2)
    assert "did not write: index.html" in ended.err
    assert "cure: name an empty folder" in ended.err
