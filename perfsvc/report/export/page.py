"""The HTML report of runs: one file with its style inside, made from ``dashboards/report.html.j2``."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd

from perfsvc import units
from perfsvc.model import AUXILIARY, CacheState, Cause, Status, Verdict
from perfsvc.report import peaks, wording
from perfsvc.report.export.frames import details
from perfsvc.report.pages.render import template
from perfsvc.report.tables.run import CPU_NOTE
from perfsvc.text import cut, visible, xml_text


def fail(test: ET.Element, kind: str, message: str) -> None:
    """Mark a test of JUnit's XML as failed, with the message; the message's first line becomes the summary."""
    failure = ET.SubElement(test, "failure", type=kind, message=message.partition("\n")[0])
    failure.text = message


def junit_xml(root: ET.Element) -> str:
    """Return suites of tests as JUnit's XML, each suite with the numbers of its tests, failures and skipped tests."""
    for suite in root:
        suite.attrib |= {
            "tests": str(len(suite)),
            "failures": str(len(suite.findall("testcase/failure"))),
            "skipped": str(len(suite.findall("testcase/skipped"))),
        }
    for element in root.iter():
        element.attrib |= {name: xml_text(cut(value)) for name, value in element.attrib.items()}
        element.text = xml_text(cut(element.text)) if element.text else element.text
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


BAD = frozenset({Status.FAILED.value, Status.WRONG.value})

ABSENT = {"verdict": "", "cause": None, "ratio": None, "relative_to": "", "relative_speed": None, "excluded": ""}
"""The values of columns that only some summaries have."""


def page(summary: pd.DataFrame) -> str:
    """Return the report as one self-contained HTML file, the latest run first.

    Args:
        summary: a row for each run, case, device and cache state (``frames.summary``).
    """
    groups = summary.sort_values("run", ascending=False, kind="stable").groupby(["run", "device"], sort=False)
    rendered: str = template("report.html.j2").render(
        parts=[_part(rows) for _, rows in groups],
        wording=wording,
        peaks=peaks,
        units=units,
        cpu_note=CPU_NOTE,
    )
    return visible(rendered)


def _part(rows: pd.DataFrame) -> dict[str, Any]:
    """Return what the template shows of one run on one device: facts of the run, and the cases by benchmark.

    ``bar`` is the length of a case's bar: its median over the slowest median at the same point.

    Args:
        rows: the rows of the summary for this run and device.
    """
    slowest = rows.groupby(["benchmark", "point", "cache"])["median_s"].transform("max")
    records = rows.assign(bar=rows["median_s"] / slowest).to_dict("records")
    keys = [(record["device"], record["case"], CacheState(record["cache"])) for record in records]
    caches = wording.cache_words(keys)
    lines = [_line(record, caches[key]) for record, key in zip(records, keys, strict=True)]
    return {
        "run": lines[0],
        "judged": any(line["verdict"] for line in lines),
        "failures": sum(line["status"] in BAD for line in lines),
        "benchmarks": {
            name: [line for line in lines if line["benchmark"] == name]
            for name in dict.fromkeys(line["benchmark"] for line in lines)
        },
    }


def _line(record: dict[Any, Any], cache: str) -> dict[str, Any]:
    """Return what the template shows of a case: its row of the summary with added texts.

    ``name`` is the variant with its cache state, ``metrics`` are the metrics that the case itself returned, and
    ``details`` are the values without a column on the page. An unknown value is None.

    Args:
        record: the row of the summary.
        cache: the word for the cache state; empty if the page need not show it.
    """
    case_details = details(record)
    own = {name: value for name, value in case_details.metrics.items() if name not in AUXILIARY}
    auxiliary = {name: value for name, value in case_details.metrics.items() if name in AUXILIARY}
    without_columns = replace(
        case_details, metrics=auxiliary, bandwidth_bytes_per_s=None, peak="", peak_share=None, relative_speed=None
    )
    values = ABSENT | {str(name): None if pd.isna(value) else value for name, value in record.items()}
    verdict, cause = values["verdict"], values["cause"]
    return {
        **values,
        "verdict": wording.outcome_of(Verdict(verdict), Cause(cause) if cause else None) if verdict else "",
        "moved": verdict in wording.CHANGED,
        "name": f"{record['variant']} {cache}".rstrip(),
        "metrics": [(name, wording.metric_value(name, value)) for name, value in sorted(own.items())],
        "details": wording.details(without_columns),
    }
