"""What is in force: the environment before the file, the file before the defaults."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perfsvc.config import file as files
from perfsvc.config import mistakes, variables
from perfsvc.config.file import File
from perfsvc.config.keys import KEYS
from perfsvc.config.lines import Place
from perfsvc.config.settings import Settings
from perfsvc.config.types import has_password
from perfsvc.errors import ConfigError
from perfsvc.installation import data_folder

DEFAULT = "default"
_SQLITE = re.compile(r"sqlite:///(?!/)(?!:memory:)(.+)")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is in force, and where it comes from.

    Attributes:
        settings: paths of the file count from its folder.
        path: the file; None where there is none.
        origins: by dotted key, ``perfsvc.toml:12``, a variable's name, or ``default``; of each rule
            (``thresholds.0``) and each target as well.
    """

    settings: Settings
    path: Path | None
    origins: Mapping[str, str]

    def given(self, key: str) -> bool:
        """Whether somebody set a key, in the file or the environment."""
        return self.origins[key] != DEFAULT


def load(path: Path | None = None) -> Loaded:
    """Reads what is in force.

    Args:
        path: the file; None for that of ``PERFSVC_CONFIG``, the one here, or the nearest in a parent.

    Raises:
        ConfigError: the file or a variable cannot be used; all that is wrong is told at once.
    """
    file = files.read(files.find(path))
    _refuse_passwords(file)
    environment = variables.read()
    values = _merged(_placed(file), environment)
    if "suite" not in values:
        values["suite"] = str(_suite(file))

    def where(place: Place) -> tuple[str, int]:
        if name := _variable(place, environment):
            return name, 0
        known = next((file.lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in file.lines), 0)
        return str(file.path or files.NAME), known

    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise mistakes.told(error, where) from None
    rules = [f"thresholds.{number}" for number in range(len(settings.thresholds))]
    targets = [f"notify.targets.{name}" for name in settings.notify.targets]
    origins = {key: _origin(key, file, environment) for key in (*KEYS, *rules, *targets)}
    return Loaded(settings, file.path, origins)


def _merged(file: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the file with those of the environment in their place, table by table."""
    merged = dict(file)
    for key, value in environment.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _origin(key: str, file: File, environment: Mapping[str, Any]) -> str:
    table, _, rest = key.partition(".")
    place: Place = (table, int(rest)) if rest.isdecimal() else (table, *key.split(".", 2)[1:])
    if name := _variable(place, environment):
        return name
    return f"{file.path}:{file.lines[place]}" if place in file.lines else DEFAULT


def _variable(place: Place, environment: Mapping[str, Any]) -> str:
    """The variable that a value comes from; empty where it comes from none."""
    value: Any = environment
    keys = list(_keys(place))
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return ""
        value = value[key]
    return variables.name_of(".".join(keys))


def _keys(place: Place) -> Iterator[str]:
    """The keys of a place, up to the first array."""
    for part in place:
        if isinstance(part, int):
            return
        yield part


def _refuse_passwords(file: File) -> None:
    """A file is committed, copied and read by others."""
    for place in (("database",), ("notify", "page")):
        value: Any = file.values
        for key in place:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str) and has_password(value):
            key, line = ".".join(place), file.lines.get(place, 0)
            cure = "take it out here, and set PERFSVC_DB" if key == "database" else "take it out"
            raise ConfigError(f"{key} holds a password", path=str(file.path), line=line, cure=cure)


def _suite(file: File) -> Path:
    """The suite where none is named: ``kernels`` beside the file, else the built-in one."""
    beside = _folder(file) / "kernels"
    return beside if beside.is_dir() else data_folder("kernels")


def _folder(file: File) -> Path:
    return file.path.parent if file.path else Path()


def _placed(file: File) -> dict[str, Any]:
    """The file's values, with relative paths from its folder on; defaults of paths lie there as well."""
    values, home = dict(file.values), _folder(file)
    if home == Path():
        return values
    for table, key in (("", "suite"), ("", "database"), ("nightly", "folder"), ("dashboard", "folder")):
        inside = values.get(table, {}) if table else values
        if not isinstance(inside, Mapping):
            continue
        written = inside.get(key, KEYS[f"{table}.{key}" if table else key].default if key != "suite" else None)
        if isinstance(written, str | Path) and str(written):
            placed = {**inside, key: _beside(home, str(written))}
            values = {**values, table: placed} if table else placed
    return values


def _beside(home: Path, written: str) -> str:
    """A path or a SQLite file's URL as it is seen from here."""
    if found := _SQLITE.fullmatch(written):
        return f"sqlite:///{home / found[1]}"
    return written if "://" in written or written == ":memory:" else str(home / Path(written).expanduser())
