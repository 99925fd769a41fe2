"""A database in which every text of a stranger is hostile, served and opened in a browser: nothing comes alive."""

import pytest

from tests.e2e.stored_text import fill
from tests.pages import walking
from tests.server.test_hostile_served import hostile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "perfsvc.db"
    fill(path)
    hostile(path, 0)
    with walking.served(path) as base:
        yield base


def test_no_page_of_a_server_runs_or_loads_a_strangers_text(browser, address):
    context = browser.new_context()
    context.set_default_timeout(20_000)

    def read(path):
        answer = context.request.get(address + path)
        assert answer.ok, path
        return str(answer.text())

    kinds = walking.pages_by_kind(read)
    assert len(kinds) > 5
    shown = walking.Window(context.new_page(), address, read)
    shown.listen()
    for path in [path for paths in kinds.values() for path in paths] + ["compare/1-3.html"]:
        shown.open(path)
        shown.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        for tab in shown.page.get_by_role("tab").all():
            tab.click()
        handlers = "one => [...one.attributes].some(each => /^on/i.test(each.name))"
        assert not shown.page.evaluate(f"[...document.querySelectorAll('*')].filter({handlers}).length"), path
        shown.require_quiet()
    context.close()
