"""Single pages from the store: they equal those of a built site, and follow the database."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from perfsvc.errors import NotMeasuredError, UsageError
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


def test_each_page_equals_that_of_a_built_site(nights, tmp_path):
    planted(nights)
    pages = build(nights.store, tmp_path / "site")
    assert len(pages) > 6
    shown = LivePages(nights.store)
    for page in pages:
        assert shown.page(page.relative_to(tmp_path / "site").as_posix()) == page.read_text()


def test_a_page_that_does_not_exist_is_none(nights, names):
    planted(nights)
    shown = LivePages(nights.store)
    missing = names.page(names.tiled).replace(".html", "0.html")
    for path in ("", "nothing.html", missing, "findings/7.html", "compare/99.html", "../index.html", "series/.html"):
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


def test_threads_share_the_pages(nights, names):
    planted(nights)
    nights.judge(12, {names.tiled: Verdict.REGRESSION})
    shown = LivePages(nights.store)
    paths = ["index.html", "series.html", "findings.html", "findings/1.html", names.page(names.tiled)] * 8
    with ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(shown.page, paths))
    assert pages == [LivePages(nights.store).page(path) for path in paths]
