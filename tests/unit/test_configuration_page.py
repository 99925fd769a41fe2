"""docs/reference/configuration.md has every key of the settings, with its default and its meaning, and no other."""

import re
import tomllib
from pathlib import Path

from perfsvc.config import Settings
from perfsvc.config.keys import ARRAYS, KEYS, TABLES, SettingKey

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def row(key: SettingKey) -> str:
    """A key as the page has it."""
    written = key.written(key.default)
    default = "e.g. " if key.example is not None else ""
    return f"| `{key.name}` | {default}`{written}` | {key.meaning} |"


def rows(section: str) -> list[str]:
    return re.findall(r"^\| `.*$", section, re.MULTILINE)


def test_every_key_of_a_table_is_on_the_page_and_no_other():
    for table in ("", *TABLES):
        section = SECTIONS[f"`[{table}]`" if table else "At the top"]
        keys = [key for key in KEYS.values() if key.table == table and key.dotted not in ARRAYS]
        assert all(key.meaning for key in keys)
        assert rows(section) == [row(key) for key in keys]
        assert not table or TABLES[table] in section


def test_the_keys_of_an_array_of_tables_are_on_the_page():
    for array, keys in ARRAYS.items():
        section = SECTIONS[f"`[[{array}]]`"]
        assert all(key.meaning for key in (KEYS[array], *keys.values()))
        assert rows(section) == [row(key) for key in keys.values()]
        assert KEYS[array].meaning in section


def test_the_page_has_a_section_for_every_table():
    tables = {name for name in SECTIONS if name.startswith("`[")}
    assert tables == {f"`[{table}]`" for table in TABLES} | {f"`[[{array}]]`" for array in ARRAYS}


def test_the_file_that_the_page_shows_can_be_used():
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert Settings(**tomllib.loads(shown)).notify.page == "https://perf.example.org/"
