"""The workflows of GitHub and the jobs of GitLab that ``perfsvc init`` writes, and the action that they use."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perfsvc.errors import ConfigError, UsageError
from perfsvc.service.ci.files import GITHUB, GITLAB, write_github, write_gitlab

ROOT = Path(__file__).parents[3]
ACTION = "ada/perfsvc@v0.1.0"
SOURCE = "git+https://gitlab.example.com/tools/perfsvc@v0.1.0"
HARD = Path('my "kernels": #1 @ACTION@')


def read(path):
    return yaml.load(path.read_text(), yaml.BaseLoader)  # noqa: S506 - text only: no "on" becomes True


def steps_of(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_workflows_use_the_action_with_inputs_that_it_has(tmp_path):
    inputs = set(read(ROOT / "action.yml")["inputs"])
    paths = write_github(tmp_path, ACTION, HARD, force=False)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == list(GITHUB)
    ours = [step for path in paths for step in steps_of(read(path)) if step.get("uses") == ACTION]
    assert len(ours) == 3
    assert set().union(*(step["with"] for step in ours)) <= inputs
    assert [step["with"]["suite"] for step in ours[:2]] == [str(HARD)] * 2


def test_only_the_jobs_that_write_may_write_and_checkouts_keep_no_token(tmp_path):
    first, second = map(read, write_github(tmp_path, ACTION, Path("kernels"), force=False))
    assert first["permissions"] == {"contents": "read"}
    assert second["permissions"] == {}
    for job in [*first["jobs"].values(), *second["jobs"].values()]:
        assert {name for name, level in job["permissions"].items() if level == "write"} == {"checks", "pull-requests"}
    for step in steps_of(first):
        assert not step.get("uses", "").startswith("actions/checkout") or step["with"]["persist-credentials"] == "false"


def test_the_second_workflow_runs_no_code_of_a_pull_request(tmp_path):
    second = read(write_github(tmp_path, ACTION, Path("kernels"), force=False)[1])
    assert second["on"]["workflow_run"]["workflows"] == ["perfsvc"]
    assert [step["uses"].partition("@")[0] for step in steps_of(second)] == [
        "actions/download-artifact",
        ACTION.partition("@")[0],
    ]


def test_shellcheck_finds_nothing_in_the_scripts_and_those_of_the_action_contain_no_expression(tmp_path):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert shellcheck
    gitlab = read(write_gitlab(tmp_path, SOURCE, Path("kernels"), force=False)[0])
    scripts = [step["run"] for step in read(ROOT / "action.yml")["runs"]["steps"]]
    assert not [script for script in scripts if "${{" in script]
    scripts += ["\n".join([*gitlab[".perfsvc"]["before_script"], *gitlab[".perfsvc"]["after_script"]])]
    scripts += ["\n".join(job["script"]) for job in gitlab.values() if "script" in job]
    files = [tmp_path / f"script{place}.sh" for place, _ in enumerate(scripts)]
    for file, script in zip(files, scripts, strict=True):
        file.write_text(f"#!/bin/bash\nset -euo pipefail\n{script}\n")
    checked = subprocess.run([shellcheck, "-e", "SC2154", *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_jobs_of_gitlab_write_the_reports_that_they_name(tmp_path):
    (path,) = write_gitlab(tmp_path, SOURCE, HARD, force=False)
    assert path.name == next(iter(GITLAB))
    jobs = read(path)
    common = jobs[".perfsvc"]
    assert common["variables"]["PERFSVC_SOURCE"] == SOURCE
    assert common["variables"]["PERFSVC_SUITE"] == str(HARD)
    for name in ("perfsvc check", "perfsvc compare"):
        files = dict(re.findall(r"--output (\w+)=(\S+)", " ".join(jobs[name]["script"])))
        assert [files["json"]] == common["artifacts"]["paths"]
        assert {name: files[name] for name in ("codequality", "junit")} == common["artifacts"]["reports"]


def test_an_existing_file_is_kept_without_force(tmp_path):
    (first, second) = write_github(tmp_path, ACTION, Path("kernels"), force=False)
    first.unlink()
    second.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write_github(tmp_path, ACTION, Path("kernels"), force=False)
    assert not first.exists()
    assert second.read_text() == "mine"
    write_github(tmp_path, ACTION, Path("kernels"), force=True)
    assert second.read_text() != "mine"


def test_an_action_a_source_and_a_suite_that_cannot_be_are_refused(tmp_path):
    suite = Path("kernels")
    for action in ("perfsvc", "ada/perfsvc", "ada/perfsvc@", "a/b@v1\nx: y", "a/b@${{ x }}", "./local"):
        with pytest.raises(UsageError, match="no action of GitHub"):
            write_github(tmp_path, action, suite, force=False)
    for source in ("perfsvc", "./perfsvc", 'https://x"; rm -rf /', "https://x/$TOKEN"):
        with pytest.raises(UsageError, match="no URL of perfsvc"):
            write_gitlab(tmp_path, source, suite, force=False)
    for outside in ("/abs", "../up", "${{ secrets.X }}"):
        with pytest.raises(UsageError, match="is not in this folder"):
            write_github(tmp_path, ACTION, Path(outside), force=False)
