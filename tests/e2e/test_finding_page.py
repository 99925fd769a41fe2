"""The page of a finding, built from real runs of a suite in a git repository."""

import re
import subprocess

import pytest

from tests.e2e.history import CASE, SLOW, USUAL, History


class Story:
    """A repository whose fourth commit made a case slower, measured before and after."""

    def __init__(self, perfsvc):
        self.perfsvc, self.history = perfsvc, History(perfsvc)

    def begin(self):
        self.history.commit("Scale twice", "first", USUAL)
        self.run(code=0)
        self.history.commit("Explain the suite in <b>bold</b>")
        self.history.commit("Name the kernel", "second", USUAL)
        self.history.commit("Unroll less \u202eevil", "third", SLOW)
        self.perfsvc.play(self.history.times)
        self.run(code=1)

    def run(self, *, code):
        arguments = ("--confirm", "--replicas", "2", "--suite", self.history.suite, "--device", self.history.device)
        return self.perfsvc("run", *arguments, code=code)

    def bisect(self, *arguments, code):
        places = ("--good", self.good, "--suite", self.history.suite, "--device", self.history.device)
        return self.perfsvc("bisect", CASE, *places, *arguments, code=code)

    def page(self, number=1):
        """Build the site and return the page of a finding."""
        self.perfsvc("dashboard", "build", self.perfsvc.folder / "site", code=0)
        return (self.perfsvc.folder / "site" / "findings" / f"{number}.html").read_text()


def measured(workplace):
    """Make the story in a workplace."""
    Story(workplace).begin()


@pytest.fixture
def told(prepared):
    """Return the story as it was when both runs had ended."""
    story = Story(prepared(measured))
    story.good, story.bad = story.history.git("rev-parse", "HEAD~3"), story.history.git("rev-parse", "HEAD")
    return story


def section(page, name):
    """Return the section whose heading has this id, or nothing."""
    found = re.search(rf'<section aria-labelledby="{name}">.*?</section>', page, re.DOTALL)
    return found[0] if found else ""


def test_the_commits_are_listed_newest_first_and_a_stored_bisection_names_the_culprit(told):
    page = told.page()
    assert section(page, "bisections") == ""
    assert re.findall(r"<h3>(\S+)", section(page, "sources")) == ["scale/scale.cu"]  # and no equal file
    commits = section(page, "commits")
    subjects = re.findall(r'<th scope="row">(.*?)</th>', commits)
    assert subjects == ["Unroll less \ufffdevil", "Name the kernel", "Explain the suite in &lt;b&gt;bold&lt;/b&gt;"]
    assert told.bad[:10] in commits
    assert "ada@example.com" not in commits
    told.bisect("--finding", "1", code=1)
    page = told.page()
    bisection = section(page, "bisections")
    assert "This commit moved the case" in bisection
    assert re.findall(r'<th scope="row">(Unroll.*?)</th>', bisection) == ["Unroll less \ufffdevil"]
    assert "100.0 µs" in bisection
    assert "105.0 µs" in bisection
    assert section(page, "commits").count("the culprit") == 1


def test_the_commit_that_broke_a_case_is_shown_with_its_checks(told):
    told.history.commit("Forget the factor", "wrong", {"fault": "wrong"})
    told.history.commit("Name the kernel again", "still wrong", {"fault": "wrong"})
    told.run(code=4)
    commits = section(told.page(2), "commits")
    assert re.findall(r'<th scope="row">(.*?)</th>', commits) == ["Name the kernel again", "Forget the factor"]
    assert f"perfsvc bisect '{CASE}' --good {told.bad[:9]} --bad" in commits
    told.bisect("--finding", "2", code=4)
    page = told.page(2)
    assert section(page, "commits").count("the culprit") == 1
    bisection = section(page, "bisections")
    assert "This commit broke the case" in bisection
    assert re.findall(r'<th scope="row">(Forget.*?)</th>', bisection) == ["Forget the factor"]
    assert "Name the kernel again: wrong result: " in bisection
    assert "threshold" not in bisection


def test_a_bisection_of_a_case_that_the_finding_does_not_have_is_refused_before_it_measures(told):
    case = CASE.replace("beta", "alpha")
    arguments = ("--good", told.good, "--suite", told.history.suite, "--device", told.history.device)
    ended = told.perfsvc("bisect", case, *arguments, "--finding", "1", code=2)
    assert f"finding 1 has no series of {case}" in ended.err
    assert f"name one of its cases: {CASE}" in ended.err
    assert "there is no finding 9" in told.bisect("--finding", "9", code=2).err


def test_without_the_commits_the_page_has_the_diff_and_says_why_it_has_no_commits(told):
    kept = told.history.root.rename(told.perfsvc.folder / "kept")
    page = told.page()
    assert f"the suite&#39;s folder {told.history.suite} is not on this machine" in section(page, "commits")
    assert "<code>// third</code>" in section(page, "sources")
    subprocess.run(["git", "clone", "-q", "--depth=1", kept.as_uri(), told.history.root], check=True)
    commits = section(told.page(), "commits")
    assert f"has no commit {told.good[:9]} (it is shallow: git fetch --unshallow)" in commits
