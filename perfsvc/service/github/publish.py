"""Publish a review on GitHub: a check run with annotations, a comment on the pull request, and the step's summary."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from perfsvc import units
from perfsvc.report.export.github import check_run_annotations, marker, one_line, summary
from perfsvc.report.review import NOTICE, Review
from perfsvc.service.github.api import ATTEMPTS, GithubApi, GithubError
from perfsvc.service.github.event import Job

BATCH = 50
"""Annotations in a request; GitHub's maximum."""
LONGEST_NAME = 100
OF_A_FORK = "in a pull request from a fork this is normal: a second workflow writes the comment"


@dataclass(frozen=True, slots=True)
class Published:
    """What reached GitHub.

    Attributes:
        done: what was written, each as a sentence.
        refused: why the token may not write, as that of a pull request from a fork; empty if it may.
    """

    done: tuple[str, ...] = ()
    refused: str = ""


def publish(
    review: Review,
    job: Job,
    *,
    name: str = "",
    comment: bool = True,
    wait: Callable[[float], object] = time.sleep,
) -> Published:
    """Write the check run and the comment of a review.

    Args:
        review: the review; every text in it may be hostile.
        job: the job, the commit and the pull request.
        name: the name of the check run; empty for ``perfsvc check`` or ``perfsvc compare``.
        comment: whether to comment on the pull request.
        wait: sleeps for a number of seconds before another attempt.

    Raises:
        GithubError: GitHub does not answer, or refuses a request for another reason than the token.
        UsageError: the address of the API is not valid.
    """
    if not job.token:
        return Published(refused="nothing was written to GitHub: there is no GITHUB_TOKEN")
    name = one_line(name or f"perfsvc {review.command}", LONGEST_NAME)
    api = GithubApi(job.api, job.token, wait)
    done: list[str] = []
    try:
        count = _write_check_run(api, review, job, name)
        done.append(f"the check run {name} has {units.count(count, 'annotation')}")
        if comment:
            done.append(_write_comment(api, review, job, name))
    except GithubError as error:
        if not error.is_forbidden:
            raise
        return Published(tuple(done), f"{error.what}\n  cure: {error.cure}; {OF_A_FORK}")
    return Published(tuple(done))


def settled(review: Review, job: Job) -> Review:
    """Return the review of a job: one that passed although its workflow failed does not pass."""
    if not job.failed or not review.passed:
        return review
    return replace(review, passed=False, notes=("the workflow that wrote this result did not succeed", *review.notes))


def _write_check_run(api: GithubApi, review: Review, job: Job, name: str) -> int:
    """Create a completed check run, and return the number of its annotations.

    A commit that is judged again gets a new check run of the same name, which GitHub shows in place of the earlier one:
    annotations can be added to a check run, but not removed. Further batches are added while it is in progress.
    """
    found = check_run_annotations(review)
    batches = [found[start : start + BATCH] for start in range(0, len(found), BATCH)] or [[]]
    title, text = one_line(review.counts, 250) or name, summary(review, name, job.commit)
    end = {"status": "completed", "conclusion": "success" if review.passed else "failure"}
    path = f"/repos/{job.repository}/check-runs"
    number = 0
    for index, batch in enumerate(batches):
        state = end if batch is batches[-1] else {"status": "in_progress"}
        body: dict[str, Any] = {**state, "output": {"title": title, "summary": text, "annotations": batch}}
        if index == 0:
            details = {"details_url": job.url} if job.url else {}
            number = _id_of(api.send("POST", path, {"name": name, "head_sha": job.commit, **details, **body}))
        else:
            # A repeated batch would be shown twice, but a lost one not at all.
            api.send("PATCH", f"{path}/{number}", body)
    return len(found)


def _write_comment(api: GithubApi, review: Review, job: Job, name: str) -> str:
    """Create or update the comment on the pull request, and return what was done.

    A pull request in which there is nothing to look at gets no comment, but an earlier comment is updated.
    """
    pull = _pull(api, job)
    if pull is None:
        return "there is no comment: the commit is not the newest one of an open pull request"
    body = {"body": f"{marker(name)}\n{summary(review, name, job.commit)}"}
    for attempt in range(1, ATTEMPTS + 1):
        earlier = _earlier_comment(api, job, pull, name)
        if earlier is not None:
            api.send("PATCH", f"/repos/{job.repository}/issues/comments/{earlier}", body)
            return f"the comment on pull request {pull} is updated"
        if review.passed and all(remark.level == NOTICE for remark in review.remarks):
            return "there is no comment: there is nothing to look at"
        try:
            api.send("POST", f"/repos/{job.repository}/issues/{pull}/comments", body, again=False)
        except GithubError as error:
            if attempt == ATTEMPTS or 0 < error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            api.wait(2.0**attempt)  # the comment may exist all the same, so it is looked for
            continue
        return f"pull request {pull} has a comment"
    raise AssertionError("the last attempt returns or raises")


def _earlier_comment(api: GithubApi, job: Job, pull: int, name: str) -> int | None:
    """Return the number of the comment that an earlier push wrote; None if there is none.

    Only a comment of a bot counts: a person can copy the marker, and perfsvc must not change what a person wrote.
    """
    for comment in api.pages(f"/repos/{job.repository}/issues/{pull}/comments"):
        by = comment.get("user") or {}
        if by.get("type") == "Bot" and str(comment.get("body", "")).startswith(marker(name)):
            return _id_of(comment)
    return None


def _id_of(answer: Any) -> int:
    """Return the number of an object of GitHub."""
    try:
        return int(answer["id"])
    except (KeyError, TypeError, ValueError):
        raise GithubError("GitHub: the answer has no id", cure="see the environment variable GITHUB_API_URL") from None


def _pull(api: GithubApi, job: Job) -> int | None:
    """Return the number of the open pull request whose newest commit was judged; None if there is none.

    A second workflow knows only the commit and the branch: the number is not taken from the result file, because its
    author could name any other pull request.
    """
    if job.pull is not None:
        found = api.send("GET", f"/repos/{job.repository}/pulls/{job.pull}")
        return job.pull if _is_newest(found, job) else None
    if not job.head:
        return None
    pulls = api.send("GET", f"/repos/{job.repository}/pulls?{urlencode({'state': 'open', 'head': job.head})}")
    return next((int(found["number"]) for found in pulls if _is_newest(found, job)), None)


def _is_newest(pull: dict[str, Any], job: Job) -> bool:
    return pull.get("state") == "open" and (pull.get("head") or {}).get("sha") == job.commit
