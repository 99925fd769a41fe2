"""What ``perfsvc github`` reads: a result file, which may be hostile, and the description of the job."""

import json
import os

import pytest

from perfsvc.errors import FormatError, UsageError
from perfsvc.report.export.objects import plain
from perfsvc.report.review import Remark, Review
from perfsvc.service.github.event import job_of
from perfsvc.service.github.result import MOST_BYTES, read_review

REMARK = Remark("regression", "error", "regression: dot/tree[n=4]", "dot/tree[n=4]", "+5 %", "k/dot.cu", 3, "0a")
REVIEW = Review("compare", False, "1 regression", "a against b", (REMARK,), ("1 skipped",))
COMMIT = "a" * 40


@pytest.fixture
def file(tmp_path):
    return tmp_path / "result.json"


def written(**changes):
    """Return the JSON of a result with other values in its remark, or in its review."""
    review = plain(REVIEW)
    for name, value in changes.items():
        (review["remarks"][0] if name in review["remarks"][0] else review)[name] = value
    return json.dumps({"verdicts": [], "review": review})


def test_a_review_is_read_as_it_was_written(file):
    file.write_text(written())
    assert read_review(file) == REVIEW


REFUSED = (
    *("", "[]", "{}", "null", '{"review": {}}', "[" * 100_000, "\0"),
    *(written(level="fatal"), written(rule="a::b"), written(rule="regression\n"), written(path=None)),
    *(written(line=-1), written(line=10**12), written(line="3"), written(line=True)),
    *(written(title="x" * 30_000), written(text="x" * 2_000_000)),
    *(written(fingerprint="../x"), written(fingerprint="0a\n"), written(passed="yes"), written(command="rm")),
    *(written(remarks=[plain(REMARK)] * 20_001), written(notes=[1])),
)


def test_all_else_is_refused_with_a_cure(file):
    for content in (*(text.encode() for text in REFUSED), b'{"review": "\xff\xfe"}'):
        file.write_bytes(content)
        with pytest.raises(FormatError) as raised:
            read_review(file)
        assert "--output FILE.json" in raised.value.cure, content[:100]
        assert len(str(raised.value)) < 1_000


def test_a_file_that_is_too_large_is_not_read_to_its_end(file):
    with file.open("wb") as sparse:
        sparse.truncate(MOST_BYTES * 1000)
    with pytest.raises(FormatError, match="more than 16 MiB"):
        read_review(file)


def test_a_fifo_a_folder_and_no_file_are_refused_at_once(tmp_path, file):
    os.mkfifo(file)
    for path in (file, tmp_path, tmp_path / "missing"):
        with pytest.raises(FormatError):
            read_review(path)


# --- the job ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path):
    def of(kind, event, **variables):
        file = tmp_path / "event.json"
        file.write_text(json.dumps(event))
        given = {"REPOSITORY": "ada/kernels", "SHA": "c" * 40, "EVENT_NAME": kind, "EVENT_PATH": str(file)}
        return job_of({f"GITHUB_{name}": value for name, value in given.items()} | variables)

    return of


def test_the_commit_of_a_job_is_that_of_its_event(job):
    found = job("pull_request", {"pull_request": {"number": 7, "head": {"sha": COMMIT}}})
    assert (found.commit, found.pull, found.api) == (COMMIT, 7, "https://api.github.com")  # its head, not the merge
    found = job("push", {})
    assert (found.commit, found.pull) == ("c" * 40, None)


def test_a_second_workflow_has_the_commit_and_the_branch_of_the_first(job):
    first = {"head_sha": COMMIT, "head_branch": "x&state=all", "conclusion": "success"}
    found = job("workflow_run", {"workflow_run": {**first, "head_repository": {"owner": {"login": "mallory"}}}})
    assert (found.commit, found.head, found.failed) == (COMMIT, "mallory:x&state=all", False)


INCOMPLETE = [
    ("pull_request", {}, {}),
    ("pull_request", [], {}),
    ("pull_request", {"pull_request": {"number": "7/x", "head": {"sha": COMMIT}}}, {}),
    ("pull_request", {"pull_request": {"number": 7, "head": {"sha": "../x"}}}, {}),
    ("workflow_run", {"workflow_run": {"head_sha": COMMIT, "head_repository": None}}, {}),
    ("push", {}, {"GITHUB_SHA": ""}),
    ("push", {}, {"GITHUB_REPOSITORY": "ada/kernels/../x"}),
    ("push", {}, {"GITHUB_EVENT_PATH": "/no/such/file"}),
]


def test_an_incomplete_job_is_an_error_with_a_cure(job):
    for kind, event, variables in INCOMPLETE:
        with pytest.raises(UsageError) as raised:
            job(kind, event, **variables)
        assert raised.value.cure == "run it in a job of GitHub Actions", (kind, event, variables)
