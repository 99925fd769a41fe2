"""``perfsvc bisect``."""

import sys
from pathlib import Path

import click

from perfsvc.cli import configuration, options, output


@click.command("bisect")
@click.argument("case")
@click.option("--good", required=True, metavar="REV", help="A git revision at which the case is as it should be.")
@click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="A later one, at which it is not.")
@options.devices
@click.option(
    "--cache",
    type=click.Choice(["cold", "warm"]),
    default=None,
    show_default="the case's first one",
    help="Its cache state.",
)
@click.option(
    "--metric",
    default="time",
    show_default=True,
    metavar="NAME",
    help="What is compared: time, energy_j, max_error or one of the case's own.",
)
@click.option(
    "--budget",
    type=options.Duration(),
    default="60s",
    show_default=True,
    help="What each comparison of two commits may take: 90s, 20m, 1h30m.",
)
@click.option("--seed", type=click.IntRange(0), default=None, show_default="random", help="Decides which side begins.")
@options.suite
@options.threshold
@options.formats()
def command(
    case: str,
    good: str,
    bad: str,
    devices: tuple[str, ...],
    cache: str | None,
    metric: str,
    budget: float,
    seed: int | None,
    suite: Path,
    threshold: float | None,
    output_format: str,
) -> None:
    """Find the commit that made CASE slower, or faster, between a good and a bad one.

    The case is built at every commit between them, in worktrees that are gone afterwards: your checkout is not
    touched. Commits of different code are measured in turn with the good one, each time in fresh processes.
    """
    from perfsvc.model import CacheState
    from perfsvc.report.export.objects import bisection_json
    from perfsvc.report.tables.bisection import bisection_text
    from perfsvc.service.bisect.bisect import BisectRequest, bisect, exit_code

    request = BisectRequest(
        case,
        good,
        bad,
        suite,
        devices,
        cache=CacheState(cache) if cache else None,
        metric=metric,
        budget_s=budget,
        threshold=configuration.thresholds(threshold),
        seed=seed,
    )
    options.tell_suite(suite)
    with output.progress() as progress:
        found = bisect(request, progress)
    if output_format == "json":
        output.show_json(bisection_json(found))
    else:
        output.show(bisection_text(found))
    sys.exit(exit_code(found))
