"""Publishing against a stand-in for GitHub, and what `perfsvc github` reads: a result, perhaps hostile, and its job."""

import json
import os
import re
from dataclasses import replace

import pytest

from perfsvc.errors import FormatError, UsageError
from perfsvc.report.export.github import marker
from perfsvc.report.export.objects import plain
from perfsvc.report.review import Remark, Review
from perfsvc.service.github.api import GithubApi, GithubError
from perfsvc.service.github.event import Job, job_of
from perfsvc.service.github.publish import publish, settled
from perfsvc.service.github.result import MOST_BYTES, read_review
from tests.github_stand_in import BOT, PERSON, REPOSITORY, Github, Refused, Serving

COMMIT, OTHER = "a" * 40, "b" * 40
SLOWER = Remark("regression", "error", "regression: dot/tree[n=4]", "dot/tree[n=4]", "+5 %", "k/dot.cu", 3, "0a")
REVIEW = Review("compare", False, "1 regression", "a against b", (SLOWER,), ("1 skipped",))
GOOD = Review("compare", True, "0 regressions", "a against b")
NAME = "perfsvc compare"


@pytest.fixture
def github():
    label = {"sha": COMMIT, "label": "mallory:feature"}
    return Github(pulls={7: {"number": 7, "state": "open", "head": label}})


@pytest.fixture
def send(github):
    """Publish a review, and return what was published and the seconds that it waited."""
    with Serving(github) as api:

        def published(review=REVIEW, **values):
            waits = []
            given = {"repository": REPOSITORY, "commit": COMMIT, "pull": 7, "api": api, "token": github.token}
            return publish(review, Job(**{**given, **values}), wait=waits.append), waits

        yield published


def bodies(github):
    return [comment["body"] for comment in github.comments]


def test_many_annotations_come_in_batches_and_the_last_completes_the_check_run(github, send):
    remarks = tuple(replace(SLOWER, line=line) for line in range(1, 121))
    send(replace(REVIEW, remarks=remarks, counts=""))
    (run,) = github.check_runs
    assert [annotation["start_line"] for annotation in run["output"]["annotations"]] == list(range(1, 121))
    assert (run["status"], run["conclusion"]) == ("completed", "failure")
    sent = [request.partition(" ")[0] for request in github.requests if "check-runs" in request]
    assert sent == ["POST", "PATCH", "PATCH"]
    assert run["output"]["title"] == NAME  # there are no counts


def test_a_commit_that_is_judged_again_gets_a_new_check_run_and_keeps_its_comment(github, send):
    done, _ = send(GOOD)
    assert github.comments == []
    assert done.done[-1] == "there is no comment: there is nothing to look at"
    send()
    send(GOOD)
    assert [run["conclusion"] for run in github.check_runs] == ["success", "failure", "success"]
    assert github.check_runs[2]["output"]["annotations"] == []
    (body,) = bodies(github)
    assert "0 regressions" in body


def test_the_comment_is_found_on_a_later_page(github, send):
    send()
    own = github.comments.pop()
    others = [{"id": number, "issue": 7, "user": BOT, "body": "hello"} for number in range(250)]
    github.comments = [*others, own]
    send(GOOD)
    assert len(github.comments) == 251
    assert "0 regressions" in github.comments[-1]["body"]


def test_a_comment_of_a_person_with_our_marker_and_a_quoted_one_are_left_alone(github, send):
    theirs = [(PERSON, marker(NAME)), (BOT, f"> {marker(NAME)}")]
    github.comments = [
        {"id": number, "issue": 7, "user": user, "body": body} for number, (user, body) in enumerate(theirs, start=1)
    ]
    send()
    assert bodies(github)[:2] == [body for _, body in theirs]
    assert len(github.comments) == 3


def test_jobs_with_other_names_have_comments_of_their_own(github, send):
    send()
    with Serving(github) as api:
        publish(REVIEW, Job(REPOSITORY, COMMIT, 7, api=api, token=github.token), name="H200")
    assert [run["name"] for run in github.check_runs] == [NAME, "H200"]
    assert len(github.comments) == 2


@pytest.mark.parametrize("pull", [{"head": {"sha": OTHER}}, {"state": "closed"}])
def test_a_result_that_a_newer_push_overtook_changes_no_comment(github, send, pull):
    github.pulls[7] |= pull
    done, _ = send()
    assert github.comments == []
    assert "not the newest one" in done.done[-1]
    assert len(github.check_runs) == 1


def test_a_second_workflow_finds_the_pull_request_by_branch_and_commit(github, send):
    send(pull=None, head="mallory:feature")
    assert [comment["issue"] for comment in github.comments] == [7]
    github.comments.clear()
    send(pull=None, head="mallory:other")
    send(pull=None, head="mallory:feature", commit=OTHER)
    assert github.comments == []


