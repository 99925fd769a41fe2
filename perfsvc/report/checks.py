"""The lines that report a static check: kernels that changed alike share a line."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsvc import units
from perfsvc.errors import SuiteError
from perfsvc.model import (
    Case,
    Cause,
    CheckedKernel,
    CheckVerdict,
    FactChange,
    LocalLine,
    Measurement,
    Occupancy,
    Status,
    Verdict,
)
from perfsvc.report import wording

FACT_WORDS = {
    "spill_bytes": "spills",
    "stack_bytes": "stack",
    "shared_bytes": "shared memory",
    "dynamic_shared_bytes": "dynamic shared memory",
}
"""Facts that are not shown under their own names."""

REPORTED = (Verdict.BROKEN, Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.MISSING, Verdict.IMPROVEMENT)
"""The verdicts that are always reported."""

LOCAL_MEMORY = frozenset({"spill_bytes", "stack_bytes"})
REGISTERS = "registers"
INSTRUCTION_CLASS = " instructions"
"""The end of the name of a fact that counts one class of instructions."""
MOST_LOCAL_LINES = 3
"""Source lines of a kernel that a text names; JSON has all."""
REQUIREMENT_END = ": this device"
"""Separates, in the reason of a skipped kernel, the requirement from what the device has instead."""


@dataclass(frozen=True, slots=True)
class StaticCheck:
    """A static check as reports show it.

    Attributes:
        check: its number in the database; None if it is not stored.
        against: what it was compared with, in words.
        toolkit: the compiler.
        disassembler: the program that counted instructions; empty if none did.
        checked: every kernel of every case, for each architecture.
        verdicts: the worst first.
        sources: the source file of each kernel, by case and kernel.
        problems: errors in selected benchmarks, and why their cases could not run on the CPU device.
        wrong: cases that failed or gave a wrong result on the CPU device.
        accepted: the user's reason for making every result the baseline; empty if the results do not become it.
    """

    check: int | None
    against: str
    toolkit: str
    disassembler: str
    checked: Sequence[CheckedKernel]
    verdicts: Sequence[CheckVerdict]
    sources: Mapping[tuple[Case, str], Path] = field(default_factory=dict)
    problems: Sequence[SuiteError] = ()
    wrong: Sequence[Measurement] = ()
    accepted: str = ""

    @property
    def architectures(self) -> tuple[str, ...]:
        """All architectures, by number."""
        return _architectures(self.checked)

    @property
    def heading(self) -> str:
        """What was checked, with which compiler, and what it was compared with: two lines."""
        number = "" if self.check is None else f"check {self.check}: "
        variants = len({variant_of(kernel.case) for kernel in self.checked})
        what = f"{units.count(variants, 'variant')} for {', '.join(self.architectures)}"
        against = f"against {self.against}" if self.against else "with nothing to compare with yet"
        return f"{number}{what}\nmade by {self.toolkit}, {against}"

    @property
    def counts(self) -> str:
        """``1 regression, 0 improvements, 503 unchanged``."""
        return wording.counts(self.verdicts) + (f"; accepted: {self.accepted}" if self.accepted else "")

    def on(self, architectures: Sequence[str]) -> str:
        """Return a list of the check's architectures as text: ``sm_80, sm_90``, or ``all`` for a complete list."""
        complete = len(architectures) == len(self.architectures) > 1
        return "all" if complete else ", ".join(architectures)


@dataclass(frozen=True, slots=True)
class CheckLine:
    """Equal verdicts on one variant: the same change, or the same reason, for one cause.

    Attributes:
        subject: the variant, its kernel if it has several, and the points concerned unless all points are.
        text: what changed, or why the change is unknown.
        local_lines: the source lines that access local memory, with the instructions of all these verdicts.
        example: one of these verdicts.
    """

    verdict: Verdict
    subject: str
    architectures: tuple[str, ...]
    text: str
    local_lines: tuple[LocalLine, ...]
    cause: Cause | None
    example: CheckVerdict

    @property
    def where(self) -> str:
        """The source lines that access local memory as text; empty if there are none."""
        return local_lines_text(self.local_lines)


