"""Word pydantic's errors: what is wrong with a setting, in which line or variable, and how to write it."""

import shlex
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from perfsvc.config.file import KeyPath
from perfsvc.config.keys import ARRAYS, KEYS, nearest
from perfsvc.config.settings import PREFIX
from perfsvc.errors import ConfigError
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
