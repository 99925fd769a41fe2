"""The page of an explanation, and the explained cases of a finding, in a browser."""

from urllib.parse import unquote

import pytest


@pytest.fixture
def pages(why, explained_site):
    """Return both pages that show two launches."""
    return {"explanation": why, "finding": explained_site / "findings" / "1.html"}


@pytest.mark.parametrize("kind", ["explanation", "finding"])
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1600, "light")])
def test_a_page_is_quiet_asks_for_nothing_elsewhere_fits_and_its_text_stands_out(visit, pages, kind, width, theme):
    visited = visit(pages[kind], width=width, theme=theme)
    assert visited.page.evaluate(CONTRAST) == []
    for details in visited.page.locator("details:not([open]) > summary").all():
        if details.is_visible():
            details.click()
    assert visited.messages == []
    assert [url for url in visited.requests if not url.startswith((pages[kind].parents[1].as_uri(), "data:"))] == []
    assert visited.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", ["explanation", "finding"])
@pytest.mark.parametrize("width", [390, 1600])
def test_the_first_screen_has_the_sentence_and_the_changed_line_of_both_sides(visit, pages, kind, width):
    page = visit(pages[kind], width=width).page
    assert "uncoalesced global access" in page.locator("header").inner_text()
    for side, sign in (("before", "−"), ("after", "+")):
        line = page.locator(f".side.{side} tr.changed").first
        assert line.locator(".sign").inner_text().split()[-1] == sign
        box = line.bounding_box()
        assert box["y"] + box["height"] < 900
    assert page.locator(".side.after tr.changed.hot .share").first.inner_text() == "100 %"


def test_the_sides_are_next_to_each_other_on_a_wide_screen_and_stacked_on_a_phone(visit, why):
    for width, stacked in ((1600, False), (390, True)):
        page = visit(why, width=width).page
        before, after = (page.locator(f".side.{side} tr.changed").first.bounding_box() for side in ("before", "after"))
        assert (before["y"] == after["y"]) is not stacked
        assert (before["x"] == after["x"]) is stacked


@pytest.mark.parametrize("kind", ["explanation", "finding"])
def test_sources_and_reasons_with_markup_are_shown_as_text(visit, pages, kind):
    visited = visit(pages[kind])
    assert visited.page.locator("main img, [onerror], main script").count() == 0
    assert "</code><img src=x onerror=boom()>" in visited.page.locator(".side.after tr.hot code").first.inner_text()
    assert visited.messages == []


def test_a_long_source_shows_few_lines_of_bounded_length(visit, why):
    page = visit(why).page
    assert page.locator(".code tr").count() < 40
    assert max(map(len, page.locator(".code code").all_inner_texts())) < 300
    assert page.locator(".changes tr.changed .at").all_text_contents() == ["101", "101"]


def test_the_keyboard_reaches_the_code_and_opens_the_evidence(visit, why):
    page = visit(why, width=390).page
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent.trim()"))
    assert reached[:2] == ["code before", "code after"]
    assert any(text.startswith("Evidence") for text in reached)
    page.locator(".reasons summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".reasons table").first.is_visible()


def test_the_worst_case_of_a_finding_is_open_and_the_others_are_folded(visit, explained_site, names):
    page = visit(explained_site / "findings" / "1.html").page
    assert page.locator("section:has(> #why) > h3").inner_text().startswith(names.explained[0].id)
    folded = page.locator("details.case")
    assert folded.count() == len(names.explained)
    assert not folded.first.locator(".sides").first.is_visible()
    folded.first.locator("> summary").click()
    assert folded.first.locator(".sides").first.is_visible()
    assert "not explained: the launch failed" in folded.last.inner_text()


def test_the_page_of_eight_cases_is_small_and_has_no_style_in_attributes(explained_site):
    page = (explained_site / "findings" / "1.html").read_text()
    assert len(page.encode()) < 500_000
    assert "style=" not in page
    assert "<script>boom" not in unquote(page)


def test_without_scripts_nothing_is_missing(visit, why):
    page = visit(why, java_script_enabled=False).page
    assert page.locator("svg.bars").first.is_visible()
    assert page.locator(".levels .node").count() == 4


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const bad = [];
  for (const element of document.querySelectorAll("main *")) {
    const texts = [...element.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim());
    if (!texts.length || !element.checkVisibility() || element.closest("svg")) continue;
    let behind = element;
    const paper = () => parse(getComputedStyle(behind).backgroundColor);
    while (paper()[3] < 255 && behind.parentElement) behind = behind.parentElement;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(paper())];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push([element.tagName, texts[0].textContent.trim().slice(0, 40), ratio]);
  }
  return bad;
}"""
"""Returns the visible texts that do not reach the contrast of WCAG 2.1, level AA."""
