"""The first perfsvc.toml: it loads, it holds every key, and an existing file is kept."""

import os
import re
import tomllib
from pathlib import Path

import pytest

from perfsvc.config import Settings, load
from perfsvc.config.keys import ARRAYS, KEYS
from perfsvc.errors import ConfigError
from perfsvc.service import init


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def uncommented(text):
    """Return the text with every key set."""
    return re.sub(r"^# (?=[\w\"]+ = |\[\[)", "", text, flags=re.MULTILINE)


def test_the_written_file_loads_as_the_defaults():
    init.write(Path("perfsvc.toml"), Path("mine"), force=False)
    loaded = load()
    assert loaded.settings == Settings(suite=Path("mine"))
    assert [key for key in KEYS if loaded.given(key)] == ["suite"]


def test_every_key_is_written_as_a_comment_with_its_default_or_an_example():
    text = init.text(None)
    found = tomllib.loads(uncommented(text))
    written = {f"{table}.{key}" for table, keys in found.items() if isinstance(keys, dict) for key in keys}
    assert written | set(found) - {table.partition(".")[0] for table in written} == set(KEYS)
    assert set(found["thresholds"][0]) == set(ARRAYS["thresholds"])
    assert set(found["notify"]["route"][0]) == set(ARRAYS["notify.route"])
    assert not [line for line in text.splitlines() if line and not line.startswith(("#", "["))]


def test_a_key_with_its_comment_removed_has_its_default_or_an_example(folder):
    (folder / "perfsvc.toml").write_text(uncommented(init.text(Path("kernels"))))
    settings = load().settings
    assert settings.thresholds[0].cases == settings.notify.route[0].cases == "*"
    for key in [key for key in KEYS.values() if key.dotted not in ARRAYS]:
        value = getattr(getattr(settings, key.table), key.name) if key.table else getattr(settings, key.name)
        assert (value == key.default) is (key.example is None), key.dotted


def test_an_existing_file_is_kept(folder):
    path = Path("perfsvc.toml")
    path.write_text("# mine")
    with pytest.raises(ConfigError, match="it exists already, and was not changed"):
        init.write(path, None, force=False)
    assert path.read_text() == "# mine"
    init.write(path, None, force=True)
    assert path.read_text() == init.text(None)
    assert [path.name for path in folder.iterdir()] == ["perfsvc.toml"]


@pytest.mark.parametrize("force", [True, False])
def test_no_link_is_written_through(folder, force):
    (folder / "victim").write_text("mine")
    for name in (f".perfsvc.toml.{os.getpid()}", *(["perfsvc.toml"] if force else [])):
        (folder / name).symlink_to("victim")
    init.write(Path("perfsvc.toml"), None, force=force)
    assert (folder / "victim").read_text() == "mine"
    assert (folder / "perfsvc.toml").read_text() == init.text(None)
    assert not (folder / "perfsvc.toml").is_symlink()


def test_a_full_disk_leaves_no_file_and_a_missing_folder_is_reported(folder, full_disk):
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        init.write(Path("perfsvc.toml"), None, force=False)
    assert not list(folder.iterdir())
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        init.write(Path("nowhere/perfsvc.toml"), None, force=False)


def test_the_suite_in_the_folder_is_found(folder):
    suites = {
        ("kernels/dot/bench.py", "benchmarks/dot/bench.py"): Path("kernels"),
        ("benchmarks/dot/bench.py", "kernels/readme"): Path("benchmarks"),
        ("mine/dot/bench.py",): Path("mine"),
        ("dot/bench.py",): Path(),
        ("readme",): None,
    }
    for place, (files, suite) in enumerate(suites.items()):
        for file in files:
            path = folder / str(place) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        assert init.suite_in(folder / str(place)) == suite


def test_a_suite_name_with_quotes_is_written_so_that_it_loads():
    init.write(Path("perfsvc.toml"), Path('a "b" \\ c'), force=False)
    assert load().settings.suite == Path('a "b" \\ c')
