"""The keys of ``perfsvc.toml``: for ``init`` and ``config show``, and to suggest the right key for a mistyped one."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from perfsvc.config.settings import RouteSettings, Settings, SlurmGpuSettings, ThresholdSettings
from perfsvc.config.value_types import NumberUnit
from perfsvc.units import duration_text

_UNSET: tuple[Any, ...] = (None, (), {}, "", PydanticUndefined)


@dataclass(frozen=True, slots=True)
class SettingKey:
    """A key of the file.

    Attributes:
        table: the table that holds the key; empty at the top.
        name: its name in the table.
        default: the value of a key that is not set.
        meaning: what it does, in a sentence or two.
        example: an example value, if the key has no default.
        unit: the unit of a number.
    """

    table: str
    name: str
    default: Any
    meaning: str
    example: Any = None
    unit: NumberUnit | None = None

    @property
    def dotted(self) -> str:
        """The name with its table: ``run.replicas``."""
        return f"{self.table}.{self.name}" if self.table else self.name

    def written(self, value: Any) -> str:
        """Return a value as TOML; the example if the value is unset."""
        return toml(self.example if value in _UNSET and self.example is not None else value, self.unit)


def toml(value: Any, unit: NumberUnit | None = None) -> str:
    """Return a value as TOML; None becomes ``""``."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number(value, unit)
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            pairs = ", ".join(f"{_bare_or_quoted(str(key))} = {toml(item)}" for key, item in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case None:
            return '""'
        case _:
            return f"[{', '.join(map(toml, value))}]"


def _number(value: float, unit: NumberUnit | None) -> str:
    """Return a number as TOML: a duration as ``"1h30m"``, a share as ``"1%"``."""
    if unit is NumberUnit.DURATION:
        return f'"{duration_text(value)}"'
    if unit is NumberUnit.SHARE:
        return f'"{value * 100:.12g}%"'
    return f"{value:d}" if isinstance(value, int) else f"{value:.12g}"


def _bare_or_quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


def _keys(model: type[BaseModel], table: str = "") -> Iterator[SettingKey]:
    """Yield the keys of a settings class, and of the tables in it."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, name)
        else:
            example = next(iter(field.examples or ()), None)
            yield SettingKey(table, name, field.default, _one_line(field.description), example, _unit(field))


def _unit(field: FieldInfo) -> NumberUnit | None:
    members = (mark for member in get_args(field.annotation) for mark in getattr(member, "__metadata__", ()))
    return next((mark for mark in (*field.metadata, *members) if isinstance(mark, NumberUnit)), None)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


KEYS: Mapping[str, SettingKey] = MappingProxyType({key.dotted: key for key in _keys(Settings)})
"""Every key of ``Settings`` by its dotted name, in the order of the file."""

ARRAYS: Mapping[str, Mapping[str, SettingKey]] = MappingProxyType(
    {
        dotted: MappingProxyType({key.name: key for key in _keys(model, dotted)})
        for dotted, model in (
            ("slurm.gpus", SlurmGpuSettings),
            ("thresholds", ThresholdSettings),
            ("notify.route", RouteSettings),
        )
    }
)
"""The keys of a table of each array of tables, by the array's dotted name."""

TABLES: Mapping[str, str] = MappingProxyType(
    {
        name: _one_line(field.annotation.__doc__)
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
)
"""Every table, with its meaning."""

_HEADERS = {name: f"[{name}]" for name in TABLES} | {name: f"[[{name}]]" for name in ARRAYS}


def nearest(name: str, table: str) -> str:
    """Return how to write the key that is most similar to a mistyped key; empty if none is similar.

    Preferred in this order: the same name in another table, a similar name in this table, a similar name elsewhere.
    """
    elsewhere: dict[str, str] = {}
    for key in KEYS.values():
        if key.table != table:
            elsewhere[key.name] = f"{elsewhere[key.name]} or {key.dotted}" if key.name in elsewhere else key.dotted
    if name in elsewhere:
        return elsewhere[name]
    for known in (_allowed_in(table), elsewhere | _HEADERS):
        if close := difflib.get_close_matches(name.lower(), known, n=1):
            return known[close[0]]
    return ""


def _allowed_in(table: str) -> dict[str, str]:
    """Return how to write each name that a table may hold: its keys, and at the top level also the tables."""
    if table in ARRAYS:
        return {name: name for name in ARRAYS[table]}
    keys = {key.name: key.name for key in KEYS.values() if key.table == table}
    return keys if table else keys | _HEADERS
