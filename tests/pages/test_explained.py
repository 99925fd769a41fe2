"""The page of an explanation, and the explained cases of a finding, in a browser."""

from urllib.parse import unquote

import pytest


@pytest.mark.parametrize("kind", ["explanation", "finding"])
def test_both_pages_are_sound_with_the_sentence_and_the_changed_line_of_both_sides_on_the_first_screen(
    visit, why, explained_site, kind
):
    path = why if kind == "explanation" else explained_site / "findings" / "1.html"
    for width, theme in ((390, "dark"), (1600, "light")):
        visited = visit(path, width=width, theme=theme)
        page, boxes = visited.page, []
        assert "uncoalesced global access" in page.locator("header").inner_text()
        for side, sign in (("before", "−"), ("after", "+")):
            line = page.locator(f".side.{side} tr.changed").first
            assert line.locator(".sign").inner_text().split()[-1] == sign
            boxes.append(line.bounding_box())
            assert boxes[-1]["y"] + boxes[-1]["height"] < 900
        before, after = boxes  # next to each other on a wide screen, and stacked on a phone
        assert (before["y"] == after["y"], before["x"] == after["x"]) == (width == 1600, width != 1600)
        assert page.locator(".side.after tr.changed.hot .share").first.inner_text() == "100 %"
        assert "</code><img src=x onerror=boom()>" in page.locator(".side.after tr.hot code").first.inner_text()
        if kind == "explanation":  # the walk in test_walk.py opens all of a finding, for which axe takes ten seconds
            visited.require_sound(path.parents[1])
        assert visited.messages == []


def test_the_pages_are_small_and_nothing_is_missing_without_scripts(visit, why, explained_site):
    page = visit(why, java_script_enabled=False).page
    assert page.locator(".code tr").count() < 40
    assert max(map(len, page.locator(".code code").all_inner_texts())) < 300
    assert page.locator(".changes tr.changed .at").all_text_contents() == ["101", "101"]
    assert page.locator("svg.bars").first.is_visible()
    assert page.locator(".levels .node").count() == 4
    finding = (explained_site / "findings" / "1.html").read_text()
    assert len(finding.encode()) < 500_000
    assert "style=" not in finding
    assert "<script>boom" not in unquote(finding)


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
