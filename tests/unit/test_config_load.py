"""What is in force: where the file is found, what goes before what, and where each value is said to come from."""

import json
import os
from pathlib import Path

import pytest

from perfsvc.config import Settings, load
from perfsvc.config.shown import shown, shown_json
from perfsvc.errors import ConfigError
from perfsvc.installation import data_folder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder without any variable of ours."""
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text, path="perfsvc.toml"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def test_without_a_file_all_is_default():
    loaded = load()
    assert (loaded.path, loaded.settings) == (None, Settings(suite=data_folder("kernels")))
    assert set(loaded.origins.values()) == {"default"}


def test_settings_that_are_made_from_values_read_nothing_else(monkeypatch):
    write("[run]\nreplicas = 7")
    monkeypatch.setenv("PERFSVC_RUN__REPLICAS", "8")
    assert Settings().run.replicas == 3


def test_a_variable_goes_before_the_file_and_the_file_before_the_default(monkeypatch):
    write('suite = "mine"\n[run]\nreplicas = 5\nbudget = "1h30m"\nsamples = 7\n')
    monkeypatch.setenv("PERFSVC_RUN__REPLICAS", "7")
    monkeypatch.setenv("PERFSVC_RUN__SAMPLES", "")
    loaded = load()
    run = loaded.settings.run
    assert (run.replicas, run.budget, run.samples, run.limit) == (7, 5400.0, 7, 60.0)
    keys = ("suite", "run.replicas", "run.budget", "run.limit")
    told = ["perfsvc.toml:1", "PERFSVC_RUN__REPLICAS", "perfsvc.toml:4", "default"]
    assert [loaded.origins[key] for key in keys] == told
    assert [loaded.given(key) for key in keys] == [True, True, True, False]


@pytest.mark.parametrize(
    ("name", "value", "key", "found"),
    [
        ("RUN__DEVICES", "cpu cuda:0,2", "devices", ("cpu", "cuda:0,2")),
        ("RUN__DEVICES", '["cpu"]', "devices", ("cpu",)),
        ("RUN__SELECT", '["a/b c"]', "select", ("a/b c",)),
        ("RUN__ENERGY", "true", "energy", True),
        ("RUN__BUDGET", "20m", "budget", 1200.0),
        ("RUN__LIMIT", "20", "limit", 20.0),
        ("RUN__PRECISION", "1%", "precision", 0.01),
        ("RUN__POINTS", "smoke", "points", "smoke"),
    ],
)
def test_a_variable_says_every_type(monkeypatch, name, value, key, found):
    monkeypatch.setenv(f"PERFSVC_{name}", value)
    assert getattr(load().settings.run, key) == found


def test_tables_of_the_file_and_the_environment_are_one(monkeypatch):
    write('[notify.targets]\nteam = "TEAM_URL"\n')
    monkeypatch.setenv("PERFSVC_NOTIFY__TARGETS__BOB", "BOB_URL")
    loaded = load()
    assert loaded.settings.notify.targets == {"team": "TEAM_URL", "bob": "BOB_URL"}
    assert loaded.origins["notify.targets.team"] == "perfsvc.toml:2"
    assert loaded.origins["notify.targets.bob"] == "PERFSVC_NOTIFY__TARGETS__BOB"


def test_rules_come_from_the_environment_as_toml(monkeypatch):
    monkeypatch.setenv("PERFSVC_THRESHOLDS", '[{cases = "dot", change = "5%"}]')
    (rule,) = load().settings.thresholds
    assert (rule.cases, rule.metric, rule.change) == ("dot", "*", 0.05)


def test_the_nearest_file_counts_and_its_paths_from_where_it_lies(place, monkeypatch):
    write("", "a/perfsvc.toml")
    write('suite = "../s"\ndatabase = "nights.db"\n[dashboard]\nfolder = "/srv/site"\n', "a/b/perfsvc.toml")
    Path("a/b/c/d").mkdir(parents=True)
    monkeypatch.chdir("a/b/c/d")
    found = load()
    assert found.path == place / "a/b/perfsvc.toml"
    settings = found.settings
    assert (settings.suite, settings.database) == (place / "a/b/../s", str(place / "a/b/nights.db"))
    assert (settings.nightly.folder, settings.dashboard.folder) == (place / "a/b/nights", Path("/srv/site"))


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("sqlite:///x.db", "sqlite:///{}/x.db"),
        ("sqlite:////x.db", "sqlite:////x.db"),
        ("postgresql://me@host/x", "postgresql://me@host/x"),
        (":memory:", ":memory:"),
    ],
)
def test_a_database_is_beside_the_file_unless_it_is_anywhere(place, monkeypatch, written, seen):
    write(f"database = {written!r}")
    Path("below").mkdir()
    monkeypatch.chdir("below")
    assert load().settings.database == seen.format(place)


def test_without_a_suite_it_is_the_one_beside_the_file(place, monkeypatch):
    write("", "a/perfsvc.toml")
    Path("a/kernels").mkdir()
    Path("a/b").mkdir()
    monkeypatch.chdir("a/b")
    assert load().settings.suite == place / "a/kernels"


def test_in_a_folder_that_is_gone_there_is_no_file(monkeypatch):
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path("../gone").resolve().rmdir()
    assert load().path is None


def test_what_is_stored_of_settings_makes_them_again():
    write(
        '[run]\nbudget = "1h"\nselect = ["a"]\n[[thresholds]]\nchange = "5%"\n[notify]\ntargets = {team = "TEAM_URL"}\n'
    )
    settings = load().settings
    assert Settings(**json.loads(json.dumps(settings.public()))) == settings


def test_the_search_ends_at_the_top_of_a_repository(monkeypatch):
    write("")
    Path("repository/.git").mkdir(parents=True)
    monkeypatch.chdir("repository")
    assert load().path is None


def test_a_file_of_another_user_has_to_be_named(place, monkeypatch):
    write("")
    Path("below").mkdir()
    monkeypatch.chdir("below")
    monkeypatch.setattr(os, "getuid", lambda: (place / "perfsvc.toml").stat().st_uid + 1)
    if (place / "perfsvc.toml").stat().st_uid == 0:
        os.chown(place / "perfsvc.toml", 12345, -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load()
    assert load(place / "perfsvc.toml").path == place / "perfsvc.toml"


def test_a_file_is_named_by_a_variable_and_none_by_the_null_device(monkeypatch):
    write("[run]\nreplicas = 4", "other.toml")
    write("[run]\nreplicas = 5")
    monkeypatch.setenv("PERFSVC_CONFIG", "other.toml")
    assert load().settings.run.replicas == 4
    assert load(Path("perfsvc.toml")).settings.run.replicas == 5
    monkeypatch.setenv("PERFSVC_CONFIG", os.devnull)
    assert (load().path, load().settings.run.replicas) == (None, 3)


def test_what_is_shown_has_every_value_its_origin_and_no_secret(monkeypatch):
    write(
        '[[thresholds]]\ncases = "dot"\nchange = 0.05\n'
        '[notify]\ntargets = {team = "TEAM_URL", ops = "OPS_URL"}\n[retention]\nsamples = "90d"\n'
    )
    monkeypatch.setenv("PERFSVC_DB", "postgresql://me:secret@host/db")
    monkeypatch.setenv("OPS_URL", "slack://secret")
    loaded = load()
    rows = {row.key: (row.value, row.root_cause) for row in shown(loaded)}
    assert rows["database"] == ('"postgresql://me:***@host/db"', "PERFSVC_DB")
    assert rows["thresholds[1]"] == ('cases = "dot", metric = "*", change = "5%"', "perfsvc.toml:1")
    assert rows["notify.targets.team"] == ("TEAM_URL (not set)", "perfsvc.toml:5")
    assert rows["notify.targets.ops"] == ("OPS_URL (set)", "perfsvc.toml:5")
    assert rows["retention.samples"] == ('"90d"', "perfsvc.toml:7")
    assert rows["run.replicas"] == ("3", "default")
    assert rows["run.budget"] == ("", "default")
    for told in (str(rows), json.dumps(shown_json(loaded)), repr(loaded), str(loaded.settings.public())):
        assert "secret" not in told
    assert shown_json(loaded)["variables"] == {"TEAM_URL": False, "OPS_URL": True}
