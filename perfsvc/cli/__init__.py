"""The command line: one file a command, nothing but parsing and printing.

Commands are imported when they are called, so that ``perfsvc --help`` costs little more than importing click.
"""

import importlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from perfsvc import __version__
from perfsvc.cli import ending
from perfsvc.cli.configuration import Configuration

COMMANDS = {
    "init": "Write a commented perfsvc.toml for the suite that is here.",
    "run": "Measure the suite, store it, and judge it against the baseline.",
    "compare": "Judge one run against another.",
    "confirm": "Measure a suspect again, the baseline's binary and the run's in turn.",
    "bisect": "Find the commit that made a case slower.",
    "profile": "Have Nsight Compute count what a case does, or Nsight Systems draw it.",
    "explain": "Say why one launch takes longer than another, from Nsight Compute's reports.",
    "nightly": "Do one unattended night, as perfsvc.toml has it.",
    "check": "Check the suite's kernels without a GPU.",
    "list": "List the cases of the suite.",
    "runs": "List the runs in the database.",
    "show": "Show a case's history.",
    "report": "Show measurements, or export them to a file.",
    "plot": "Draw a run's ladders: what each variant reaches.",
    "dashboard": "Write the pages to open in the morning.",
    "findings": "List what someone should look at, and accept it.",
    "baseline": "Set, show and clear what verdicts compare against.",
    "config": "Show what is in force, and where each value comes from.",
    "schedule": "Have nights begin by themselves.",
    "devices": "List the devices of this machine.",
    "doctor": "Check the environment and say how to cure what is missing.",
    "db": "Upgrade, check and prune the database.",
}

ARGUMENTS = "perfsvc.cli.arguments"
"""Where the context has what stands behind the command's name."""


class LazyGroup(click.Group):
    """A group whose commands are modules of this package, imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"perfsvc.cli.{cmd_name}_command").command
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parses the group's own options; a closed pipe under ``--help`` goes past click."""
        with ending.past_click():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; what click would take for its own goes past it."""
        ctx.meta[ARGUMENTS] = tuple(ctx.args)  # which click takes away before the group's own function is called
        with ending.past_click():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 nothing regressed; 1 something regressed; 2 usage; 3 inconclusive (with --strict); "
    "4 a case failed or gave a wrong result; 5 no device, compiler or database, or a fault of perfsvc.",
)
@click.option(
    "--config",
    "config",
    envvar="PERFSVC_CONFIG",
    show_envvar=True,
    type=click.Path(path_type=Path),
    default=None,
    show_default="perfsvc.toml here or in the nearest parent",
    metavar="FILE",
    help="The file that options have their defaults from; /dev/null for none.",
)
@click.version_option(__version__, prog_name="perfsvc")
@click.pass_context
def cli(context: click.Context, config: Path | None) -> None:
    """Times CUDA kernels, remembers the times, and says what regressed."""
    context.obj = Configuration(config)
    name = context.invoked_subcommand or ""
    context.default_map = context.obj.defaults(name, cli.get_command(context, name), context.meta[ARGUMENTS])


def main() -> NoReturn:
    """The ``perfsvc`` command: everything that may end it has its message and its exit code."""
    ending.open_streams()
    with ending.stoppable():
        code = ending.code_of(lambda: cli.main(standalone_mode=False))
    sys.exit(code)
