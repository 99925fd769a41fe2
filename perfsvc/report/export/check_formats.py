"""A static check for programs: JSON, Markdown for a pull request, JUnit for a CI server, annotations for GitHub."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from perfsvc.errors import UsageError
from perfsvc.model import Case, CheckedKernel, CheckVerdict, Status, Verdict
from perfsvc.report.checks import SHOWN, CheckShown, lines, remarkable, skipped, text_of
from perfsvc.report.export.markup import cell, fail, printable, prose
from perfsvc.report.export.objects import plain
from perfsvc.report.tables.check import counts_of, heading, on
from perfsvc.report.tables.layout import some

ERROR, NOTICE = "error", "notice"
LEVELS = {
    Verdict.BROKEN: ERROR,
    Verdict.REGRESSION: ERROR,
    Verdict.INCONCLUSIVE: "warning",
    Verdict.MISSING: "warning",
    Verdict.IMPROVEMENT: NOTICE,
}
"""GitHub's words for how bad something is."""


def write(text: str, destination: Path) -> None:
    """Writes what one of these made to a file; raises ``UsageError`` where it cannot be written."""
    try:
        destination.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{destination} cannot be written: {error.strerror or error}", cure="name a file in a folder that is there"
        ) from error


def check_json(shown: CheckShown) -> dict[str, Any]:
    """A static check for ``--format json``: every verdict with the facts it rests on, and what was skipped."""
    return {
        "check": shown.check,
        "against": shown.against,
        "toolkit": shown.toolkit,
        "disassembler": shown.disassembler,
        "accepted": shown.accepted,
        "counts": dict(Counter(one.verdict.value for one in shown.verdicts)),
        "verdicts": [_verdict_json(one) for one in shown.verdicts],
        "skipped": [
            {"case": one.case.id, "architecture": one.architecture, "reason": one.reason}
            for one in shown.checked
            if one.status is Status.SKIPPED
        ],
        "problems": [
            {"path": problem.path, "line": problem.line, "what": problem.what, "cure": problem.cure}
            for problem in shown.problems
        ],
        "wrong": [
            {"case": one.case.id, "status": one.status.value, "reason": one.reason, "cure": one.cure}
            for one in shown.wrong
        ],
    }


def _verdict_json(one: CheckVerdict) -> dict[str, Any]:
    return {
        "case": one.checked.case.id,
        "architecture": one.checked.architecture,
        "kernel": one.checked.kernel,
        "verdict": one.verdict.value,
        "cause": one.cause and one.cause.value,
        "reason": one.reason,
        "changes": [plain(change) for change in one.changes],
        "baseline_check": one.baseline_check,
        "baseline": _facts_json(one.baseline),
        "found": None if one.verdict is Verdict.MISSING else _facts_json(one.checked),
    }


def _facts_json(checked: CheckedKernel | None) -> dict[str, Any] | None:
    if checked is None or checked.facts is None:
        return None
    facts, occupancy = checked.facts, checked.occupancy
    instructions = None if facts.instructions is None else dict(facts.instructions)
    return {
        **plain(facts),
        "instructions": instructions,
        "threads": checked.threads,
        "dynamic_shared_bytes": checked.dynamic_shared_bytes,
        "occupancy": occupancy and occupancy.share,
        "limiter": occupancy and occupancy.limiter.value,
    }


def check_markdown(shown: CheckShown) -> str:
    """A static check as a comment on a pull request."""
    first, second = map(prose, heading(shown).splitlines())
    parts = [f"### {prose(counts_of(shown))}", "", f"{first}, {second}", ""]
    if found := lines(shown.verdicts):
        parts += ["| verdict | variant | architectures | what changed | cause |", "|---|---|---|---|---|"]
        for line in found:
            where, what = on(line.architectures, shown), prose(line.text)
            cells = (line.verdict.value, f"`{line.what}`", where, what, line.cause or "")
            parts.append(f"| {' | '.join(map(cell, cells))} |")
        parts.append("")
    notes = [f"- local memory: `{what}` ({on(archs, shown)}): {text}" for what, archs, text in remarkable(shown)]
    notes += [f"- {prose(str(problem))}" for problem in shown.problems]
    notes += [f"- {one.status.value}: `{one.case.id}` on the CPU device: {prose(one.reason)}" for one in shown.wrong]
    notes += [
        f"- skipped: {some(which)} ({on(archs, shown)}): {prose(why)}" for why, which, archs in skipped(shown.checked)
    ]
    return "\n".join([*parts, *notes]).rstrip() + "\n"


