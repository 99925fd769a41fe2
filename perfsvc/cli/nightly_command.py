"""``perfsvc nightly``."""

import sys

import click

from perfsvc.cli import configuration, ending, options, output
from perfsvc.errors import UsageError
from perfsvc.installation import data_folder


@click.command("nightly")
@click.option("--resume", is_flag=True, help="Resume the night that was stopped before its end.")
@click.option(
    "--wait",
    "wait_s",
    type=options.Duration(),
    default=None,
    show_default="nightly.wait of perfsvc.toml, else not at all",
    help="How long to wait for another night on this host to end: 20m, 2h.",
)
@options.formats
def command(*, resume: bool, wait_s: float | None, output_format: str) -> None:
    """Run one unattended night: check, measure, judge, confirm, and notify people of news.

    perfsvc.toml configures the night. Each night has a folder of its own with its log and its report. A stage that
    fails does not stop the other stages.
    """
    from perfsvc.measure.host.servers import worker_servers
    from perfsvc.process import fork_servers

    loaded = configuration.current().loaded
    settings = loaded.settings
    if not resume and settings.suite == data_folder("kernels") and not loaded.given("suite"):
        raise UsageError(
            "perfsvc.toml names no suite, and there is no folder ./kernels here",
            cure='change to the folder of your suite, or write into perfsvc.toml: suite = "FOLDER" (perfsvc init does)',
        )
    fork_servers.shared(fork_servers.SUITE)  # start the server: it imports while this process imports too
    with worker_servers() as servers, ending.gently() as stopping:
        from perfsvc.report.export.objects import plain
        from perfsvc.report.tables.lists import night_table
        from perfsvc.service.nightly.begin import NightRequest
        from perfsvc.service.nightly.night import nightly

        waiting_s = settings.nightly.wait if wait_s is None else wait_s
        request = NightRequest(settings, resume, waiting_s, configuration.typed())
        with output.progress() as progress:
            night = nightly(request, progress, servers, stopping)
        if output_format == "json":
            output.show_json(plain(night))
        else:
            output.show(night_table(night))
    sys.exit(night.exit_code)
