"""Read reports of Nsight Compute as profiles; needs no GPU.

A report has an action for each profiled launch, with the NVTX ranges that were open at the launch. A report of one
launch is read by ``read``; a report of a profiling session, in which each launch has a range of its own, by
``read_ranges``.

NVIDIA's ``ncu_report`` (the package ``ncu-report``, which reads the reports of older versions too) does the reading. It
is native code, and a damaged report may make it end its process. So ``read_isolated`` and ``read_ranges_isolated`` read
in a process of its own, ``python -m perfsvc.profile.reports REQUEST ANSWER``.

Before anything is loaded, ``outline`` walks through the file, because a damaged report loads without an error as an
empty one. A file begins with ``NVR`` and a zero, then its header, preceded by its length; then blocks, each with a
header preceded by its length, and a payload whose length is in the header. The headers are Protocol Buffers
(https://protobuf.dev/programming-guides/encoding/). NVIDIA describes the layout in ``ProfilerReport.proto``, which
comes with Nsight Compute (``extras/FileFormat``).
"""

import re
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

from perfsvc.device import NVTX_DOMAIN
from perfsvc.errors import MissingPackageError, PerfsvcError, ProfileError, ReportError
from perfsvc.installation import install_command
from perfsvc.model import Profile, ProfiledKernel, ProfilerRule, codec
from perfsvc.process import programs
from perfsvc.profile.instructions import read_instructions, tensor_flops
from perfsvc.profile.metrics import METRICS, RawMetric, operations
from perfsvc.profile.waits import instruction_metrics
from perfsvc.temporary import temporary_folder

LIMIT_S = 60.0
"""Seconds that reading may take. A launch with all sections takes less than one second."""
LIMIT_OF_RANGE_S = 1.0
"""Seconds that reading may take in addition, for each range."""

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
    library = _library()
    context = library.load_report(str(path))  # owns all that is read from it
    action = next(_actions(context), None)
    if action is None:
        raise _without_metrics(path)
    if kernel is not None and kernel not in _kernel_names(library, action):
        raise ReportError(
            f"{path} is a report of the kernel {action.name()}, not of {kernel}",
            cure=f"name a report of {kernel}, or profile it: ncu --kernel-name {kernel} -f -o REPORT PROGRAM",
        )
    return _profile(path, action, contents.ncu_version)


def read_ranges(path: Path, kernels: Mapping[str, str]) -> dict[str, Profile | ReportError]:
    """Return the profile of the launch in each NVTX range, or why the report has no such profile.

    Args:
        path: a ``.ncu-rep`` file with any number of launches.
        kernels: for the name of each range, the function that was launched in it; empty if that is not known. Then the
            range may have several launches, and the profile is that of the longest, with the times of all.

    Raises:
        ReportError: the file is missing, empty, cut short or not a report.
        MissingPackageError: ``ncu_report`` is not installed.
    """
    contents = outline(path)
    library = _library()
    context = library.load_report(str(path))
    actions: dict[str, list[Any]] = {name: [] for name in kernels}
    for action in _actions(context):
        for name in _nvtx_ranges(action) & kernels.keys():
            actions[name].append(action)
    return {
        name: _profile_in_range(library, path, name, kernel, actions[name], contents.ncu_version)
        for name, kernel in kernels.items()
    }


def _profile_in_range(  # noqa: PLR0917 - what a range has
    library: Any, path: Path, name: str, kernel: str, actions: list[Any], ncu_version: str
) -> Profile | ReportError:
    """Return the profile of the only launch in a range, or of the longest, or why there is none."""
    kernels: tuple[ProfiledKernel, ...] = ()
    if not kernel and len(actions) > 1:
        kernels = tuple(ProfiledKernel(action.name(), _duration(action) or None) for action in actions)
        actions = [max(actions, key=_duration)]
    if len(actions) != 1:
        return ReportError(
            f"Nsight Compute saw {len(actions) or 'no'} launch{'es' if actions else ''} in the range {name}",
            cure="check that NVTX_DISABLE is not set, and that the case launches a kernel",
        )
    if kernel and kernel not in _kernel_names(library, actions[0]):
        return ReportError(
            f"the range {name} has a launch of the kernel {actions[0].name()}, not of {kernel}", cure="report it"
        )
    try:
        return replace(_profile(path, actions[0], ncu_version), kernels=kernels)
    except ReportError as error:
        return error


def _duration(action: Any) -> float:
    """Return the time of a launch in seconds; 0 if it was not counted."""
    return _raw_metrics(action, frozenset(action.metric_names()))("gpu__time_duration.sum") or 0.0


def _library() -> Any:
    """Return ``ncu_report``; raise ``MissingPackageError`` if it is not installed."""
    try:
        return import_module("ncu_report")
    except ImportError as error:
        raise _missing_package() from error


def _actions(context: Any) -> Iterator[Any]:
    """Yield the launches of a loaded report."""
    for number in range(context.num_ranges()):  # ncu's own ranges: one, unless ncu replays ranges
        launches = context.range_by_idx(number)
        yield from (launches.action_by_idx(index) for index in range(launches.num_actions()))


def _nvtx_ranges(action: Any) -> set[str]:
    """Return the names of perfsvc's NVTX ranges that were open at a launch; empty if NVTX was not traced."""
    state = action.nvtx_state()
    if state is None:
        return set()
    domains = (state.domain_by_id(number) for number in state.domains())
    return {name for domain in domains if domain.name() == NVTX_DOMAIN for name in domain.push_pop_ranges()}


