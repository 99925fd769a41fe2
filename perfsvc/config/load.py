"""Load the settings in force, and where each value comes from: a variable, else the file, else the default.

``PERFSVC_RUN__REPLICAS`` sets ``replicas`` of the table ``run``.
"""

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from perfsvc import units
from perfsvc.config import file as files
from perfsvc.config.file import ConfigFile, KeyPath
from perfsvc.config.keys import ARRAYS, KEYS, TABLES, nearest, toml
from perfsvc.config.settings import BETWEEN, PREFIX, Settings
from perfsvc.config.value_types import has_password
from perfsvc.errors import ConfigError
from perfsvc.installation import data_folder
from perfsvc.text import without_password

SECRET = ("database", "notify.targets", "notify.page", "nightly.heartbeat")
"""The keys whose wrong values may be secrets, so that errors do not repeat them."""

LONGEST = 60
"""How many characters of a wrong value an error repeats."""

_WRONG = {
    "tuple_type": "is not an array",
    "dict_type": "is not a table",
    "model_type": "is not a table",
    "int_type": "is not a whole number",
    "int_parsing": "is not a whole number",
    "bool_type": "is not true or false",
    "bool_parsing": "is not true or false",
    "string_type": "is not text between quotes",
    "is_instance_of": "is not text between quotes",
    "greater_than_equal": "is less than {ge}",
    "less_than_equal": "is more than {le}",
    "literal_error": "is not {expected}",
    "too_short": "names nothing",
    "string_too_short": "names nothing",
}
"""What is wrong with a value, by the type of pydantic's error."""

Source = Callable[[KeyPath], tuple[str, int]]
"""Where a value was set: the file and the line, or the variable and 0."""


def config_error(error: ValidationError, source: Source) -> ConfigError:
    """Return a ``ConfigError`` for the problem on the earliest line; its ``others`` are the other problems."""
    problems = error.errors(include_url=False)
    # A mistyped key is reported once: as unknown, and not also as missing under its right name.
    unknown = [problem["loc"] for problem in problems if problem["type"] == "extra_forbidden"]
    mistyped = {(*path[:-1], nearest(*_name_and_table(path))) for path in unknown}
    problems = [problem for problem in problems if problem["type"] != "missing" or problem["loc"] not in mistyped]
    first, *others = sorted((_worded(problem, source) for problem in problems), key=lambda problem: problem.line)
    first.others = tuple(others)
    return first


def _worded(problem: Any, source: Source) -> ConfigError:
    """Return one of pydantic's problems as a ``ConfigError``: what is wrong, where, and how to write it."""
    key_path: KeyPath = problem["loc"]
    path, line = source(key_path)
    key = _dotted(key_path)
    if problem["type"] == "extra_forbidden":
        return _unknown_key(key_path, path, line)
    how = _how_to_write(key_path, path, problem)
    if problem["type"] == "missing":
        return ConfigError(f"{key} is missing", path=path, line=line, cure=f"write one: {how}")
    if problem["type"] == "value_error":
        what, _, cure = str(problem["ctx"]["error"]).partition("; ")
        return ConfigError(f"{key}: {what}", path=path, line=line, cure=cure)
    value = "the value" if key.startswith(SECRET) else _shown(problem["input"])
    wrong = _WRONG[problem["type"]].format(**problem.get("ctx", {}))
    return ConfigError(f"{key}: {value} {wrong}", path=path, line=line, cure=how)


def _unknown_key(key_path: KeyPath, path: str, line: int) -> ConfigError:
    """Return the error for a key that does not exist, with the most similar key as its cure."""
    name, table = _name_and_table(key_path)
    known = nearest(name, table)
    inside = _dotted(key_path[:-1]) if any(isinstance(part, int) for part in key_path) else f"[{table}]"
    what = f"{inside} has no key {name!r}" if table else f"there is no key or table {name!r}"
    cure = f"write {known}" if known else "list the keys: perfsvc config show"
    if "." in known:
        tables = " or ".join(f"[{dotted.partition('.')[0]}]" for dotted in known.split(" or "))
        cure = f"write it in {tables}: {known}"
    return ConfigError(what, path=path, line=line, nearest=known, cure=cure)


