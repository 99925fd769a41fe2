"""The stored results of a run (``perfsvc run``, ``perfsvc report``)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from perfsvc.errors import UsageError
from perfsvc.model import Confirmation, RunRow
from perfsvc.report.export import frames
from perfsvc.report.results import run_report
from perfsvc.report.rows import RunReport
from perfsvc.report.wording import NO_FINDING
from perfsvc.store import Store

PART = 50_000
"""The measurements of a part: about 200 MB as a frame."""


def stored_report(store: Store, run: int) -> RunReport:
    """Return everything that the store holds about the results of a run."""
    table = frames.frame(store.measurements.columns([run]))
    verdicts, batches = store.verdicts.of_run(run), store.measurements.batch_counts(run)
    report = run_report(run, table, verdicts, batches)
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
