"""Rows as plain values for JSON: numbers, text, lists and objects."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any

from perfsvc.model import Case, CaseExplanation, Finding, FindingEvent, Judgement, ProfileResult
from perfsvc.report.rows import ComparedRun, Doubt, MetricRow, ResultRow, Shown


def plain(value: Any) -> Any:
    """A row, or anything in one, as what JSON knows.

    Dataclasses and mappings become objects, enums their values, timestamps ISO 8601 in UTC; a number that is not finite
    becomes null, since JSON has no other word for it.
    """
    if is_dataclass(value):
        return OBJECTS.get(type(value), _fields)(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, str | Enum | Path | datetime):
        return _text(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    return [plain(item) for item in value] if isinstance(value, Iterable) else value


def run_json(shown: Shown) -> dict[str, Any]:
    """A run for ``--format json``: its number, an object a case, cache state and device, and all that is to be known of it."""
    return {
        "run": shown.run,
        "results": [plain(row) for row in shown.rows],
        "peaks": [{"device": device, **plain(peak)} for device, peak in shown.peaks.items()],
        "over_budget": [
            {**_case(one.case), "device": one.device, "cache": plain(one.cache), "reason": one.reason}
            for one in shown.over_budget
        ],
        "doubts": [plain(doubt) for doubt in shown.doubts],
        "problems": [
            {"path": problem.path, "line": problem.line, "what": problem.what, "cure": problem.cure}
            for problem in shown.problems
        ],
    }


def comparison_json(base: ComparedRun | None, new: ComparedRun, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """A comparison for ``--format json``; ``base`` is null where each series has its own baseline."""
    return {
        "base": base and base.run,
        "new": new.run,
        "base_run": plain(base),
        "new_run": plain(new),
        "counts": dict(Counter(judgement.verdict.value for judgement in judgements)),
        "verdicts": [plain(judgement) for judgement in judgements],
    }


def _text(value: str | Enum | Path | datetime) -> Any:
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


def _result(row: ResultRow | MetricRow) -> dict[str, Any]:
    judged = row.judgement
    return {
        **(_case(row.case) if isinstance(row, ResultRow) else {}),
        **{name: value for name, value in _fields(row).items() if name not in {"case", "judgement"}},
        "verdict": plain(judged and judged.verdict),
        "verdict_reason": plain(judged and judged.reason),
        "ratio": plain(judged and judged.ratio),
        "ratio_low": plain(judged and judged.low),
        "ratio_high": plain(judged and judged.high),
        "baseline_run": judged and judged.baseline_run,
        "smallest": plain(judged and judged.smallest),
        "baseline_replicas": judged and judged.baseline_replicas,
        "cause": plain(judged and judged.cause),
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "case": case.id,
        "benchmark": case.benchmark,
        "variant": case.variant,
        "point": plain(dict(case.point)),
    }


def _of_case(row: Doubt | ProfileResult | CaseExplanation) -> dict[str, Any]:
    return {**_case(row.case), **{name: value for name, value in _fields(row).items() if name != "case"}}


def _judgement(judged: Judgement) -> dict[str, Any]:
    series = judged.series
    return {
        **_case(series.case),
        "device": series.device,
        "device_model": series.device_model,
        "metric": series.metric,
        "cache": plain(series.cache),
        **{name: value for name, value in _fields(judged).items() if name != "series"},
    }


def finding_json(finding: Finding, events: Sequence[FindingEvent]) -> dict[str, Any]:
    """A finding for ``--format json``, with what befell it."""
    return {**_finding(finding), "events": [plain(one) for one in events]}


def _finding(finding: Finding) -> dict[str, Any]:
    told = {"direction": finding.direction, "changes": finding.changes, "devices": finding.devices}
    return {**_fields(finding), **plain(told)}


OBJECTS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ResultRow: _result,
    MetricRow: _result,
    Judgement: _judgement,
    Doubt: _of_case,
    ProfileResult: _of_case,
    CaseExplanation: _of_case,
    Finding: _finding,
}
"""How the rows that nest others are made flat."""