def _dotted(key_path: KeyPath) -> str:
    """Return a key path as text, ``run.devices[2]``; the elements of arrays count from 1."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in key_path).removeprefix(".")


def _name_and_table(key_path: KeyPath) -> tuple[str, str]:
    *tables, name = [part for part in key_path if isinstance(part, str)]
    return name, ".".join(tables)


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else without_password(repr(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _how_to_write(key_path: KeyPath, path: str, problem: Any) -> str:
    """Return how to write a key, as a line of the file or as a variable: with an example, or the user's own word.

    If the user wrote a word for an array, the array with this word is shown.
    """
    names = [part for part in key_path if isinstance(part, str)]
    key = KEYS.get(names[0]) or KEYS.get(".".join(names[:2]))
    array = next((dotted for dotted in ARRAYS if ".".join(names).startswith(dotted)), "")
    if array:
        key = ARRAYS[array].get(names[-1])
    if key is None:
        return f"write [[{array}]]" if array else f"write [{names[0]}]"
    from_variable = path.startswith(PREFIX)
    is_word = problem["type"] == "tuple_type" and isinstance(problem["input"], str) and not from_variable
    value = key.written((problem["input"],) if is_word else key.default)
    unquoted = value.strip('"')
    return without_password(f"set {path}={shlex.quote(unquoted)}" if from_variable else f"write {key.name} = {value}")


DEFAULT = "default"
"""The origin of a value that is not set."""

SHORT_VARIABLES = {"database": f"{PREFIX}DB"}
"""Keys whose variable is not named after the key."""

SIMILAR = 0.8
"""The least similarity, from 0 to 1 (``difflib``), of a known variable that is suggested for a mistyped one."""

_SQLITE = re.compile(r"sqlite:///(?!/)(?!:memory:)(.+)")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, and where each value comes from.

    Attributes:
        settings: the settings; relative paths of the file count from its folder.
        path: the file; None without a file.
        origins: the origin of each value, by dotted key: ``perfsvc.toml:12``, a variable, or ``default``; also by rule
            (``thresholds.0``), by route (``notify.route.0``) and by target (``notify.targets.team``).
    """

    settings: Settings
    path: Path | None
    origins: Mapping[str, str]

    def given(self, key: str) -> bool:
        """Return whether the file or a variable sets a key."""
        return self.origins[key] != DEFAULT


class ShownSetting(NamedTuple):
    """A setting as ``config show`` prints it.

    Attributes:
        key: the dotted key; rules and routes are numbered from 1.
        value: as in the file; empty if it is not set.
        origin: ``perfsvc.toml:12``, a variable, or ``default``.
    """

    key: str
    value: str
    origin: str


def load(path: Path | None = None) -> Loaded:
    """Read the file and the environment, and return the settings in force.

    Args:
        path: the file; None for the file that ``perfsvc.config.file.find`` finds.

    Raises:
        ConfigError: the file or a variable cannot be used; the error lists everything that is wrong.
    """
    file = files.read(files.find(path))
    _refuse_passwords(file)
    environment = _read_environment()
    values = _merged(_with_absolute_paths(file), environment)
    if "suite" not in values:
        kernels = _home(file) / "kernels"
        # A link to a missing folder, such as one that is not mounted, must not select another suite.
        values["suite"] = str(kernels if kernels.is_dir() or kernels.is_symlink() else data_folder("kernels"))

    def source(key_path: KeyPath) -> tuple[str, int]:
        """Return where a value was set: a variable and 0, or the file and the line."""
        if variable := _variable_that_sets(key_path, environment):
            return variable, 0
        prefixes = (key_path[:end] for end in range(len(key_path), 0, -1))
        line = next((file.lines[prefix] for prefix in prefixes if prefix in file.lines), 0)
        return str(file.path or files.NAME), line

    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise config_error(error, source) from None
    arrays = {"thresholds": settings.thresholds, "notify.route": settings.notify.route}
    rules = [f"{array}.{number}" for array, tables in arrays.items() for number in range(len(tables))]
    targets = [f"notify.targets.{name}" for name in settings.notify.targets]
    origins = {key: _origin(key, file, environment) for key in (*KEYS, *rules, *targets)}
    return Loaded(settings, file.path, origins)


