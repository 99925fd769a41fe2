"""What the page of a comparison shows, from the same verdicts that ``perfsvc compare`` prints."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from perfsvc import judge
from perfsvc.model import TIME, Judgement, RunRow, Series
from perfsvc.report.pages.compared import BenchmarkSummary, ComparedSides
from perfsvc.report.rows import ComparedRun, EnvironmentDifferences
from perfsvc.service.compare.compare import RunComparison, threshold_of_series
from perfsvc.service.environment import since_baseline
from perfsvc.store import Store


def side_by_side(
    comparison: RunComparison,
    thresholds: Mapping[Series, float],
    *,
    environment: EnvironmentDifferences | None = None,
    confirm: Sequence[str] = (),
    neighbours: tuple[int | None, int | None] = (None, None),
) -> ComparedSides:
    """Return what the page of a comparison shows.

    Args:
        comparison: the verdicts.
        thresholds: the smallest relevant change of each series, as a fraction.
        environment: in what the environments of both runs differ; None if that is unknown.
        confirm: the commands that measure unconfirmed changes again.
        neighbours: the runs before and after the judged run.
    """
    return ComparedSides(
        comparison.base,
        comparison.new,
        comparison.judgements,
        thresholds,
        tuple(_summaries(comparison.judgements, thresholds)),
        comparison.over_budget,
        environment,
        tuple(confirm),
        *neighbours,
    )


def thresholds_of(
    store: Store, judgements: Sequence[Judgement], threshold: judge.ThresholdOption
) -> dict[Series, float]:
    """Return the smallest relevant change of each judged series, as a fraction."""
    of_series = threshold_of_series(store, threshold)
    return {judgement.series: of_series(judgement.series) for judgement in judgements}


def with_verdicts(store: Store, runs: Sequence[RunRow]) -> tuple[RunRow, ...]:
    """Return the runs that have verdicts and are not excluded."""
    judged = store.verdicts.runs([row.id for row in runs])
    return tuple(row for row in runs if row.id in judged and not row.why_excluded)


def against_baseline(
    store: Store, run: RunRow, neighbours: tuple[int | None, int | None], threshold: judge.ThresholdOption
) -> ComparedSides:
    """Return the stored verdicts of a run as a comparison with its baselines.

    Args:
        store: the database.
        run: a run with verdicts.
        neighbours: the runs before and after it whose comparisons the page links to; None without one.
        threshold: the thresholds of the settings.
    """
    judgements = tuple(store.verdicts.of_run(run.id))
    provenance = run.provenance
    new = ComparedRun(str(run.id), run.id, provenance.label, provenance.commit, provenance.dirty)
    return side_by_side(
        RunComparison(None, new, judgements),
        thresholds_of(store, judgements, threshold),
        environment=since_baseline(store, None, run.id, judgements),
        neighbours=neighbours,
    )


def _summaries(judgements: Sequence[Judgement], thresholds: Mapping[Series, float]) -> list[BenchmarkSummary]:
    """Return a summary for each benchmark and GPU model, the slowest first, then that of all if there are several.

    Only times are summarised: energy and errors are other quantities.
    """
    groups: dict[tuple[str, str], list[Judgement]] = defaultdict(list)
    for row in judgements:
        if row.series.metric == TIME:
            groups[row.series.case.benchmark, row.series.device_model].append(row)

    def summary(benchmark: str, device_model: str, rows: Sequence[Judgement]) -> BenchmarkSummary:
        mean = judge.mean_ratio(rows)
        largest = max(thresholds.get(row.series, 0.0) for row in rows)
        return BenchmarkSummary(
            benchmark, device_model, tuple(rows), mean.count, mean.ratio, mean.low, mean.high, largest
        )

    summaries = [summary(benchmark, model, rows) for (benchmark, model), rows in groups.items()]
    summaries.sort(key=lambda of_one: (-(of_one.ratio or 0.0), of_one.benchmark, of_one.device_model))
    if len(groups) > 1:
        summaries.append(summary("", "", [row for rows in groups.values() for row in rows]))
    return summaries
