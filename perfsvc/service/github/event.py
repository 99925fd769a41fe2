"""What GitHub says about the job in which perfsvc runs: environment variables, and the file with the event."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsvc.errors import UsageError

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OUTSIDE = "run it in a job of GitHub Actions"


@dataclass(frozen=True, slots=True)
class Job:
    """The job in which perfsvc runs, and what it judged.

    Attributes:
        repository: ``owner/name``.
        commit: the judged commit. It comes from the event, and never from a result file.
        pull: the number of the pull request; None if it is not known, or if there is none.
        head: for a second workflow: owner and branch (``owner:branch``) by which the pull request is found.
        failed: for a second workflow: whether the first workflow did not succeed.
        url: the address of the job's run.
        api: the address of GitHub's API.
        token: the job's token; empty if it has none.
        summary: the file with the step's summary.
    """

    repository: str
    commit: str
    pull: int | None = None
    head: str = ""
    failed: bool = False
    url: str = ""
    api: str = "https://api.github.com"
    token: str = ""
    summary: Path | None = None


def job_of(environment: Mapping[str, str]) -> Job:
    """Return the job that GitHub's environment variables describe.

    Raises:
        UsageError: a variable is missing or not valid, or the file with the event cannot be read.
    """
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not _REPOSITORY.fullmatch(repository):
        raise UsageError("the environment variable GITHUB_REPOSITORY names no repository", cure=_OUTSIDE)
    event = _event(environment.get("GITHUB_EVENT_PATH", ""))
    kind = environment.get("GITHUB_EVENT_NAME", "")
    pull, head, failed, commit = None, "", False, environment.get("GITHUB_SHA", "")
    try:
        if kind in {"pull_request", "pull_request_target"}:
            pull, commit = int(event["pull_request"]["number"]), str(event["pull_request"]["head"]["sha"])
        elif kind == "workflow_run":
            first = event["workflow_run"]
            commit, failed = str(first["head_sha"]), first["conclusion"] != "success"
            head = f"{first['head_repository']['owner']['login']}:{first['head_branch']}"
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"the event {kind} has no {error}", cure=_OUTSIDE) from None
    if not _COMMIT.fullmatch(commit):
        raise UsageError("the event names no commit", cure=_OUTSIDE)
    server, run = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_RUN_ID", "")
    summary = environment.get("GITHUB_STEP_SUMMARY", "")
    return Job(
        repository,
        commit,
        pull,
        head,
        failed,
        f"{server}/{repository}/actions/runs/{run}" if server.startswith("https://") and run.isdecimal() else "",
        environment.get("GITHUB_API_URL", "") or "https://api.github.com",
        environment.get("GITHUB_TOKEN", ""),
        Path(summary) if summary else None,
    )


def _event(path: str) -> dict[str, Any]:
    """Return the event; an empty one if the job has no file with it."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"the file GITHUB_EVENT_PATH cannot be read: {error}", cure=_OUTSIDE) from error
    return value if isinstance(value, dict) else {}
