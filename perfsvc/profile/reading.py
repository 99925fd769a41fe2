"""Reads a report of Nsight Compute; needs no GPU.

NVIDIA's ``ncu_report`` does the reading: the package ``ncu-report``, which reads the reports of older versions too.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

from perfsvc.errors import MissingPackageError, ReportError
from perfsvc.installation import install_command
from perfsvc.model import Profile, ProfilerRule
from perfsvc.profile.metrics import METRICS
from perfsvc.profile.operations import operations
from perfsvc.profile.outline import PROFILE_AGAIN, outline

_SCALES = {"%": 0.01, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3}
"""What turns a unit into ours; all others are base units."""
_FOUND = {2, 3}  # kinds of a rule's message: what could be better, and a warning
_LINK = re.compile(r"@section:[^:@]*:([^@]*)@|@url:([^:@]*):[^@]*@")  # the words of a link to a section, to a page


def require_ncu_report() -> None:
    """Raises ``MissingPackageError`` where there is nothing to read with; loads nothing."""
    if find_spec("ncu_report") is None:
        raise _missing()


def _missing() -> MissingPackageError:
    return MissingPackageError(
        "reports of Nsight Compute are read with the package ncu-report, which is missing",
        cure=install_command("profile"),
    )


def read(path: Path, *, kernel: str | None = None) -> Profile:
    """A report of one launch as a profile.

    Args:
        path: a ``.ncu-rep`` file.
        kernel: whose launch it has to be, by the function's name; any where None.

    Raises:
        ReportError: it is not there, is empty, cut short, no report, holds no launch or several, or one of another
            kernel.
        MissingPackageError: ``ncu_report`` is not installed.
    """
    found = outline(path)
    if found.launches != 1:
        raise _miscounted(path, found.launches)
    library = _ncu_report()
    context = library.load_report(str(path))  # owns all that is read from it
    action = _launch(context)
    names = frozenset(action.metric_names()) if action is not None else frozenset()
    if not names:
        raise ReportError(f"{path} holds a launch without a metric: it was not written to its end", cure=PROFILE_AGAIN)
    if kernel is not None and kernel not in _names_of(library, action):
        raise ReportError(
            f"{path} is of the kernel {action.name()}, not of {kernel}",
            cure=f"name a report of {kernel}, or profile it: ncu --kernel-name {kernel} -f -o REPORT PROGRAM",
        )
    raw = _raw(action, names)
    major, minor = (raw(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return Profile(
        kernel=action.name(),
        metrics={
            **{metric.name: next(_known(raw, metric.sources), None) for metric in METRICS},
            **operations(raw, names),
        },
        rules=tuple(_rules(action)),
        device=_text(action, names, "device__attribute_display_name"),
        chip="" if major is None or minor is None else f"sm_{major:.0f}{minor:.0f}",
        ncu_version=found.ncu_version,
    )


def _ncu_report() -> Any:
    try:
        return import_module("ncu_report")
    except ImportError as error:
        raise _missing() from error


def _launch(context: Any) -> Any:
    """The only launch of a report; None where it does not load."""
    return context.range_by_idx(0).action_by_idx(0) if context.num_ranges() else None


def _miscounted(path: Path, launches: int) -> ReportError:
    if not launches:
        return ReportError(
            f"{path} holds no launch: the filters let none through, the program launched none, or it was ended before",
            cure="profile the first launch: ncu --launch-count 1 -f -o REPORT PROGRAM",
        )
    return ReportError(
        f"{path} holds {launches:,} launches, and a profile is of one",
        cure="profile a single one: ncu --kernel-name KERNEL --launch-count 1 -f -o REPORT PROGRAM",
    )


def _names_of(library: Any, action: Any) -> set[str]:
    """What a kernel is called: with and without its arguments, and as the binary has it."""
    bases = ("FUNCTION", "DEMANGLED", "MANGLED")
    return {action.name(getattr(library.IAction, f"NameBase_{base}")) for base in bases}


def _raw(action: Any, names: frozenset[str]) -> Callable[[str], float | None]:
    """The report's numbers in base units; None for what it lacks, for text and for what is not finite."""

    def of(name: str) -> float | None:
        if name not in names:
            return None
        metric = action.metric_by_name(name)
        value = metric.value()
        if not isinstance(value, int | float) or not isfinite(value):
            return None
        return float(value) * _SCALES.get(metric.unit(), 1.0)

    return of


def _known(raw: Callable[[str], float | None], names: tuple[str, ...]) -> Iterator[float]:
    for name in names:
        value = raw(name)
        if value is not None:
            yield value


def _text(action: Any, names: frozenset[str], name: str) -> str:
    value = action.metric_by_name(name).value() if name in names else ""
    return value if isinstance(value, str) else ""


def _rules(action: Any) -> Iterator[ProfilerRule]:
    """What each rule found, the largest estimate first; a rule that found two things is there twice."""
    found = []
    for result in action.rule_results_as_dicts():
        message = result.get("rule_message") or {}
        if message.get("type") in _FOUND and message.get("message"):
            estimate = (result.get("speedup_estimation") or {}).get("speedup")
            speedup = None if estimate is None else min(max(estimate / 100, 0.0), 1.0)
            found.append(ProfilerRule(result["rule_identifier"], _plain(message["message"]), speedup))
    yield from sorted(found, key=lambda rule: -(rule.speedup or 0.0))


def _plain(message: str) -> str:
    """A rule's message on one line, with its links' words alone."""
    return " ".join(_LINK.sub(lambda link: link[1] or link[2], message).split())
