"""What a night, its page and its message say about noise, about each case of a finding, and about a run without one."""

import re
import shutil
import subprocess
from unittest import mock

import pytest

from perfsvc.model import CaseExplanation, Reason, ReasonKind
from perfsvc.report.wording import NO_FINDING
from tests.e2e.nights import USUAL, Nights

pytestmark = pytest.mark.slow  # whole nights

SETTINGS = """
[notify]
targets = {team = "TEAM_URL"}
"""
LITTLE, MUCH = {"seconds": 1.04e-4}, {"seconds": 4e-4}
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


def test_series_that_noise_moved_are_no_regressions_anywhere(nights, receiver):
    nights.perfsvc.play({"*": USUAL, "scale/alpha": LITTLE, "scale/beta": LITTLE})  # the code is the same
    nights(code=0)
    counted = "0 regressions, 2 moved by noise, 0 improvements, 1 unchanged"
    assert nights.result(2, "judge") == ("2 moved by noise, 1 unchanged", "")
    assert nights.result(2, "confirm") == ("there was no suspect", "")
    assert receiver.received == []
    shown = page(nights)
    assert "0 regressions" in shown
    assert "2 moved by noise" in shown
    assert "scale/alpha[n=100] variants noise +4.0 %" in shown
    for command in (("report", "2"), ("compare", "1", "2")):
        out = nights.perfsvc(*command, code=0).out
        assert out.endswith(f"{counted}\n")
        assert "regression " not in out
    counts = nights.perfsvc("compare", "1", "2", "--format", "json", code=0).json["counts"]
    assert counts == {"noise": 2, "unchanged": 1}


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


# --- each case has its own reason ------------------------------------------------------------------------------------


def explained(store, confirmations, *_):
    """Store an explanation of each confirmed regression, as Nsight Compute would make it possible."""
    for confirmation in confirmations:
        series, judgement = confirmation.suspect.series, confirmation.suspect.judgement
        store.profiles.put_explanation(
            CaseExplanation(
                series.case,
                series.device,
                series.device_model,
                judgement.baseline_run,
                judgement.candidate_run,
                f"{confirmation.ratio:.2f} times as long: {series.case.variant} spills",
                (Reason(ReasonKind.SPILLS, 1.0, "0 → 3 M accesses to local memory"),),
                confirmation.ratio,
            )
        )
    return []


def test_every_case_of_a_finding_has_its_own_reason_under_its_own_number(nights, receiver):
    slow_down(nights, alpha=MUCH, gamma=LITTLE)  # gamma is explained last
    with mock.patch("perfsvc.service.run.run.explain_confirmed", explained):
        nights(code=1)
    (message,) = receiver.received
    assert message.json["title"] == "scale/alpha[n=100] slower by a factor of 4 (register spills), and 1 more"
    lines = message.json["message"].splitlines()
    assert lines[1] == "2 new regressions, 0 new improvements, 1 unchanged"
    alpha = "regression scale/alpha[n=100]: +300.0 % (+300.0 % to +300.0 %)"
    gamma = "regression scale/gamma[n=100]: +4.0 % (+4.0 % to +4.0 %)"
    together = "2 cases: register spills (+4.0 % to +300.0 %)"
    assert [f"- {alpha}", f"- {gamma}", f"- {together}"] == [line for line in lines if line.startswith("- ")]
    assert "why: scale/alpha[n=100]: 4.00 times as long: alpha spills" in lines
    alpha, gamma = f"{alpha}; 4.00 times as long: alpha spills", f"{gamma}; 1.04 times as long: gamma spills"
    measured = "scale/alpha[n=100]: measured in A/B pairs, its code is 300.0 % slower"
    assert any(line.startswith(measured) for line in lines)

    found = nights.perfsvc("findings", "show", "1", "--format", "json", code=0).json
    assert sorted(moved["sentence"] for moved in found["moved"]) == [alpha, gamma]
    assert found["why"] == "scale/alpha[n=100]: 4.00 times as long: alpha spills"

    (group,) = found["explanations"]
    assert (group["text"], group["reason"], group["place"]) == (together, "register spills", "")
    assert [case["sentence"] for case in group["cases"]] == sorted(
        (moved["why"] for moved in found["moved"]), reverse=True
    )

    assert together in nights.perfsvc("findings", code=0).out
    out = nights.perfsvc("findings", "show", "1", code=0).out
    assert f"  {together}\n" in out
    assert "  why: scale/alpha[n=100]: 4.00 times as long: alpha spills\n" in out
    assert "  scale/gamma[n=100]: 1.04 times as long: gamma spills\n" in out

    shown = page(nights, "findings/1.html")
    assert "Finding 1 scale/alpha[n=100] +300.0 % and 1 more" in shown
    assert "scale/alpha[n=100] 4.00 times as long: alpha spills +300.0 %" in shown
    assert "scale/gamma[n=100] 1.04 times as long: gamma spills +4.0 %" in shown
    assert alpha in page(nights)


# --- why there is no finding -----------------------------------------------------------------------------------------


def measured_once(perfsvc):
    nights = Nights(perfsvc, SETTINGS, page=True)
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", nights.suite, *author, *arguments], check=True, capture_output=True)
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


def test_a_night_with_uncommitted_changes_says_why_it_raises_no_finding(dirty, receiver):
    dirty(code=1)
    assert dirty.result(1, "findings") == (NO_FINDING, "")
    assert ", with uncommitted changes in " in dirty.result(1, "revision")[0]
    assert NO_FINDING.capitalize() in page(dirty)
    assert receiver.received == []


def test_uncommitted_changes_that_stay_reach_a_person_once(dirty, receiver):
    dirty(code=1)
    assert receiver.received == []
    dirty(code=5)
    (message,) = receiver.received
    assert message.json["title"] == "stage findings failed"
    assert "findings: uncommitted changes in two nights in a row" in message.json["message"]
    dirty(code=5)
    assert len(receiver.received) == 1


def test_a_clean_run_has_nothing_to_explain_about_findings(dirty):
    shutil.rmtree(dirty.suite / ".git")
    out = dirty.perfsvc.fake("--confirm", "--replicas", "2", suite=dirty.suite, code=1).out
    assert NO_FINDING not in out
    assert "1 open  slower, in run 2, cause: kernel" in dirty.perfsvc("findings", code=0).out
