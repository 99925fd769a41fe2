"""Where the kernel of a case is in the sources of a revision."""

from pathlib import Path

from perfsvc.model import Call, Launch, Unit
from perfsvc.report.review import SourceLocation, kernel_line
from perfsvc.suite import CaseSpec


def source_location(spec: CaseSpec, root: Path) -> SourceLocation:
    """Return the line that defines the first kernel, or the first function, that a case runs.

    It is line 1 if the name is not found. A program or a library has line 1 of its
    benchmark file.

    Args:
        spec: the case, in a worktree.
        root: the top folder of the worktree; the path is relative to it.
    """
    source, name = _definition(spec)
    resolved, top = source.resolve(), root.resolve()
    if not resolved.is_relative_to(top):  # a header of the system, or a link out of the repository
        return SourceLocation("", 0)
    return SourceLocation(resolved.relative_to(top).as_posix(), kernel_line(resolved, name) if name else 1)


def _definition(spec: CaseSpec) -> tuple[Path, str]:
    """Return the file with the first kernel or function of a case, and its name; no name if it is unknown."""
    for step in spec.steps:
        match step:
            case Launch(module=module, entry=entry):
                return _path(spec, module), entry
            case Call(module=int(module)):
                part = spec.parts[module]
                names = part.entries if isinstance(part, Unit) and not step.package else ()
                return _path(spec, module), next(iter(names), step.function)
            case Call(function=function):
                return spec.bench, function
    return spec.bench, ""


def _path(spec: CaseSpec, module: int) -> Path:
    part = spec.parts[module]
    return part.source if isinstance(part, Unit) else part.path
