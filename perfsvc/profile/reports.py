"""Read a report of Nsight Compute as a profile; needs no GPU.

NVIDIA's ``ncu_report`` (the package ``ncu-report``, which reads the reports of older versions too) does the reading. It
is native code, and a damaged report may make it end its process. So ``read_isolated`` reads in a process of its own,
``python -m perfsvc.profile.reports REPORT KERNEL ANSWER``.

Before anything is loaded, ``outline`` walks through the file, because a damaged report loads without an error as an
empty one. A file begins with ``NVR`` and a zero, then its header, preceded by its length; then blocks, each with a
header preceded by its length, and a payload whose length is in the header. The headers are Protocol Buffers
(https://protobuf.dev/programming-guides/encoding/). NVIDIA describes the layout in ``ProfilerReport.proto``, which
comes with Nsight Compute (``extras/FileFormat``).
"""

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

from perfsvc.errors import MissingPackageError, PerfsvcError, ProfileError, ReportError
from perfsvc.installation import install_command
from perfsvc.model import Profile, ProfilerRule, codec
from perfsvc.process import programs
from perfsvc.profile.metrics import METRICS, RawMetric, operations
from perfsvc.temporary import temporary_folder

LIMIT_S = 60.0
"""Seconds that reading may take; a report with all sections takes less than one."""

PROFILE_AGAIN = "profile the launch again: ncu -f -o REPORT PROGRAM"

_ERRORS: dict[str, type[PerfsvcError]] = {kind.__name__: kind for kind in (ReportError, MissingPackageError)}
"""The errors of ``read`` that the reading process passes on, by name."""

_SCALES = {"%": 0.01, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3}
"""Factors to base units; all other units are base units."""
_PROBLEM_TYPES = {2, 3}  # kinds of a rule's message: an optimization, a warning
_LINK = re.compile(r"@section:[^:@]*:([^@]*)@|@url:([^:@]*):[^@]*@")  # the text of a link to a section or to a page

_MAGIC = b"NVR\0"
_LENGTH = struct.Struct("<I")
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # kinds of a field
_FIXED = {_EIGHT: 8, _FOUR: 4}
_LAUNCHES, _SESSION, _PAYLOAD, _VERSIONS = 2, 3, 5, 8  # fields of a block's header; of the session
_COUNTER = b"Nsight Compute Target"


