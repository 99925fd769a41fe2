"""What a variant requires of a device, of its point or of this Python, in the author's few words."""

import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from perfsvc.model import DeviceInfo, Value
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.functions import nearest
from perfsvc.suite.problem import Problem
from perfsvc.suite.tensor_maps import requirements_of_tensor_maps, unfit_for_tensor_maps

_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)(a?)")
_PACKAGE = re.compile(r"import +([^\W\d]\w*(\.[^\W\d]\w*)*)")
_DIVISIBLE = re.compile(r"(\w+) *% *(\w+) *== *0")


def problems_of_requirement(requirement: str, names: Collection[str], line: int) -> Iterator[Problem]:
    """What is wrong with one requirement, given the names of axes and parameters."""
    if requirement == "cuda" or _ARCHITECTURE.fullmatch(requirement) or _PACKAGE.fullmatch(requirement):
        return
    divisible = _DIVISIBLE.fullmatch(requirement)
    if divisible is None:
        yield Problem(
            f"requires {requirement!r}, which is not understood",
            line,
            "write cuda, sm_90 (at least), sm_90a (exactly), n % 4 == 0 or import cupy",
        )
        return
    for term in divisible.groups():
        if not term.isdigit() and term not in names:
            yield Problem(f"requires {requirement!r}, but {term!r} is not known", line, nearest(term, names))
    if divisible[2].isdigit() and int(divisible[2]) == 0:
        yield Problem(f"requires {requirement!r}: nothing is divisible by 0", line, "name another divisor")


def unmet(spec: CaseSpec, device: DeviceInfo) -> str:
    """Why a case cannot run on a device, as ``requires sm_90: this device is sm_80``; empty where it can."""
    values = {name: value for unit in spec.units for name, value in unit.defines} | dict(spec.case.point)
    for requirement in (*spec.requires, *requirements_of_tensor_maps(spec.steps)):
        reason = _unmet(requirement, values, device)
        if reason:
            return f"requires {requirement}: {reason}"
    return unfit_for_tensor_maps(spec.steps)


def exact_architecture(requirements: Iterable[str]) -> tuple[str, ...]:
    """The compile options that ``sm_90a`` asks for: what only that architecture has is compiled for it alone."""
    exact = (found for requirement in requirements if (found := _ARCHITECTURE.fullmatch(requirement)) and found[3])
    return tuple(f"-gencode=arch=compute_{found[1]}{found[2]}a,code={found[0]}" for found in exact)


def _unmet(requirement: str, values: Mapping[str, Value], device: DeviceInfo) -> str:
    if requirement == "cuda":
        return "this is the CPU device" if device.kind == "cpu" else ""
    architecture = _ARCHITECTURE.fullmatch(requirement)
    if architecture:
        return _other_architecture(architecture, device)
    package = _PACKAGE.fullmatch(requirement)
    if package:
        return "" if _is_installed(package[1]) else f"the package {package[1]} is not installed"
    return _indivisible(requirement, values)


def _other_architecture(wanted: re.Match[str], device: DeviceInfo) -> str:
    if not device.compute_capability:
        return "this is the CPU device" if device.kind == "cpu" else "this device has no compute capability"
    major, minor = (int(part) for part in device.compute_capability.split("."))
    least = (int(wanted[1]), int(wanted[2]))
    met = (major, minor) == least if wanted[3] else (major, minor) >= least
    return "" if met else f"this device is sm_{major}{minor}"


def _is_installed(package: str) -> bool:
    """Whether a package or a module of one is there; it is not imported, but what a dotted name lies in is."""
    try:
        return importlib.util.find_spec(package) is not None
    except Exception:  # noqa: BLE001 - what lies around it is missing, or fails in ways of its own when it is imported
        return False


def _indivisible(requirement: str, values: Mapping[str, Value]) -> str:
    divisible = _DIVISIBLE.fullmatch(requirement)
    if divisible is None:
        raise ValueError(f"{requirement!r} was never checked")
    dividend, divisor = (int(term) if term.isdigit() else values[term] for term in divisible.groups())
    if isinstance(dividend, int) and isinstance(divisor, int) and divisor and dividend % divisor == 0:
        return ""
    return ", ".join(f"{term} is {values[term]}" for term in divisible.groups() if term in values)