def check_lines(verdicts: Iterable[CheckVerdict], reported: Sequence[Verdict] = REPORTED) -> list[CheckLine]:
    """Return a line for each verdict to report; equal verdicts on one variant share a line.

    Args:
        verdicts: all verdicts of a check.
        reported: the kinds of verdict to report.
    """
    every_verdict = list(verdicts)
    texts = [verdict_text(verdict) for verdict in every_verdict]
    subjects = _subjects(every_verdict, texts)
    groups: dict[tuple[Verdict, str, str, Cause | None], list[CheckVerdict]] = {}
    for verdict, text, subject in zip(every_verdict, texts, subjects, strict=True):
        if verdict.verdict in reported:
            groups.setdefault((verdict.verdict, subject, text, verdict.cause), []).append(verdict)
    return [
        CheckLine(
            word,
            subject,
            _architectures(verdict.checked for verdict in group),
            text,
            _together(group),
            cause,
            group[0],
        )
        for (word, subject, text, cause), group in groups.items()
    ]


def verdict_text(verdict: CheckVerdict) -> str:
    """Return the changes and the reason: ``registers 32 → 64, occupancy 100 % → 50 % (registers); reason``.

    Changes in the count of a single class of instructions are left out.
    """
    limiter = limiter_text(verdict.checked.occupancy)
    changes = [
        change_text(change) + (limiter if change.fact == "occupancy" else "")
        for change in verdict.changes
        if not change.fact.endswith(INSTRUCTION_CLASS)
    ]
    return "; ".join(filter(None, [", ".join(changes), verdict.reason]))


def local_lines_text(lines: Sequence[LocalLine]) -> str:
    """Return source lines as text: ``local memory: scale.cu:5 (59 %), scale.cu:12 (41 %)``; empty for no line.

    Args:
        lines: the line with most instructions first.
    """
    shown = [
        f"{relative_path(line.path)}:{line.line} ({local_share([line], lines)})" for line in lines[:MOST_LOCAL_LINES]
    ]
    if more := lines[MOST_LOCAL_LINES:]:
        shown.append(f"{units.count(len(more), 'more line')} ({local_share(more, lines)})")
    return f"local memory: {', '.join(shown)}" if shown else ""


def local_share(lines: Iterable[LocalLine], every_line: Iterable[LocalLine]) -> str:
    """Return the share of some lines in the loads and stores of all lines as text, such as ``59 %``."""
    share = sum(line.instructions for line in lines) / sum(line.instructions for line in every_line)
    return f"{100 * share:.0f} %"


def _together(verdicts: Iterable[CheckVerdict]) -> tuple[LocalLine, ...]:
    """Return the local lines of several verdicts, with the instructions of all, the line with most of them first."""
    counts: Counter[tuple[Path, int]] = Counter()
    for verdict in verdicts:
        counts.update({(line.path, line.line): line.instructions for line in verdict.local_lines})
    return tuple(LocalLine(path, line, number) for (path, line), number in counts.most_common())


