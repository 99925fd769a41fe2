"""A static check for other programs: Markdown for a pull request, JUnit's XML, annotations for GitHub."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from perfsvc.model import Case, CheckedKernel, CheckVerdict, Status, Verdict
from perfsvc.report.checks import (
    LOCAL_MEMORY,
    MOST_LOCAL_LINES,
    REGISTERS,
    REPORTED,
    CheckLine,
    StaticCheck,
    change_text,
    check_lines,
    local_lines_text,
    local_memory,
    local_share,
    relative_path,
    skipped,
    verdict_text,
)
from perfsvc.report.export.markup import fail, junit_xml
from perfsvc.report.wording import some
from perfsvc.text import cell, code, cut, printed, prose

ERROR, WARNING, NOTICE = "error", "warning", "notice"
LEVELS = {
    Verdict.BROKEN: ERROR,
    Verdict.REGRESSION: ERROR,
    Verdict.INCONCLUSIVE: WARNING,
    Verdict.MISSING: WARNING,
    Verdict.IMPROVEMENT: NOTICE,
}
"""GitHub's word for the severity of each verdict."""


def check_markdown(check: StaticCheck) -> str:
    """Return a static check as a comment on a pull request."""
    first, second = map(prose, check.heading.splitlines())
    parts = [f"### {prose(check.counts)}", "", f"{first}, {second}", ""]
    if lines := check_lines(check.verdicts):
        parts += ["| verdict | variant | architectures | what changed | cause |", "|---|---|---|---|---|"]
        for line in lines:
            architectures, text = check.on(line.architectures), _joined(line.text, line.where)
            cells = (line.verdict.value, code(line.subject), prose(architectures), prose(text), prose(line.cause or ""))
            parts.append(f"| {' | '.join(map(cell, cells))} |")
        parts.append("")
    notes = [
        f"- local memory: {code(name)} ({check.on(archs)}): {prose(text)}" for name, archs, text in local_memory(check)
    ]
    notes += [f"- {prose(str(problem))}" for problem in check.problems]
    notes += [
        f"- {run.status.value}: {code(run.case.id)} on the CPU device: {prose(run.reason)}" for run in check.wrong
    ]
    notes += [
        f"- skipped: {prose(some(variants))} ({check.on(archs)}): {prose(reason)}"
        for reason, variants, archs in skipped(check.checked)
    ]
    return "\n".join([*parts, *notes]).rstrip() + "\n"


def check_junit(check: StaticCheck) -> str:
    """Return a static check as JUnit's XML, with a suite for each architecture and a test for each kernel of a case.

    A last suite holds a failed test for each problem of the suite and each wrong case.
    """
    root = ET.Element("testsuites", name="perfsvc check")
    verdicts = {
        (verdict.checked.case, verdict.checked.architecture, verdict.checked.kernel): verdict
        for verdict in check.verdicts
    }
    for architecture in check.architectures:
        suite = ET.SubElement(root, "testsuite", name=architecture)
        for kernel in check.checked:
            if kernel.architecture == architecture:
                _test(suite, kernel, verdicts.get((kernel.case, architecture, kernel.kernel)), check)
        for verdict in check.verdicts:
            if verdict.verdict is Verdict.MISSING and verdict.checked.architecture == architecture:
                ET.SubElement(_testcase(suite, verdict.checked), "skipped", message=_in_words(verdict))
    failures = [(f"{problem.path}:{problem.line}", str(problem)) for problem in check.problems]
    failures += [(run.case.id, run.reason) for run in check.wrong]
    if failures:
        suite = ET.SubElement(root, "testsuite", name="suite")
        for name, message in failures:
            fail(ET.SubElement(suite, "testcase", classname="perfsvc.suite", name=name), "broken", message)
    return junit_xml(root)


def _testcase(suite: ET.Element, kernel: CheckedKernel) -> ET.Element:
    name = " ".join(filter(None, [kernel.case.id, kernel.kernel]))
    return ET.SubElement(suite, "testcase", classname=f"{kernel.architecture}.{kernel.case.benchmark}", name=name)


