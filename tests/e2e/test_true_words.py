"""What a night, its page and its message say about noise, about each case of a finding, and about a run without one."""

import re

import pytest

from perfsvc.report.wording import NO_FINDING
from tests.e2e.history import git
from tests.e2e.nights import USUAL, Nights

SETTINGS = """
[notify]
targets = {team = "TEAM_URL"}
"""
LITTLE = {"seconds": 1.04e-4}
DIGESTS = "select distinct sha256 from binary_files"


def one_night(perfsvc):
    perfsvc.environment["TEAM_URL"] = "json://127.0.0.1:9/"  # it gets nothing from the usual night
    Nights(perfsvc, SETTINGS, page=True)(code=0)


def with_receiver(perfsvc, receiver):
    """Return the nights of a prepared workplace, which send to a receiver."""
    perfsvc.environment["TEAM_URL"] = receiver.address()
    return Nights(perfsvc, SETTINGS, page=True)


@pytest.fixture
def nights(prepared, receiver):
    return with_receiver(prepared(one_night), receiver)


def slow_down(nights, **variants):
    """Rebuild every case; the new binaries of these variants are slower."""
    old = {digest: USUAL for (digest,) in nights.perfsvc.rows(DIGESTS)}
    nights.perfsvc.rebuild(nights.suite)
    nights.perfsvc.play({"*": USUAL, **{f"scale/{name}": times for name, times in variants.items()}, **old})


def page(nights, name="index.html"):
    """The text of a page of the site, without its tags."""
    html = (nights.perfsvc.folder / "site" / name).read_text()
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


# --- noise is no regression ------------------------------------------------------------------------------------------


def test_a_suspect_that_pairs_cleared_is_counted_as_noise_and_says_why(nights, receiver):
    nights.perfsvc.rebuild(nights.suite)
    nights.perfsvc.play({"*": USUAL, "scale/alpha": {"seconds": [1.04e-4] * 2 + [1e-4] * 22}})
    nights(code=0)
    assert receiver.received == []
    assert nights.result(2, "confirm") == ("1 noise", "")
    assert nights.perfsvc("report", "2").out.count("0 regressions, 1 moved by noise, 0 improvements, 2 unchanged") == 1
    (row,) = [row for row in nights.perfsvc("compare", "1", "2", "--format", "json").json["verdicts"] if row["cause"]]
    assert row["sentence"].startswith("noise scale/alpha[n=100]: +4.0 % ")
    assert row["sentence"].endswith("beside the baseline's code it is the same: the difference did not stay")


# --- why there is no finding -----------------------------------------------------------------------------------------


def measured_once(perfsvc):
    nights = Nights(perfsvc, SETTINGS, page=True)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        git(nights.suite, *arguments)
    perfsvc.fake("--replicas", "2", suite=nights.suite, code=0)


@pytest.fixture
def dirty(prepared, receiver):
    """A suite in a repository that was measured once, and then changed and not committed: beta is slower."""
    nights = with_receiver(prepared(measured_once), receiver)
    slow_down(nights, beta=LITTLE)
    return nights


def test_a_run_with_uncommitted_changes_says_why_it_raises_no_finding(dirty):
    perfsvc = dirty.perfsvc
    out = perfsvc.fake("--confirm", "--replicas", "2", suite=dirty.suite, code=1).out
    assert out.endswith(f"measured again: 1 confirmed, 0 cleared, 0 unconfirmed\n{NO_FINDING}\n")
    assert perfsvc("findings", "--format", "json", code=0).json == []
    assert perfsvc("report", "2", code=0).out.endswith(f"{NO_FINDING}\n")
    again = ("confirm", "scale/beta[n=100]", "--device", f"fake:{perfsvc.script}", "--suite", dirty.suite)
    assert perfsvc(*again, code=1).out.endswith(f"1 confirmed, 0 cleared, 0 unconfirmed\n{NO_FINDING}\n")
    ended = perfsvc.fake("--confirm", "--replicas", "2", "--format", "json", suite=dirty.suite, code=1)
    assert ended.json["no_finding"] == NO_FINDING


def test_uncommitted_changes_that_stay_reach_a_person_once(dirty, receiver):
    dirty(code=1)
    assert dirty.result(1, "findings") == (NO_FINDING, "")
    assert ", with uncommitted changes in " in dirty.result(1, "revision")[0]
    assert NO_FINDING.capitalize() in page(dirty)
    assert receiver.received == []
    dirty(code=5)
    (message,) = receiver.received
    assert message.json["title"] == "stage findings failed"
    assert "findings: uncommitted changes in two nights in a row" in message.json["message"]
    dirty(code=5)
    assert len(receiver.received) == 1
