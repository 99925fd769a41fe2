"""The page about two launches, by its text: no browser."""

import re
from dataclasses import replace

from perfsvc.model import (
    CodeLine,
    Evidence,
    Excerpt,
    Explanation,
    HotCode,
    HotLine,
    LaunchPicture,
    Link,
    Profile,
    ProfilerRule,
    Reason,
    ReasonKind,
    SourceLine,
    ValuePair,
)
from perfsvc.report.pages import launch
from perfsvc.report.pages import roofline as drawing
from perfsvc.report.pages.render import explanation_page
from perfsvc.report.plots.roofline import LaunchPoint, Roofline
from tests.unit.report.test_explanations import AFTER, BEFORE

REASONS = (
    Reason(
        ReasonKind.UNCOALESCED,
        0.8,
        "32 → 4 of 32 bytes of a sector used",
        (Evidence("global_load_sectors", 1e6, 8e6), Evidence("spill_requests", None, 3e6)),
        (ProfilerRule("UncoalescedGlobalAccess", "Use more of a sector.", 0.4),),
        None,
        "excess sectors",
        (),
        (HotLine(0.61, "LDG R3", 2, SourceLine("../shared/<b>.cuh\x1b[2J", 22)),),
    ),
    Reason(ReasonKind.TRAFFIC, 0.7, "1 → 8 GB", follows=ReasonKind.UNCOALESCED),
)
EXCERPT = Excerpt(
    ("k.cu", "k.cu"),
    (CodeLine(6, "int i = index();"), CodeLine(7, "b[i] = a[i];", 0.0, changed=True), None),
    (CodeLine(6, "int i = index();"), CodeLine(7, "b[i] = a[2 * i];", 0.61, changed=True), CodeLine(8, "f();", 0.002)),
)
PICTURE = LaunchPicture(
    BEFORE,
    AFTER,
    Explanation(2.0, "2.0 × slower: uncoalesced global access.", REASONS),
    HotCode("excess sectors", (EXCERPT,)),
    (ValuePair("wait", 2.0, None, "waiting a fixed time"), ValuePair("barrier", 1.0, 4.0)),
    (ValuePair("float32", 3e6, 1e6), ValuePair("local", 0.0, 3e6)),
    (Link("multiprocessors", "L1 cache", (ValuePair("loads", 67e6, 537e6),), ValuePair("hit rate", 0.5, None)),),
)


def text_of(page):
    return " ".join(re.sub(r"<[^>]+>", " ", page.partition("</style>")[2]).split())


def test_the_page_shows_the_sentence_then_the_code_then_the_reasons_and_loads_and_runs_nothing():
    page = explanation_page(PICTURE)
    order = ["uncoalesced global access", "a[2 * i]", "Reasons", "What warps wait for", "Executed", "Roofline", "Bytes"]
    places = [text_of(page).index(words) for words in order]
    assert places == sorted(places)
    assert not re.search(r"http:|https:|<script|<link [^>]*href=\"(?!data:)|url\(|style=\"", page)
    assert "default-src 'none'" in page


def test_the_code_of_both_sides_is_marked_by_signs_and_shares():
    before, after = launch.panels(PICTURE, (EXCERPT,))
    assert [(row.kind, row.number, row.sign, row.share, row.hot) for row in before.rows] == [
        ("file", "", "", "", False),
        ("line", "6", "", "", False),
        ("line", "7", "−", "", False),
        ("filler", "", "", "", False),
    ]
    assert [(row.number, row.sign, row.share, row.hot) for row in after.rows[1:]] == [
        ("6", "", "", False),
        ("7", "+", "61 %", True),
        ("8", "", "", False),
    ]
    assert "61 % 7 changed + b[i] = a[2 * i];" in text_of(explanation_page(PICTURE))


def test_instructions_show_their_offset():
    code = HotCode("excess passes", (Excerpt(("", ""), (None,), (CodeLine(0x1A0, "LDS R1", 1.0),)),))
    page = explanation_page(replace(PICTURE, code=code))
    assert "100 % 01a0 LDS R1" in text_of(page)
    assert "No excess passes were counted here." in page
    unknown = explanation_page(replace(PICTURE, code=replace(code, unknown=("before",))))
    assert "The source lines are not known." in unknown
    assert "lines that differ" not in unknown