def _test(suite: ET.Element, kernel: CheckedKernel, verdict: CheckVerdict | None, check: StaticCheck) -> None:
    """Add the test of a kernel to a suite: failed, skipped, or passed with the reported change as its output.

    Args:
        suite: the suite of the kernel's architecture.
        kernel: the kernel.
        verdict: the kernel's verdict; None if it has none, for example because it was skipped.
        check: the check.
    """
    test = _testcase(suite, kernel)
    if verdict is None:
        if kernel.status is Status.SKIPPED:
            ET.SubElement(test, "skipped", message=kernel.reason)
    elif _severity(verdict.verdict, check) == ERROR:
        fail(test, verdict.verdict.value, _text(verdict))
    elif verdict.verdict in REPORTED:
        ET.SubElement(test, "system-out").text = _in_words(verdict)


def _in_words(verdict: CheckVerdict) -> str:
    return ": ".join(filter(None, [verdict.verdict.value, _text(verdict)]))


def _text(verdict: CheckVerdict) -> str:
    """Return the changes, the reason, and the source lines that access local memory."""
    return _joined(verdict_text(verdict), local_lines_text(verdict.local_lines))


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _severity(verdict: Verdict, check: StaticCheck) -> str:
    """Return GitHub's word for a verdict; in an accepted check every verdict except a broken kernel is a notice."""
    return NOTICE if check.accepted and verdict is not Verdict.BROKEN else LEVELS.get(verdict, NOTICE)


def check_github(check: StaticCheck) -> str:
    """Return a static check as GitHub's workflow commands, at the source lines of kernels and of local memory."""
    return "".join(f"{command}\n" for command in _commands(check))


def _commands(check: StaticCheck) -> Iterator[str]:
    """Yield GitHub's commands: verdicts, lines that access local memory, problems, wrong cases, and the counts."""
    lines = check_lines(check.verdicts)
    for line in lines:
        kernel = line.example.checked
        title = f"{line.verdict.value}: {line.subject} ({check.on(line.architectures)})"
        cause = f"cause: {line.cause}" if line.cause else ""
        message = _joined(line.text, line.where, cause) or line.verdict.value
        location = _location(check, kernel.case, kernel.kernel)
        yield _command(_severity(line.verdict, check), message, **location, title=title)
    yield from _local_commands(lines, check)
    for problem in check.problems:
        path = relative_path(Path(problem.path))
        yield _command("error", problem.what, file=path, line=problem.line, title="broken benchmark")
    for run in check.wrong:
        title = f"{run.status.value} on the CPU device: {run.case.id}"
        yield _command("error", run.reason or run.status.value, **_location(check, run.case, ""), title=title)
    yield _command("notice", check.counts, title="perfsvc check")


def _local_commands(lines: Iterable[CheckLine], check: StaticCheck) -> Iterator[str]:
    """Yield a warning at each source line that a verdict's text names; verdicts with the same line share a warning."""
    messages: dict[tuple[Path, int], list[str]] = {}
    for line in lines:
        kernel = f"{line.subject} ({check.on(line.architectures)})"
        changes = [change_text(change) for change in line.example.changes if change.fact in {*LOCAL_MEMORY, REGISTERS}]
        for local in line.local_lines[:MOST_LOCAL_LINES]:
            share = local_share([local], line.local_lines)
            text = f"{share} of the loads and stores of local memory in {kernel}: {', '.join(changes)}"
            messages.setdefault((local.path, local.line), []).append(text)
    level = NOTICE if check.accepted else WARNING
    for (path, number), texts in messages.items():
        yield _command(level, "\n".join(texts), file=relative_path(path), line=number, title="local memory")


def _location(check: StaticCheck, case: Case, kernel: str) -> dict[str, str | int]:
    """Return ``file`` and ``line`` of a kernel's source, or an empty dictionary if the source is unknown.

    The line is the first in which ``(`` follows the kernel's name; 1 if there is no such line.
    """
    source = check.sources.get((case, kernel)) or check.sources.get((case, ""))
    if source is None or not source.is_file():
        return {}
    text = source.read_text(encoding="utf-8", errors="replace")
    symbol = kernel.rpartition(":")[2]  # if several files have a kernel of this name, it is written file:name
    match = re.search(rf"\b{re.escape(symbol)}\s*\(", text) if symbol else None
    return {"file": relative_path(source), "line": text.count("\n", 0, match.start()) + 1 if match else 1}


def _command(level: str, message: str, **properties: str | int) -> str:
    written = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value)
    return f"::{level} {written}::{_data(message)}"


def _data(text: str) -> str:
    return printed(cut(text)).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