def relative_path(path: Path) -> str:
    """Return a path relative to the current folder, which is the repository in a GitHub workflow."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here) if resolved.is_relative_to(here) else path)


def change_text(change: FactChange) -> str:
    """Return a change of a static fact as text, such as ``registers 32 → 64``."""
    word = FACT_WORDS.get(change.fact, change.fact)
    if change.fact == "occupancy":
        return f"{word} {100 * change.before:.0f} % → {100 * change.after:.0f} %"
    unit = " B" if change.fact.endswith("_bytes") else ""
    return f"{word} {change.before:.0f} → {change.after:.0f}{unit}"


def limiter_text(occupancy: Occupancy | None) -> str:
    """Return the resource that limits the occupancy, as `` (registers)``; an empty text at full occupancy."""
    return f" ({occupancy.limiter})" if occupancy and occupancy.share < 1 else ""


def local_memory(check: StaticCheck) -> list[tuple[str, tuple[str, ...], str]]:
    """Return each kernel that uses local memory: its name, its architectures, and how much it uses.

    A kernel whose use changed is not included, because its verdict reports the change.
    """
    names = kernel_names(check.checked)
    changed = {
        _key(verdict.checked)
        for verdict in check.verdicts
        if {change.fact for change in verdict.changes} & LOCAL_MEMORY
    }
    users: dict[tuple[str, str], list[CheckedKernel]] = {}
    for kernel in check.checked:
        if kernel.facts and (kernel.facts.spill_bytes or kernel.facts.stack_bytes) and _key(kernel) not in changed:
            used = {"spills": kernel.facts.spill_bytes, "stack": kernel.facts.stack_bytes}
            text = ", ".join(f"{word} {size} B" for word, size in used.items() if size)
            users.setdefault((names[kernel.case, kernel.kernel], text), []).append(kernel)
    return [(name, _architectures(kernels), text) for (name, text), kernels in users.items()]


def skipped(checked: Iterable[CheckedKernel]) -> list[tuple[str, list[str], tuple[str, ...]]]:
    """Return each reason why kernels were skipped, with their variants and architectures."""
    by_reason: dict[str, list[CheckedKernel]] = {}
    for kernel in checked:
        if kernel.status is Status.SKIPPED:
            by_reason.setdefault(kernel.reason.partition(REQUIREMENT_END)[0], []).append(kernel)
    return [
        (reason, list(dict.fromkeys(variant_of(kernel.case) for kernel in kernels)), _architectures(kernels))
        for reason, kernels in by_reason.items()
    ]


def kernel_names(checked: Iterable[CheckedKernel]) -> dict[tuple[Case, str], str]:
    """Return the name to show for each kernel of each case.

    The name is the variant's, ``transpose/tiled``. If the variant has several kernels, the kernel's own name follows.
    """
    kernels_of: dict[str, set[str]] = {}
    every_kernel = [(kernel.case, kernel.kernel) for kernel in checked]
    for case, kernel in every_kernel:
        kernels_of.setdefault(variant_of(case), set()).update({kernel} - {""})
    names = {}
    for case, kernel in every_kernel:
        variant = variant_of(case)
        has_several = len(kernels_of[variant]) > 1
        names[case, kernel] = f"{variant} {kernel}" if has_several and kernel else variant
    return names


def variant_of(case: Case) -> str:
    """Return the benchmark and variant of a case: ``transpose/tiled``."""
    return f"{case.benchmark}/{case.variant}"


def architecture_number(architecture: str) -> int:
    """Return the number in an architecture's name, by which architectures are sorted: 90 for ``sm_90a``."""
    return int("".join(filter(str.isdigit, architecture)) or 0)


def _architectures(checked: Iterable[CheckedKernel]) -> tuple[str, ...]:
    return tuple(sorted({kernel.architecture for kernel in checked}, key=architecture_number))


def _key(checked: CheckedKernel) -> tuple[Case, str, str]:
    return checked.case, checked.architecture, checked.kernel


def _subjects(verdicts: Sequence[CheckVerdict], texts: Sequence[str]) -> list[str]:
    """Return what each verdict is about: a kernel's name, and in brackets the points that share verdict and text.

    Without brackets, the subject means all points of the kernel.

    Args:
        verdicts: the verdicts of a check, one for each kernel, architecture and point.
        texts: the text of each verdict.
    """
    names = kernel_names(verdict.checked for verdict in verdicts)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, verdict in enumerate(verdicts):
        kernel = verdict.checked
        groups.setdefault((names[kernel.case, kernel.kernel], kernel.architecture), []).append(index)
    subjects = [""] * len(verdicts)
    for (name, _), group in groups.items():
        for index in group:
            points = [
                verdicts[other].checked.case.point_text
                for other in group
                if (verdicts[other].verdict, texts[other]) == (verdicts[index].verdict, texts[index])
            ]
            subjects[index] = name if len(points) == len(group) else f"{name}[{'; '.join(points)}]"
    return subjects
