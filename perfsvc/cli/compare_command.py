"""``perfsvc compare``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

import click

from perfsvc.cli import configuration, options, output, writing
from perfsvc.cli.comparison_output import FILE_FORMATS, SUFFIXES, Format, Shown, show

if TYPE_CHECKING:
    from perfsvc.report.pages.compared import ComparedSides


class CompareOptions(TypedDict):
    """The arguments and options of ``perfsvc compare`` as click parsed them."""

    base: str | None
    new: str | None
    interleaved: bool
    gpus: tuple[str, str] | None
    variants: tuple[str, str] | None
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    devices: tuple[str, ...]
    points: Literal["smoke", "full"] | None
    budget: float | None
    suite: Path
    threshold: float | None
    strict: bool
    database: str
    output_format: Format | None
    targets: tuple[writing.Target, ...]


@click.command("compare")
@click.argument("base", required=False)
@click.argument("new", required=False)
@click.option(
    "--interleaved",
    is_flag=True,
    help="BASE and NEW are git revisions: build both, and measure in A/B pairs what differs. Uses no database.",
)
@click.option(
    "--gpus",
    nargs=2,
    metavar="A B",
    help="Compare the GPU or GPU model B with A, each a UUID or a MODEL. BASE is then the run of A, and NEW that of B.",
)
@click.option(
    "--variants",
    nargs=2,
    metavar="A B",
    help="Compare the variant B with A, each a BENCHMARK/VARIANT, at the same points. BASE and NEW as for --gpus.",
)
@options.select
@options.exclude
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="UUID|MODEL",
    help="Only these devices; with --interleaved, the devices to measure on, as for perfsvc run. May be repeated.",
)
@options.points
@click.option(
    "--budget",
    type=options.Duration(),
    default=None,
    show_default="10m",
    help="The time for --interleaved on each device: 90s, 20m, 1h30m.",
)
@options.suite
@options.threshold
@options.strict
@options.database
@click.option(
    "--format",
    "output_format",
    type=click.Choice(get_args(Format)),
    default=None,
    show_default="table; with --output only the counts",
    help="A table for people, JSON, Markdown, JUnit's XML, CSV, a page in HTML, SARIF, or GitLab's Code Quality.",
)
@writing.option(FILE_FORMATS, SUFFIXES, otherwise="only the counts")
def command(**chosen: Unpack[CompareOptions]) -> None:
    """Judge the run NEW against the run BASE.

    NEW and BASE are each a run's number, a label, latest, latest~1, or a git revision of the suite's repository. BASE
    may be @baseline: each series is then compared with its own baseline. If NEW lacks a series that it should have, the
    series is missing and the exit code is 4. With --select, --exclude and --device, other series are not compared.

    With --gpus or --variants, two GPUs or two variants are compared: those of the run BASE if NEW is left out, and
    without BASE those of the newest run of each. A slower GPU or variant is no regression for the exit code.

    With --interleaved, NEW and BASE are git revisions that need not have been measured before, such as main and HEAD of
    a pull request. A case with the same code at both is unchanged and is not measured.
    """
    if sum(bool(chosen[name]) for name in ("interleaved", "gpus", "variants")) > 1:
        raise click.UsageError("--interleaved, --gpus and --variants exclude each other.")
    if chosen["interleaved"]:
        sys.exit(_compare_revisions(chosen))
    for option, value in (("--points", chosen["points"]), ("--budget", chosen["budget"])):
        if value is not None:
            raise click.UsageError(f"{option} needs --interleaved: two runs are measured already.")
    sys.exit(_compare_parts(chosen) if chosen["gpus"] or chosen["variants"] else _compare_runs(chosen))


def _base_and_new(chosen: CompareOptions) -> tuple[str, str]:
    """Return both arguments; raise a usage error if one is missing."""
    base, new = chosen["base"], chosen["new"]
    if base is None or new is None:
        raise click.UsageError(f"Missing argument '{'BASE' if base is None else 'NEW'}'.")
    return base, new


def _compare_runs(chosen: CompareOptions) -> int:
    """Compare two runs of the database, show the comparison, and return the exit code."""
    from perfsvc.selection import Selection
    from perfsvc.service.compare.compare import compare
    from perfsvc.service.compare.confirmations import how_to_confirm
    from perfsvc.service.environment import since_baseline
    from perfsvc.store import Store

    base, new = _base_and_new(chosen)
    threshold = configuration.thresholds(chosen["threshold"])
    with Store.open(chosen["database"], create=False) as store:
        comparison = compare(
            store,
            base,
            new,
            folder=chosen["suite"],
            threshold=threshold,
            against=configuration.against(),
            selection=Selection(chosen["select"], chosen["exclude"]),
            devices=chosen["devices"],
        )
        commands = how_to_confirm(store, comparison.judgements)
        base_run = comparison.base.run if comparison.base else None
        environment = since_baseline(store, base_run, comparison.new.run, comparison.judgements)

        def sides() -> "ComparedSides":
            from perfsvc.service.compare.side_by_side import side_by_side, thresholds_of

            return side_by_side(
                comparison,
                thresholds_of(store, comparison.judgements, threshold),
                environment=environment,
                confirm=commands,
                neighbours=store.runs.neighbours(comparison.new.run or 0, base_run),
            )

        code = comparison.exit_code(strict=chosen["strict"])
        show(Shown(comparison, sides, code == 0, commands, environment), chosen["output_format"], chosen["targets"])
    return code


def _compare_parts(chosen: CompareOptions) -> int:
    """Compare two GPUs or two variants, show the comparison, and return the exit code."""
    from perfsvc.selection import Selection
    from perfsvc.service.compare.parts import PartsRequest, compare_gpus, compare_variants
    from perfsvc.service.compare.side_by_side import side_by_side, thresholds_of
    from perfsvc.service.environment import environment_differences
    from perfsvc.store import Store

    compare_parts, parts = (
        (compare_gpus, chosen["gpus"]) if chosen["gpus"] else (compare_variants, chosen["variants"] or ("", ""))
    )
    if chosen["gpus"] and chosen["devices"]:
        raise click.UsageError("--gpus names the devices: leave --device out.")
    threshold = configuration.thresholds(chosen["threshold"])
    request = PartsRequest(
        *parts,
        runs=tuple(run for run in (chosen["base"], chosen["new"]) if run is not None),
        folder=chosen["suite"],
        selection=Selection(chosen["select"], chosen["exclude"]),
        devices=chosen["devices"],
        threshold=threshold,
    )
    with Store.open(chosen["database"], create=False) as store:
        comparison = compare_parts(store, request)
        pair = (comparison.base.run if comparison.base else None, comparison.new.run or 0)
        environment = environment_differences(store, [pair]).get(pair) if pair[0] != pair[1] else None

        def sides() -> "ComparedSides":
            return side_by_side(
                comparison, thresholds_of(store, comparison.judgements, threshold), environment=environment
            )

        code = comparison.exit_code(strict=chosen["strict"])
        show(Shown(comparison, sides, code == 0, (), environment), chosen["output_format"], chosen["targets"])
    return code


def _compare_revisions(chosen: CompareOptions) -> int:
    """Measure two revisions, print their comparison, and return the exit code."""
    from perfsvc.selection import Selection
    from perfsvc.service.compare.side_by_side import side_by_side
    from perfsvc.service.confirm.pairs import BUDGET_S
    from perfsvc.service.interleaved.compare import RevisionsRequest, compare_revisions

    request = RevisionsRequest(
        *_base_and_new(chosen),
        chosen["suite"],
        devices=chosen["devices"] or ("auto",),
        selection=Selection(chosen["select"], chosen["exclude"]),
        points=chosen["points"],
        budget_s=BUDGET_S if chosen["budget"] is None else chosen["budget"],
        threshold=configuration.thresholds(chosen["threshold"]),
    )
    options.announce_suite(chosen["suite"])
    with output.progress() as progress:
        comparison = compare_revisions(request, progress)
    output.warn(comparison.warnings)
    for problem in comparison.problems:
        click.echo(f"error: {problem}", err=True)
    code = comparison.exit_code(strict=chosen["strict"])
    shown = Shown(
        comparison,
        lambda: side_by_side(comparison, comparison.thresholds),
        code == 0,
        measured=comparison.measured,
        same=comparison.same,
    )
    show(shown, chosen["output_format"], chosen["targets"])
    return code
