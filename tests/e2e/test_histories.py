"""What a renamed variant, a raised version and a git revision mean to a case's history."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALPHA, BETA, FIRST = "scale/alpha[n=100]", "scale/beta[n=100]", "scale/first[n=100]"


def edit(folder, old, new):
    bench = folder / "scale" / "bench.py"
    text = bench.read_text()
    assert old in text
    bench.write_text(text.replace(old, new))


def copied(workplace, folder):
    """Return a copy of the suite ``scale`` that tests may change."""
    shutil.copytree(workplace.suites / "scale", folder)
    workplace.play({"*": {"seconds": 1e-4}})
    return folder


def verdicts(ended):
    return {row["case"]: row["verdict"] for row in ended.json["results"]}


@pytest.fixture(scope="module")
def renamed(new_workplace):
    """Return a workplace with three runs: before a rename, after it, and after a raised version."""
    workplace = new_workplace()
    suite = copied(workplace, workplace.folder / "kernels")
    arguments = ("--exclude", "scale/gamma", "--format", "json")
    ended = [workplace.fake(*arguments, suite=suite, code=0)]
    edit(suite, 'variant("alpha")', 'variant("first", formerly="alpha")')
    ended.append(workplace.fake(*arguments, suite=suite, code=0))
    shutil.copy(workplace.database, workplace.folder / "renamed.db")
    edit(suite, "benchmark = Benchmark(", "benchmark = Benchmark(version=2,")
    ended.append(workplace.fake(*arguments, suite=suite, code=0))
    return workplace, ended


def test_a_renamed_variant_keeps_its_history(renamed):
    workplace, (before, after, _) = renamed
    assert verdicts(before) == {ALPHA: "new", BETA: "new"}
    assert verdicts(after) == {FIRST: "unchanged", BETA: "unchanged"}
    rows = workplace("compare", "1", "2", "--format", "json", code=0).json["verdicts"]
    assert {row["case"]: row["verdict"] for row in rows} == {FIRST: "unchanged", BETA: "unchanged"}


@pytest.mark.parametrize("name", [ALPHA, FIRST])
def test_a_history_is_shown_under_both_names(renamed, name):
    workplace, _ = renamed
    rows = workplace("show", name, "--db", "renamed.db", "--format", "json", code=0).json
    assert [(row["run"], row["case"]) for row in rows] == [(1, ALPHA), (2, FIRST)]
    later = workplace("show", name, "--format", "json", code=0).json
    assert [(row["run"], row["case"]) for row in later] == [(3, FIRST)]


def test_a_case_may_be_named_by_a_glob_of_its_variant(renamed):
    workplace, _ = renamed
    refused = workplace("show", "fir*", "--db", "renamed.db", code=2)
    assert "write '*/fir*'" in refused.err
    assert FIRST in workplace("show", "*/fir*", "--db", "renamed.db", code=0).out


@pytest.mark.parametrize(("last", "runs", "note"), [(1, [2], True), (2, [1, 2], False), (3, [1, 2], False)])
def test_a_history_shows_the_newest_runs_and_says_if_there_are_older_ones(renamed, last, runs, note):
    workplace, _ = renamed
    ended = workplace("show", FIRST, "--db", "renamed.db", "--last", str(last), "--format", "json", code=0)
    assert [row["run"] for row in ended.json] == runs
    assert ended.err == ("this is only the newest run of 2; --last 2 shows all\n" if note else "")
    shown = workplace("show", FIRST, "--db", "renamed.db", "--last", str(last), code=0)
    assert shown.err == ended.err
    rows = [line.split() for line in shown.out.splitlines() if line.startswith("✓")]
    assert [int(row[1]) for row in rows] == runs
    assert [row[-1] for row in rows] == (["%"] if note else ["–", "%"])  # the change is that since run 1


def test_a_raised_version_ends_a_history(renamed):
    workplace, (_, _, raised) = renamed
    assert verdicts(raised) == {FIRST: "new", BETA: "new"}
    rows = workplace("compare", "2", "3", "--format", "json", code=0).json["verdicts"]
    assert {row["verdict"] for row in rows} == {"new"}
    assert "version 2 of a case whose history ended with version 1" in rows[0]["reason"]


# --- git -------------------------------------------------------------------------------------------------------------


def git(folder, *arguments):
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def commit(folder, message):
    git(folder, "add", "--all")
    git(folder, "commit", "--message", message)


@pytest.fixture(scope="module")
def repository(new_workplace):
    """Return a repository of three commits: two measured, the second also with changes, the third not measured."""
    workplace = new_workplace()
    workplace.environment["TMPDIR"] = str(workplace.folder / "temporary")
    workplace.environment["PATH"] = f"{Path(sys.executable).parent}:{workplace.environment['PATH']}"
    (workplace.folder / "temporary").mkdir()
    top = workplace.folder / "a repository"
    suite = copied(workplace, top / "kernels")
    git(workplace.folder, "init", "--initial-branch", "main", top)
    commit(top, "first")
    workplace.fake(suite=suite, code=0)
    workplace.play({"*": {"seconds": 1e-4}, "scale/beta": {"seconds": 1.2e-4}})
    edit(suite, "n, flops=n)", "n, flops=2 * n)")
    commit(top, "second")
    workplace.fake(suite=suite, code=1)
    edit(suite, "flops=2 * n)", "flops=3 * n)")
    workplace.fake("--select", "scale/alpha", "--replicas", "1", suite=suite, code=0)
    commit(top, "third")
    return workplace, suite


def test_revisions_of_the_suites_repository_are_compared(repository):
    workplace, suite = repository
    ended = workplace("compare", "HEAD~2", "HEAD~1", "--suite", suite, "--format", "json", code=1).json
    assert (ended["base"], ended["new"]) == (1, 2)
    assert {row["case"] for row in ended["verdicts"] if row["verdict"] == "regression"} == {BETA}
    rows = workplace("report", "main~1", "--suite", suite, "--format", "json", code=0).json
    assert {row["run"] for row in rows} == {2}


def test_a_dirty_tree_is_marked(repository):
    workplace, _ = repository
    origins = [row["provenance"] for row in workplace("runs", "--format", "json", code=0).json]
    dirty = {origin["dirty"]: origin["commit"] for origin in origins[-3:]}
    assert [origin["dirty"] for origin in origins[-3:]] == [True, False, False]
    assert {origin["branch"] for origin in origins[-3:]} == {"main"}
    assert f"{dirty[True][:9]}+" in workplace("runs", code=0).out


@pytest.mark.slow
def test_the_error_for_an_unmeasured_revision_names_the_command_that_measures_it(repository):
    workplace, suite = repository
    ended = workplace("compare", "HEAD~1", "HEAD", "--suite", suite, code=2)
    assert "HEAD (" in ended.err
    _, _, command = ended.err.partition("cure: measure it: ")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command.strip()} --device cpu"],  # auto takes no CPU where a GPU was measured
        cwd=workplace.folder,
        env=workplace.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    after = workplace("compare", "HEAD~1", "HEAD", "--suite", suite, "--format", "json", code=4).json
    assert (after["base"], after["new"]) == (2, 4)
    assert {row["verdict"] for row in after["verdicts"]} == {"new", "missing"}  # another device measured it


def test_an_unknown_revision_is_an_error(repository):
    workplace, suite = repository
    ended = workplace("compare", "no-such-branch", "HEAD~1", "--suite", suite, code=2)
    assert "'no-such-branch' is no run, label or git revision" in ended.err
    assert "perfsvc runs" in ended.err


def test_outside_any_repository_a_revision_is_a_commit_or_a_branch_of_a_run(repository, tmp_path):
    workplace, suite = repository
    outside = tmp_path / "outside"
    shutil.copytree(suite, outside)
    commits = {row["id"]: row["provenance"]["commit"] for row in workplace("runs", "--format", "json", code=0).json}
    first = commits[1]
    for base, new in ((first[:7], commits[2]), (first, "main")):
        found = workplace("compare", base, new, "--suite", outside, "--format", "json", code=1).json
        assert (found["base"], found["new"]) == (1, 2)
    assert found["new_run"]["why"] == "the newest of the branch main"
    for name in ("HEAD", first[:6], "no-such-branch"):
        ended = workplace("compare", name, "1", "--suite", outside, code=2)
        assert f"{name!r} is no run, no label, and no commit or branch of a run" in ended.err.replace("\n", " ")
        assert f"--suite, now {outside}" in ended.err.replace("\n", " ")


def test_outside_any_repository_a_quick_run_does_not_hide_the_complete_run_of_a_branch(perfsvc, tmp_path):
    top = tmp_path / "repository"
    suite = copied(perfsvc, top / "kernels")
    git(perfsvc.folder, "init", "--initial-branch", "main", top)
    commit(top, "first")
    perfsvc.fake(suite=suite, code=0)
    perfsvc.fake(suite=suite, code=0)
    perfsvc.fake("--select", "*/alpha", suite=suite, code=0)
    outside = tmp_path / "outside"
    shutil.copytree(suite, outside)
    found = perfsvc("compare", "1", "main", "--suite", outside, "--format", "json", code=0).json
    assert found["new"] == 2
    assert found["new_run"]["why"] == "rather than run 3, which has only 1 of 3 cases"


def test_the_error_for_a_device_without_the_case_names_the_devices_that_have_it(perfsvc):
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake("--select", "*/alpha", "--replicas", "1", code=0)
    ended = perfsvc("show", "scale/alpha[n=100]", "--device", "GPU-gone", code=2)
    assert "scale/alpha[n=100] was never measured on GPU-gone" in ended.err
    assert "cure: name a device that has it: FAKE-0" in ended.err
    assert perfsvc("show", "scale/alpha[n=100]", "--device", "FAKE-0", code=0).out
