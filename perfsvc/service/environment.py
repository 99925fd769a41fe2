"""The full environments of stored runs, and in what two of them differ."""

from collections import Counter
from collections.abc import Iterable, Mapping

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Finding, FullEnvironment, Judgement, differences
from perfsvc.report.rows import EnvironmentDifferences
from perfsvc.store import Store


def environment_of_run(store: Store, run: int) -> FullEnvironment:
    """Return the full environment of a run.

    Raises:
        NotMeasuredError: there is no such run, or it recorded no environment.
    """
    store.runs.get(run)
    recorded = store.devices.full_environments([run])
    if run not in recorded:
        raise NotMeasuredError(
            f"run {run} recorded no environment: it ended before it measured", cure="name another run: perfsvc runs"
        )
    return recorded[run]


def environment_differences(
    store: Store, pairs: Iterable[tuple[int | None, int]]
) -> dict[tuple[int | None, int], EnvironmentDifferences]:
    """Return in what the environments of each pair of runs differ; pairs with an unknown environment are left out."""
    pairs = list(pairs)
    recorded = store.devices.full_environments({run for pair in pairs for run in pair if run is not None})
    return {
        (before, after): EnvironmentDifferences(before, after, differences(recorded[before], recorded[after]))
        for before, after in pairs
        if before in recorded and after in recorded
    }


def since_baseline(
    store: Store, base: int | None, run: int | None, judged: Iterable[Judgement]
) -> EnvironmentDifferences | None:
    """Return in what the environment of a run differs from that of its baseline; None if one of them is unknown.

    Args:
        store: the database.
        base: the run that all series are compared with; None if each series has its own baseline. Then the run that is
            the baseline of most series counts.
        run: the judged run; None for a revision, whose environment is not stored.
        judged: the verdicts on the series of the run.
    """
    if base is None:
        runs = Counter(judgement.baseline_run for judgement in judged if judgement.baseline_run is not None)
        base = max(runs, key=lambda number: (runs[number], number), default=None)
    return None if run is None else environment_differences(store, [(base, run)]).get((base, run))


def of_findings(store: Store, findings: Iterable[Finding]) -> Mapping[int, EnvironmentDifferences]:
    """Return in what the environment changed when each finding began, by the number of the finding.

    The first run of the finding is compared with the baseline of the series that moved most. A finding about a missing
    GPU, host or case is left out.
    """
    pairs: dict[int, tuple[int | None, int]] = {}
    for finding in findings:
        first = finding.worst and (finding.worst.first_run or finding.first_run)
        if finding.worst and first:
            pairs[finding.id] = (finding.worst.baseline_run, first)
    found = environment_differences(store, pairs.values())
    return {number: found[pair] for number, pair in pairs.items() if pair in found}
