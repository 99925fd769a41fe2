"""A comparison of two runs for other programs: Markdown for a pull request, JUnit's XML for a CI server, and CSV."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from xml.etree import ElementTree as ET

from perfsvc import units
from perfsvc.model import Judgement, Series, Verdict
from perfsvc.report import wording
from perfsvc.report.export.page import fail, junit_xml
from perfsvc.report.rows import FIRST, ComparedRun, EnvironmentDifferences, difference_lines, heading
from perfsvc.text import cell, code, prose, spreadsheet_cell

COLUMNS: Mapping[str, str] = {"change": "--:", "interval": "---", "baseline": "--:", "candidate": "--:"}
"""The columns beside verdict, case and cause, and their alignment."""

MOST_ROWS = 80
MOST_REASONS = 30
LONGEST_REASON = 500
"""Characters; a compiler's message may be longer. GitHub takes comments of up to 65 536 characters."""

CSV_COLUMNS = (
    "verdict",
    "cause",
    "case",
    "benchmark",
    "variant",
    "point",
    "device",
    "device_model",
    "metric",
    "cache",
    "baseline_s",
    "candidate_s",
    "ratio",
    "low",
    "high",
    "threshold",
    "smallest",
    "baseline_run",
    "baseline_runs",
    "candidate_run",
    "baseline_replicas",
    "candidate_replicas",
    "reason",
)

Named = tuple[str, Judgement]
"""The name of a series, as a list of all series shows it, and its judgement."""


def comparison_markdown(
    base: ComparedRun | None,
    new: ComparedRun,
    judgements: Sequence[Judgement],
    over_budget: Sequence[Series] = (),
    commands: Sequence[str] = (),
    *,
    environment: EnvironmentDifferences | None = None,
) -> str:
    """Return a comparison as Markdown for a pull request: changed series first, all other series folded away.

    Args:
        base: the run compared with; None if each series has its own baseline.
        new: the run that is judged.
        judgements: the verdict on each series, the most urgent first.
        over_budget: the series that the new run did not measure because its budget was used up.
        commands: the commands that measure unconfirmed changes again.
        environment: in what the environments of both runs differ; None if that is unknown.
    """
    every_judgement = _named(judgements)
    first = [named for named in every_judgement if wording.outcome(named[1]) in FIRST]
    folded = [named for named in every_judgement if wording.outcome(named[1]) not in FIRST]
    against = prose(base.description) if base else "the baseline of each series"
    parts = [f"### {prose(wording.counts(judgements))}", f"{prose(new.description)}, against {against}"]
    if environment and environment.differences:
        lines = (f"- {prose(line)}" for line in difference_lines(environment))
        parts += [f"<details><summary>{heading(environment)}</summary>", "\n".join(lines), "</details>"]
    if first:
        parts.append("\n".join(_table(first)))
    if reasons := "\n".join(_reasons(judgements)):
        parts.append(reasons)
    parts += map(prose, wording.missing_sentences(new.name, judgements, over_budget))
    if commands:
        parts += [wording.HOW_TO_CONFIRM, "\n".join(_commands(commands))]
    if folded:
        counts = wording.counts(judgement for _, judgement in folded).split(", ")
        occurring = ", ".join(count for count in counts if not count.startswith("0 "))
        parts += [f"<details><summary>{prose(occurring)}</summary>", "\n".join(_table(folded)), "</details>"]
    return "\n\n".join(parts) + "\n"


def _named(judgements: Sequence[Judgement]) -> list[Named]:
    return list(zip(wording.series_names([judgement.series for judgement in judgements]), judgements, strict=True))


