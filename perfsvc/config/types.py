"""The types of settings: what a value may be written as, and what it is then.

A ``ValueError`` says what is wrong with a value and how to write it; its key is named before it.
"""

import math
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from perfsvc import units


class Unit(StrEnum):
    """What a number counts, for it to be written as people do."""

    DURATION = "duration"
    SHARE = "share"


MOST_CHANGE = 10
"""A tenfold time: a threshold above it is a slip of the finger."""


def _number(value: object, *, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no {unit}")  # noqa: TRY004 - pydantic hears ValueErrors alone
    return float(value)


def _seconds(value: object, *, zero: bool) -> float:
    if isinstance(value, str) and not _is_number(value):
        return units.parse_duration(value, zero=zero)
    seconds = _number(float(value) if isinstance(value, str) else value, unit="duration; write 90s, 20m or 1h30m")
    if not 0 <= seconds < math.inf or (seconds == 0 and not zero):
        raise ValueError(f"{value} is no time that can be spent; write 90s, 20m or 1h30m")
    return seconds


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(?:\.\d+)?", text.strip(), re.ASCII) is not None


def _share(below: float, example: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        text = value if isinstance(value, str) else f"{_number(value, unit=f'share; write {example}'):.12g}"
        return units.parse_share(text, below=below, example=example)

    return read


def sequence(value: object) -> object:
    """An array, which never changes from now on."""
    return tuple(value) if isinstance(value, list) else value


def _path(value: object) -> object:
    """A path as TOML has it, a string."""
    if isinstance(value, str) and not value:
        raise ValueError("it is empty; write a path")
    return Path(value).expanduser() if isinstance(value, str) else value


def _glob(text: str) -> str:
    from perfsvc.errors import UsageError
    from perfsvc.suite.selection import parse

    try:
        parse(text)
    except UsageError as error:
        raise ValueError(f"{error.what}; {error.cure}") from None
    return text


def _device(text: str) -> str:
    kind, colon, names = text.partition(":")
    if text in {"auto", "cpu", "cuda"} or (kind in {"cuda", "fake"} and colon and names):
        return text
    shown = without_password(text)
    raise ValueError(f"{shown!r} is no device; write auto, cpu, cuda, cuda:0, cuda:0,2, cuda:GPU-… or cuda:MIG-…")


def _architecture(text: str) -> str:
    if not re.fullmatch(r"sm_\d+[af]?", text, re.ASCII):
        raise ValueError(f"{text!r} is no architecture; write sm_90")
    return text


def has_password(url: str) -> bool:
    """Whether a URL carries a password, of which a database may take more than RFC 3986 does."""
    return without_password(url) != url


def without_password(text: str) -> str:
    """A URL, or text with some in it, as it may be printed."""
    hidden = re.sub(r"(://[^:/@\s]*:)[^@\s]*@", r"\1***@", text)
    return re.sub(r"(?i)(password=)[^&\s]*", r"\1***", hidden)


def _page(url: str) -> str:
    if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc):
        raise ValueError(f"{without_password(url)!r} is no address of a page; write https://host/path/")
    return url


def _variable(name: str) -> str:
    """The name of an environment variable; a value that is none may be a secret, and is not repeated."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("it is no name of an environment variable; write one here, and the Apprise URL into that")
    return name


def _run(value: object) -> object:
    """What a run is called; a number may be written as one."""
    if isinstance(value, str) and value.startswith("latest"):
        raise ValueError(f"{value!r} moves every night, and a loss would be the level of the next; write @baseline")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Count = Annotated[int, Field(ge=1)]
Folder = Annotated[Path, BeforeValidator(_path)]
Seconds = Annotated[float, BeforeValidator(lambda value: _seconds(value, zero=False)), Unit.DURATION]
Waiting = Annotated[float, BeforeValidator(lambda value: _seconds(value, zero=True)), Unit.DURATION]
Precision = Annotated[float, BeforeValidator(_share(1, "0.2%")), Unit.SHARE]
Change = Annotated[float, BeforeValidator(_share(MOST_CHANGE, "1%")), Unit.SHARE]
Glob = Annotated[str, AfterValidator(_glob)]
Globs = Annotated[tuple[Glob, ...], BeforeValidator(sequence)]
Devices = Annotated[tuple[Annotated[str, AfterValidator(_device)], ...], BeforeValidator(sequence), Field(min_length=1)]
Architectures = Annotated[
    tuple[Annotated[str, AfterValidator(_architecture)], ...],
    BeforeValidator(sequence),
]
Run = Annotated[str, BeforeValidator(_run), Field(min_length=1)]
Page = Annotated[str, AfterValidator(_page)]
Variable = Annotated[str, AfterValidator(_variable)]
