"""``perfsvc run``."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

import click

from perfsvc.cli import configuration, options, output

if TYPE_CHECKING:
    from perfsvc.service.run.request import RunRequest


Spread = Literal["each-device", "each-model"]


class RunOptions(TypedDict):
    """The options of ``perfsvc run`` as click parsed them."""

    devices: tuple[str, ...]
    suite: Path
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    points: Literal["smoke", "full"] | None
    replicas: int
    precision: float | None
    samples: int | None
    seconds: float | None
    places: int | None
    energy: bool
    spread: Spread
    budget: float | None
    limit: float
    seed: int | None
    label: str
    confirm: bool
    confirm_budget: float
    profile: bool
    threshold: float | None
    strict: bool
    on: str
    database: str
    output_format: Literal["table", "json"]


@click.command("run")
@options.devices
@click.option(
    "--on",
    default="",
    metavar="CLUSTER",
    show_default="this host",
    help="Measure on the GPUs of a cluster: the address of a Ray cluster, ray://head:10001, or slurm.",
)
@options.suite
@options.select
@options.exclude
@options.points
@click.option(
    "--replicas",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="How many fresh processes measure each case.",
)
@click.option(
    "--precision",
    type=options.Share("0.2%", below=1),
    default=None,
    show_default="0.2%",
    help="Sample a case until the 95 % interval of its median is no wider than this to each side: 0.2% or 0.002.",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=None,
    show_default="1000 on a GPU, 20 on the CPU device",
    help="The most samples of a replica, even if the interval is still wider.",
)
@click.option(
    "--seconds",
    type=options.Seconds(),
    default=None,
    show_default="2 on a GPU, 0.15 on the CPU device",
    help="The longest sampling of a replica, even if the interval is still wider; at most half of --limit.",
)
@click.option(
    "--places",
    type=click.IntRange(1, 100),
    default=None,
    show_default="8 on a GPU, 1 on the CPU device",
    help="At how many places in the device's memory the arrays of a case lie in turn while it is timed. "
    "Another number begins a new baseline for every case; to try one, use another database (--db).",
)
@click.option(
    "--energy/--no-energy",
    default=False,
    help="Also measure the energy of a launch; this takes a second or more for each case.",
)
@click.option(
    "--spread",
    type=click.Choice(get_args(Spread)),
    default="each-device",
    show_default=True,
    help="Measure every case on each GPU, or on one GPU of each model, every night on the same one.",
)
@click.option(
    "--budget",
    type=options.Duration(),
    default=None,
    show_default="none",
    help="The time on each device: 90s, 20m, 1h30m. Noisy cases and cases not measured for long come first.",
)
@click.option(
    "--limit",
    type=options.Seconds(),
    default=60.0,
    show_default=True,
    help="The time for a case in a replica, after which its worker is killed.",
)
@click.option("--seed", type=click.IntRange(0), default=None, show_default="random", help="Decides the order of cases.")
@click.option("--label", default="", help="A name to find the run by.")
@click.option(
    "--confirm", is_flag=True, help="Measure suspects again in A/B pairs: the baseline's stored binary and this run's."
)
@click.option(
    "--confirm-budget",
    type=options.Duration(),
    default="10m",
    show_default=True,
    help="The most time for --confirm on each device: 90s, 20m, 1h30m. The largest new changes come first.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Profile both binaries of confirmed regressions with Nsight Compute, and explain them.",
)
@options.threshold
@options.strict
@options.database
@options.formats
def command(**chosen: Unpack[RunOptions]) -> None:
    """Measure the suite, store it, and judge it against the baseline.

    Every measurement is committed as it arrives, so a run that is cut short keeps what it measured.
    """
    if chosen["profile"] and not chosen["confirm"]:
        raise click.UsageError("--profile explains confirmed regressions: add --confirm")
    if chosen["profile"] and chosen["on"]:
        raise click.UsageError("--profile works on the GPUs of this host: leave out --profile or --on")
    from perfsvc.measure.host.pool import worker_servers
    from perfsvc.process import fork_servers

    fork_servers.shared(fork_servers.SUITE)  # start the servers: they import while this process imports too
    with worker_servers() as servers:
        from perfsvc.report.export.objects import run_json
        from perfsvc.report.tables.run import doubt_text, run_table
        from perfsvc.service.results import stored_report
        from perfsvc.service.run.run import run
        from perfsvc.store import Store

        options.announce_suite(chosen["suite"])
        with output.progress() as progress:
            outcome = run(_request(chosen), progress, servers)
    output.warn([*outcome.warnings, *map(doubt_text, outcome.doubts)])
    with Store.open(chosen["database"], create=False) as store:
        stored = stored_report(store, outcome.run)
    report = replace(stored, problems=outcome.problems, over_budget=outcome.over_budget, doubts=outcome.doubts)
    if chosen["output_format"] == "json":
        output.show_json(run_json(report))
    else:
        output.show(run_table(report))
    sys.exit(outcome.exit_code(strict=chosen["strict"]))


def _request(chosen: RunOptions) -> "RunRequest":
    """Return the request that the options of the command describe."""
    from perfsvc.selection import Selection
    from perfsvc.service.run.request import RunRequest

    return RunRequest(
        database=chosen["database"],
        suite=chosen["suite"],
        devices=chosen["devices"],
        selection=Selection(chosen["select"], chosen["exclude"]),
        points=chosen["points"],
        replicas=chosen["replicas"],
        precision=chosen["precision"],
        samples=chosen["samples"],
        seconds=chosen["seconds"],
        places=chosen["places"],
        energy=chosen["energy"],
        spread=chosen["spread"],
        budget_s=chosen["budget"],
        limit_s=chosen["limit"],
        seed=chosen["seed"],
        label=chosen["label"],
        confirm=chosen["confirm"],
        confirm_budget_s=chosen["confirm_budget"],
        profile=chosen["profile"],
        profile_budget_s=configuration.profile_budget() if chosen["profile"] else math.inf,
        threshold=configuration.thresholds(chosen["threshold"]),
        against=configuration.against(),
        segment_parts=configuration.segment_parts(),
        on=chosen["on"],
        slurm=configuration.slurm(),
        command_line=configuration.typed(),
    )
