"""The command line: one file a command, nothing but parsing and printing.

Commands are imported when they are called, so that ``perfsvc --help`` costs little more than importing click.
"""

import importlib
import os
import sys
from typing import NoReturn

import click

from perfsvc import __version__
from perfsvc.errors import PerfsvcError

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, as shells have it."""

COMMANDS = {
    "run": "Measure the suite, store it, and judge it against the baseline.",
    "compare": "Judge one run against another.",
    "list": "List the cases of the suite.",
    "runs": "List the runs in the database.",
    "show": "Show a case's history.",
    "report": "Export measurements as a table or a file.",
    "baseline": "Set, show and clear what verdicts compare against.",
    "devices": "List the devices of this machine.",
    "doctor": "Check the environment and say how to cure what is missing.",
    "db": "Upgrade and check the database.",
}


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 nothing regressed; 1 something regressed; 2 usage; 3 inconclusive (with --strict); "
    "4 a case failed or gave a wrong result; 5 no device, compiler or database.",
)
@click.version_option(__version__, prog_name="perfsvc")
def cli() -> None:
    """Times CUDA kernels, remembers the times, and says what regressed."""


def main() -> NoReturn:
    """The ``perfsvc`` command: turns every error of ours into its message and exit code."""
    try:
        sys.exit(cli.main(standalone_mode=False))
    except PerfsvcError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted; what was measured is stored")
        sys.exit(INTERRUPTED)


def _say(message: str) -> None:
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    click.echo(click.style(message, fg="red") if coloured else message, err=True)
