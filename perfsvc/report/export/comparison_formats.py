"""A comparison of two runs for programs that show it: Markdown for a pull request, JUnit's XML for a CI server."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from xml.etree import ElementTree as ET

from perfsvc import units
from perfsvc.model import Judgement, Verdict
from perfsvc.report.export.markup import cell, code, fail, printable, prose
from perfsvc.report.rows import ComparedRun
from perfsvc.report.tables.layout import counts
from perfsvc.report.wording import named, reason_lines, written

FIRST = (Verdict.REGRESSION, Verdict.BROKEN, Verdict.MISSING, Verdict.IMPROVEMENT)
"""The verdicts that a reviewer should see without a click."""

COLUMNS: Mapping[str, str] = {"change": "--:", "interval": "---", "baseline": "--:", "candidate": "--:"}
"""What a row tells beside verdict, case and cause, and how its column is aligned."""

MOST_ROWS = 80
MOST_REASONS = 30
LONGEST_REASON = 500
"""Characters of a reason, as a compiler may give one. GitHub takes comments of up to 65 536 characters."""

Placed = tuple[int, Judgement]
"""A judgement and its place among all, by which it is named."""


def comparison_markdown(base: ComparedRun | None, new: ComparedRun, judgements: Sequence[Judgement]) -> str:
    """A comparison as a comment on a pull request: what moved first, the rest folded away.

    Args:
        base: the run compared with; None where each series has its own baseline.
        new: the run that is judged.
        judgements: as ``judge.verdicts`` made them.
    """
    names = named(judgements)
    placed = list(enumerate(judgements))
    shown = [one for one in placed if one[1].verdict in FIRST]
    folded = [one for one in placed if one[1].verdict not in FIRST]
    against = prose(base.words) if base else "the baseline of each series"
    parts = [f"### {prose(counts(judgements))}", f"{prose(new.words)}, against {against}"]
    if shown:
        parts.append("\n".join(_table(shown, names)))
    if reasons := "\n".join(_reasons(judgements)):
        parts.append(reasons)
    if folded:
        told = f"<details><summary>{prose(_counts(folded))}</summary>"
        parts += [told, "\n".join(_table(folded, names)), "</details>"]
    return "\n\n".join(parts) + "\n"


def _counts(placed: Sequence[Placed]) -> str:
    """How many there are of each verdict, without those that there are none of."""
    return ", ".join(one for one in counts(judgement for _, judgement in placed).split(", ") if one[:2] != "0 ")


def _table(placed: Sequence[Placed], names: Mapping[int, str]) -> Iterator[str]:
    """Rows of Markdown, in the judge's order."""
    several = len({judgement.series.device for _, judgement in placed}) > 1
    heads = ["verdict", "case", *(["device"] if several else []), *COLUMNS, "cause"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join(COLUMNS.get(head, '---') for head in heads)}|"
    for place, judgement in islice(placed, MOST_ROWS):
        device = [prose(judgement.series.device_model)] if several else []
        told = [written(judgement, column) for column in COLUMNS]
        cells = [_verdict(judgement.verdict), code(names[place]), *device, *told, judgement.cause or ""]
        yield f"| {' | '.join(map(cell, cells))} |"
    if (left := len(placed) - MOST_ROWS) > 0:
        yield f"\n… and {units.count(left, 'more series', 'more series')}"


def _verdict(verdict: Verdict) -> str:
    return f"**{verdict}**" if verdict in FIRST else verdict.value


def _reasons(judgements: Sequence[Judgement]) -> Iterator[str]:
    lines = reason_lines(judgements)
    for line in lines[:MOST_REASONS]:
        text = line.plain
        yield f"- {prose(text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + '…')}"
    if (left := len(lines) - MOST_REASONS) > 0:
        yield f"- … and {units.count(left, 'more reason')}"


def comparison_junit(judgements: Sequence[Judgement]) -> str:
    """A comparison as JUnit's XML: a suite a device, a test a series.

    What regressed by its code's doing or is broken has failed; what is missing was skipped.
    """
    names = named(judgements)
    of_device: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for place, judgement in enumerate(judgements):
        of_device[judgement.series.device_model, judgement.series.device].append((place, judgement))
    root = ET.Element("testsuites", name="perfsvc compare")
    for (model, device), placed in of_device.items():
        suite = ET.SubElement(root, "testsuite", name=printable(f"{model} {device}"))
        for place, judgement in placed:
            _test(suite, judgement, names[place])
        suite.attrib |= {
            "tests": str(len(placed)),
            "failures": str(len(suite.findall("testcase/failure"))),
            "skipped": str(len(suite.findall("testcase/skipped"))),
        }
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _test(suite: ET.Element, judgement: Judgement, name: str) -> None:
    """Adds a series with what there is to say of it."""
    where = f"{judgement.series.device_model}.{judgement.series.case.benchmark}"
    test = ET.SubElement(suite, "testcase", classname=printable(where), name=printable(name))
    blameless = bool(judgement.cause and judgement.cause.blameless)
    match judgement.verdict:
        case Verdict.REGRESSION if not blameless:
            fail(test, judgement.verdict.value, _in_words(judgement))
        case Verdict.BROKEN:
            fail(test, judgement.verdict.value, judgement.reason)
        case Verdict.MISSING:
            ET.SubElement(test, "skipped", message=printable(judgement.reason))
        case _:
            ET.SubElement(test, "system-out").text = printable(_in_words(judgement))


def _in_words(judgement: Judgement) -> str:
    cause = f"cause: {judgement.cause}" if judgement.cause else ""
    facts = (f"{column}: {written(judgement, column)}" for column in COLUMNS)
    return "; ".join(filter(None, [judgement.verdict.value, *facts, cause, judgement.reason]))