def test_changes_elsewhere_are_open_if_no_hot_line_is_changed():
    same = replace(EXCERPT, before=EXCERPT.before[:1], after=EXCERPT.after[:1])
    elsewhere = HotCode("excess sectors", (same,), (EXCERPT,), further=3)
    page = explanation_page(replace(PICTURE, code=elsewhere))
    assert '<details class="changes" open>' in page
    assert "3 more changed lines are not shown" in page
    near = explanation_page(replace(PICTURE, code=replace(elsewhere, excerpts=(EXCERPT,))))
    assert '<details class="changes">' in near


def test_what_was_not_counted_is_a_dash():
    text = text_of(explanation_page(PICTURE))
    assert "wait waiting a fixed time 2.0 – –" in text
    assert "barrier 1.0 4.0 +3.0" in text
    assert "hit rate 50 % –" in text
    assert "spill_requests – 3 000 000 –" in text
    assert "↕ loads 67.0 MB 537 MB +701.5 %" in text
    assert "local 0 % · 0 75 % · 3.00 M –" in text


def test_a_launch_of_which_nothing_is_known_has_a_page():
    nothing = Profile("k", {"duration_s": None})
    text = text_of(explanation_page(LaunchPicture(nothing, nothing, Explanation(1.0, "Both take equally long."))))
    assert "Both take equally long." in text
    assert "No stalls were counted." in text
    assert "There is no roofline: the profile of k does not contain the peaks of its device" in text
    assert "time – → –" in text


def test_a_reason_has_its_numbers_its_lines_and_the_rules_that_agree():
    page = explanation_page(PICTURE)
    text = text_of(page)
    assert "80 % uncoalesced access 32 → 4 of 32 bytes of a sector used" in text
    assert "more traffic 1 → 8 GB (follows from uncoalesced access)" in text
    assert "Nsight Compute agrees: UncoalescedGlobalAccess (up to 40 %): Use more of a sector." in text
    assert "after: 61 % of the excess sectors at <code>../shared/&lt;b&gt;.cuh␛[2J:22  LDG R3</code>" in page


# --- the roofline ----------------------------------------------------------------------------------------------------

POINTS = (
    LaunchPoint("before: <k>, float32", 2.0, 6e12, after=False, mark="o"),
    LaunchPoint("after: <k>, float64", 0.5, 3e9, after=True, mark="s"),
)


def test_the_roofline_has_its_ceilings_and_a_mark_for_each_launch_inside_the_picture():
    svg = drawing.drawn(Roofline(3e12, {"float32": 60e12, "float64": 30e12}, POINTS))
    assert svg.count('class="roof"') == 3
    assert '<g class="before"><circle' in svg
    assert '<g class="after"><rect' in svg
    assert "float64 30.0 TFLOP/s" in svg
    assert "DRAM 3.00 TB/s" in svg
    assert "<k>" not in svg
    assert "style=" not in svg
    assert [cells[3:] for cells in drawing.legend(POINTS)] == [
        ("2 FLOP/B", "6.00 TFLOP/s"),
        ("0.5 FLOP/B", "3.00 GFLOP/s"),
    ]
    for intensity in (1e-9, 1e-3, 1.0, 1e6, 1e12):
        point = LaunchPoint("after", intensity, 1e3, after=True, mark="o")
        svg = drawing.drawn(Roofline(3e12, {"float32": 60e12}, (point,)))
        across = [float(x) for x in re.findall(r'(?:x1|x2|cx)="([^"]+)"', svg)]
        down = [float(y) for y in re.findall(r'(?:y1|y2|cy)="([^"]+)"', svg)]
        assert 0 <= min(across) <= max(across) <= drawing.WIDTH, intensity
        assert 0 <= min(down) <= max(down) <= drawing.HEIGHT, intensity
        assert len(re.findall("<text", svg)) < 25, intensity