def test_a_result_cannot_pass_if_its_workflow_failed():
    job = Job(REPOSITORY, COMMIT, failed=True)
    assert not settled(GOOD, job).passed
    assert settled(GOOD, replace(job, failed=False)).passed
    assert settled(REVIEW, job) is REVIEW


def test_without_a_token_nothing_is_sent(github, send):
    done, _ = send(token="")
    assert github.requests == []
    assert "no GITHUB_TOKEN" in done.refused


def test_a_token_that_may_only_read_is_no_fault(github, send):
    github.writable = False
    done, waits = send()
    assert done.done == ()
    assert "Resource not accessible by integration" in done.refused
    assert "fork" in done.refused
    assert waits == []


# --- faults ----------------------------------------------------------------------------------------------------------


def test_an_error_of_the_server_is_tried_again(github, send):
    github.faults = [("POST .*check-runs", Refused(502, "Bad Gateway")), ("GET .*comments", Refused(503, ""))]
    _, waits = send()
    assert (len(github.check_runs), len(github.comments), waits) == (1, 1, [2.0, 2.0])


def test_a_comment_that_was_written_before_the_error_is_not_written_twice(github, send):
    github.faults_after = [("POST .*comments", Refused(502, "Bad Gateway"))]
    send()
    assert len(github.comments) == 1


def test_a_rate_limit_is_waited_for(github, send):
    secondary = "You have exceeded a secondary rate limit"
    refused = [
        (Refused(403, secondary, Retry_After="7"), 7),
        (Refused(429, "Too many requests", Retry_After="5"), 5),
        (Refused(403, secondary), 2),
        (Refused(403, "API rate limit exceeded", X_RateLimit_Remaining="0", X_RateLimit_Reset="1"), 1),
    ]
    for answer, waited in refused:
        github.faults = [("POST .*check-runs", answer)]
        _, waits = send()
        assert waits == [waited]
    assert len(github.check_runs) == len(refused)


def test_a_rate_limit_that_ends_late_and_a_refused_request_fail_at_once(github, send):
    github.faults = [("POST", Refused(429, "Too many requests", Retry_After="3600"))]
    with pytest.raises(GithubError, match="429 Too many requests") as raised:
        send()
    assert raised.value.cure == "run the job again later"
    github.faults = [("POST", Refused(422, "Validation Failed"))] * 9
    with pytest.raises(GithubError, match="422 Validation Failed"):
        send()
    assert len(github.requests) == 2


def test_errors_that_stay_fail_and_hide_the_token(github, send):
    github.faults = [("POST", Refused(500, f"oops \x1b[2J {'x' * 10_000}"))] * 9
    with pytest.raises(GithubError) as raised:
        send()
    assert github.token not in str(raised.value)
    assert len(str(raised.value)) < 1_000
    assert raised.value.exit_code == 5


def test_the_token_follows_no_redirect(github, send):
    stranger = Github(token=github.token)
    with Serving(stranger) as elsewhere:
        github.faults = [("POST", Refused(302, "", Location=elsewhere))]
        with pytest.raises(GithubError, match="302"):
            send()
    assert stranger.requests == []


def test_a_server_that_is_not_there_is_named_in_words():
    waits = []
    with pytest.raises(GithubError, match="ConnectionRefusedError"):
        GithubApi("http://127.0.0.1:9", "t", waits.append).send("GET", "/x")
    assert waits == [2, 4, 8]


@pytest.mark.parametrize("url", ["http://api.github.com", "file:///etc/passwd", "", "http://127.0.0.1.example.com"])
def test_the_token_goes_to_no_address_without_https(url):
    with pytest.raises(UsageError):
        GithubApi(url, "t")


def test_hostile_texts_reach_github_as_json_and_within_its_limits(github, send):
    hostile = "\x1b[2J\u202e::error::x\r\n<!-- -->\ud800" + "🐌" * 20_000
    remark = replace(SLOWER, title=hostile, text=hostile)
    send(Review("compare", False, hostile, hostile, (remark,) * 120, (hostile,) * 120))
    assert len(github.check_runs) == len(github.comments) == 1
    written = json.dumps([github.check_runs, bodies(github)], ensure_ascii=False)
    assert "\x1b" not in written
    assert "\u202e" not in written
    assert re.sub("`[^`]*`", "", bodies(github)[0]).count("<!--") == 1


# --- the result and the job ------------------------------------------------------------------------------------------


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
    *(written(remarks=[plain(SLOWER)] * 20_001), written(notes=[1])),
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