def _merged(file: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the file, overridden by the values of the environment, table by table."""
    merged = dict(file)
    for key, value in environment.items():
        in_file = merged.get(key)
        merged[key] = _merged(in_file, value) if isinstance(in_file, dict) and isinstance(value, dict) else value
    return merged


def _origin(key: str, file: ConfigFile, environment: Mapping[str, Any]) -> str:
    """Return where the value of a dotted key was set: a variable, ``perfsvc.toml:12``, or ``default``."""
    array, _, number = key.rpartition(".")
    key_path: KeyPath = (*array.split("."), int(number)) if array in ARRAYS else tuple(key.split(".", 2))
    if variable := _variable_that_sets(key_path, environment):
        return variable
    return f"{file.path}:{file.lines[key_path]}" if key_path in file.lines else DEFAULT


# --- the file --------------------------------------------------------------------------------------------------------


def _refuse_passwords(file: ConfigFile) -> None:
    """Raise ``ConfigError`` if the file holds a password: files are committed, copied and read by others."""
    for key_path in (("database",), ("notify", "page")):
        value: Any = file.values
        for key in key_path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str) and has_password(value):
            dotted, line = ".".join(key_path), file.lines.get(key_path, 0)
            cure = "remove it here, and set PERFSVC_DB" if dotted == "database" else "remove it"
            raise ConfigError(f"{dotted} holds a password", path=str(file.path), line=line, cure=cure)


def _home(file: ConfigFile) -> Path:
    return file.path.parent if file.path else Path()


def _with_absolute_paths(file: ConfigFile) -> dict[str, Any]:
    """Return the values of the file, with the file's folder put before relative paths and default paths."""
    values, home = dict(file.values), _home(file)
    if home == Path():
        return values
    for table, key in (
        ("", "suite"),
        ("", "database"),
        ("slurm", "folder"),
        ("nightly", "folder"),
        ("dashboard", "folder"),
    ):
        inside = values.get(table, {}) if table else values
        if not isinstance(inside, Mapping):
            continue
        default = None if key == "suite" else KEYS[f"{table}.{key}" if table else key].default
        written = inside.get(key, default)
        if isinstance(written, str | Path) and str(written):
            absolute = {**inside, key: _from_home(home, str(written))}
            values = {**values, table: absolute} if table else absolute
    return values


def _from_home(home: Path, written: str) -> str:
    """Return a path, or the URL of a SQLite file, with the folder ``home`` put before a relative path."""
    if sqlite := _SQLITE.fullmatch(written):
        return f"sqlite:///{home / sqlite[1]}"
    if "://" in written or written == ":memory:":
        return written
    try:
        return str(home / units.parse_path(written))
    except ValueError:
        return written  # the reader of the value reports it, with its key


# --- the environment -------------------------------------------------------------------------------------------------


class _Variables(EnvSettingsSource):
    """pydantic's reader of the environment, with arrays as words between blanks or as TOML."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002
        """Decode an array: words between blanks, or TOML. Invalid TOML stays text; a later error names its key."""
        if not isinstance(value, str):
            return value
        if not value.lstrip().startswith(("[", "{")):
            return value.split()
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            return value


def variable_of(key: str) -> str:
    """Return the variable that sets a dotted key."""
    return SHORT_VARIABLES.get(key, PREFIX + key.replace(".", BETWEEN).upper())


def _read_environment() -> dict[str, Any]:
    """Return the values that ``PERFSVC_*`` variables set, nested by table as in the file."""
    if mistyped := tuple(_mistyped_variables()):
        first, *others = mistyped
        first.others = tuple(others)
        raise first
    values = _Variables(Settings)()
    for key, variable in SHORT_VARIABLES.items():
        if os.environ.get(variable):
            values[key] = os.environ[variable]
    return values


def _mistyped_variables() -> Iterator[ConfigError]:
    """Yield an error for each ``PERFSVC_*`` variable that looks like a mistyped key, or names a whole table."""
    known = {variable_of(key): key for key in KEYS}
    plain = {name.replace("_", ""): name for name in known}
    for name in sorted(os.environ):
        if not name.startswith(PREFIX) or name in known or not os.environ[name]:
            continue
        table, nested, _ = name.removeprefix(PREFIX).partition(BETWEEN)
        if name.startswith(variable_of("notify.targets") + BETWEEN):  # the name of a target follows
            continue
        meant = plain.get(name.replace("_", "")) or SHORT_VARIABLES.get(name.removeprefix(PREFIX).lower())
        if table.lower() in TABLES and not nested:
            cure = f"name one of its keys: {name}{BETWEEN}KEY=…"
            yield ConfigError(f"{table.lower()} is a table", path=name, cure=cure)
        elif nested or meant:
            nearest = meant or next(iter(difflib.get_close_matches(name, known, n=1, cutoff=SIMILAR)), "")
            cure = f"write {nearest}" if nearest else "list the keys: perfsvc config show"
            yield ConfigError("no setting has this environment variable", path=name, nearest=nearest, cure=cure)


def _variable_that_sets(key_path: KeyPath, environment: Mapping[str, Any]) -> str:
    """Return the variable that a value comes from; empty if it does not come from the environment."""
    array = next((at for at, part in enumerate(key_path) if isinstance(part, int)), len(key_path))
    keys = [str(part) for part in key_path[:array]]
    value: Any = environment
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return ""
        value = value[key]
    return variable_of(".".join(keys))


# --- to show ---------------------------------------------------------------------------------------------------------


def shown(loaded: Loaded) -> Iterator[ShownSetting]:
    """Yield every setting in the order of the file; for a secret, the name of its variable and whether that is set."""
    public = loaded.settings.public()
    for key in KEYS.values():
        origin = loaded.origins[key.dotted]
        value: Any = public
        for part in key.dotted.split("."):
            value = value[part]
        if key.dotted in ARRAYS and value:
            for number, table in enumerate(value):
                table_origin = loaded.origins.get(f"{key.dotted}.{number}", origin)
                yield ShownSetting(f"{key.dotted}[{number + 1}]", _written(key.dotted, table), table_origin)
        elif key.dotted == "notify.targets" and value:
            is_set = _set_variables(loaded)
            for name, variable in value.items():
                written = f"{variable} ({'set' if is_set[variable] else 'not set'})"
                target = f"notify.targets.{name}"
                yield ShownSetting(target, written, loaded.origins.get(target, origin))
        elif key.dotted == "nightly.heartbeat" and value:
            yield ShownSetting(key.dotted, f"{value} ({'set' if _set_variables(loaded)[value] else 'not set'})", origin)
        else:
            yield ShownSetting(key.dotted, "" if value is None or value == "" else toml(value, key.unit), origin)


def _written(array: str, table: Mapping[str, Any]) -> str:
    """Return a table of an array of tables on one line, without the keys that are not set."""
    known = {name: item for name, item in table.items() if item not in (None, "")}
    return ", ".join(f"{name} = {toml(item, ARRAYS[array][name].unit)}" for name, item in known.items())


def shown_json(loaded: Loaded) -> dict[str, Any]:
    """Return every setting as JSON values, without secrets."""
    return {
        "path": str(loaded.path) if loaded.path else None,
        "settings": loaded.settings.public(),
        "origins": dict(loaded.origins),
        "variables": _set_variables(loaded),
    }


def _set_variables(loaded: Loaded) -> dict[str, bool]:
    """Return the variables that hold the addresses of targets and of the heartbeat, and whether each is set."""
    names = filter(None, (*loaded.settings.notify.targets.values(), loaded.settings.nightly.heartbeat))
    return {name: bool(os.environ.get(name)) for name in names}
