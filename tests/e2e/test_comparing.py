"""What ``perfsvc compare`` compares with what, and which answers it takes over: no green for the wrong reason."""

import contextlib
import json
import shutil
import sqlite3

import pytest

from tests.e2e.history import git

USUAL = {"seconds": 1e-4}
SLOW = {"seconds": 1.05e-4}
CASES = ("scale/alpha[n=100]", "scale/beta[n=100]", "scale/gamma[n=100]")


class Repository:
    """A workplace whose suite lies in a git repository."""

    def __init__(self, perfsvc):
        self.perfsvc = perfsvc
        self.root = perfsvc.folder / "repository"
        self.suite = self.root / "scale"
        shutil.copytree(perfsvc.suites / "scale", self.suite)
        git(self.root, "init", "-q", "-b", "main")
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", "first")
        perfsvc.play({"*": USUAL})

    def run(self, *arguments, code=0):
        return self.perfsvc.fake("--replicas", "2", *arguments, suite=self.suite, code=code)

    def compare(self, *arguments, code=None):
        return self.perfsvc("compare", *arguments, "--suite", self.suite, code=code)


@pytest.fixture
def repository(perfsvc):
    return Repository(perfsvc)


def measured(perfsvc, *arguments, suite="scale", code=0):
    perfsvc.play({"*": USUAL})
    return perfsvc.fake("--replicas", "2", *arguments, suite=suite, code=code)


# --- which runs ------------------------------------------------------------------------------------------------------


def test_a_run_is_not_compared_with_itself_and_the_newer_of_two_equal_runs_is_named(repository):
    repository.run()
    for pair in (("HEAD", "HEAD"), ("1", "1"), ("main", "1"), ("latest", "HEAD")):
        ended = repository.compare(*pair, code=2)
        assert f"{pair[0]} and {pair[1]} are the same run, 1" in ended.err
        cure = f"name two runs (perfsvc runs), or compare with the baselines: perfsvc compare @baseline {pair[1]}"
        assert f"cure: {cure}\n" in ended.err
    repository.run()
    assert "HEAD = run 2, " in (out := repository.compare("1", "HEAD", code=0).out)
    assert "(the newest of its 2 runs)" in out


def test_a_revision_is_its_whole_run_and_not_a_newer_one_of_one_case(repository):
    repository.run()
    repository.run("--select", "scale/alpha")
    git(repository.root, "commit", "-q", "--allow-empty", "-m", "second")
    repository.run()
    out = repository.compare("HEAD~1", "HEAD", code=0).out
    assert "against HEAD~1 = run 1, " in out
    assert "(rather than run 2, which has only 1 of 3 cases)" in out
    found = repository.compare("HEAD~1", "HEAD", "--format", "json", code=0).json
    assert (found["base"], found["new"], found["counts"]) == (1, 3, {"unchanged": 3})
    assert found["base_run"]["why"] == "rather than run 2, which has only 1 of 3 cases"
    assert "rather than run 2, which" in repository.compare("HEAD~1", "HEAD", "--format", "github", code=0).out


# --- what is missing -------------------------------------------------------------------------------------------------


def test_series_that_the_new_run_should_have_end_with_4_and_are_named_unless_they_are_not_selected(perfsvc):
    measured(perfsvc)
    measured(perfsvc, "--select", "scale/beta")
    out = perfsvc("compare", "1", "2", code=4).out
    assert "2 of 3 series are missing in run 2: scale/alpha[n=100], scale/gamma[n=100]" in out
    assert "--select, --exclude and --device limit what is compared" in out
    assert out.endswith("0 regressions, 0 improvements, 1 unchanged, 2 missing\n")
    assert "2 of 3 series are missing in run 2" in perfsvc("compare", "1", "2", "--format", "github", code=4).out
    assert perfsvc("compare", "1", "2", "--format", "junit", code=4).out.count('<failure type="missing"') == 2
    for limits in (("--select", "scale/beta"), ("--exclude", "scale/alpha", "--exclude", "scale/gamma")):
        found = perfsvc("compare", "1", "2", *limits, "--format", "json", code=0).json
        assert [row["case"] for row in found["verdicts"]] == [CASES[1]]
    assert "is missing in run 2: scale/gamma" in perfsvc("compare", "1", "2", "--exclude", "scale/alpha", code=4).out
    ended = perfsvc("compare", "1", "2", "--select", "scale/delta", code=2)
    assert "neither run has a case that is selected" in ended.err


