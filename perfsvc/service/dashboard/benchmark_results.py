"""What the pages of benchmarks show besides times: shares of measured peaks, and rates."""

from collections.abc import Sequence

from perfsvc.report.export import frames
from perfsvc.report.pages.fastest import Results, newest_runs
from perfsvc.report.pages.site import SeriesView, Site
from perfsvc.report.results import run_report
from perfsvc.report.rows import Key, ResultRow
from perfsvc.store import Store


def newest_results(store: Store, site: Site, views: Sequence[SeriesView]) -> Results:
    """Return the result of each case in the newest run that measured it, by run, and by device, case and cache state.

    The rows are computed as ``perfsvc report`` computes them, but without verdicts. All cases of a benchmark are read
    together, because a case may be compared with another variant of its benchmark.

    Args:
        store: the database.
        site: has the runs.
        views: every series of some benchmarks.
    """
    of_benchmark: dict[str, set[str]] = {}
    benchmarks: dict[str, str] = {}
    for view in views:
        case = view.series.case
        benchmarks[case.id] = case.benchmark
        of_benchmark.setdefault(case.benchmark, set()).add(case.id)
    dirty = {run.id for run in site.runs.values() if run.provenance.dirty}
    results: dict[tuple[int, Key], ResultRow] = {}
    for run, newest in newest_runs(views, dirty).items():
        cases = set().union(*(of_benchmark[name] for name in {benchmarks[case] for case in newest}))
        report = run_report(run, frames.frame(store.measurements.columns([run], cases)), (), {})
        results |= {(run, row.key): row for row in report.rows if row.case.id in newest}
    return results
