"""The types of settings: how each value is written in ``perfsvc.toml``, and what it may be.

A ``ValueError`` of a type says what is wrong with a value and how to write it; the caller puts the key before it.
"""

import ipaddress
import math
import re
from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator

from perfsvc import units
from perfsvc.model import PARTS
from perfsvc.text import url_without_password, without_password


def page(url: str) -> str:
    """Return the address of a page unchanged; raise ``ValueError`` if it is none."""
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.netloc):
        raise ValueError(f"{without_password(url)!r} is no address of a page; write https://host/path/")
    if parts.username is not None or not url.isprintable():  # every reader of a link would see the password
        raise ValueError(f"{without_password(url)!r} has a user or a control character; write https://host/path/")
    return url


def header(name: str) -> str:
    """Return the name of a header unchanged; raise ``ValueError`` if it is none."""
    if name and not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise ValueError(f"{name!r} is no name of a header; write X-Forwarded-User")
    return name


def network(text: str) -> str:
    """Return an address or a network unchanged; raise ``ValueError`` if it is none."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address or network; write 127.0.0.1 or 10.0.0.0/24") from None
    return text


def variable(name: str) -> str:
    """Return the name of an environment variable. A wrong value may be a secret, so the error does not repeat it."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("it is no name of an environment variable; write a name here, and the URL into that variable")
    return name


NEVER = "never"

LARGEST_CHANGE = 10
"""The largest threshold, a tenfold time: a larger one is a typing error."""

SET_BY_KEYS = {"constraint", "gres", "partition", "time"}
SET_BY_PERFSVC = {
    *("array", "clusters", "error", "gpus", "gpus-per-node", "gpus-per-task", "hold", "job-name", "nodes", "ntasks"),
    *("open-mode", "output", "requeue", "signal", "wait", "wrap"),
}


class NumberUnit(StrEnum):
    """What a number counts, so that it is written as people write it."""

    DURATION = "duration"
    SHARE = "share"


def has_password(url: str) -> bool:
    """Return whether a URL carries a password, also in the forms that databases accept beyond RFC 3986."""
    return url_without_password(url) != url