def test_a_gpu_that_the_new_run_does_not_have_is_missing_unless_it_is_not_asked_for(perfsvc):
    other = perfsvc.folder / "other.json"
    other.write_text(json.dumps({"cases": {"*": USUAL}, "uuid": "FAKE-1"}))
    measured(perfsvc, "--device", f"fake:{other}")
    measured(perfsvc)
    out = perfsvc("compare", "1", "2", code=4).out
    assert "3 of 6 series are missing in run 2: scale/alpha[n=100], scale/beta[n=100], scale/gamma[n=100]" in out
    perfsvc("compare", "1", "2", "--device", "FAKE-0", code=0)
    perfsvc("compare", "1", "2", "--device", "FAKE-1", code=4)
    assert len(perfsvc("compare", "1", "2", "--device", "Fake GPU", "--format", "json").json["verdicts"]) == 6


def test_what_was_over_budget_is_not_missing(perfsvc):
    measured(perfsvc)
    with contextlib.closing(sqlite3.connect(perfsvc.database)) as connection, connection:
        connection.execute("update measurements set wall_s = 10")
    ran = measured(perfsvc, "--budget", "25s", "--format", "json")
    over = [row["case"] for row in ran.json["over_budget"]]
    assert len(over) == 2
    assert f"over budget in run 2, and not missing: {', '.join(over)}\n" in perfsvc("compare", "1", "2", code=0).out
    found = perfsvc("compare", "1", "2", "--format", "json", code=0).json
    assert [row["case"] for row in found["over_budget"]] == over
    assert found["counts"] == {"unchanged": 1}
    assert "over budget in run 2" in perfsvc("compare", "1", "2", "--format", "github", code=0).out


# --- answers of other runs -------------------------------------------------------------------------------------------


@pytest.fixture
def confirmed(perfsvc):
    """Two runs of the old code, and two of the new one: only the first of these was measured again."""
    suite = perfsvc.own("scale")
    perfsvc.play({"*": USUAL})
    for _ in range(2):
        perfsvc.fake("--replicas", "2", suite=suite, code=0)
    old = perfsvc.modules()["beta"]
    perfsvc.rebuild(suite)
    perfsvc.play({"*": USUAL, "scale/beta": SLOW, old: USUAL})
    perfsvc.fake("--replicas", "2", "--confirm", suite=suite, code=1)
    perfsvc.fake("--replicas", "2", suite=suite, code=1)
    assert perfsvc.rows("select run_id, baseline_run_id, cause from confirmations") == [(3, 1, "kernel")]
    return perfsvc


def beta(ended):
    (row,) = [row for row in ended.json["verdicts"] if row["case"] == CASES[1]]
    return row


def test_a_confirmed_regression_is_confirmed_against_every_run_of_the_same_code(confirmed):
    for pair in (("1", "3"), ("2", "3"), ("1", "4"), ("2", "4"), ("@baseline", "4")):
        row = beta(confirmed("compare", *pair, "--format", "json", code=1))
        assert (row["verdict"], row["cause"]) == ("regression", "kernel"), pair
        assert "measured in A/B pairs, its code is 5.0 % slower than the baseline's" in row["reason"]
        assert row["reason"].endswith(", as run 3 had it measured") is (pair[1] == "4")
        assert row["reason"].count("measured in A/B pairs") == 1
    causes = confirmed.rows("select run_id, cause from levels where verdict = 'regression' order by run_id")
    assert causes == [(3, "kernel"), (4, "unconfirmed")], "a night asks for its own answer"
    row = beta(confirmed("compare", "4", "1", "--format", "json", code=0))
    assert (row["verdict"], row["cause"]) == ("improvement", "unconfirmed"), "a change back is another change"
    suite = confirmed.folder / "scale"
    confirmed.rebuild(suite)
    confirmed.fake("--replicas", "2", suite=suite, code=1)
    assert beta(confirmed("compare", "1", "5", "--format", "json", code=1))["cause"] == "unconfirmed", "other code"


# --- words -----------------------------------------------------------------------------------------------------------


def test_the_counts_of_every_format_keep_noise_apart(perfsvc):
    measured(perfsvc)
    perfsvc.play({"*": USUAL, "scale/beta": SLOW})  # the same code
    perfsvc.fake("--replicas", "2", code=0)
    counted = "0 regressions, 1 moved by noise, 0 improvements, 2 unchanged"
    for form in ("table", "github", "junit"):
        out = perfsvc("compare", "1", "2", "--format", form, code=0).out
        assert out.count(counted) == 1, form
        assert "<failure" not in out
    found = perfsvc("compare", "1", "2", "--format", "json", code=0).json
    assert found["counts"] == {"noise": 1, "unchanged": 2}
    (row,) = [row for row in found["verdicts"] if row["case"] == CASES[1]]
    assert row["sentence"].startswith("noise scale/beta[n=100]: +5.0 % (+5.0 % to +5.0 %), ")
