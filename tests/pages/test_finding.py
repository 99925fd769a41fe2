"""The page of a finding with A/B pairs, a bisection, changed sources, and no repository, in a browser."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perfsvc.model import (
    Bisection,
    Cause,
    ChangeKind,
    Commit,
    Confirmation,
    Direction,
    Judgement,
    Kind,
    Measurement,
    ReplayRecord,
    RootCause,
    SkippedCommit,
    Status,
    Suspect,
    Trial,
    Verdict,
    Work,
    digest,
)
from perfsvc.service.dashboard.build import build
from perfsvc.store import CaseCode, MeasurementEntry, Store
from tests.pages.conftest import BOARD, NAIVE, NEW, REASON, TILED, Nights, series_of
from tests.pages.test_explained import CONTRAST

HOSTILE = "</code></td><script>boom()</script><img src=x onerror=boom()> \x1b[2J \u202e"
OLD = "\n".join(f"int line_{number};" for number in range(40))
SLOWER = OLD.replace("int line_20;", f"int line_20; // {HOSTILE} {'x' * 5000}")
SUBJECT = f"Unroll less {HOSTILE}"


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
        threshold=0.01,
        seed=1,
        budget_s=60.0,
        verdict=Verdict.REGRESSION,
        ratio=1.2,
        low=1.18,
        high=1.22,
        looks=3,
        drift=1.001,
        same_code=False,
        wall_s=9.0,
        baseline=processes(case, [1e-4, 1.01e-4, 0.995e-4]),
        candidate=processes(case, [1.2e-4, 1.21e-4, 1.19e-4], first=1),
    )


def slower(run, case):
    judgement = Judgement(
        series_of(case),
        Verdict.REGRESSION,
        ratio=1.2,
        low=1.18,
        high=1.22,
        baseline_run=1,
        candidate_run=run,
        baseline_s=1e-4,
        candidate_s=1.2e-4,
        cause=Cause.KERNEL,
    )
    return Suspect(judgement, ChangeKind.REGRESSION, Direction.SLOWER, "measured in A/B pairs")


def bisected(case):
    good, bad, broken = (
        Commit(letter * 40, f"{SUBJECT} {letter}", f"Eve {HOSTILE} <eve@example.com>", datetime(2026, 3, 1, tzinfo=UTC))
        for letter in "abc"
    )
    sides = processes(case, [1e-4]), processes(case, [1.2e-4])
    trial = Trial(good, bad, Verdict.REGRESSION, "slower", 1.2, 1.18, 1.22, 1, *sides)
    return Bisection(
        case,
        BOARD,
        series_of(case).cache,
        good,
        bad,
        threshold=0.01,
        seed=1,
        metric="time",
        commits=3,
        builds=3,
        compiled=3,
        codes=2,
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


@pytest.fixture(scope="session")
def page_file(template, tmp_path_factory):
    """Build the page of a finding of two cases, with hostile texts wherever a stranger may write."""
    folder = tmp_path_factory.mktemp("finding")
    shutil.copy(template, folder / "perfsvc.db")
    with Store.open(folder / "perfsvc.db") as store:
        nights = Nights(store)
        first, run = (nights.night({TILED: time, NAIVE: time}) for time in (1e-4, 1.2e-4))
        for number, source in ((first, OLD), (run, SLOWER)):
            code = b"cubin %d" % number
            record = ReplayRecord(TILED, Kind.KERNEL, (), (), (digest(code),), digest(b"# bench.py"), seed=number)
            entry = CaseCode(record, {digest(code): code}, b"# bench.py", {f"a/{HOSTILE}.cu": source.encode()})
            (binary,) = store.binaries.put([entry])
            measurement = Measurement(TILED, BOARD.uuid, 9, Status.OK, samples_s=(1e-4,))
            store.measurements.put(number, [MeasurementEntry(measurement, NEW, Work(1, 1), binary=binary)])
        cases = (TILED, NAIVE)
        cause = RootCause("abcdef123..fedcba321", "slower", tuple(slower(run, case) for case in cases))
        (finding,) = store.findings.update(run, [], [cause]).raised
        for case in cases:
            store.confirmations.put(measured_again(run, case))
        store.findings.put_bisection(finding, bisected(TILED))
        build(store, folder / "site")
    return folder / "site" / "findings" / "1.html"


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1600, "light")])
def test_the_page_is_quiet_fits_and_is_accessible(visit, page_file, width, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    visited = visit(page_file, width=width, theme=theme)
    visited.page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    assert visited.messages == []
    assert all(url.startswith((page_file.parents[1].as_uri(), "data:")) for url in visited.requests)
    assert visited.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visited.page.evaluate(CONTRAST) == []
    found = axe.Axe().run(visited.page).response["violations"]
    assert [(one["id"], one["impact"]) for one in found if one["impact"] in {"serious", "critical"}] == []


def test_texts_of_commits_sources_and_reasons_are_shown_as_text(visit, page_file):
    page = visit(page_file).page
    assert page.locator("main img, [onerror], main script").count() == 0
    assert "<script>boom()</script>" in page.locator("section:has(> #bisections)").inner_text()
    added = page.locator(".diff tr.added code").inner_text()
    assert "<img src=x onerror=boom()>" in added
    assert len(added) < 300
    text = page_file.read_text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "style=" not in text
    assert "eve@example.com" not in text


def test_lines_of_a_diff_are_marked_by_sign_word_and_colour(visit, page_file):
    page = visit(page_file).page
    colours = set()
    for side, sign in (("removed", "−"), ("added", "+")):
        row = page.locator(f".diff tr.{side}")
        assert row.count() == 1
        assert row.locator(".sign").inner_text().split() == [side, sign]
        colours.add(row.locator("td").first.evaluate("cell => getComputedStyle(cell).backgroundColor"))
    assert len(colours) == 2


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


def test_the_drawings_are_described_in_words(visit, page_file):
    labels = [
        image.get_attribute("aria-label") for image in visit(page_file).page.locator("section:has(> #again) svg").all()
    ]
    assert labels[0].startswith("pair 1: 100.0 µs → 120.0 µs; pair 2: 101.0 µs → 121.0 µs")
    assert labels[1] == "change +20.0 %, interval +18.0 % to +22.0 %, threshold 1 %"


def test_the_page_names_the_commit_that_the_repository_lacks_and_the_culprit(visit, page_file):
    page = visit(page_file).page
    commits = page.locator("section:has(> #commits)").inner_text()
    assert "abcdef123..fedcba321 are not listed here, because " in commits
    bisection = page.locator("section:has(> #bisections)").inner_text()
    assert "This commit moved the case" in bisection
    assert "1 min" in bisection