def _number(value: object, *, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no {unit}")  # noqa: TRY004 - pydantic catches ValueError only
    return float(value)


def _seconds(value: object, *, zero: bool) -> float:
    """Return the seconds of a duration such as ``1h30m`` or 90; raise ``ValueError`` for any other value.

    Args:
        value: the setting as the user wrote it.
        zero: whether 0 is allowed.
    """
    if isinstance(value, str) and not re.fullmatch(r"[+-]?\d+(?:\.\d+)?", value.strip(), re.ASCII):
        return units.parse_duration(value, zero=zero)
    seconds = _number(float(value) if isinstance(value, str) else value, unit="duration; write 90s, 1h30m or 90d")
    if not 0 <= seconds < math.inf or (seconds == 0 and not zero):
        raise ValueError(f"{value} is no possible duration; write 90s, 1h30m or 90d")
    return seconds


def _share(below: float, example: str) -> Callable[[object], float]:
    """Return a function that reads a share (``1%`` or 0.01) as a fraction below a limit; ``example`` is for errors."""

    def read(value: object) -> float:
        text = value if isinstance(value, str) else f"{_number(value, unit=f'share; write {example}'):.12g}"
        return units.parse_share(text, below=below, example=example)

    return read


def _written_share(fraction: float) -> float | str:
    """Return a share as JSON that ``_share`` reads again: from 1 on it has its unit."""
    return fraction if fraction < 1 else f"{100 * fraction:.12g}%"


def _seconds_or_never(value: object) -> object:
    """Return a duration in seconds, or ``never``; raise ``ValueError`` for anything else."""
    if value == NEVER:
        return value
    try:
        return _seconds(value, zero=False)
    except ValueError as error:
        raise ValueError(f"{error}, or {NEVER}") from None


def _words(value: object) -> object:
    """Return an array as a tuple; a single word counts as an array of one."""
    return (value,) if isinstance(value, str) else as_tuple(value)


def as_tuple(value: object) -> object:
    """Return an array as a tuple, and anything else unchanged."""
    return tuple(value) if isinstance(value, list) else value


def _path(value: object) -> object:
    return units.parse_path(value) if isinstance(value, str) else value


def _glob(text: str) -> str:
    """Return a glob of cases unchanged; raise ``ValueError`` if it is malformed."""
    from perfsvc.errors import UsageError
    from perfsvc.selection import parse

    try:
        parse(text)
    except UsageError as error:
        raise ValueError(f"{error.what}; {error.cure}") from None
    return text


def _device(text: str) -> str:
    """Return the specification of a device unchanged; raise ``ValueError`` if it is malformed."""
    kind, colon, names = text.partition(":")
    if text in {"auto", "cpu", "cuda"} or (kind in {"cuda", "fake"} and colon and names):
        return text
    shown = without_password(text)
    raise ValueError(f"{shown!r} is no device; write auto, cpu, cuda, cuda:0, cuda:0,2, cuda:GPU-… or cuda:MIG-…")


def cluster(text: str) -> str:
    """Return the address of a cluster unchanged; raise ``ValueError`` if it names none."""
    if text in {"", "slurm"} or re.fullmatch(r"ray://[^\s/@:]+:\d+", text, re.ASCII):
        return text
    raise ValueError(f"{without_password(text)!r} is no cluster; write ray://head:10001 or slurm")


def _slurm_value(text: str) -> str:
    """Return a value for sbatch unchanged; raise ``ValueError`` if it cannot stand in one line of a script."""
    if text.isprintable() and text == text.strip():
        return text
    raise ValueError(f"{text!r} is no value for sbatch; write it as on the command line of sbatch")


def _slurm_options(options: dict[str, bool | int | str]) -> dict[str, bool | int | str]:
    """Return further options of sbatch unchanged; raise ``ValueError`` for an option that perfsvc sets itself."""
    for name, value in options.items():
        if not re.fullmatch(r"[a-z][a-z-]*", name, re.ASCII):
            raise ValueError(f"{name!r} is no long option of sbatch; write mem or cpus-per-task")
        # sbatch takes the beginning of an option's name for the option
        if any(taken.startswith(name) for taken in SET_BY_KEYS):
            raise ValueError(f"{name} is a key of its own; write it into [slurm] or [[slurm.gpus]]")
        if any(taken.startswith(name) for taken in SET_BY_PERFSVC):
            raise ValueError(f"perfsvc sets {name} itself: a job lends one GPU; leave it out")
        if isinstance(value, str):
            _slurm_value(value)
    return options


def _architecture(text: str) -> str:
    if not re.fullmatch(r"sm_\d+[af]?", text, re.ASCII):
        raise ValueError(f"{text!r} is no architecture; write sm_90")
    return text


def _part(glob: str) -> str:
    """Return a glob of parts of the environment unchanged; raise ``ValueError`` if it can match none."""
    group, dot, _ = glob.partition(".")
    names = [name for name in PARTS if name.startswith(f"{group}.")]
    open_ended = f"{group}.*" in PARTS
    if (dot and open_ended) or any(fnmatchcase(name, glob) for name in PARTS if not name.endswith("*")):
        return glob
    known = ", ".join(names) or "gpu.ecc, host.kernel, package.NAME or variable.NAME (perfsvc runs environment latest)"
    raise ValueError(f"{glob!r} matches no part of the environment; write {known}")


def _run(value: object) -> object:
    """Return the name of a run as text, also for a number; raise ``ValueError`` for ``latest``."""
    if isinstance(value, str) and value.startswith("latest"):
        raise ValueError(
            f"{value!r} moves every night, so a regression would become the next baseline; write @baseline"
        )
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Networks = Annotated[tuple[Annotated[str, AfterValidator(network)], ...], BeforeValidator(_words)]
Count = Annotated[int, Field(ge=1)]
Folder = Annotated[Path, BeforeValidator(_path)]
Places = Annotated[int, Field(ge=1, le=100)]
Seconds = Annotated[float, BeforeValidator(lambda value: _seconds(value, zero=False)), NumberUnit.DURATION]
SecondsOrZero = Annotated[float, BeforeValidator(lambda value: _seconds(value, zero=True)), NumberUnit.DURATION]
SecondsOrNever = Annotated[float | Literal["never"], PlainValidator(_seconds_or_never), NumberUnit.DURATION]
Precision = Annotated[float, BeforeValidator(_share(1, "0.2%")), NumberUnit.SHARE]
Threshold = Annotated[
    float,
    BeforeValidator(_share(LARGEST_CHANGE, "1%")),
    PlainSerializer(_written_share, when_used="json"),
    NumberUnit.SHARE,
]
SlurmValue = Annotated[str, AfterValidator(_slurm_value)]
SlurmOptions = Annotated[dict[str, bool | int | str], AfterValidator(_slurm_options)]
Glob = Annotated[str, AfterValidator(_glob)]
Globs = Annotated[tuple[Glob, ...], BeforeValidator(as_tuple)]
Devices = Annotated[tuple[Annotated[str, AfterValidator(_device)], ...], BeforeValidator(as_tuple), Field(min_length=1)]
Architectures = Annotated[tuple[Annotated[str, AfterValidator(_architecture)], ...], BeforeValidator(as_tuple)]
Run = Annotated[str, BeforeValidator(_run), Field(min_length=1)]
Parts = Annotated[tuple[Annotated[str, AfterValidator(_part)], ...], BeforeValidator(_words)]
Page = Annotated[str, AfterValidator(page)]
Variable = Annotated[str, AfterValidator(variable)]
About = Literal["new", "resolved", "failed"]
Severity = Literal["regression", "improvement", "failed", "missing", "resolved"]
Severities = Annotated[tuple[Severity, ...], BeforeValidator(_words), Field(min_length=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]
