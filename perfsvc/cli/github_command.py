"""``perfsvc github``."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfsvc.cli import output
from perfsvc.cli.ending import own_stream

if TYPE_CHECKING:
    from perfsvc.report.review import Review
    from perfsvc.service.github.event import Job


@click.command("github")
@click.argument("result", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--name",
    default="",
    metavar="NAME",
    show_default="perfsvc check or perfsvc compare",
    help=("The name of the check run. Jobs on several GPUs need a name each."),
)
@click.option("--no-comment", is_flag=True, help="Write no comment on the pull request.")
def command(result: Path, name: str, *, no_comment: bool) -> None:
    """Show a result in a pull request on GitHub: a check run with annotations, a comment, and the step's summary.

    RESULT is a JSON file of perfsvc check or perfsvc compare. The command runs in a job of GitHub Actions, with the
    job's token in the environment variable GITHUB_TOKEN. If the token may not write, as in a pull request from a fork,
    the log of the job has the annotations instead.
    """
    from perfsvc.report.export.github import workflow_commands
    from perfsvc.service.github.event import job_of
    from perfsvc.service.github.publish import publish, settled
    from perfsvc.service.github.result import read_review

    job = job_of(os.environ)
    review = settled(read_review(result), job)
    _write_summary(review, job, name)
    published = publish(review, job, name=name, comment=not no_comment)
    for sentence in published.done:
        click.echo(sentence)
    if published.refused:
        output.warn([published.refused])
    if not published.done:
        click.echo(workflow_commands(review), file=own_stream(sys.stdout), nl=False)


def _write_summary(review: "Review", job: "Job", name: str) -> None:
    """Append the review to the step's summary, if the job has one."""
    from perfsvc.files import reporting, write_output
    from perfsvc.report.export.github import summary

    if job.summary is not None:
        with reporting(job.summary):
            earlier = job.summary.read_bytes() if job.summary.exists() else b""
        text = summary(review, name or f"perfsvc {review.command}", job.commit)
        write_output(job.summary, earlier + text.encode(errors="backslashreplace"))
