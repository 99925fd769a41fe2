"""``perfsvc run``."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import click

from perfsvc.cli import options, output

if TYPE_CHECKING:
    from perfsvc.service.run import RunRequest


class Chosen(TypedDict):
    """The options of ``perfsvc run`` as click parsed them."""

    devices: tuple[str, ...]
    suite: Path
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    points: Literal["smoke", "full"] | None
    replicas: int
    samples: int | None
    limit: float
    seed: int | None
    label: str
    threshold: float | None
    strict: bool
    database: str
    output_format: Literal["table", "json"]


@click.command("run")
@click.option(
    "--device",
    "devices",
    multiple=True,
    default=("auto",),
    show_default=True,
    metavar="DEVICE",
    help="auto (every GPU, else the CPU), cpu, cuda, cuda:0, cuda:GPU-5e… May be repeated.",
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
    help="Fresh processes that measure each case.",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=None,
    show_default="100 on a GPU, 20 on the CPU device",
    help="Samples a case and replica.",
)
@click.option(
    "--limit",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="What a case may take in a replica before its worker is killed.",
)
@click.option("--seed", type=click.IntRange(0), default=None, show_default="random", help="Decides the order of cases.")
@click.option("--label", default="", help="A name to find the run by.")
@options.threshold
@options.strict
@options.database
@options.formats()
def command(**chosen: Unpack[Chosen]) -> None:
    """Measure the suite, store it, and judge it against the baseline.

    Every measurement is committed as it arrives, so a run that is cut short keeps what it measured.
    """
    from perfsvc.report import results, tables
    from perfsvc.service.run import run

    options.tell_suite(chosen["suite"])
    with output.progress() as progress:
        outcome = run(_request(chosen), progress)
    output.warn(outcome.warnings)
    rows = results.rows(outcome.devices, outcome.specs, outcome.measurements, outcome.levels, outcome.judgements)
    if chosen["output_format"] == "json":
        output.show_json(tables.run_json(outcome.run, rows, outcome.problems))
    else:
        output.show(tables.run_table(outcome.run, rows, outcome.problems))
    sys.exit(outcome.exit_code(strict=chosen["strict"]))


def _request(chosen: Chosen) -> "RunRequest":
    from perfsvc.service.run import RunRequest
    from perfsvc.suite import Selection

    return RunRequest(
        database=chosen["database"],
        suite=chosen["suite"],
        devices=chosen["devices"],
        selection=Selection(chosen["select"], chosen["exclude"]),
        points=chosen["points"],
        replicas=chosen["replicas"],
        samples=chosen["samples"],
        limit_s=chosen["limit"],
        seed=chosen["seed"],
        label=chosen["label"],
        threshold=chosen["threshold"],
        command_line=shlex.join(["perfsvc", *sys.argv[1:]]),
    )