def read(path: Path, *, kernel: str | None = None) -> Profile:
    """Return the profile in a report of one launch.

    Args:
        path: a ``.ncu-rep`` file.
        kernel: the function that was launched; None accepts any.

    Raises:
        ReportError: the file is missing, empty, cut short or not a report, or holds no launch, several launches or a
            launch of another kernel.
        MissingPackageError: ``ncu_report`` is not installed.
    """
    contents = outline(path)
    if contents.launches != 1:
        raise _wrong_count(path, contents.launches)
    try:
        library: Any = import_module("ncu_report")
    except ImportError as error:
        raise _missing_package() from error
    context = library.load_report(str(path))  # owns all that is read from it
    action: Any = context.range_by_idx(0).action_by_idx(0) if context.num_ranges() else None
    names = frozenset(action.metric_names()) if action is not None else frozenset()
    if not names:
        raise ReportError(f"{path} holds a launch without a metric: it was not written to its end", cure=PROFILE_AGAIN)
    if kernel is not None and kernel not in _kernel_names(library, action):
        raise ReportError(
            f"{path} is a report of the kernel {action.name()}, not of {kernel}",
            cure=f"name a report of {kernel}, or profile it: ncu --kernel-name {kernel} -f -o REPORT PROGRAM",
        )
    raw = _raw_metrics(action, names)
    metrics = {metric.name: metric.value(raw) for metric in METRICS} | operations(raw, names)
    major, minor = (raw(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    device = "device__attribute_display_name"
    model = action.metric_by_name(device).value() if device in names else ""
    return Profile(
        kernel=action.name(),
        metrics=metrics,
        rules=tuple(_rules(action)),
        device=model if isinstance(model, str) else "",
        chip="" if major is None or minor is None else f"sm_{major:.0f}{minor:.0f}",
        ncu_version=contents.ncu_version,
    )


def require_ncu_report() -> None:
    """Raise ``MissingPackageError`` if ``ncu_report`` is not installed; does not load it."""
    if find_spec("ncu_report") is None:
        raise _missing_package()


def _missing_package() -> MissingPackageError:
    """Return the error for a missing package ``ncu-report``."""
    return MissingPackageError(
        "reports of Nsight Compute are read with the package ncu-report, which is missing",
        cure=install_command("profile"),
    )


def _wrong_count(path: Path, launches: int) -> ReportError:
    """Return the error for a report that holds no launch, or several."""
    if not launches:
        return ReportError(
            f"{path} holds no launch: the filters let none through, the program launched none, or it ended early",
            cure="profile the first launch: ncu --launch-count 1 -f -o REPORT PROGRAM",
        )
    return ReportError(
        f"{path} holds {launches:,} launches, but a profile is of one launch",
        cure="profile a single launch: ncu --kernel-name KERNEL --launch-count 1 -f -o REPORT PROGRAM",
    )


def _kernel_names(library: Any, action: Any) -> set[str]:
    """Return the names of the launched kernel: with and without argument types, and as in the binary (mangled)."""
    bases = ("FUNCTION", "DEMANGLED", "MANGLED")
    return {action.name(getattr(library.IAction, f"NameBase_{base}")) for base in bases}


def _raw_metrics(action: Any, names: frozenset[str]) -> RawMetric:
    """Return a function that gives a metric, by name, in base units; None if it is absent, a text or not finite."""

    def raw(name: str) -> float | None:
        if name not in names:
            return None
        metric = action.metric_by_name(name)
        value = metric.value()
        if not isinstance(value, int | float) or not isfinite(value):
            return None
        return float(value) * _SCALES.get(metric.unit(), 1.0)

    return raw


def _rules(action: Any) -> list[ProfilerRule]:
    """Return the problems that Nsight Compute's rules found, the largest estimated speedup first."""
    rules = []
    for result in action.rule_results_as_dicts():
        message = result.get("rule_message") or {}
        if message.get("type") in _PROBLEM_TYPES and message.get("message"):
            estimate = (result.get("speedup_estimation") or {}).get("speedup")
            speedup = None if estimate is None else min(max(estimate / 100, 0.0), 1.0)
            text = " ".join(_LINK.sub(lambda link: link[1] or link[2], message["message"]).split())
            rules.append(ProfilerRule(result["rule_identifier"], text, speedup))
    return sorted(rules, key=lambda rule: -(rule.speedup or 0.0))


# --- in a process of its own -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """What the reading process found: a profile, or the name, message and cure of its error."""

    profile: Profile | None = None
    error: str = ""
    message: str = ""
    cure: str = ""


def read_isolated(path: Path, *, kernel: str | None = None) -> Profile:
    """Return the profile in a report of one launch, read in a process of its own.

    Raises:
        ReportError: the file is missing, damaged or not a report, or does not hold one launch of the kernel.
        MissingPackageError: ``ncu_report`` is not installed.
        ProfileError: ``ncu_report`` crashed the reading process, or did not finish in time.
    """
    require_ncu_report()
    with temporary_folder() as folder:
        file = folder / "answer.json"
        command = [*programs.python_module("perfsvc.profile.reports"), str(path), kernel or "", str(file)]
        ended = programs.run(command, folder=Path.cwd(), limit_s=LIMIT_S)
        answer = codec.decode(ReportAnswer, file.read_bytes()) if file.exists() and not ended.code else None
    if answer is None:
        how = f"did not end within {LIMIT_S:g} s" if ended.timed_out else f"died ({programs.describe_exit(ended.code)})"
        raise ProfileError(
            f"the package ncu-report {how} while it read {path.name}",
            cure=f"{install_command('profile')} --upgrade; remove Nsight Compute's own ncu_report from PYTHONPATH",
        )
    if answer.profile is None:
        raise _ERRORS[answer.error](answer.message, cure=answer.cure)
    return answer.profile


def _main(path: Path, kernel: str, file: Path) -> None:
    """Read a report in this process, and write the profile or the error to the answer file."""
    try:
        answer = ReportAnswer(read(path, kernel=kernel or None))
    except (ReportError, MissingPackageError) as error:
        answer = ReportAnswer(None, type(error).__name__, error.what, error.cure)
    file.write_bytes(codec.encode(answer))


# --- the file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportOutline:
    """What a report file holds.

    Attributes:
        launches: how many launches.
        ncu_version: the version of Nsight Compute that wrote the report; empty if the report does not name it.
    """

    launches: int
    ncu_version: str


def outline(path: Path) -> ReportOutline:
    """Return what a report file holds, without loading it.

    Raises:
        ReportError: the file is missing, empty, not a report or cut short.
    """
    try:
        with path.open("rb") as file:
            return _walk(file, path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}", cure="name a .ncu-rep file") from error


def _walk(file: BinaryIO, path: Path) -> ReportOutline:
    """Return the outline of an open report from its block headers; raise ``ReportError`` if it is damaged."""
    length = path.stat().st_size
    if not length:
        raise ReportError(f"{path} is empty: Nsight Compute was ended before it wrote its report", cure=PROFILE_AGAIN)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ReportError(f"{path} is no report of Nsight Compute", cure="name a .ncu-rep file, as ncu -o writes it")
    launches, version = 0, ""
    try:
        _read_part(file)  # the file's header: the version of the layout
        while file.tell() < length:
            block = dict(_fields(_read_part(file)))
            launches += _number(block, _LAUNCHES)
            version = version or _ncu_version(block.get(_SESSION, b""))
            file.seek(_number(block, _PAYLOAD), 1)
    except (ValueError, IndexError, struct.error) as error:
        raise _damaged(path) from error
    if file.tell() != length:
        raise _damaged(path)
    return ReportOutline(launches, version)


def _damaged(path: Path) -> ReportError:
    return ReportError(f"{path} is not a whole report: it was cut short or overwritten", cure=PROFILE_AGAIN)


def _read_part(file: BinaryIO) -> bytes:
    """Return the next part of the file, which follows four bytes with its length; raise ``ValueError`` if it is cut."""
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    part = file.read(length)
    if len(part) != length:
        raise ValueError("cut short")
    return part


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) for each field of a Protocol Buffers message; a field number may repeat."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        length, at = _varint(message, at) if kind == _BYTES else (_FIXED.get(kind, len(message) + 1), at)
        if at + length > len(message):
            raise ValueError("a field reaches beyond its message")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at a position (seven bits a byte, lowest first), and the position after it."""
    value = shift = 0
    while True:
        value |= (message[at] & 0x7F) << shift
        if message[at] < 0x80:  # noqa: PLR2004 - the bit that marks a following byte
            return value, at + 1
        at, shift = at + 1, shift + 7


def _number(block: dict[int, int | bytes], field: int) -> int:
    """Return an integer field of a block, 0 if it is absent; raise ``ValueError`` if it is no integer."""
    value = block.get(field, 0)
    if not isinstance(value, int):
        raise ValueError("not a number")  # noqa: TRY004 - an error of the file, not of a caller
    return value


def _ncu_version(session: int | bytes) -> str:
    """Return the version of Nsight Compute in a session (``2025.3.1.0``); empty if there is none."""
    for field, value in _fields(session) if isinstance(session, bytes) else ():
        if field == _VERSIONS and isinstance(value, bytes):
            name, version = (dict(_fields(value)).get(key, b"") for key in (1, 2))
            if name == _COUNTER and isinstance(version, bytes):
                return version.decode().split(" ", maxsplit=1)[0]
    return ""


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
