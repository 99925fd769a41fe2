"""A review as SARIF 2.1.0 (OASIS), which GitHub's code scanning reads, and as the report that GitLab reads."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from perfsvc import __version__
from perfsvc.report.review import BENCHMARK, LOCAL, NOTICE, Remark, Review, Severity
from perfsvc.text import cut, visible

SEVERITIES: Mapping[Severity, str] = {"error": "critical", "warning": "minor"}
"""GitLab's words for the severities."""
UNKNOWN = "perfsvc.toml"
"""Stands for the file of a result without a known source, because GitLab refuses an entry without a file."""


def review_code_quality(review: Review) -> list[dict[str, Any]]:
    """Return a review as GitLab's Code Quality report: an entry for each error and each warning.

    The lines of local memory have no entry, because the text of their regression names them.
    """
    return [
        {
            "check_name": f"perfsvc {review.command}: {remark.rule}",
            "description": visible(cut(f"{remark.title}: {remark.text}")),
            "fingerprint": remark.fingerprint,
            "severity": SEVERITIES[remark.level],
            "location": {
                "path": remark.location.path if remark.location else UNKNOWN,
                "lines": {"begin": remark.location.line if remark.location else 1},
            },
        }
        for remark in review.remarks
        if remark.level != NOTICE and remark.rule != LOCAL
    ]


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
"""The name of the repository's folder, to which paths are relative."""
RULES: Mapping[str, str] = {
    "regression": "The kernel became slower, or its compiled code became worse.",
    "broken": "The kernel does not compile, cannot be launched, or has no correct result.",
    "missing": "The kernel was there before, and is gone.",
    "inconclusive": "The result is too close or too noisy to tell whether the kernel became worse.",
    "wrong": "The kernel has a wrong result on the CPU device.",
    "failed": "The kernel fails on the CPU device.",
    BENCHMARK: "The benchmark file cannot be used.",
}
"""The rules of the results, and what each means."""
LONGEST = 4_000
"""Characters of a message."""


def review_sarif(review: Review) -> dict[str, Any]:
    """Return a review as SARIF: a result for each regression, and for all else that is an error or a warning.

    An improvement is no result, and neither are the lines of local memory, which the text of their regression names.
    """
    results = [remark for remark in review.remarks if remark.level != NOTICE and remark.rule != LOCAL]
    rules = list(dict.fromkeys(remark.rule for remark in results))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "perfsvc",
                        "semanticVersion": __version__,
                        "rules": [{"id": rule, "shortDescription": {"text": RULES.get(rule, rule)}} for rule in rules],
                    }
                },
                "automationDetails": {"id": f"perfsvc {review.command}/"},
                "columnKind": "unicodeCodePoints",
                "results": [_result(remark, rules.index(remark.rule)) for remark in results],
            }
        ],
    }


def _result(remark: Remark, rule: int) -> dict[str, Any]:
    located: dict[str, Any] = {}
    if location := remark.location:
        physical = {
            "artifactLocation": {"uri": quote(location.path, errors="replace"), "uriBaseId": ROOT},
            "region": {"startLine": location.line},
        }
        located = {"locations": [{"physicalLocation": physical}]}
    return {
        "ruleId": remark.rule,
        "ruleIndex": rule,
        "level": remark.level,
        "message": {"text": _message(f"{remark.title}: {remark.text}")},
        "partialFingerprints": {"perfsvc/v1": remark.fingerprint},
        **located,
    }


def _message(text: str) -> str:
    """Return a text as the text of a SARIF message, in which no placeholder (3.11.5) and no link (3.11.6) is live."""
    return visible(cut(text, LONGEST)).replace("{", "{{").replace("}", "}}").replace("](", "] (")
