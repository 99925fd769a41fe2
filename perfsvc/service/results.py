"""The stored results of a run (``perfsvc run``, ``perfsvc report``) and the history of a case (``perfsvc show``)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from perfsvc import judge
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import AUXILIARY, Confirmation, RunRow
from perfsvc.report.export import frames
from perfsvc.report.results import run_report
from perfsvc.report.rows import HistoryRow, RunDetails, RunReport
from perfsvc.report.wording import NO_FINDING
from perfsvc.store import CaseInRun, Store
from perfsvc.suite import Selection

PART = 50_000
"""The measurements of a part: about 200 MB as a frame."""
MOST_CANDIDATES = 20
"""How many cases an error lists."""


def stored_report(store: Store, run: int) -> RunReport:
    """Return everything that the store holds about the results of a run."""
    table = frames.frame(store.measurements.columns([run]))
    report = run_report(run, table, store.verdicts.of_run(run), store.measurements.batch_counts(run))
    confirmations = store.confirmations.of_run(run)
    return replace(
        report,
        rates=store.devices.gpu_peaks_of(run),
        confirmations=confirmations,
        explanations=store.profiles.explanations(run),
        no_finding=why_no_finding(store, run, confirmations),
        environment=store.devices.full_environments([run]).get(run),
    )


def measurement_parts(
    store: Store,
    runs: Sequence[RunRow],
    *,
    rows: int = PART,
    cases: Collection[str] | None = None,
    devices: Collection[str] | None = None,
) -> Iterator[frames.Table]:
    """Yield the measurements of some runs in parts of whole runs, all with the same columns; at least one part.

    Args:
        store: the database.
        runs: the runs, oldest first.
        rows: the most measurements of the runs of a part; a larger run is a part of its own.
        cases: the ids of the wanted cases, as the runs had them; None for all.
        devices: the UUIDs or models of the wanted devices; None for all.

    Raises:
        UsageError: ``rows`` is not positive.
    """
    parts = parts_of(runs, rows) or [[]]
    until = store.measurements.newest_id()  # a run may still measure, even cases with other axes
    every_run = [run for part in parts for run in part]
    following = frames.further(*store.measurements.further(every_run, cases, devices, until))
    for part in parts:
        yield frames.frame(store.measurements.columns(part, cases, devices, until), following)


def parts_of(runs: Sequence[RunRow], rows: int) -> list[list[int]]:
    """Return the numbers of the runs in groups of at most ``rows`` measurements; a run is never divided.

    Raises ``UsageError`` if ``rows`` is not positive.
    """
    if rows < 1:
        raise UsageError(f"a part cannot have {rows} rows", cure="give a positive number")
    parts: list[list[int]] = []
    size = 0
    for run in runs:
        measured = sum(run.counts.values())
        if not measured:
            continue
        if not parts or size + measured > rows:
            parts.append([])
            size = 0
        parts[-1].append(run.id)
        size += measured
    return parts


def why_no_finding(store: Store, run: int, confirmations: Iterable[Confirmation]) -> str:
    """Return why the confirmed changes of a run with uncommitted changes raised no finding; empty for other runs."""
    confirmed = any(confirmation.confirmed for confirmation in confirmations)
    return NO_FINDING if confirmed and store.runs.get(run).provenance.dirty else ""


def case_named(store: Store, text: str) -> str:
    """Return the id of the stored case that the user names by its id, by a glob, or by a part of its id.

    Raises:
        NotMeasuredError: no measured case matches.
        UsageError: several cases match; the cure lists them.
    """
    names = store.series.case_names()
    if text in names:
        return text
    cases = {case.id: case for case in names.values()}
    try:
        matches = sorted(case.id for case in Selection((text,)).filter(cases.values()))
    except UsageError:  # the text matches nothing as a glob, but may be a part of an id
        matches = []
    matches = matches or sorted(name for name in cases if text in name)
    if not matches:
        near = get_close_matches(text, [*cases, *{case.benchmark for case in cases.values()}], n=3)
        cure = f"did you mean {' or '.join(near)}?" if near else "see what was measured: perfsvc report --summary"
        raise NotMeasuredError(f"{text} was never measured", cure=cure)
    if len(matches) > 1:
        listed = "".join(f"\n    {name}" for name in matches[:MOST_CANDIDATES])
        more = f"\n    and {len(matches) - MOST_CANDIDATES} more" if len(matches) > MOST_CANDIDATES else ""
        raise UsageError(f"{text!r} stands for {len(matches)} cases", cure=f"name one of them:{listed}{more}")
    return matches[0]


def history(store: Store, case: str, device: str | None) -> list[HistoryRow]:
    """Return the results of a case in every run, oldest first. Results under former names of the case are included.

    Args:
        store: the database.
        case: the id of the case.
        device: the UUID of a device; None for all devices.

    Raises:
        NotMeasuredError: the case is unknown, or was never measured on the device.
    """
    explanations = {
        (explanation.device, explanation.candidate_run): explanation.sentence
        for explanation in store.profiles.explanations_of(case)
    }
    rows = [_row(run, explanations.get((run.device, run.run), "")) for run in store.series.case_history(case, device)]
    if device and not rows:
        measured_on = ", ".join(sorted({run.device for run in store.series.case_history(case)}))
        cure = f"name a device that has it: {measured_on}"
        raise NotMeasuredError(f"{case} was never measured on {device}", cure=cure)
    # The dict keeps the position of the last, and so newest, row of each device and cache state.
    newest = {(row.device, row.cache): position for position, row in enumerate(rows)}
    for position in newest.values():
        rows[position] = replace(rows[position], details=_details(store, rows[position]))
    return rows


def _row(run: CaseInRun, why: str) -> HistoryRow:
    """Return the row of a case's history for one run; ``why`` explains a regression in this run."""
    level = judge.level_of(run.times) if run.times else None
    return HistoryRow(
        run=run.run,
        started=run.started,
        commit=run.commit,
        dirty=run.dirty,
        label=run.label,
        case=run.case,
        device=run.device,
        device_model=run.device_model,
        cache=run.cache,
        status=run.status,
        reason=run.reason,
        median_s=level.median_s if level else None,
        low_s=level.low_s if level else None,
        high_s=level.high_s if level else None,
        replicas=run.replicas,
        why=why,
        metrics={metric: _center(values) for metric, values in sorted(run.metrics.items()) if metric not in AUXILIARY},
        excluded=run.excluded,
    )


def _center(values: Sequence[float]) -> float:
    """Return the level of a metric over the replicas of a run."""
    (center,), _, _ = judge.levels_of(np.array([values]))
    return float(center)


def _details(store: Store, row: HistoryRow) -> RunDetails:
    """Return the details of a row: what the store holds, besides the time, about the row's case in the row's run."""
    columns = store.measurements.columns([row.run], [row.case])
    names = zip(columns["benchmark"], columns["variant"], columns["relative_to"], strict=True)
    references = {  # the details hold the speed relative to another variant at the same point
        f"{benchmark}/{reference}{row.case.removeprefix(f'{benchmark}/{variant}')}"
        for benchmark, variant, reference in names
    }
    summary = frames.summary(frames.frame(store.measurements.columns([row.run], {row.case, *references})))
    matches = (summary["case"] == row.case) & (summary["device"] == row.device) & (summary["cache"] == row.cache)
    return frames.details(summary[matches].to_dict("records")[0])
