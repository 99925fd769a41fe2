"""A review as a Code Quality report, which GitLab shows beside the lines of a merge request."""

from collections.abc import Mapping
from typing import Any

from perfsvc.report.review import LOCAL, NOTICE, Review, Severity
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
