"""What is wrong with the values, in our words: pydantic's errors with file and line, or the variable's name."""

import shlex
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from perfsvc.config.keys import KEYS, RULE, nearest
from perfsvc.config.lines import Place
from perfsvc.config.settings import PREFIX
from perfsvc.config.types import without_password
from perfsvc.errors import ConfigError

SECRET = ("database", "notify.targets")
"""Where somebody may have written a secret: what stands there is not repeated."""

LONGEST = 60
QUOTE = '"'

_KINDS = {
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
    "literal_error": "is not {expected}",
    "too_short": "names nothing",
    "string_too_short": "names nothing",
}
"""What is wrong with a value, by the type of pydantic's error."""

Where = Callable[[Place], tuple[str, int]]
"""Where a value was written: the file and the line, or the variable and 0."""


def told(error: ValidationError, where: Where) -> ConfigError:
    """All that is wrong as one error, in the order of the lines."""
    errors = error.errors(include_url=False)
    mistyped = {(*one["loc"][:-1], nearest(*_named(one["loc"]))) for one in errors if one["type"] == "extra_forbidden"}
    wrong = [one for one in errors if one["type"] != "missing" or one["loc"] not in mistyped]
    first, *others = sorted((_one(each, where) for each in wrong), key=lambda one: one.line)
    first.others = tuple(others)
    return first


def _one(error: Any, where: Where) -> ConfigError:
    place: Place = error["loc"]
    path, line = where(place)
    key = dotted(place)
    if error["type"] == "extra_forbidden":
        return _unknown(place, path, line)
    if error["type"] == "missing":
        return ConfigError(f"{key} is missing", path=path, line=line, cure=f"write one: {_example(place, path, error)}")
    if error["type"] == "value_error":
        what, _, cure = str(error["ctx"]["error"]).partition("; ")
        return ConfigError(f"{key}: {what}", path=path, line=line, cure=cure)
    value = "what stands there" if key.startswith(SECRET) else _shown(error["input"])
    wrong = _KINDS[error["type"]].format(**error.get("ctx", {}))
    return ConfigError(f"{key}: {value} {wrong}", path=path, line=line, cure=_example(place, path, error))


def _unknown(place: Place, path: str, line: int) -> ConfigError:
    name, table = _named(place)
    known = nearest(name, table)
    inside = dotted(place[:-1]) if any(isinstance(part, int) for part in place) else f"[{table}]"
    what = f"{inside} has no key {name!r}" if table else f"there is no key or table {name!r}"
    cure = f"write {known}" if known else "see which keys there are: perfsvc config show"
    if "." in known:
        owners = " or ".join(f"[{one.partition('.')[0]}]" for one in known.split(" or "))
        cure = f"write it in {owners}: {known}"
    return ConfigError(what, path=path, line=line, nearest=known, cure=cure)


def dotted(place: Place) -> str:
    """A place as it is typed; the elements of arrays are counted from 1."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _named(place: Place) -> tuple[str, str]:
    """The name of a key and the table that it is in."""
    *tables, name = [part for part in place if isinstance(part, str)]
    return name, ".".join(tables)


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else without_password(repr(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _example(place: Place, path: str, error: Any) -> str:
    """How a key may be written: in the file, or as a variable's value; one word for an array as an array of it."""
    words = [part for part in place if isinstance(part, str)]
    key = KEYS.get(words[0]) or KEYS.get(".".join(words[:2]))
    if words[0] == "thresholds":
        key = RULE.get(words[-1])
    if key is None:
        return f"write [[{words[0]}]]" if words[0] == "thresholds" else f"write [{words[0]}]"
    alone = error["type"] == "tuple_type" and isinstance(error["input"], str) and not path.startswith(PREFIX)
    value = key.written((error["input"],) if alone else key.default)
    return f"set {path}={shlex.quote(value.strip(QUOTE))}" if path.startswith(PREFIX) else f"write {key.name} = {value}"
