"""The model's words to JSON and back: on the worker's pipe and in the store's replay records."""

from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(word: object) -> bytes:
    """A model dataclass as compact UTF-8 JSON."""
    return _adapter(type(word)).dump_json(word)


def decode(kind: type[T], text: bytes | str) -> T:
    """The inverse of ``encode``; raises ``pydantic.ValidationError`` (a ``ValueError``) on anything else."""
    return _adapter(kind).validate_json(text)


def prepare(*kinds: type) -> None:
    """Makes ahead what encoding and decoding these kinds takes, some 10 ms each."""
    for kind in kinds:
        _adapter(kind)
