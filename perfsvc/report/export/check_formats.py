"""A static check for other programs: Markdown for a pull request, JUnit's XML."""

from xml.etree import ElementTree as ET

from perfsvc.model import CheckedKernel, CheckVerdict, Status, Verdict
from perfsvc.report.checks import (
    REPORTED,
    StaticCheck,
    check_lines,
    local_lines_text,
    local_memory,
    skipped,
    verdict_text,
)
from perfsvc.report.export.page import fail, junit_xml
from perfsvc.report.review import ERROR, joined, severity
from perfsvc.report.wording import some
from perfsvc.text import cell, code, prose


def check_markdown(check: StaticCheck) -> str:
    """Return a static check as a comment on a pull request."""
    first, second = map(prose, check.heading.splitlines())
    parts = [f"### {prose(check.counts)}", "", f"{first}, {second}", ""]
    if lines := check_lines(check.verdicts):
        parts += ["| verdict | variant | architectures | what changed | cause |", "|---|---|---|---|---|"]
        for line in lines:
            architectures, text = check.on(line.architectures), joined(line.text, line.where)
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
    elif severity(verdict.verdict, check) == ERROR:
        fail(test, verdict.verdict.value, _text(verdict))
    elif verdict.verdict in REPORTED:
        ET.SubElement(test, "system-out").text = _in_words(verdict)


def _in_words(verdict: CheckVerdict) -> str:
    return ": ".join(filter(None, [verdict.verdict.value, _text(verdict)]))


def _text(verdict: CheckVerdict) -> str:
    """Return the changes, the reason, and the source lines that access local memory."""
    return joined(verdict_text(verdict), local_lines_text(verdict.local_lines))
