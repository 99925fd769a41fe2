"""What a renamed variant, a raised version and a git revision mean to a case's history."""

import shutil

import pytest

from tests.e2e.history import git

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


@pytest.fixture(scope="module")
def renamed(new_workplace):
    """Return a workplace with three runs, before a rename, after it, and after a raised version, and the last one."""
    workplace = new_workplace()
    suite = copied(workplace, workplace.folder / "kernels")
    arguments = ("--exclude", "scale/gamma", "--format", "json")
    workplace.fake(*arguments, suite=suite, code=0)
    edit(suite, 'variant("alpha")', 'variant("first", formerly="alpha")')
    workplace.fake(*arguments, suite=suite, code=0)
    shutil.copy(workplace.database, workplace.folder / "renamed.db")
    edit(suite, "benchmark = Benchmark(", "benchmark = Benchmark(version=2,")
    return workplace, workplace.fake(*arguments, suite=suite, code=0)


def test_a_history_shows_the_newest_runs_and_says_if_there_are_older_ones(renamed):
    workplace, _ = renamed
    for last, runs, note in ((1, [2], "this is only the newest run of 2; --last 2 shows all\n"), (2, [1, 2], "")):
        ended = workplace("show", FIRST, "--db", "renamed.db", "--last", str(last), "--format", "json", code=0)
        assert ([row["run"] for row in ended.json], ended.err) == (runs, note)
        shown = workplace("show", FIRST, "--db", "renamed.db", "--last", str(last), code=0)
        assert shown.err == note
        rows = [line.split() for line in shown.out.splitlines() if line.startswith("✓")]
        assert [int(row[1]) for row in rows] == runs
        assert [row[-1] for row in rows] == (["%"] if note else ["–", "%"])  # the change is that since run 1


def test_a_raised_version_ends_a_history(renamed):
    workplace, raised = renamed
    assert {row["case"]: row["verdict"] for row in raised.json["results"]} == {FIRST: "new", BETA: "new"}
    for name in (ALPHA, FIRST):
        rows = workplace("show", name, "--format", "json", code=0).json
        assert [(row["run"], row["case"]) for row in rows] == [(3, FIRST)]
    rows = workplace("compare", "2", "3", "--format", "json", code=0).json["verdicts"]
    assert {row["verdict"] for row in rows} == {"new"}
    assert "version 2 of a case whose history ended with version 1" in rows[0]["reason"]
    ended = workplace("show", FIRST, "--device", "GPU-gone", code=2)
    assert f"{FIRST} was never measured on GPU-gone" in ended.err
    assert "cure: name a device that has it: FAKE-0" in ended.err


# --- git -------------------------------------------------------------------------------------------------------------


def commit(folder, message):
    git(folder, "add", "--all")
    git(folder, "commit", "--message", message)


@pytest.fixture(scope="module")
def repository(new_workplace):
    """Return a repository of three commits: two measured, the second also with changes, the third not measured."""
    workplace = new_workplace()
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


def test_outside_any_repository_a_revision_is_a_commit_or_a_branch_of_a_run(repository, tmp_path):
    workplace, suite = repository
    rows = workplace("report", "main~1", "--suite", suite, "--format", "json", code=0).json
    assert {row["run"] for row in rows} == {2}
    outside = tmp_path / "outside"
    shutil.copytree(suite, outside)
    commits = {row["id"]: row["provenance"]["commit"] for row in workplace("runs", "--format", "json", code=0).json}
    first = commits[1]
    short = first if first[:6].isdigit() else first[:7]  # digits alone are the number of a run
    for base, new in ((short, commits[2]), (first, "main")):
        found = workplace("compare", base, new, "--suite", outside, "--format", "json", code=1).json
        assert (found["base"], found["new"]) == (1, 2)
    assert found["new_run"]["why"] == "the newest of the branch main"
    for name in ("HEAD", short[:6] if short != first else "abcdef", "no-such-branch"):
        ended = workplace("compare", name, "1", "--suite", outside, code=2)
        assert f"{name!r} is no run, no label, and no commit or branch of a run" in ended.err.replace("\n", " ")
        assert f"--suite, now {outside}" in ended.err.replace("\n", " ")
