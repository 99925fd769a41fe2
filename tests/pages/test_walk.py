"""A walk over the whole site in a browser, as files and from a running server, on a database with every kind of page.

The pages to open come from the links of the pages themselves, so a new kind of page is walked too.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfsvc.model import FindingState
from perfsvc.store import Store
from perfsvc.store.remote.rows import Scope
from tests.pages import walking
from tests.pages.conftest import require_fragment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WIDE, NARROW = 1600, 390
LISTS = {f"/{name}.html" for name in ("index", "findings", "series", "benchmarks", "fleet")}
KINDS = LISTS | {"findings/", "series/", "benchmarks/", "compare/N.html"}
"""The kinds of pages that the walk must find at least."""
ONLY_SERVED = ("sign-in", "compare/1-39.html", "nothing.html")
"""Pages of the server to which no page links."""


# --- the site and the server -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(built, sides) -> Path:
    return built(lambda store: walking.fill(store, sides)).parent / "perfsvc.db"


@pytest.fixture(scope="module")
def token(database) -> str:
    """Return the secret of a token with which a person may read and act."""
    with Store.open(database) as store:
        return store.tokens.make("Ann", (Scope.READ, Scope.ACT), by="root")[1]


@pytest.fixture(scope="module")
def address(database, token) -> Iterator[str]:
    """Start a server that only people who signed in may read, and return its address."""
    (database.parent / "perfsvc.toml").write_text("[server]\nchanges = true\nanonymous = false\n")
    with walking.served(database) as base:
        yield base


# --- a window that notices everything --------------------------------------------------------------------------------


@pytest.fixture
def window(browser, database, request) -> Iterator[Callable[..., walking.Window]]:
    """Return a function that opens a window at the site as files, or at the server with a person signed in."""
    contexts = []

    def opened(way: str, *, width: int = WIDE, theme: str = "light", sign_in: bool = True) -> walking.Window:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        contexts.append(context)
        context.set_default_timeout(20_000)
        if way == "files":
            site = database.parent / "site"
            result = walking.Window(context.new_page(), f"{site.as_uri()}/", lambda path: (site / path).read_text())
        else:
            base = request.getfixturevalue("address")

            def read(path: str) -> str:
                answer = context.request.get(base + path)
                assert answer.ok, f"{path}: {answer.status}"
                return str(answer.text())

            result = walking.Window(context.new_page(), base, read)
            if sign_in:
                enter(result, request.getfixturevalue("token"))
        result.listen()
        return result

    yield opened
    for context in contexts:
        context.close()


def enter(window: walking.Window, token: str) -> None:
    """Sign in with a token."""
    window.page.goto(f"{window.base}sign-in")
    window.page.get_by_label("Token").fill(token)
    window.page.get_by_role("button", name="Sign in").click()
    window.page.wait_for_load_state("load")


# --- every kind of page ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["files", "served"])
def test_every_kind_of_page_is_quiet_fits_and_is_accessible(window, way):
    """Each page is opened at one width and theme, and shown at the others: both ways have both, in turns."""
    turns = [(WIDE, "light"), (NARROW, "dark")]
    (width, theme), (other_width, other_theme) = turns if way == "files" else turns[::-1]
    shown = window(way, width=width, theme=theme)
    kinds = walking.pages_by_kind(shown.read)
    assert set(kinds) >= KINDS
    assert {kind for kind in kinds if kind not in KINDS} <= ({"/sign-in"} if way == "served" else set())
    for paths in kinds.values():
        for path in paths:
            shown.open(path)
            for tab in shown.page.get_by_role("tab").all():
                tab.click()
            if shown.page.locator("#compare").count():
                shown.page.locator("#compare").click()
            shown.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
            shown.require_fits()
            has_forms = path == paths[0] and way == "served"  # the same pages as the files otherwise
            if has_forms:
                shown.require_accessible()
            shown.page.set_viewport_size({"width": other_width, "height": 900})
            shown.page.emulate_media(color_scheme=other_theme)
            shown.require_fits()
            if has_forms:
                shown.require_accessible()
            shown.page.set_viewport_size({"width": width, "height": 900})
            shown.page.emulate_media(color_scheme=theme)
            shown.require_quiet()


def test_pages_that_only_the_server_has_fit_and_are_accessible(window):
    shown = window("served", width=NARROW)
    for path in ONLY_SERVED:
        shown.open(path)
        for theme in ("light", "dark"):
            shown.page.emulate_media(color_scheme=theme)
            shown.require_fits()
            shown.require_accessible()
        expected = ["404", "error: Failed to load resource: the server responded with a status of 404 (Not Found)"]
        assert sorted(shown.troubles) == (expected if path == "nothing.html" else []), path
        shown.troubles.clear()


# --- from tonight to a comparison ------------------------------------------------------------------------------------


def require_filters_stay(page):
    """Require that the filters of the comparison of run 48 survive a reload, and a way to another page and back."""
    filters, rows = page.locator("#filters"), page.locator("#compared tbody tr")
    every = rows.count()
    filters.get_by_label("show").select_option("relevant")
    left = rows.count()
    assert 0 < left < every
    page.reload()
    rows.first.wait_for()
    assert (rows.count(), filters.get_by_label("show").input_value()) == (left, "relevant")
    rows.locator("a").first.click()
    page.wait_for_selector("#history.chart .main-svg")
    page.go_back()
    rows.first.wait_for()
    assert (rows.count(), filters.get_by_label("show").input_value()) == (left, "relevant")
    require_fragment(page, "show=relevant")


@pytest.mark.parametrize(
    ("way", "path", "words"), [("files", "series.html", "naive H200"), ("served", "benchmarks.html", "H200")]
)
def test_the_filter_of_a_list_stays(window, way, path, words):
    shown = window(way)
    page, rows = shown.page, shown.page.locator("main tbody tr:visible")
    shown.open(path)
    every = rows.count()
    page.keyboard.press("/")
    page.keyboard.type(words)
    left = rows.count()
    assert 0 < left < every
    require_fragment(page, f"filter={words}")
    page.reload()
    assert rows.count() == left
    rows.first.locator("a").first.click()
    shown.settle()
    assert shown.path != path
    page.go_back()
    page.locator("#filter").wait_for()
    assert (page.locator("#filter").input_value(), rows.count()) == (words, left)
    page.locator("#filter").fill("")
    assert rows.count() == every
    require_fragment(page, "")
    shown.require_quiet()


# The outline of the focus is drawn by the browser or by the style sheet; either way it must be there.
FOCUSED = """() => {
    const focused = document.activeElement, box = focused.getBoundingClientRect(), style = getComputedStyle(focused);
    const visible = box.width > 0 && box.height > 0 && box.right > 0 && box.bottom > 0 && box.left < innerWidth;
    return [visible && box.top < innerHeight && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
            focused.outerHTML.slice(0, 100)];
}"""


def tab_to(page, locator):
    """Press Tab until an element has the focus, and require that each focus on the way is visible."""
    wanted = locator.element_handle()
    for _ in range(200):
        page.keyboard.press("Tab")
        visible, html = page.evaluate(FOCUSED)
        assert visible, html
        if page.evaluate("(wanted) => document.activeElement === wanted", wanted):
            return
    raise AssertionError(f"200 times Tab do not lead to {locator}")


def test_the_keyboard_alone_leads_from_tonight_to_a_comparison(window):
    shown = window("files")
    page = shown.page
    shown.open("index.html")
    tab_to(page, page.locator("section:has(#new) tbody a").first)
    page.keyboard.press("Enter")
    page.wait_for_url("**/findings/*")
    tab_to(page, page.locator("section:has(#moved) tbody a").first)
    page.keyboard.press("Enter")
    page.wait_for_url("**/series/*")
    shown.settle()
    tab_to(page, page.get_by_role("tab").first)
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab").nth(1).get_attribute("aria-selected") == "true"
    page.keyboard.press("Home")
    tab_to(page, page.locator("#history"))
    summary = page.locator("#summary").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#summary").inner_text() != summary
    tab_to(page, page.locator("#from"))
    page.keyboard.press("ArrowDown")
    tab_to(page, page.locator("#compare"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("link", name="against its baseline").first)
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/48.html")
    page.keyboard.press("/")
    page.keyboard.type("case_0")
    rows = page.locator("#compared tbody tr")
    assert rows.count() == 1
    tab_to(page, page.locator("#filters").get_by_label("show"))
    page.keyboard.type("inc")
    assert rows.count() == 0
    tab_to(page, page.get_by_role("button", name="Clear"))
    page.keyboard.press("Enter")
    rows.nth(8).wait_for()
    require_filters_stay(page)
    shown.require_quiet()


# --- what people do on the server ------------------------------------------------------------------------------------


def test_a_person_signs_in_acknowledges_a_finding_and_signs_out(window, database, token):
    shown = window("served", sign_in=False)
    page = shown.page
    for path in ("", "findings/2.html", "api/v1/runs", "feeds/findings.atom"):
        assert page.context.request.get(shown.base + path).status == 401, path
    enter(shown, "perfsvc_wrong")
    assert "Not signed in" in page.get_by_role("alert").inner_text()
    shown.troubles.clear()
    enter(shown, token)
    page.wait_for_url("**/findings.html")
    page.get_by_role("link", name="transpose/case_0 and 8 more").click()
    page.locator("select[name=action]").select_option("acknowledge")
    page.get_by_label("Reason, comment, or owner").fill("<b>looking</b> at it")
    page.get_by_role("button", name="Do it").click()
    page.wait_for_url("**/findings/2.html")
    assert page.locator("header .state").inner_text() == "acknowledged"
    assert "acknowledged by Ann: <b>looking</b> at it" in page.locator("section:has(#history)").inner_text()
    with Store.open(database) as store:
        assert store.findings.get(2).state is FindingState.ACKNOWLEDGED
        entry = store.audit.newest(1)[0]
    assert (entry.who, entry.action, entry.target) == ("Ann", "acknowledge", "finding 2")
    shown.open("sign-in")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    shown.require_quiet()
    assert page.context.request.get(shown.base).status == 401
