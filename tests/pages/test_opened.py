"""Each kind of page in a browser: quiet, whole, without a network, and with names that stay names."""

import re

import pytest

from tests.pages.conftest import require_fragment


@pytest.fixture
def series(visit, site, names):
    """Open the page of the case that became slower and wait for its charts."""

    def opened(case=None, **options):
        visited = visit(site / names.page(case or names.tiled), **options)
        visited.page.wait_for_selector("#history .main-svg")
        return visited

    return opened


def test_a_case_with_markup_in_its_name_shows_it_and_its_failed_night(series, names):
    page = series(names.hostile).page
    assert page.locator("h1").inner_text() == names.hostile.id
    for place in ("header .reason", "#summary"):
        assert "an illegal access <script>boom()</script>" in page.locator(place).inner_text()
    assert page.evaluate("document.getElementById('history').data.find((one) => one.name === 'failed').x.length") == 1


def test_the_security_policy_stops_an_injected_script_and_style(visit, site):
    page = visit(site / "index.html").page
    page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<img src="x" onerror="window.ran = true">');
        document.body.insertAdjacentHTML('beforeend', '<i id="i" style="color: red">x</i>');
    }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.getElementById('i')).color") != "rgb(255, 0, 0)"


def test_links_lead_from_tonight_to_the_finding_to_the_series_and_words_filter_the_list(visit, site, names):
    page = visit(site / "index.html", theme="dark").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    require_fragment(page, "content")
    page.emulate_media(media="print")  # without navigation, on white
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    assert page.locator("h1").inner_text() == "1 new finding, 1 failed"
    assert page.locator(".counts .regression").inner_text().split() == ["1", "regression"]
    page.locator("section:has(#new) tbody a").first.click()
    assert page.locator("h1").inner_text().split()[:2] == ["Finding", "1"]
    assert "+20.0 %" in page.locator("h1").inner_text()
    page.get_by_role("link", name=names.tiled.id, exact=True).click()
    page.wait_for_selector("#history .main-svg")
    assert page.locator("h1").inner_text() == names.tiled.id
    assert page.locator(".figures").inner_text().count("+20.0 %") == 1
    page.locator("nav a", has_text="Tonight").click()
    page.wait_for_url((site / "index.html").as_uri())
    page.goto((site / "series.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("transpose Regression")
    assert page.locator("#series tbody tr:visible").count() == 1
    assert page.locator("#left").inner_text() == "1 of 3"
    page.locator("#filter").fill("")
    assert page.locator("#series tbody tr:visible").count() == 3


def test_the_chart_shows_the_nights_the_driver_and_the_finding_and_the_samples_of_a_chosen_night(series):
    page = series().page
    assert page.locator("#history .scatterlayer .trace").first.locator(".point").count() == 12
    assert page.locator("#history .annotation-text").all_text_contents() == ["A"]
    assert page.locator("#history .shapelayer path").count() == 1
    assert "driver 575.1 → 580.1, toolkit nvcc 12.9 → nvcc 13.0" in page.locator("section:has(#switches)").inner_text()
    drawn = page.evaluate("document.getElementById('history').data.map((one) => [one.name, one.x.length])")
    assert dict(drawn)["findings"] == 1
    assert page.locator("#summary").inner_text().startswith("run 12 ")
    newest = page.evaluate("document.getElementById('taken').data[0].y[0]")
    page.locator("#history").focus()
    page.keyboard.press("ArrowLeft")  # from night to night, and the samples follow
    assert page.locator("#summary").inner_text().startswith("run 11 ")
    assert page.locator("#night").input_value() == "10"
    assert page.evaluate("document.getElementById('taken').data[0].y[0]") < newest
    for key in ("Home", "ArrowLeft"):
        page.keyboard.press(key)
        assert page.locator("#summary").inner_text().startswith("run 1 ")
    page.locator("#night").select_option("1")
    assert page.locator("#summary").inner_text().startswith("run 2 ")
    assert page.evaluate("document.getElementById('taken').data.map((one) => one.y.length)") == [20, 20, 20]
    assert page.locator("#replicas span").all_inner_texts() == ["replica 1", "replica 2", "replica 3"]


def test_the_theme_follows_the_reader_and_so_do_the_charts(series):
    page = series(theme="light").page
    font = "document.getElementById('history').layout.font.color"
    paper = "getComputedStyle(document.body).backgroundColor"
    light, white = page.evaluate(font), page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    for _ in range(100):  # the page reacts some time later, and its security policy forbids waiting inside the page
        if page.evaluate(font) != light:
            break
        page.wait_for_timeout(50)
    assert page.evaluate(font) != light
    assert page.evaluate(paper) != white


def test_without_scripts_the_tables_remain(visit, site, names):
    page = visit(site / names.page(names.tiled), java_script_enabled=False).page
    rows = page.locator("section:has(#table) tbody tr")
    assert rows.count() == 12
    assert re.search(r"12 2026-03-12.*regression", rows.first.inner_text().replace("\t", " "))
    assert "The charts need JavaScript" in page.locator("noscript").text_content()
