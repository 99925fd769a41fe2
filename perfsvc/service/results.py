"""The results of stored runs, as ``perfsvc run`` and ``perfsvc report`` print them."""

from dataclasses import replace

from perfsvc.report.export import frames
from perfsvc.report.results import run_report
from perfsvc.report.rows import RunReport
from perfsvc.store import Store


def stored_report(store: Store, run: int) -> RunReport:
    """Return everything that the store holds about the results of a run."""
    table = frames.frame(store.measurements.columns([run]))
    report = run_report(run, table, store.verdicts.of_run(run), store.measurements.batch_counts(run))
    return replace(report, confirmations=store.confirmations.of_run(run), explanations=store.profiles.explanations(run))