def check_junit(shown: CheckShown) -> str:
    """A static check as JUnit's XML: a suite an architecture, a test a kernel of a case."""
    root = ET.Element("testsuites", name="perfsvc check")
    judged = {(one.checked.case, one.checked.architecture, one.checked.kernel): one for one in shown.verdicts}
    for architecture in shown.architectures:
        tests = [one for one in shown.checked if one.architecture == architecture]
        gone = [
            one for one in shown.verdicts if one.verdict is Verdict.MISSING and one.checked.architecture == architecture
        ]
        suite = ET.SubElement(root, "testsuite", name=architecture)
        failures = [_test(suite, one, judged.get((one.case, architecture, one.kernel)), shown) for one in tests]
        for one in gone:
            ET.SubElement(_testcase(suite, one.checked), "skipped", message=printable(_told(one)))
        suite.attrib |= {
            "tests": str(len(tests) + len(gone)),
            "failures": str(sum(failures)),
            "skipped": str(len(gone) + sum(one.status is Status.SKIPPED for one in tests)),
        }
    beside = [(f"{problem.path}:{problem.line}", str(problem)) for problem in shown.problems]
    beside += [(one.case.id, one.reason) for one in shown.wrong]
    if beside:
        suite = ET.SubElement(root, "testsuite", name="suite", tests=str(len(beside)), failures=str(len(beside)))
        for name, message in beside:
            fail(ET.SubElement(suite, "testcase", classname="perfsvc.suite", name=name), "broken", message)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _testcase(suite: ET.Element, checked: CheckedKernel) -> ET.Element:
    name = " ".join(filter(None, [checked.case.id, checked.kernel]))
    return ET.SubElement(suite, "testcase", classname=f"{checked.architecture}.{checked.case.benchmark}", name=name)


def _test(suite: ET.Element, checked: CheckedKernel, verdict: CheckVerdict | None, shown: CheckShown) -> bool:
    """Adds a kernel with what there is to say of it; returns whether it failed."""
    test = _testcase(suite, checked)
    if verdict is None:
        if checked.status is Status.SKIPPED:
            ET.SubElement(test, "skipped", message=printable(checked.reason))
        return False
    failed = _level(verdict.verdict, shown) == ERROR
    if failed:
        fail(test, verdict.verdict.value, text_of(verdict))
    elif verdict.verdict in SHOWN:
        ET.SubElement(test, "system-out").text = printable(_told(verdict))
    return failed


def _told(verdict: CheckVerdict) -> str:
    return ": ".join(filter(None, [verdict.verdict.value, text_of(verdict)]))


def _level(verdict: Verdict, shown: CheckShown) -> str:
    """How bad a verdict is, in GitHub's words; what somebody accepted is only told."""
    return NOTICE if shown.accepted and verdict is not Verdict.BROKEN else LEVELS.get(verdict, NOTICE)


def check_github(shown: CheckShown) -> str:
    """A static check as GitHub's workflow commands, each at the kernel that it is about."""
    return "".join(f"{command}\n" for command in _commands(shown))


def _commands(shown: CheckShown) -> Iterator[str]:
    for line in lines(shown.verdicts, SHOWN):
        checked = line.example.checked
        title = f"{line.verdict.value}: {line.what} ({on(line.architectures, shown)})"
        cause = f"cause: {line.cause}" if line.cause else ""
        message = "; ".join(filter(None, [line.text, cause])) or line.verdict.value
        yield _command(_level(line.verdict, shown), message, **_place(shown, checked.case, checked.kernel), title=title)
    for problem in shown.problems:
        yield _command(
            "error", problem.what, file=_named(Path(problem.path)), line=problem.line, title="broken benchmark"
        )
    for one in shown.wrong:
        title = f"{one.status.value} on the CPU device: {one.case.id}"
        yield _command("error", one.reason or one.status.value, **_place(shown, one.case, ""), title=title)
    yield _command("notice", counts_of(shown), title="perfsvc check")


def _place(shown: CheckShown, case: Case, kernel: str) -> dict[str, str | int]:
    """The file and line of a kernel, where its source is known."""
    source = shown.sources.get((case, kernel)) or shown.sources.get((case, ""))
    if source is None or not source.is_file():
        return {}
    text = source.read_text(encoding="utf-8", errors="replace")
    symbol = kernel.rpartition(":")[2]  # without the file that tells it from another one of the same name
    found = re.search(rf"\b{re.escape(symbol)}\s*\(", text) if symbol else None
    return {"file": _named(source), "line": text.count("\n", 0, found.start()) + 1 if found else 1}


def _named(path: Path) -> str:
    """A file as the repository knows it, which is where a workflow runs."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here) if resolved.is_relative_to(here) else path)


def _command(level: str, message: str, **properties: str | int) -> str:
    written = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value)
    return f"::{level} {written}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
