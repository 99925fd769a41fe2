"""The environment's part: ``PERFSVC_RUN__REPLICAS`` stands for ``replicas`` of the table ``run``."""

import difflib
import os
import tomllib
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from perfsvc.config.keys import KEYS, TABLES
from perfsvc.config.settings import BETWEEN, PREFIX, Settings
from perfsvc.errors import ConfigError

SHORT = {"database": f"{PREFIX}DB"}
"""Keys whose variable has another name than its key."""

ALIKE = 0.8
"""How alike two names have to be: they begin and go on alike in any case."""


class _Variables(EnvSettingsSource):
    """pydantic's reading of the environment, but for arrays: words between blanks, or as TOML has them."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002
        """Pydantic's would take JSON alone."""
        return _array(value) if isinstance(value, str) else value


def read() -> dict[str, Any]:
    """What the environment sets, nested as the file's values are; what it cannot mean raises ``ConfigError``."""
    if mistaken := tuple(_mistaken()):
        first, *others = mistaken
        first.others = tuple(others)
        raise first
    values = _Variables(Settings)()
    for key, name in SHORT.items():
        if os.environ.get(name):
            values[key] = os.environ[name]
    return values


def any_set() -> bool:
    """Whether the environment holds anything for ``read``, which takes a while to import."""
    return any(name.startswith(PREFIX) for name in os.environ)


def name_of(key: str) -> str:
    """The variable that stands for a dotted key."""
    return SHORT.get(key, PREFIX + key.replace(".", BETWEEN).upper())


def _array(text: str) -> Any:
    """``cuda:0 cuda:1`` or ``["cuda:0", "cuda:1"]``; text that is no TOML stays so, to be refused with its key."""
    if not text.lstrip().startswith(("[", "{")):
        return text.split()
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _mistaken() -> Iterator[ConfigError]:
    """Variables that are meant for a key and name none."""
    known = {name_of(key): key for key in KEYS}
    plain = {name.replace("_", ""): name for name in known}
    for name in sorted(os.environ):
        if not name.startswith(PREFIX) or name in known or not os.environ[name]:
            continue
        table, nested, _ = name.removeprefix(PREFIX).partition(BETWEEN)
        if name.startswith(name_of("notify.targets") + BETWEEN):
            continue
        meant = plain.get(name.replace("_", "")) or SHORT.get(name.removeprefix(PREFIX).lower())
        if table.lower() in TABLES and not nested:
            yield ConfigError(
                f"{table.lower()} is a table", path=name, cure=f"name one of its keys: {name}{BETWEEN}KEY=…"
            )
        elif nested or meant:
            nearest = meant or next(iter(difflib.get_close_matches(name, known, n=1, cutoff=ALIKE)), "")
            cure = f"write {nearest}" if nearest else "see which there are: perfsvc config show"
            yield ConfigError("no key has this variable", path=name, nearest=nearest, cure=cure)
