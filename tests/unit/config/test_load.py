"""What is in force: which file is found, what takes precedence, and the origin of each value."""

import json
import os
from pathlib import Path

import pytest

from perfsvc.config import Settings, load
from perfsvc.config.load import shown, shown_json
from perfsvc.errors import ConfigError
from perfsvc.installation import data_folder


@pytest.fixture(autouse=True)
def folder_here(tmp_path, monkeypatch):
    """Work in an empty folder, without PERFSVC_ variables."""
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text, path="perfsvc.toml"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def test_without_a_file_every_value_is_the_default():
    loaded = load()
    assert (loaded.path, loaded.settings) == (None, Settings(suite=data_folder("kernels")))
    assert set(loaded.origins.values()) == {"default"}


def test_the_constructor_of_settings_reads_no_file_and_no_environment(monkeypatch):
    write("[run]\nreplicas = 7")
    monkeypatch.setenv("PERFSVC_RUN__REPLICAS", "8")
    assert Settings().run.replicas == 3


def test_a_variable_takes_precedence_over_the_file_and_the_file_over_the_default(monkeypatch):
    write('suite = "mine"\n[run]\nreplicas = 5\nbudget = "1h30m"\nsamples = 7\n')
    monkeypatch.setenv("PERFSVC_RUN__REPLICAS", "7")
    monkeypatch.setenv("PERFSVC_RUN__SAMPLES", "")
    loaded = load()
    run = loaded.settings.run
    assert (run.replicas, run.budget, run.samples, run.limit) == (7, 5400.0, 7, 60.0)
    keys = ("suite", "run.replicas", "run.budget", "run.limit")
    origins = ["perfsvc.toml:1", "PERFSVC_RUN__REPLICAS", "perfsvc.toml:4", "default"]
    assert [loaded.origins[key] for key in keys] == origins
    assert [loaded.given(key) for key in keys] == [True, True, True, False]


VARIABLES = {
    ("RUN__DEVICES", "cpu cuda:0,2"): ("cpu", "cuda:0,2"),
    ("RUN__DEVICES", '["cpu"]'): ("cpu",),
    ("RUN__SELECT", '["a/b c"]'): ("a/b c",),
    ("RUN__ENERGY", "true"): True,
    ("RUN__BUDGET", "20m"): 1200.0,
    ("RUN__LIMIT", "20"): 20.0,
    ("RUN__PRECISION", "1%"): 0.01,
    ("RUN__POINTS", "smoke"): "smoke",
}


def test_a_variable_can_set_a_value_of_every_type(monkeypatch):
    found = {}
    for name, value in VARIABLES:
        with monkeypatch.context() as patched:
            patched.setenv(f"PERFSVC_{name}", value)
            found[name, value] = getattr(load().settings.run, name.removeprefix("RUN__").lower())
    assert found == VARIABLES


def test_tables_of_the_file_and_the_environment_are_merged(monkeypatch):
    write('[notify.targets]\nteam = "TEAM_URL"\n')
    monkeypatch.setenv("PERFSVC_NOTIFY__TARGETS__BOB", "BOB_URL")
    monkeypatch.setenv("PERFSVC_NOTIFY__ROUTE", '[{targets = "team", owner = "jane"}]')
    monkeypatch.setenv("PERFSVC_THRESHOLDS", '[{cases = "dot", change = "5%"}]')
    loaded = load()
    assert loaded.settings.notify.targets == {"team": "TEAM_URL", "bob": "BOB_URL"}
    assert loaded.origins["notify.targets.team"] == "perfsvc.toml:2"
    assert loaded.origins["notify.targets.bob"] == "PERFSVC_NOTIFY__TARGETS__BOB"
    assert loaded.settings.notify.route[0].owner == "jane"
    assert loaded.origins["notify.route.0"] == "PERFSVC_NOTIFY__ROUTE"
    (rule,) = loaded.settings.thresholds
    assert (rule.cases, rule.metric, rule.change) == ("dot", "*", 0.05)


def test_the_nearest_file_is_used_and_its_paths_count_from_its_folder(folder_here, monkeypatch):
    write("", "a/perfsvc.toml")
    write('suite = "../s"\ndatabase = "nights.db"\n[dashboard]\nfolder = "/srv/site"\n', "a/b/perfsvc.toml")
    Path("a/b/c/d").mkdir(parents=True)
    monkeypatch.chdir("a/b/c/d")
    loaded = load()
    assert loaded.path == folder_here / "a/b/perfsvc.toml"
    settings = loaded.settings
    assert (settings.suite, settings.database) == (folder_here / "a/b/../s", str(folder_here / "a/b/nights.db"))
    assert (settings.nightly.folder, settings.dashboard.folder) == (folder_here / "a/b/nights", Path("/srv/site"))


def test_a_relative_database_counts_from_the_folder_of_the_file(folder_here, monkeypatch):
    databases = {
        "sqlite:///x.db": f"sqlite:///{folder_here}/x.db",
        "sqlite:////x.db": "sqlite:////x.db",
        "postgresql://me@host/x": "postgresql://me@host/x",
        ":memory:": ":memory:",
    }
    Path("below").mkdir()
    monkeypatch.chdir("below")
    for written, expected in databases.items():
        write(f"database = {written!r}", "../perfsvc.toml")
        assert load().settings.database == expected


