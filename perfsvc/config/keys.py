"""The keys there are: what a mistyped one is compared with, and what ``init`` and ``config show`` list."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from perfsvc.config.settings import Settings, ThresholdSettings
from perfsvc.config.toml import toml
from perfsvc.config.types import Unit

_NOTHING: tuple[Any, ...] = (None, (), {}, "", PydanticUndefined)


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        table: the table that it is in; empty at the top.
        name: its own name.
        default: what holds where nobody sets it.
        meaning: in a sentence or two.
        example: a value as it may be written, where the default is none.
        unit: what a number counts.
    """

    table: str
    name: str
    default: Any
    meaning: str
    example: Any = None
    unit: Unit | None = None

    @property
    def dotted(self) -> str:
        """``run.replicas``."""
        return f"{self.table}.{self.name}" if self.table else self.name

    def written(self, value: Any) -> str:
        """A value of it as TOML; where there is none, an example."""
        return toml(self.example if value in _NOTHING and self.example is not None else value, self.unit)


def _keys(model: type[BaseModel], table: str = "") -> Iterator[Key]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, name)
        else:
            yield Key(table, name, field.default, _meaning(field), *_written(field))


def _written(field: FieldInfo) -> tuple[Any, Unit | None]:
    """An example of a key, and the unit of its numbers."""
    marks = (
        *field.metadata,
        *(mark for one in get_args(field.annotation) for mark in getattr(one, "__metadata__", ())),
    )
    unit = next((mark for mark in marks if isinstance(mark, Unit)), None)
    return next(iter(field.examples or ()), None), unit


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


KEYS: Mapping[str, Key] = MappingProxyType({key.dotted: key for key in _keys(Settings)})
"""Every key of ``Settings`` by its dotted name, in the order of the file."""

RULE: Mapping[str, Key] = MappingProxyType({key.name: key for key in _keys(ThresholdSettings, "thresholds")})
"""The keys of one rule of ``thresholds``."""

TABLES: Mapping[str, str] = MappingProxyType(
    {
        name: " ".join((field.annotation.__doc__ or "").split())
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
)
"""Every table, with what it is about."""


def nearest(name: str, table: str) -> str:
    """The right key that a wrong one is most like, as it has to be written; empty where none is at all alike.

    The same word in another table goes before a like one in its own, and that before a like one elsewhere.
    """
    elsewhere: dict[str, str] = {}
    for key in KEYS.values():
        if key.table != table:
            elsewhere[key.name] = f"{elsewhere[key.name]} or {key.dotted}" if key.name in elsewhere else key.dotted
    if name in elsewhere:
        return elsewhere[name]
    for known in (_own(table), elsewhere | _HEADERS):
        if close := difflib.get_close_matches(name.lower(), known, n=1):
            return known[close[0]]
    return ""


_HEADERS = {name: f"[{name}]" for name in TABLES} | {"thresholds": "[[thresholds]]"}


def _own(table: str) -> dict[str, str]:
    """What may stand in a table: its keys, and at the top the tables as well."""
    if table == "thresholds":
        return {name: name for name in RULE}
    own = {key.name: key.name for key in KEYS.values() if key.table == table}
    return own if table else own | _HEADERS
