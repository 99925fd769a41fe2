"""Publishing against a stand-in for GitHub: faults, limits, other people's comments, and overtaken results."""

import json
import re
from dataclasses import replace

import pytest

from perfsvc.errors import UsageError
from perfsvc.report.export.github import marker
from perfsvc.report.review import Remark, Review
from perfsvc.service.github.api import GithubApi, GithubError
from perfsvc.service.github.event import Job
from perfsvc.service.github.publish import publish, settled
from tests.github_stand_in import BOT, PERSON, REPOSITORY, Github, Refused, Serving

COMMIT, OTHER = "a" * 40, "b" * 40
SLOWER = Remark("regression", "error", "regression: dot/tree[n=4]", "dot/tree[n=4]", "+5 %", "k/dot.cu", 3, "0a")
REVIEW = Review("compare", False, "1 regression", "a against b", (SLOWER,))
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
