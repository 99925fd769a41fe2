"""Dataclasses to JSON and back, for worker messages and the store's replay records."""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_adapters: dict[type, "TypeAdapter[Any]"] = {}


def _adapter(kind: type[T]) -> "TypeAdapter[T]":
    if kind not in _adapters:
        from pydantic import TypeAdapter  # imported here because most commands decode nothing

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(value: object) -> bytes:
    """Return a dataclass as compact UTF-8 JSON."""
    return _adapter(type(value)).dump_json(value)


def decode(kind: type[T], text: bytes | str) -> T:
    """Decode a dataclass; raises ``pydantic.ValidationError`` (a ``ValueError``) if the text does not encode one."""
    return _adapter(kind).validate_json(text)


def prepare(*kinds: type) -> None:
    """Build the encoders for these types in advance (about 10 ms each)."""
    for kind in kinds:
        _adapter(kind)