def _table(rows: Sequence[Named]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each series, at most ``MOST_ROWS``."""
    several_devices = len({judgement.series.device for _, judgement in rows}) > 1
    heads = ["verdict", "case", *(["device"] if several_devices else []), *COLUMNS, "cause"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join(COLUMNS.get(head, '---') for head in heads)}|"
    for name, judgement in islice(rows, MOST_ROWS):
        word = wording.outcome(judgement)
        verdict = f"**{word}**" if word in FIRST else wording.verdict_words(judgement, cause=False).plain
        device = [prose(judgement.series.device_model)] if several_devices else []
        values = [wording.comparison_value(judgement, column) for column in COLUMNS]
        yield f"| {' | '.join(map(cell, [verdict, code(name), *device, *values, judgement.cause or '']))} |"
    if (omitted := len(rows) - MOST_ROWS) > 0:
        yield f"\n… and {units.count(omitted, 'more series', 'more series')}"


def _reasons(judgements: Sequence[Judgement]) -> Iterator[str]:
    """Yield a Markdown list of the reasons of the verdicts, shortened to ``MOST_REASONS`` reasons."""
    lines = wording.verdict_lines(judgements, figures=False)
    for line in lines[:MOST_REASONS]:
        text = line.plain
        yield f"- {prose(text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + '…')}"
    if (omitted := len(lines) - MOST_REASONS) > 0:
        yield f"- … and {units.count(omitted, 'more reason')}"


def _commands(commands: Sequence[str]) -> Iterator[str]:
    """Yield a Markdown list of commands, shortened to ``wording.MOST_COMMANDS`` commands."""
    for command in commands[: wording.MOST_COMMANDS]:
        yield f"- {code(command)}"
    if (omitted := len(commands) - wording.MOST_COMMANDS) > 0:
        yield f"- … and {units.count(omitted, 'more command')}"


def comparison_junit(judgements: Sequence[Judgement]) -> str:
    """Return a comparison as JUnit's XML: a suite for each device, a test for each series, the counts in the name.

    A test fails if its series is broken, missing, or regressed with the code as a possible cause.
    """
    by_device: dict[tuple[str, str], list[Named]] = defaultdict(list)
    for name, judgement in _named(judgements):
        by_device[judgement.series.device_model, judgement.series.device].append((name, judgement))
    root = ET.Element("testsuites", name=f"perfsvc compare: {wording.counts(judgements)}")
    for (model, device), rows in by_device.items():
        suite = ET.SubElement(root, "testsuite", name=f"{model} {device}")
        for name, judgement in rows:
            _test(suite, judgement, name)
    return junit_xml(root)


def _test(suite: ET.Element, judgement: Judgement, name: str) -> None:
    """Add the test of a series to its device's suite."""
    classname = f"{judgement.series.device_model}.{judgement.series.case.benchmark}"
    test = ET.SubElement(suite, "testcase", classname=classname, name=name)
    match judgement.verdict:
        case Verdict.REGRESSION if not (judgement.cause and judgement.cause.blameless):
            fail(test, judgement.verdict.value, wording.verdict_sentence(judgement))
        case Verdict.BROKEN | Verdict.MISSING:
            fail(test, judgement.verdict.value, judgement.reason)
        case _:
            ET.SubElement(test, "system-out").text = wording.verdict_sentence(judgement)


def comparison_csv(judgements: Sequence[Judgement], thresholds: Mapping[Series, float]) -> str:
    """Return a comparison as CSV, a row for each series, without rounding.

    Times and levels are in seconds, or in the metric's own unit. Unknown values are empty. A text that a spreadsheet
    would take for a formula has an apostrophe before it.

    Args:
        judgements: the verdict on each series.
        thresholds: the smallest relevant change of each series, as a fraction.
    """
    file = StringIO()
    writer = csv.DictWriter(file, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for judgement in judgements:
        series = judgement.series
        own = {
            "verdict": wording.outcome(judgement).value,
            "case": series.case.id,
            "benchmark": series.case.benchmark,
            "variant": series.case.variant,
            "point": series.case.point_text,
            "device": series.device,
            "device_model": series.device_model,
            "metric": series.metric,
            "cache": series.cache.value,
            "threshold": thresholds.get(series),
        }
        rest = {name: getattr(judgement, name) for name in CSV_COLUMNS if name not in own}
        values = {name: "" if value is None else value for name, value in (own | rest).items()}
        writer.writerow(
            {name: spreadsheet_cell(value) if isinstance(value, str) else value for name, value in values.items()}
        )
    return file.getvalue()
