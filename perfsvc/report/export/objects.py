"""Reports as plain values for JSON: numbers, text, lists and objects."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from perfsvc.errors import SuiteError
from perfsvc.model import (
    TIME,
    Bisection,
    Case,
    CaseExplanation,
    CheckedKernel,
    CheckVerdict,
    Confirmation,
    Explanation,
    Finding,
    FindingEvent,
    Judgement,
    Measurement,
    MovedSeries,
    Profile,
    ProfileResult,
    Series,
    Status,
    Trial,
    Verdict,
)
from perfsvc.report import finding_words, wording
from perfsvc.report.checks import StaticCheck, relative_path
from perfsvc.report.explanations import explanation_groups
from perfsvc.report.rows import ComparedRun, Doubt, EnvironmentDifferences, MetricRow, ResultRow, RunReport


def plain(value: Any) -> Any:
    """Return a row, or any value in a row, as JSON values.

    Dataclasses and mappings become objects, enums their values, timestamps ISO 8601 in UTC. A number that is not finite
    becomes null, since JSON cannot represent it.
    """
    if is_dataclass(value):
        return OBJECTS.get(type(value), _fields)(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str | Path | datetime):
        return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
    return [plain(item) for item in value] if isinstance(value, Iterable) else value


def run_json(report: RunReport) -> dict[str, Any]:
    """Return a run as JSON: a result for each case, cache state and device, and everything else about the run."""
    return {
        "run": report.run,
        "environment": plain(report.environment),
        "results": [plain(row) for row in report.rows],
        "peaks": [
            {"device": device, **(plain(report.peaks.get(device)) or {}), **plain(report.rates.get(device, {}))}
            for device in dict.fromkeys((*report.peaks, *report.rates))
        ],
        "over_budget": [
            {**_case(case.case), "device": case.device, "cache": plain(case.cache), "reason": case.reason}
            for case in report.over_budget
        ],
        "doubts": [plain(doubt) for doubt in report.doubts],
        "problems": _problems(report.problems),
        "confirmations": [confirmation_json(confirmation) for confirmation in report.confirmations],
        "no_finding": report.no_finding,
        "explained": plain(report.explanations),
    }


def comparison_json(
    base: ComparedRun | None,
    new: ComparedRun,
    judgements: Sequence[Judgement],
    over_budget: Sequence[Series] = (),
    commands: Sequence[str] = (),
    *,
    environment: EnvironmentDifferences | None = None,
) -> dict[str, Any]:
    """Return a comparison of runs as JSON; ``base`` is null if each series is compared with its own baseline.

    ``commands`` are the commands that measure unconfirmed changes again. ``environment`` is in what the environments
    differ; null if that is unknown.
    """
    return {
        "base": base and base.run,
        "new": new.run,
        "base_run": plain(base),
        "new_run": plain(new),
        "counts": {word.value: number for word, number in wording.tally(judgements).items() if number},
        "verdicts": [plain(judgement) for judgement in judgements],
        "over_budget": [series_json(series) for series in over_budget],
        "confirm": list(commands),
        "environment": plain(environment),
    }


def finding_json(
    finding: Finding,
    events: Sequence[FindingEvent],
    environment: EnvironmentDifferences | None = None,
    other_models: str = "",
) -> dict[str, Any]:
    """Return a finding with its history, how its cases do on other models, and what changed in the environment."""
    return {
        **_finding(finding),
        "other_models": other_models,
        "events": [plain(event) for event in events],
        "environment": plain(environment),
    }


def confirmation_json(confirmation: Confirmation) -> dict[str, Any]:
    """Return a confirmation: the verdict in the run, the decision of the A/B pairs, and the result of each process."""
    judgement = plain(confirmation.suspect.judgement)
    series = ("case", "benchmark", "variant", "point", "device", "device_model", "metric", "cache")
    decision = ("cause", "reason", "verdict", "ratio", "low", "high", "pairs", "looks", "drift", "same_code")
    settings = ("threshold", "seed", "budget_s", "wall_s")
    metric = confirmation.suspect.series.metric
    return {
        **{name: judgement[name] for name in (*series, "baseline_run", "candidate_run")},
        "judged": judgement["verdict"],
        "judged_ratio": judgement["ratio"],
        "change": plain(confirmation.suspect.change),
        "direction": plain(confirmation.suspect.direction),
        **_values(confirmation, (*decision, *settings)),
        "baseline": [_side_run(measurement, metric) for measurement in confirmation.baseline],
        "candidate": [_side_run(measurement, metric) for measurement in confirmation.candidate],
    }


def bisection_json(bisection: Bisection) -> dict[str, Any]:
    """Return the answer of a bisection: the commits, the proof, and the result of each process."""
    fields_as_they_are = ("cache", "metric", "threshold", "boundary", "seed", "verdict", "reason", "proven")
    return {
        "case": bisection.case.id,
        "device": bisection.device.uuid,
        "device_model": bisection.device.model,
        **_values(bisection, (*fields_as_they_are, "changed", "files")),
        "good": plain(bisection.good),
        "bad": plain(bisection.bad),
        "culprits": plain(bisection.culprits),
        "proof": bisection.proof and _trial(bisection.proof, bisection.metric),
        "trials": [_trial(trial, bisection.metric) for trial in bisection.trials],
        "skipped": [{**plain(skipped.commit), "reason": skipped.reason} for skipped in bisection.skipped],
        **_values(bisection, ("commits", "builds", "compiled", "codes", "wall_s")),
    }


def explanation_json(before: Profile, after: Profile, explanation: Explanation) -> dict[str, Any]:
    """Return an explanation with every metric of both profiles; a metric that was not counted is null."""
    return {
        "sentence": explanation.sentence,
        "factor": explanation.factor,
        "reasons": [plain(reason) for reason in explanation.reasons],
        "before": plain(before),
        "after": plain(after),
    }


def check_json(check: StaticCheck) -> dict[str, Any]:
    """Return a static check: each verdict with its static facts, the skipped kernels, problems and wrong cases."""
    return {
        "check": check.check,
        "against": check.against,
        "toolkit": check.toolkit,
        "disassembler": check.disassembler,
        "accepted": check.accepted,
        "counts": dict(Counter(verdict.verdict.value for verdict in check.verdicts)),
        "verdicts": [_check_verdict(verdict) for verdict in check.verdicts],
        "skipped": [
            {"case": kernel.case.id, "architecture": kernel.architecture, "reason": kernel.reason}
            for kernel in check.checked
            if kernel.status is Status.SKIPPED
        ],
        "problems": _problems(check.problems),
        "wrong": [
            {"case": result.case.id, "status": result.status.value, "reason": result.reason, "cure": result.cure}
            for result in check.wrong
        ],
    }


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


def _values(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: plain(getattr(value, name)) for name in names}


def _problems(problems: Iterable[SuiteError]) -> list[dict[str, Any]]:
    return [
        {"path": problem.path, "line": problem.line, "what": problem.what, "cure": problem.cure} for problem in problems
    ]


def _case(case: Case) -> dict[str, Any]:
    """Return the fields that every JSON object about a case begins with."""
    return {
        "case": case.id,
        "benchmark": case.benchmark,
        "variant": case.variant,
        "point": plain(dict(case.point)),
    }


def _with_case(row: Doubt | ProfileResult | CaseExplanation) -> dict[str, Any]:
    return {**_case(row.case), **{name: value for name, value in _fields(row).items() if name != "case"}}


def _result(row: ResultRow | MetricRow) -> dict[str, Any]:
    """Return a row of results; the fields of its verdict replace ``judgement``, and are null without a verdict."""
    judgement = row.judgement
    return {
        **(_case(row.case) if isinstance(row, ResultRow) else {}),
        **{name: value for name, value in _fields(row).items() if name not in {"case", "judgement"}},
        "verdict": plain(judgement and judgement.verdict),
        "verdict_reason": plain(judgement and judgement.reason),
        "ratio": plain(judgement and judgement.ratio),
        "ratio_low": plain(judgement and judgement.low),
        "ratio_high": plain(judgement and judgement.high),
        "baseline_run": judgement and judgement.baseline_run,
        "baseline_runs": judgement and judgement.baseline_runs,
        "noise_between_nights": plain(judgement and judgement.between_nights),
        "smallest": plain(judgement and judgement.smallest),
        "baseline_replicas": judgement and judgement.baseline_replicas,
        "cause": plain(judgement and judgement.cause),
        "sentence": judgement and wording.verdict_sentence(judgement),
    }


def series_json(series: Series) -> dict[str, Any]:
    """Return the fields that identify a series."""
    return {
        **_case(series.case),
        "device": series.device,
        "device_model": series.device_model,
        "metric": series.metric,
        "cache": plain(series.cache),
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement; the fields of its series replace ``series``, and ``sentence`` words the verdict."""
    return {
        **series_json(judgement.series),
        **{name: value for name, value in _fields(judgement).items() if name != "series"},
        "sentence": wording.verdict_sentence(judgement),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """Return a finding with its computed properties, its explanation, and a sentence for each moved series."""
    return {
        **_fields(finding),
        **_values(finding, ("direction", "changes", "devices")),
        "why": finding_words.why(finding),
        "explanations": [{**_fields(group), "text": group.text} for group in explanation_groups(finding)],
        "moved": [{**plain(moved), "sentence": wording.moved_sentence(finding, moved)} for moved in finding.moved],
    }


def _moved(moved: MovedSeries) -> dict[str, Any]:
    """Return a moved series with the sentence of its explanation, or why there is none."""
    known = {name: value for name, value in _fields(moved).items() if name != "explanation"}
    explanation = moved.explanation
    return {**known, "why": moved.why, "not_explained": explanation.reason if explanation else ""}


def _side_run(measurement: Measurement, metric: str) -> dict[str, Any]:
    """Return the result of one process of an A/B comparison.

    Args:
        measurement: what the process measured.
        metric: the compared metric. ``value`` is the process's value of this metric, or None if the metric is the time.
    """
    samples_s = measurement.samples_s
    return {
        "turn": measurement.replica,
        "status": plain(measurement.status),
        "reason": measurement.reason,
        "samples": len(samples_s),
        "median_s": median(samples_s) if samples_s else None,
        "value": None if metric == TIME else next(iter(measurement.values_of(metric)), None),
    }


def _trial(trial: Trial, metric: str) -> dict[str, Any]:
    """Return the comparison of two commits, with the result of each process."""
    return {
        "before": trial.before.hash,
        "after": trial.after.hash,
        **_values(trial, ("verdict", "reason", "ratio", "low", "high", "pairs", "looks")),
        "baseline": [_side_run(measurement, metric) for measurement in trial.baseline],
        "candidate": [_side_run(measurement, metric) for measurement in trial.candidate],
    }


def _check_verdict(verdict: CheckVerdict) -> dict[str, Any]:
    """Return the verdict on a kernel, with the static facts of its baseline and of this check (``found``)."""
    return {
        "case": verdict.checked.case.id,
        "architecture": verdict.checked.architecture,
        "kernel": verdict.checked.kernel,
        "verdict": verdict.verdict.value,
        "cause": verdict.cause and verdict.cause.value,
        "reason": verdict.reason,
        "changes": [plain(change) for change in verdict.changes],
        "local_lines": [
            {"file": relative_path(line.path), "line": line.line, "instructions": line.instructions}
            for line in verdict.local_lines
        ],
        "baseline_check": verdict.baseline_check,
        "baseline": _static_facts(verdict.baseline),
        "found": None if verdict.verdict is Verdict.MISSING else _static_facts(verdict.checked),
    }


def _static_facts(checked: CheckedKernel | None) -> dict[str, Any] | None:
    """Return the static facts, the launch configuration and the occupancy of a kernel; None if they are unknown."""
    if checked is None or checked.facts is None:
        return None
    facts, occupancy = checked.facts, checked.occupancy
    return {
        **plain(facts),
        "instructions": None if facts.instructions is None else dict(facts.instructions),
        "threads": checked.threads,
        "dynamic_shared_bytes": checked.dynamic_shared_bytes,
        "occupancy": occupancy and occupancy.share,
        "limiter": occupancy and occupancy.limiter.value,
    }


OBJECTS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ResultRow: _result,
    MetricRow: _result,
    Judgement: _judgement,
    Doubt: _with_case,
    ProfileResult: _with_case,
    CaseExplanation: _with_case,
    Finding: _finding,
    MovedSeries: _moved,
}
"""Rows that nest other rows, and the functions that flatten them."""
