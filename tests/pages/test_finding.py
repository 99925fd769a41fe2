"""The page of a finding with A/B pairs, a bisection, changed sources, and no repository, in a browser."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perfsvc.model import (
    Bisection,
    Cause,
    Commit,
    Confirmation,
    Measurement,
    RootCause,
    SkippedCommit,
    Status,
    Trial,
    Verdict,
    Work,
)
from perfsvc.store import MeasurementEntry
from tests.pages import fleets
from tests.pages.conftest import BOARD, NAIVE, NEW, REASON, TILED, Nights, series_of, slower

HOSTILE = "</code></td><script>boom()</script><img src=x onerror=boom()> \x1b[2J \u202e"
OLD = "\n".join(f"int line_{number};" for number in range(40))
SLOWER = OLD.replace("int line_20;", f"int line_20; // {HOSTILE} {'x' * 5000}")
SUBJECT = f"Unroll less {HOSTILE}"


COUNTS = {"threshold": 0.01, "seed": 1, "metric": "time", "commits": 3, "builds": 3, "compiled": 3, "codes": 2}
PAIRS = {"threshold": 0.01, "seed": 1, "budget_s": 60.0, "looks": 3, "drift": 1.001, "wall_s": 9.0, "same_code": False}
PAIRS |= {"ratio": 1.2, "low": 1.18, "high": 1.22}


def processes(case, seconds, first=0):
    """Return the processes of a side; those of the other side have the numbers between."""
    return tuple(
        Measurement(case, BOARD.uuid, 2 * number + first, Status.OK, samples_s=(time,))
        for number, time in enumerate(seconds)
    )


def measured_again(run, case):
    judgement = replace(slower(run, case).judgement, cause=None)
    return Confirmation(
        replace(slower(run, case), judgement=judgement),
        Cause.KERNEL,
        f"its code is 20 % slower: {REASON}",
        **PAIRS,
        verdict=Verdict.REGRESSION,
        baseline=processes(case, [1e-4, 1.01e-4, 0.995e-4]),
        candidate=processes(case, [1.2e-4, 1.21e-4, 1.19e-4], first=1),
    )


def bisected(case):
    good, bad, broken = (
        Commit(letter * 40, f"{SUBJECT} {letter}", f"Eve {HOSTILE} <eve@example.com>", datetime(2026, 3, 1, tzinfo=UTC))
        for letter in "abc"
    )
    sides = processes(case, [1e-4]), processes(case, [1.2e-4])
    trial = Trial(good, bad, Verdict.REGRESSION, "slower", 1.2, 1.18, 1.22, 1, *sides)
    return Bisection(
        *(case, BOARD, series_of(case).cache, good, bad),
        **COUNTS,
        verdict=Verdict.REGRESSION,
        reason=f"the case is slower {HOSTILE}",
        culprits=(bad,),
        proof=trial,
        changed=("binary",),
        files=(f"kernels/{HOSTILE}.cu",),
        trials=(trial,),
        skipped=(SkippedCommit(broken, f"does not compile: {HOSTILE}"),),
        wall_s=61.0,
    )


def fill(store):
    """Store a finding of two cases, with hostile texts wherever a stranger may write."""
    nights = Nights(store)
    first, run = (nights.night({TILED: time, NAIVE: time}) for time in (1e-4, 1.2e-4))
    for number, source in ((first, OLD), (run, SLOWER)):
        binary = fleets.binary_of(store, f"cubin {number}", {f"a/{HOSTILE}.cu": source.encode()})
        measurement = Measurement(TILED, BOARD.uuid, 9, Status.OK, samples_s=(1e-4,))
        store.measurements.put(number, [MeasurementEntry(measurement, NEW, Work(1, 1), binary=binary)])
    cause = RootCause("abcdef123..fedcba321", "slower", tuple(slower(run, case) for case in (TILED, NAIVE)))
    (finding,) = store.findings.update(run, [], [cause]).raised
    for case in (TILED, NAIVE):
        store.confirmations.put(measured_again(run, case))
    store.findings.put_bisection(finding, bisected(TILED))


@pytest.fixture(scope="session")
def page_file(built):
    return built(fill) / "findings" / "1.html"


def test_the_page_is_sound_and_shows_commits_sources_and_reasons_as_text(visit, page_file):
    for width, theme in ((390, "dark"), (1600, "light")):
        visited = visit(page_file, width=width, theme=theme)
        visited.require_sound(page_file.parents[1])
    page, text = visited.page, page_file.read_text()
    assert "<script>boom()</script>" in page.locator("section:has(> #bisections)").inner_text()
    added = page.locator(".diff tr.added code").inner_text()
    assert "<img src=x onerror=boom()>" in added
    assert len(added) < 300
    for never in ("\x1b", "\u202e", "style=", "eve@example.com"):
        assert never not in text
    commits = page.locator("section:has(> #commits)").inner_text()
    assert "abcdef123..fedcba321 are not listed here, because " in commits
    bisection = page.locator("section:has(> #bisections)").inner_text()
    assert "This commit moved the case" in bisection
    assert "1 min" in bisection


def test_lines_of_a_diff_are_marked_by_sign_word_and_colour_and_drawings_described_in_words(visit, page_file):
    page, colours = visit(page_file).page, set()
    for side, sign in (("removed", "−"), ("added", "+")):
        row = page.locator(f".diff tr.{side}")
        assert row.count() == 1
        assert row.locator(".sign").inner_text().split() == [side, sign]
        colours.add(row.locator("td").first.evaluate("cell => getComputedStyle(cell).backgroundColor"))
    assert len(colours) == 2
    pairs, change, *_ = page.locator("section:has(> #again) svg").all()
    described = pairs.get_attribute("aria-label")
    assert described.startswith("pair 1: 100.0 µs → 120.0 µs; pair 2: 101.0 µs → 121.0 µs")
    assert change.get_attribute("aria-label") == "change +20.0 %, interval +18.0 % to +22.0 %, threshold 1 %"


def test_the_keyboard_reaches_the_diff_and_opens_the_pairs_of_the_second_case(visit, page_file):
    page = visit(page_file, width=390).page
    page.locator(".scroll:has(.diff)").focus()
    assert page.evaluate("document.activeElement.ariaLabel").startswith("changes of transpose/a/")
    second = page.locator("section:has(> #again) details")
    assert second.count() == 1
    assert not second.locator("svg").first.is_visible()
    second.locator("summary").focus()
    page.keyboard.press("Enter")
    assert second.locator("svg[role=img]").count() == 2
    assert second.locator("svg").first.is_visible()
