"""Single pages from the store: they equal those of a built site, and follow the database."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace

import pytest

from perfsvc.errors import NotMeasuredError, PerfsvcError, UsageError
from perfsvc.model import Verdict
from perfsvc.service.dashboard import build as building
from perfsvc.service.dashboard import live
from perfsvc.service.dashboard.build import build
from perfsvc.service.dashboard.live import LivePages
from tests.pages.conftest import planted

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Stop the clock of pages."""
    stopped = SimpleNamespace(now=lambda zone: NOW)
    for module in (building, live):
        monkeypatch.setattr(module, "datetime", stopped)


def test_each_page_equals_that_of_a_built_site_and_one_that_does_not_exist_is_none(nights, tmp_path, names):
    planted(nights)
    pages = build(nights.store, tmp_path / "site")
    assert len(pages) > 6
    shown = LivePages(nights.store)
    for page in pages:
        assert shown.page(page.relative_to(tmp_path / "site").as_posix()) == page.read_text()
    missing = names.page(names.tiled).replace(".html", "0.html")
    for path in ("", "nothing.html", missing, "findings/7.html", "../index.html", "series/.html"):
        assert shown.page(path) is None


def test_a_page_follows_the_database(nights, names):
    nights.night({names.tiled: 1e-4})
    shown = LivePages(nights.store)
    assert "run 1," in shown.page("index.html")
    run = nights.night({names.tiled: 1.2e-4})
    assert "run 2," in shown.page("index.html")
    assert "excluded: noise" not in shown.page(names.page(names.tiled))
    nights.store.exclusions.exclude(run, None, reason="noise", by="ann")
    assert "excluded: noise" in shown.page(names.page(names.tiled))
    number = nights.find(run, [names.tiled])
    assert f"Finding {number}" in shown.page(f"findings/{number}.html")


def test_a_case_that_no_run_of_the_pages_measured_is_named_without_a_link(nights, names):
    nights.night({names.tiled: 1e-4, names.naive: 2e-4})
    run = nights.night({names.tiled: 1.2e-4})
    nights.judge(run, {names.tiled: Verdict.REGRESSION, names.naive: Verdict.MISSING})
    for last, has_page in ((2, True), (1, False)):
        for page in (f"compare/{run}.html", "index.html"):
            shown = LivePages(nights.store, last=last)
            html = shown.page(page)
            assert names.page(names.tiled).rpartition("/")[2] in html
            assert (names.page(names.naive).rpartition("/")[2] in html) is has_page
            assert (shown.page(names.page(names.naive)) is not None) is has_page


def test_any_two_runs_are_compared(nights, names):
    for time in (1e-4, 1.1e-4, 1.5e-4):
        nights.night({names.tiled: time})
    shown = LivePages(nights.store)
    page = shown.compare(1, 3)
    assert "Run 3 against run 1" in page
    assert 'href="1-2.html"' in page
    assert page == shown.page("compare/1-3.html")
    with pytest.raises(NotMeasuredError, match="no run 9"):
        shown.compare(1, 9)
    with pytest.raises(UsageError, match="the same run"):
        shown.page("compare/3-3.html")


def test_a_link_to_the_comparison_of_a_run_stays_right_when_the_run_is_old(nights, names):
    for _ in range(4):
        nights.judge(nights.night({names.tiled: 1e-4}), {names.tiled: Verdict.REGRESSION})
    unjudged = nights.night({names.tiled: 1e-4})
    shown, fresh = LivePages(nights.store, last=2), LivePages(nights.store)
    for run in (1, 2, 3):
        assert shown.page(f"compare/{run}.html") == fresh.page(f"compare/{run}.html")
    nights.store.exclusions.exclude(2, None, reason="noise", by="ann")
    page = shown.page("compare/3.html")
    assert 'href="2.html"' not in page
    assert 'href="4.html"' in page
    assert [shown.page(f"compare/{run}.html") for run in (2, unjudged)] == [None, None]
    with pytest.raises(NotMeasuredError, match="no run 99"):
        shown.page("compare/99.html")


def test_threads_share_the_pages(nights, names):
    planted(nights)
    nights.judge(12, {names.tiled: Verdict.REGRESSION})
    shown = LivePages(nights.store)
    paths = ["index.html", "series.html", "findings.html", "findings/1.html", names.page(names.tiled)]
    with ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(shown.page, paths * 4))
    fresh = LivePages(nights.store)
    assert pages == [fresh.page(path) for path in paths] * 4


@pytest.mark.slow
def test_what_can_happen_to_a_database_shows_on_the_pages_as_on_those_of_a_full_build(nights, tmp_path, names):
    shown, random = LivePages(nights.store, last=6), Random(7)
    cases = [names.tiled, names.naive, names.hostile]
    changes = ["night", "find", "dirty", "exclude", "rename", "delete"]
    for step, change in enumerate(["night"] * 2 + changes):
        newest = next((row.id for row in nights.store.runs.list(1)), 0)
        match change:
            case "night" | "dirty":
                times = {case: random.choice([1e-4, 1.3e-4, "out of memory"]) for case in random.sample(cases, 2)}
                run = nights.night(times, dirty=change == "dirty", replicas=random.choice([1, 3]))
                nights.judge(run, dict.fromkeys(times, Verdict.MISSING))
            case "exclude":
                nights.store.exclusions.exclude(newest, None, reason="noise", by="ann")
            case "find":
                with suppress(ValueError):  # the series has a finding already
                    nights.find(newest, [names.tiled])
            case "rename":
                cases[1] = replace(names.naive, variant="renamed", formerly=("naive",))
            case "delete":
                with suppress(PerfsvcError):  # a finding needs the run
                    nights.store.exclusions.delete(newest, reason="by mistake", by="ann")
        for page in build(nights.store, tmp_path / "site", last=6):
            path = page.relative_to(tmp_path / "site").as_posix()
            assert shown.page(path) == page.read_text(), (step, path)
