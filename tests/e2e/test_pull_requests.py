"""The action on a repository with a planted regression, against a stand-in for GitHub's API."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.e2e.history import CASE, SLOW, USUAL, History
from tests.github_stand_in import REPOSITORY, Github, Runner, Serving

pytestmark = pytest.mark.timeout(400)  # compiles and measures two revisions for each push

PULL = 7
KERNEL = ("gpu/kernels/scale/scale.cu", 6)


class PullRequest:
    """A repository with the branches ``main`` and ``feature``, and the jobs that GitHub starts for each push."""

    def __init__(self, perfsvc, github, api):
        self.history, self.github, self.perfsvc = History(perfsvc), github, perfsvc
        self.history.line("a")
        self.history.git("checkout", "-q", "-b", "feature")
        self.event = perfsvc.folder / "event.json"
        self.program = perfsvc.folder / "perfsvc"
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m perfsvc "$@"\n')
        self.program.chmod(0o755)
        self.environment = perfsvc.environment | {
            "GITHUB_API_URL": api,
            "GITHUB_BASE_REF": "main",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.event),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "42",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_TOKEN": github.token,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def push(self, subject, text="", times=None):
        """Commit a kernel to the branch, and check its merge out as actions/checkout does; return the commit."""
        self.history.git("checkout", "-q", "feature")
        head = self.history.commit(subject, text, times)
        self.history.git("checkout", "-q", "--detach", "main")
        self.history.git("merge", "-q", "--no-ff", "-m", "merge", "feature")
        self.environment["GITHUB_SHA"] = self.history.git("rev-parse", "HEAD")
        pull = {"number": PULL, "state": "open", "head": {"sha": head, "label": "mallory:feature"}}
        self.github.pulls[PULL] = pull
        self.event.write_text(json.dumps({"pull_request": pull}))
        return head

    def job(self, command="compare", arguments="", **inputs):
        folder = self.perfsvc.folder / f"runner-{len(list(self.perfsvc.folder.glob('runner-*')))}"
        folder.mkdir()
        device = f"--device={self.history.device}" if command == "compare" else ""
        given = {"command": command, "arguments": f"{device}\n{arguments}", "program": str(self.program)}
        return Runner(folder, self.environment).run(self.history.root, **{"suite": "gpu/kernels", **given, **inputs})


@pytest.fixture
def pull(perfsvc):
    github = Github()
    with Serving(github) as api:
        yield PullRequest(perfsvc, github, api)


def test_a_regression_fails_the_job_and_a_second_push_updates_check_and_comment(pull):
    first = pull.push("slower", "B", SLOW)
    job = pull.job()
    assert job.code == 1, job.printed
    (run,) = pull.github.check_runs
    assert (run["name"], run["head_sha"], run["status"], run["conclusion"]) == (
        "perfsvc compare", first, "completed", "failure",
    )  # fmt: skip
    assert run["output"]["title"].startswith("1 regression, ")
    assert run["details_url"] == f"https://github.com/{REPOSITORY}/actions/runs/42"
    (annotation,) = run["output"]["annotations"]
    assert (annotation["path"], annotation["start_line"]) == KERNEL
    assert (annotation["annotation_level"], annotation["title"]) == ("failure", f"regression: {CASE}")
    assert annotation["message"].startswith("+5.0 % (")
    (comment,) = pull.github.comments
    assert comment["issue"] == PULL
    assert f"| `regression: {CASE}` | +5.0 % (" in comment["body"]
    assert f"| `{KERNEL[0]}:{KERNEL[1]}` |" in comment["body"]
    assert first[:10] in comment["body"]
    assert job.summary.startswith("### perfsvc compare: 1 regression")
    assert "::error" not in job.printed
    the_files_name_the_line_of_the_kernel(job.outputs)

    second = pull.push("as before", "c", USUAL)
    job = pull.job()
    assert job.code == 0, job.printed
    (_, run) = pull.github.check_runs
    assert (run["head_sha"], run["conclusion"], run["output"]["annotations"]) == (second, "success", [])
    (comment,) = pull.github.comments
    assert second[:10] in comment["body"]
    assert "regression:" not in comment["body"]
    assert pull.github.token not in job.printed


def the_files_name_the_line_of_the_kernel(outputs):
    assert outputs["exit-code"] == "1"
    ((result,),) = [run["results"] for run in json.loads(Path(outputs["sarif"]).read_text())["runs"]]
    where = result["locations"][0]["physicalLocation"]
    assert (where["artifactLocation"]["uri"], where["region"]["startLine"]) == KERNEL
    assert result["ruleId"] == "regression"
    tests = ET.fromstring(Path(outputs["junit"]).read_text()).iter("testcase")  # noqa: S314 - our own
    failed = [test.get("name") for test in tests if test.find("failure") is not None]
    assert failed == [CASE]


def test_a_fork_is_judged_by_the_log_and_a_second_workflow_writes(pull):
    head = pull.push("slower", "B", SLOW)
    pull.github.writable = False
    job = pull.job()
    assert job.code == 1
    assert f"::error file={KERNEL[0]},line={KERNEL[1]},title=regression%3A {CASE}::+5.0 %25" in job.printed
    assert (pull.github.check_runs, pull.github.comments) == ([], [])

    pull.github.writable = True
    first = {
        "head_sha": head,
        "head_branch": "feature",
        "conclusion": "failure",
        "head_repository": {"owner": {"login": "mallory"}},
    }
    pull.event.write_text(json.dumps({"workflow_run": first}))
    pull.environment |= {"GITHUB_EVENT_NAME": "workflow_run", "GITHUB_SHA": "0" * 40}
    published = pull.job("publish", result=job.outputs["result"])
    assert published.code == 0, published.printed
    assert [(run["head_sha"], run["conclusion"]) for run in pull.github.check_runs] == [(head, "failure")]
    assert [comment["issue"] for comment in pull.github.comments] == [PULL]


def test_a_command_that_cannot_judge_fails_the_job_and_shows_nothing(pull):
    pull.push("as before", "c", USUAL)
    job = pull.job(base="no-such-revision")
    assert job.code == 2
    assert "no-such-revision" in job.printed
    assert pull.github.requests == []
    assert job.outputs["result"] == ""


def test_inputs_are_no_part_of_a_script(pull, tmp_path):
    pull.push("as before")
    harmful = f'$(touch {tmp_path}/a)`touch {tmp_path}/b`"; touch {tmp_path}/c; "'
    result = tmp_path / "result.json"
    review = {"command": "check", "passed": True, "counts": "", "about": "", "remarks": [], "notes": []}
    result.write_text(json.dumps({"review": review}))
    for name in ("base", "suite", "arguments"):
        assert pull.job(**{name: harmful}).code
    assert pull.job("publish", name=harmful, result=str(result)).code == 0
    assert pull.github.check_runs[0]["name"].startswith("$(touch ")
    assert not [name for name in "abc" if (tmp_path / name).exists()]


def test_the_action_installs_itself_with_the_extras_of_its_command(pull, tmp_path):
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/typed\n[ "$2" = venv ] || exit 0\nmkdir -p "$3/bin"\n'
        f'cp "$0" "$3/bin/python"\ncp {pull.program} "$3/bin/perfsvc"\n'
    )
    python.chmod(0o755)
    pull.push("as before")
    job = pull.job(program="", python=str(python), base="no-such-revision")
    assert "'no-such-revision' is no revision" in job.printed
    venv, install = (tmp_path / "typed").read_text().splitlines()
    assert venv.startswith("-m venv ")
    assert install.endswith(f" {Path(__file__).parents[2]}[cuda,nvcc]")