def test_the_default_suite_is_the_kernels_folder_beside_the_file(folder_here, monkeypatch):
    write("", "a/perfsvc.toml")
    Path("a/kernels").mkdir()
    Path("a/b").mkdir()
    monkeypatch.chdir("a/b")
    assert load().settings.suite == folder_here / "a/kernels"


def test_no_file_is_found_in_a_folder_that_was_removed(monkeypatch):
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path("../gone").resolve().rmdir()
    assert load().path is None


def test_the_search_for_the_file_ends_at_the_top_of_a_repository(monkeypatch):
    write("")
    Path("repository/.git").mkdir(parents=True)
    monkeypatch.chdir("repository")
    assert load().path is None


def test_a_link_to_a_missing_file_is_an_error(monkeypatch):
    Path("perfsvc.toml").symlink_to("missing.toml")
    Path("below").mkdir()
    for folder in (".", "below"):
        monkeypatch.chdir(folder)
        with pytest.raises(ConfigError, match="cannot be read: No such file"):
            load()


def test_a_link_to_a_missing_suite_selects_no_other_suite(folder_here):
    write("")
    Path("kernels").symlink_to("not-mounted")
    assert load().settings.suite == Path("kernels")


@pytest.mark.parametrize(("user", "what"), [("other", "file"), ("root", "file"), ("root", "link")])
def test_a_file_or_link_of_another_user_in_a_parent_folder_is_used_only_if_it_is_named(
    folder_here, monkeypatch, user, what
):
    """As if a command were typed below a folder like /tmp, in which another user had put the file or the link."""
    write("", "own.toml")
    (folder_here / "perfsvc.toml").symlink_to("own.toml")
    Path("below").mkdir()
    monkeypatch.chdir("below")
    theirs = folder_here / ("own.toml" if what == "file" else "perfsvc.toml")
    if theirs.lstat().st_uid == 0:
        os.chown(theirs, 12345, -1, follow_symlinks=False)
    uid = 0 if user == "root" else theirs.lstat().st_uid + 1
    monkeypatch.setattr(os, "getuid", lambda: uid)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load()
    assert load(folder_here / "perfsvc.toml").path == folder_here / "perfsvc.toml"


def test_a_variable_names_the_file_and_the_null_device_means_no_file(monkeypatch):
    write("[run]\nreplicas = 4", "other.toml")
    write("[run]\nreplicas = 5")
    monkeypatch.setenv("PERFSVC_CONFIG", "other.toml")
    assert load().settings.run.replicas == 4
    assert load(Path("perfsvc.toml")).settings.run.replicas == 5
    monkeypatch.setenv("PERFSVC_CONFIG", os.devnull)
    assert (load().path, load().settings.run.replicas) == (None, 3)


def test_every_value_is_shown_with_its_origin_and_without_secrets(monkeypatch):
    write(
        '[[thresholds]]\ncases = "dot"\nchange = 0.05\n'
        '[notify]\ntargets = {team = "TEAM_URL", ops = "OPS_URL"}\n[retention]\nsamples = "90d"\n'
    )
    monkeypatch.setenv("PERFSVC_DB", "postgresql://me:secret@host/db")
    monkeypatch.setenv("OPS_URL", "slack://secret")
    loaded = load()
    rows = {row.key: (row.value, row.origin) for row in shown(loaded)}
    assert rows["database"] == ('"postgresql://me:***@host/db"', "PERFSVC_DB")
    assert rows["thresholds[1]"] == ('cases = "dot", metric = "*", change = "5%"', "perfsvc.toml:1")
    assert rows["notify.targets.team"] == ("TEAM_URL (not set)", "perfsvc.toml:5")
    assert rows["notify.targets.ops"] == ("OPS_URL (set)", "perfsvc.toml:5")
    assert rows["retention.samples"] == ('"90d"', "perfsvc.toml:7")
    assert rows["run.replicas"] == ("3", "default")
    assert rows["run.budget"] == ("", "default")
    for text in (str(rows), json.dumps(shown_json(loaded)), repr(loaded), str(loaded.settings.public())):
        assert "secret" not in text
    assert shown_json(loaded)["variables"] == {"TEAM_URL": False, "OPS_URL": True}


ROUTES = """
[notify]
targets = {team = "TEAM_URL", ops = "OPS_URL"}
remind = "never"

[run]
budget = "1h"
select = ["a"]

[[notify.route]]
targets = "ops"
severity = ["failed", "missing"]

[[notify.route]]
targets = ["team", "ops"]
cases = "matmul*"
at_least = "10 %"
"""


def test_routes_are_read_shown_and_restored():
    write(ROUTES)
    loaded = load()
    notify = loaded.settings.notify
    assert [(route.targets, route.cases, route.at_least) for route in notify.route] == [
        (("ops",), "*", None),
        (("team", "ops"), "matmul*", 0.1),
    ]
    assert notify.remind == "never"
    rows = {row.key: (row.value, row.origin) for row in shown(loaded)}
    assert rows["notify.remind"] == ('"never"', "perfsvc.toml:4")
    first = 'targets = ["ops"], cases = "*", severity = ["failed", "missing"]'
    assert rows["notify.route[1]"] == (first, "perfsvc.toml:10")
    assert rows["notify.route[2]"][0].endswith('at_least = "10%"')
    assert Settings(**json.loads(json.dumps(loaded.settings.public()))) == loaded.settings
