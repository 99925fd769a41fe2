"""The command line: one file a command, nothing but parsing and printing.

A command is imported when it is called, so ``perfsvc --help`` costs little more than importing click.
"""

import gc
import importlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from perfsvc import __version__
from perfsvc.cli import ending
from perfsvc.cli.configuration import Configuration
from perfsvc.errors import ConfigError

COMMANDS = {
    "init": "Write a commented perfsvc.toml for the suite in this folder.",
    "run": "Measure the suite, store it, and judge it against the baseline.",
    "import": "Store the result files of other tools, and judge them.",
    "compare": "Judge one run against another.",
    "confirm": "Measure a suspect again in A/B pairs: the baseline's binary and the run's.",
    "bisect": "Find the commit that made a case slower or broke it.",
    "profile": "Profile a case with Nsight Compute or Nsight Systems.",
    "explain": "Explain why one launch takes longer than another, from Nsight Compute's reports.",
    "nightly": "Run one unattended night as perfsvc.toml configures it.",
    "check": "Check the suite's kernels without a GPU.",
    "github": "Show a result of check or compare in a pull request on GitHub.",
    "list": "List the cases of the suite.",
    "runs": "List the runs in the database, and exclude or delete bad ones.",
    "show": "Show a case's history.",
    "report": "Show measurements, or export them to a file.",
    "plot": "Draw the rate of each variant in a run.",
    "dashboard": "Write the pages to read in the morning.",
    "serve": "Serve the pages and an API.",
    "send": "Send runs to a server.",
    "token": "Make, list and revoke the tokens of the server.",
    "findings": "List the findings, and accept, resolve or ignore them.",
    "expect": "List what each night should have, and forget what is gone on purpose.",
    "watchdog": "Report hosts whose night is overdue.",
    "baseline": "Set, show and clear pinned baselines.",
    "config": "Show the settings in force and where each comes from.",
    "key": "List, add and remove the keys that may sign code for this host.",
    "schedule": "Start nights automatically.",
    "devices": "List the devices of this machine.",
    "doctor": "Check the environment and print a cure for what is missing.",
    "db": "Upgrade, check, back up and prune the database.",
    "sync": "Copy the runs of one database that another lacks.",
}

ARGUMENTS = "perfsvc.cli.arguments"
"""The key of the arguments after the command's name in the context's ``meta``."""


UNATTENDED = frozenset({"nightly", "watchdog"})
"""Commands whose output no person sees: people are told if the settings cannot be read."""


class LazyGroup(click.Group):
    """A group whose commands are modules of this package, imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return its command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"perfsvc.cli.{cmd_name}_command").command
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the group's own options; ``past_click`` keeps click from handling a closed pipe under ``--help``."""
        with ending.past_click():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; ``past_click`` keeps click from turning exceptions into exit codes of its own."""
        ctx.meta[ARGUMENTS] = tuple(ctx.args)  # kept for cli(): click empties ctx.args before it calls cli()
        with ending.past_click():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in ``--help`` without importing the commands."""
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
    help="The file with the defaults of options; /dev/null for none.",
)
@click.version_option(__version__, prog_name="perfsvc")
@click.pass_context
def cli(context: click.Context, config: Path | None) -> None:
    """Times CUDA kernels, stores the times, and reports what regressed."""
    context.obj = Configuration(config)
    name = context.invoked_subcommand or ""
    try:
        context.default_map = context.obj.defaults(name, cli.get_command(context, name), context.meta[ARGUMENTS])
    except ConfigError as error:
        if name in UNATTENDED:
            _tell_last_targets(error, name, config)
        raise


def _tell_last_targets(error: ConfigError, name: str, config: Path | None) -> None:
    """Tell those whom the last night here notified that its settings cannot be read any more."""
    import platform

    from perfsvc.config.settings import NotifySettings
    from perfsvc.service.expect.memory import NightMemory, Place
    from perfsvc.service.notify.notify import notify_of_failure

    def report(line: str) -> None:
        click.echo(line, err=True)

    place = Place(str(Path.cwd()), str(config.absolute()) if config else "", database="")
    targets = NightMemory(place, report).targets
    notify_of_failure(error, f"perfsvc {name} on {platform.node()}", NotifySettings(), targets, report)


def main() -> NoReturn:
    """Run the ``perfsvc`` command and exit with its exit code; ``ending`` prints the message of an exception."""
    ending.open_streams()
    ending.permit_many_files()
    # A page of ten thousand series makes hundreds of thousands of objects, hardly any of them in a cycle. With the
    # usual limits, Python's garbage collector looks at all of them again and again: 40 % of the time of such a page.
    gc.set_threshold(100_000, 50, 100)
    with ending.stoppable():
        code = ending.code_of(lambda: cli.main(standalone_mode=False))
    sys.exit(code)