def _profile(path: Path, action: Any, ncu_version: str) -> Profile:
    """Return the profile of a launch; raise ``ReportError`` if it has no metric."""
    names = frozenset(action.metric_names())
    if not names:
        raise _without_metrics(path)
    raw = _raw_metrics(action, names)
    instructions = read_instructions(action, names)
    counted = {metric.name: metric.value(raw) for metric in METRICS} | operations(raw, names)
    for name, flops in tensor_flops(instructions).items():
        if counted[f"{name}_flops"] is None:
            counted[f"{name}_flops"] = flops
    major, minor = (raw(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    device = "device__attribute_display_name"
    model = action.metric_by_name(device).value() if device in names else ""
    return Profile(
        kernel=action.name(),
        metrics=counted | instruction_metrics(instructions),
        rules=tuple(_rules(action)),
        device=model if isinstance(model, str) else "",
        chip="" if major is None or minor is None else f"sm_{major:.0f}{minor:.0f}",
        ncu_version=ncu_version,
        instructions=instructions,
    )


def _without_metrics(path: Path) -> ReportError:
    return ReportError(f"{path} holds a launch without a metric: it was not written to its end", cure=PROFILE_AGAIN)


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
class ReportRequest:
    """What the reading process reads: the launch in each range of ``kernels``, or else the only launch of a report."""

    path: str
    kernel: str | None = None
    kernels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """What the reading process found: a profile, or the name, message and cure of its error; the same for each range.

    The answer for a whole report has an error, or ``ranges``, or a profile.
    """

    profile: Profile | None = None
    error: str = ""
    message: str = ""
    cure: str = ""
    ranges: Mapping[str, "ReportAnswer"] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Profile | PerfsvcError) -> "ReportAnswer":
        """Return the answer for a profile or an error."""
        if isinstance(found, Profile):
            return cls(found)
        return cls(None, type(found).__name__, found.what, found.cure)

    @property
    def found(self) -> Profile | PerfsvcError:
        """The profile or the error of this answer."""
        return self.profile or _ERRORS[self.error](self.message, cure=self.cure)


def read_isolated(path: Path, *, kernel: str | None = None) -> Profile:
    """Return the profile in a report of one launch, read in a process of its own.

    Raises:
        ReportError: the file is missing, damaged or not a report, or does not hold one launch of the kernel.
        MissingPackageError: ``ncu_report`` is not installed.
        ProfileError: ``ncu_report`` crashed the reading process, or did not finish in time.
    """
    found = _isolated(ReportRequest(str(path), kernel), LIMIT_S).found
    if isinstance(found, PerfsvcError):
        raise found
    return found


def read_ranges_isolated(path: Path, kernels: Mapping[str, str]) -> dict[str, Profile | PerfsvcError]:
    """Return what ``read_ranges`` returns, read in a process of its own.

    Raises:
        ReportError: the file is missing, damaged or not a report.
        MissingPackageError: ``ncu_report`` is not installed.
        ProfileError: ``ncu_report`` crashed the reading process, or did not finish in time.
    """
    answer = _isolated(ReportRequest(str(path), kernels=kernels), LIMIT_S + LIMIT_OF_RANGE_S * len(kernels))
    if answer.error and isinstance(error := answer.found, PerfsvcError):
        raise error
    return {name: of_range.found for name, of_range in answer.ranges.items()}


def _isolated(request: ReportRequest, limit_s: float) -> ReportAnswer:
    """Return the answer of a reading process; raise ``ProfileError`` if it crashed or did not finish in time."""
    require_ncu_report()
    with temporary_folder() as folder:
        asked, file = folder / "request.json", folder / "answer.json"
        asked.write_bytes(codec.encode(request))
        command = [*programs.python_module("perfsvc.profile.reports"), str(asked), str(file)]
        ended = programs.run(command, folder=Path.cwd(), limit_s=limit_s)
        answer = codec.decode(ReportAnswer, file.read_bytes()) if file.exists() and not ended.code else None
    if answer is None:
        how = f"did not end within {limit_s:g} s" if ended.timed_out else f"died ({programs.describe_exit(ended.code)})"
        raise ProfileError(
            f"the package ncu-report {how} while it read {Path(request.path).name}",
            cure=f"{install_command('profile')} --upgrade; remove Nsight Compute's own ncu_report from PYTHONPATH",
        )
    return answer


def _main(asked: Path, file: Path) -> None:
    """Read a report in this process, and write the profiles or the error to the answer file."""
    request = codec.decode(ReportRequest, asked.read_bytes())
    try:
        if request.kernels is None:
            answer = ReportAnswer(read(Path(request.path), kernel=request.kernel))
        else:
            found = read_ranges(Path(request.path), request.kernels)
            answer = ReportAnswer(ranges={name: ReportAnswer.of(of_range) for name, of_range in found.items()})
    except (ReportError, MissingPackageError) as error:
        answer = ReportAnswer.of(error)
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
    for number, value in _fields(session) if isinstance(session, bytes) else ():
        if number == _VERSIONS and isinstance(value, bytes):
            name, version = (dict(_fields(value)).get(key, b"") for key in (1, 2))
            if name == _COUNTER and isinstance(version, bytes):
                return version.decode().split(" ", maxsplit=1)[0]
    return ""


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
