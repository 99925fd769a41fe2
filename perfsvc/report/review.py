"""What a pull request shows of a check or a comparison: the counts, and a remark for each result to look at.

Every format for pull requests is made from a review: annotations, comments, SARIF and GitLab's Code Quality.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from perfsvc.errors import SuiteError
from perfsvc.model import Case, Judgement, Series, Verdict
from perfsvc.report import wording
from perfsvc.report.checks import (
    LOCAL_MEMORY,
    MOST_LOCAL_LINES,
    REGISTERS,
    CheckLine,
    StaticCheck,
    change_text,
    check_lines,
    local_memory,
    local_share,
    relative_path,
    skipped,
)
from perfsvc.report.rows import ComparedRun

Severity = Literal["error", "warning", "notice"]
ERROR: Severity = "error"
WARNING: Severity = "warning"
NOTICE: Severity = "notice"

CHECK_LEVELS: Mapping[Verdict, Severity] = {
    Verdict.BROKEN: ERROR,
    Verdict.REGRESSION: ERROR,
    Verdict.INCONCLUSIVE: WARNING,
    Verdict.MISSING: WARNING,
    Verdict.IMPROVEMENT: NOTICE,
}
"""The severity of each verdict of a check."""

COMPARISON_LEVELS: Mapping[wording.Outcome, Severity] = dict([*CHECK_LEVELS.items(), (Verdict.MISSING, ERROR)])
"""The severity of each outcome of a comparison; all others need no remark."""

LOCAL, BENCHMARK = "local-memory", "broken-benchmark"
"""Rules that are no verdict: a line that needs local memory, and a benchmark file that cannot be used."""

FINGERPRINT_DIGITS = 32


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a source file; ``path`` is relative to the repository, and ``line`` counts from 1."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Remark:
    """A result that a reviewer should look at.

    Attributes:
        rule: the kind of result, such as ``regression`` or ``local-memory``.
        title: the kind and the subject on one line.
        subject: the case or the variant; for a benchmark that cannot be used, its file.
        text: what happened, in words.
        path: the source file, relative to the repository; empty if it is unknown.
        line: the line in this file, from 1; 0 if no line is known.
        fingerprint: equal for the same result of another commit, and unique in a review.
    """

    rule: str
    level: Severity
    title: str
    subject: str
    text: str
    path: str = ""
    line: int = 0
    fingerprint: str = ""

    @property
    def location(self) -> SourceLocation | None:
        """The line of a file in the repository, 1 if none is known; None if the file is unknown or lies outside."""
        path = PurePosixPath(self.path)
        if not self.path or path.is_absolute() or ".." in path.parts:
            return None
        return SourceLocation(self.path, max(self.line, 1))


@dataclass(frozen=True, slots=True)
class Review:
    """A check or a comparison as a pull request shows it.

    Attributes:
        command: ``check`` or ``compare``.
        passed: whether the command exits with 0.
        counts: ``1 regression, 0 improvements, 8 unchanged``.
        about: what was compared with what.
        remarks: the worst first.
        notes: what else a reviewer should know, such as the cases that were over budget.
    """

    command: str
    passed: bool
    counts: str
    about: str
    remarks: tuple[Remark, ...] = ()
    notes: tuple[str, ...] = ()


def kernel_line(source: Path, kernel: str) -> int:
    """Return the first line of a source in which ``(`` follows the kernel's name; 1 if there is no such line.

    In a Python file, ``def`` must be in front of the name.

    Args:
        source: the file.
        kernel: the name of a kernel or function. Its file before it (``scale.cu:scale``), and template arguments or a
            configuration after it, do not count.
    """
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 1
    name = re.split(r"[<\s]", kernel, maxsplit=1)[0].rpartition(":")[2]
    before = r"\bdef\s+" if source.suffix == ".py" else r"\b"
    match = re.search(rf"{before}{re.escape(name)}\s*\(", text) if name else None
    return text.count("\n", 0, match.start()) + 1 if match else 1


# --- a check ---------------------------------------------------------------------------------------------------------


def check_review(check: StaticCheck, *, passed: bool) -> Review:
    """Return the review of a static check; ``passed`` is whether the command exits with 0."""
    notes = [
        *(f"local memory: {name} ({check.on(archs)}): {text}" for name, archs, text in local_memory(check)),
        *(
            f"skipped: {wording.some(variants)} ({check.on(archs)}): {reason}"
            for reason, variants, archs in skipped(check.checked)
        ),
    ]
    return Review(
        "check",
        passed,
        check.counts,
        ", ".join(check.heading.splitlines()),
        tuple(check_remarks(check)),
        tuple(notes),
    )


def check_remarks(check: StaticCheck) -> list[Remark]:
    """Return the remarks on a static check.

    They are, in this order: verdicts, lines that access local memory, problems of the suite, and wrong cases.
    """
    lines = check_lines(check.verdicts)
    remarks = [_of_line(line, check) for line in lines]
    remarks += _of_local_lines(lines, check)
    remarks += _of_problems(check.problems)
    for run in check.wrong:
        status = run.status.value
        title = f"{status} on the CPU device: {run.case.id}"
        path, line = _location(check, run.case, "")
        remarks.append(Remark(status, ERROR, title, run.case.id, run.reason or status, path, line))
    return with_fingerprints(remarks)


def severity(verdict: Verdict, check: StaticCheck) -> Severity:
    """Return the severity of a verdict; in an accepted check every verdict except a broken kernel is a notice."""
    return NOTICE if check.accepted and verdict is not Verdict.BROKEN else CHECK_LEVELS.get(verdict, NOTICE)


def joined(*texts: str) -> str:
    """Return the texts that are not empty, with a semicolon between them."""
    return "; ".join(filter(None, texts))


def _of_line(line: CheckLine, check: StaticCheck) -> Remark:
    kernel = line.example.checked
    cause = f"cause: {line.cause}" if line.cause else ""
    text = joined(line.text, line.where, cause) or line.verdict.value
    level = severity(line.verdict, check)
    title = f"{line.verdict.value}: {line.subject} ({check.on(line.architectures)})"
    return Remark(line.verdict.value, level, title, line.subject, text, *_location(check, kernel.case, kernel.kernel))


def _of_local_lines(lines: Iterable[CheckLine], check: StaticCheck) -> Iterator[Remark]:
    """Yield a warning at each source line that a verdict's text names; verdicts with the same line share a warning."""
    texts: dict[tuple[Path, int], list[str]] = {}
    for line in lines:
        kernel = f"{line.subject} ({check.on(line.architectures)})"
        changes = [change_text(change) for change in line.example.changes if change.fact in {*LOCAL_MEMORY, REGISTERS}]
        for local in line.local_lines[:MOST_LOCAL_LINES]:
            share = local_share([local], line.local_lines)
            text = f"{share} of the loads and stores of local memory in {kernel}: {', '.join(changes)}"
            texts.setdefault((local.path, local.line), []).append(text)
    level = NOTICE if check.accepted else WARNING
    for (path, number), of_line in texts.items():
        where = relative_path(path)
        yield Remark(LOCAL, level, "local memory", f"{where}:{number}", "\n".join(of_line), where, number)


def _of_problems(problems: Iterable[SuiteError]) -> Iterator[Remark]:
    for problem in problems:
        path = relative_path(Path(problem.path))
        yield Remark(BENCHMARK, ERROR, "broken benchmark", path, problem.what, path, problem.line)


def _location(check: StaticCheck, case: Case, kernel: str) -> tuple[str, int]:
    """Return file and line of a kernel's source; an empty text and 0 if the source is unknown."""
    source = check.sources.get((case, kernel)) or check.sources.get((case, ""))
    if source is None or not source.is_file():
        return "", 0
    return relative_path(source), kernel_line(source, kernel)


# --- a comparison ----------------------------------------------------------------------------------------------------


def comparison_review(
    base: ComparedRun | None,
    new: ComparedRun,
    judgements: Sequence[Judgement],
    over_budget: Sequence[Series] = (),
    *,
    passed: bool,
    locations: Mapping[Series, SourceLocation] | None = None,
    problems: Iterable[SuiteError] = (),
    notes: Iterable[str] = (),
) -> Review:
    """Return the review of a comparison.

    Args:
        base: what was compared with; None if each series has its own baseline.
        new: what was judged.
        judgements: the verdict on each series, the most urgent first.
        over_budget: the series that were not measured because the budget was used up.
        passed: whether the command exits with 0.
        locations: the source of each series, if it is known.
        problems: the benchmark files that cannot be used.
        notes: further sentences.
    """
    known = locations or {}
    names = wording.names_on_devices([judgement.series for judgement in judgements])
    remarks = list(_of_problems(problems))
    for name, judgement in zip(names, judgements, strict=True):
        word = wording.outcome(judgement)
        if word in COMPARISON_LEVELS:
            where = known.get(judgement.series, SourceLocation("", 0))
            text = wording.predicate(judgement)
            level = COMPARISON_LEVELS[word]
            remarks.append(Remark(word.value, level, f"{word.value}: {name}", name, text, where.path, where.line))
    missing = wording.missing_sentences(new.name, judgements, over_budget)
    against = base.description if base else "the baseline of each series"
    return Review(
        "compare",
        passed,
        wording.counts(judgements),
        f"{new.description}, against {against}",
        tuple(with_fingerprints(remarks)),
        (*missing, *filter(None, notes)),
    )


def with_fingerprints(remarks: Iterable[Remark]) -> list[Remark]:
    """Return remarks with a fingerprint each, of rule and subject; equal ones are numbered in their order."""
    counts: Counter[str] = Counter()
    marked = []
    for remark in remarks:
        key = f"{remark.rule}\n{remark.subject}"
        counts[key] += 1
        digest = hashlib.sha256(f"{key}\n{counts[key]}".encode(errors="backslashreplace")).hexdigest()
        marked.append(replace(remark, fingerprint=digest[:FINGERPRINT_DIGITS]))
    return marked
