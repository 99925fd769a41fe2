"""The page of a comparison in a browser: inert, whole, filtered by mouse and keyboard, and readable for everyone."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from perfsvc.model import CacheState, Case, Cause, Difference, Judgement, Series, Verdict
from perfsvc.report.pages.compared import Axis, by_significance
from perfsvc.report.pages.render import comparison_page
from perfsvc.report.rows import ComparedRun, EnvironmentDifferences
from perfsvc.service.compare.compare import RunComparison
from perfsvc.service.compare.side_by_side import side_by_side
from perfsvc.service.dashboard.build import build
from tests.pages.conftest import require_fragment

NOW = datetime(2026, 3, 20, tzinfo=UTC)
HOSTILE_TEXT = "</script><script>boom()</script><img src=x onerror=boom()>"
HOSTILE = (
    HOSTILE_TEXT,
    "=cmd|' /C calc'!A0",
    "javascript:boom()",
    "\u202egnp.exe",
    "\x1b[2J\x1b[31mred",
    "x" * 10_000,
    "|a|`b`[c](javascript:boom())",
)


def judged(case, verdict=Verdict.UNCHANGED, ratio=1.0, half=0.002, *, device="GPU-1", model="NVIDIA H100", reason=""):
    numbers = {"ratio": ratio, "low": ratio * (1 - half), "high": ratio * (1 + half), "smallest": max(half, 0.01)}
    numbers |= {"baseline_s": 1e-4, "candidate_s": 1e-4 * ratio}
    known = {} if verdict in {Verdict.BROKEN, Verdict.MISSING, Verdict.NEW} else numbers
    cause = Cause.KERNEL if verdict is Verdict.REGRESSION else None
    series = Series(case, device, model)
    return Judgement(series, verdict, reason, baseline_run=6, candidate_run=7, cause=cause, **known)


def case(benchmark, number):
    return Case(benchmark, "tiled", (("n", number),))


ROWS = (
    judged(case("dot", 1)),
    judged(case("dot", 2), Verdict.REGRESSION, 1.05, reason="beyond the threshold of 1 %"),
    judged(case("dot", 3), Verdict.REGRESSION, 1.6, 0.1),
    judged(case("sum", 1), Verdict.IMPROVEMENT, 0.5),
    judged(case("sum", 2), Verdict.INCONCLUSIVE, 1.004, 0.03, reason="noise hides a change"),
    judged(case("sum", 3), Verdict.BROKEN, reason=HOSTILE_TEXT),
    judged(case("sum", 1), Verdict.REGRESSION, 1.03, device="GPU-2", model="NVIDIA H200"),
    *(judged(Case(text, text, (("n", text),))) for text in HOSTILE),
)


def sides_of(rows, **given):
    hostile = ComparedRun(HOSTILE_TEXT, 7, label=HOSTILE[-2], commit="0123456789")
    comparison = RunComparison(ComparedRun("main", 6), hostile, tuple(rows))
    return side_by_side(comparison, {row.series: 0.01 for row in rows}, **given)


@pytest.fixture(scope="session")
def sides():
    changed = EnvironmentDifferences(6, 7, (Difference("variable.CUDA_X", None, HOSTILE_TEXT, ()),))
    return sides_of(ROWS, environment=changed, confirm=[f"perfsvc confirm {HOSTILE[2]}"], neighbours=(None, 8))


@pytest.fixture(scope="session")
def compared(sides, tmp_path_factory):
    path = tmp_path_factory.mktemp("compared") / "compare.html"
    path.write_text(comparison_page(sides, NOW))
    return path


@pytest.fixture(scope="session")
def long(tmp_path_factory):
    """Write a page of more rows than are shown at once."""
    path = tmp_path_factory.mktemp("long") / "compare.html"
    path.write_text(comparison_page(sides_of([judged(case("dot", number)) for number in range(450)]), NOW))
    return path


def names(page):
    return page.locator("#compared tbody th > :first-child").all_inner_texts()


def require_rows(page, count):
    """Wait until the table has so many rows: the security policy forbids ``wait_for_function``."""
    from playwright.sync_api import expect

    expect(page.locator("#compared tbody tr")).to_have_count(count)


# --- what the page has, by its text ----------------------------------------------------------------------------------


def test_rows_are_sorted_by_significance_with_broken_ones_first():
    ordered = [(row.series.case.benchmark, row.series.case.point[0][1]) for row in by_significance(ROWS[:6])]
    assert ordered == [("sum", 3), ("sum", 1), ("dot", 2), ("dot", 3), ("sum", 2), ("dot", 1)]


def test_each_benchmark_of_each_gpu_has_a_mean_of_its_times_and_all_of_them_too():
    warm = Judgement(
        Series(case("dot", 1), "GPU-1", "NVIDIA H100", "energy_j", CacheState.WARM), Verdict.NEW, ratio=9.0
    )
    summaries = sides_of([*ROWS[:7], warm]).summaries
    assert [(row.benchmark, row.device_model, row.compared, len(row.judgements)) for row in summaries] == [
        ("dot", "NVIDIA H100", 3, 3),
        ("sum", "NVIDIA H200", 1, 1),
        ("sum", "NVIDIA H100", 2, 3),
        ("", "", 6, 7),
    ]
    assert summaries[0].ratio == pytest.approx((1.0 * 1.05 * 1.6) ** (1 / 3))
    assert summaries[0].low < summaries[0].ratio < summaries[0].high


def test_the_axis_holds_every_change_and_shows_the_threshold():
    assert Axis.of(sides_of(ROWS)) == Axis(0.01, 3.0)
    assert Axis.of(sides_of(ROWS[:1])) == Axis(0.01, 0.1)
    assert str(Axis(0.01, 1.0)) == "-50 % to +100 %"
    assert Axis.of(sides_of([judged(case("dot", 1), Verdict.REGRESSION, 1e6)])).limit == 99.0


def test_a_page_of_the_site_links_to_its_neighbours_and_series(nights, tmp_path, names):
    for _ in range(4):
        run = nights.night({names.tiled: 1e-4, names.naive: 3e-4})
        if run != 2:
            nights.judge(run, {names.tiled: Verdict.REGRESSION, names.naive: Verdict.NEW}, ratio=1.2, low=1.1, high=1.3)
    build(nights.store, tmp_path / "site")
    folder = tmp_path / "site" / "compare"
    assert sorted(path.name for path in folder.iterdir()) == ["1.html", "3.html", "4.html"]
    page = (folder / "3.html").read_text()
    assert 'before: <a href="1.html">run 1</a>' in page
    assert 'after: <a href="4.html">run 4</a>' in page
    assert f'"../{names.page(names.tiled)}"' in page
    assert 'href="compare/4.html"' in (tmp_path / "site" / "index.html").read_text()


# --- hostile texts ---------------------------------------------------------------------------------------------------


def test_the_page_is_sound_with_hostile_texts_that_are_shown_as_text(visit, compared):
    for width, theme in ((390, "dark"), (1600, "light")):
        visited = visit(compared, width=width, theme=theme)
        page = visited.page
        page.wait_for_selector("#compared tbody tr")
        visited.require_sound(compared)
        assert page.locator("script").count() == 2
    assert any(name.startswith(f"{HOSTILE_TEXT}/{HOSTILE_TEXT}") for name in names(page))
    assert max(map(len, names(page))) < 300
    assert not set("\u202e\x1b") & set(page.locator("body").inner_text())
    data = compared.read_text().partition('id="rows">')[2].partition("</script>")[0]
    assert len(json.loads(data)["rows"]) == len(ROWS)  # JSON that ends no script
    page = visit(compared, java_script_enabled=False).page
    assert "perfsvc compare --output compare.md" in page.locator("noscript").inner_text()
    assert page.locator(".summary tbody tr").count() > 3


def test_the_saved_files_hold_the_shown_rows_and_are_inert(visit, compared):
    page = visit(compared).page
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text(encoding="utf-8"), newline="")))
    assert len(rows) == len(ROWS)
    assert not [value for row in rows for value in row.values() if value.startswith(("=", "@"))]
    assert any(row["case"].startswith("'=cmd|' /C calc'!A0/") for row in rows)
    (faster,) = (row for row in rows if row["verdict"] == "improvement")
    assert (float(faster["ratio"]), float(faster["low"]), faster["GPU"]) == (0.5, 0.499, "NVIDIA H100")
    page.locator("#filters").get_by_label("direction").select_option("slower")
    page.locator("#filters").get_by_label("show").select_option("relevant")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Markdown").click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert [line.split(" | ")[2] for line in lines[2:]] == [
        "dot/tiled&#91;n=2&#93;",
        "sum/tiled&#91;n=1&#93;",
        "dot/tiled&#91;n=3&#93;",
    ]
    assert {line.count("|") for line in lines} == {10}


# --- filters ---------------------------------------------------------------------------------------------------------


def test_a_filter_leaves_its_rows_is_kept_in_the_address_and_survives_a_reload(visit, compared):
    page = visit(compared).page
    filters = page.locator("#filters")
    relevant = ["sum/tiled[n=3]", "sum/tiled[n=1]", "dot/tiled[n=2]", "sum/tiled[n=1]", "dot/tiled[n=3]"]
    for label, value, left in (
        ("benchmark", "dot", ["dot/tiled[n=2]", "dot/tiled[n=3]", "dot/tiled[n=1]"]),
        ("device", "NVIDIA H200", ["sum/tiled[n=1]"]),
        ("direction", "faster", ["sum/tiled[n=1]"]),
        ("show", "inconclusive", ["sum/tiled[n=2]"]),
        ("show", "relevant", relevant),
    ):
        filters.get_by_label(label).select_option(value)
        assert names(page) == left
        assert page.locator("#shown").inner_text() == f"{len(left)} of {len(ROWS)}"
        key = {"device": "gpu"}.get(label, label)  # addresses that people have saved stay right
        require_fragment(page, f"{key}={value}")
        page.reload()
        assert names(page) == left
        assert filters.get_by_label(label).input_value() == value
        page.get_by_role("button", name="Clear").click()
        require_rows(page, len(ROWS))
        require_fragment(page, "")
    page.goto(f"{compared.as_uri()}#benchmark=nothing&show=<script>&constructor=1&sort=toString")
    assert len(names(page)) == len(ROWS)
    page.goto(f"{compared.as_uri()}#text=tiled")
    filters.get_by_label("sort").select_option("slower")
    assert names(page)[:2] == ["dot/tiled[n=3]", "dot/tiled[n=2]"]
    filters.get_by_label("sort").select_option("faster")
    assert names(page)[0] == "sum/tiled[n=1]"
    filters.get_by_label("sort").select_option("name")
    assert names(page) == sorted(names(page))


def test_the_keyboard_alone_filters_and_follows_the_link_of_a_benchmark(visit, compared):
    page = visit(compared).page
    page.keyboard.press("/")
    page.keyboard.type("DOT regression")
    assert names(page) == ["dot/tiled[n=2]", "dot/tiled[n=3]"]
    page.keyboard.press("Tab")
    page.keyboard.type("s")  # the first option that begins so
    assert page.locator("#filters").get_by_label("benchmark").input_value() == "sum"
    assert names(page) == []
    page.locator(".summary").get_by_role("link", name="dot").focus()
    page.keyboard.press("Enter")
    require_rows(page, 3)
    assert page.locator("#filters").get_by_label("text").input_value() == ""


def test_a_long_table_grows_when_its_end_comes_into_view_or_its_button_is_pressed(visit, long):
    page = visit(long).page
    assert len(names(page)) == 60
    page.get_by_role("button", name="Show 60 more of 390").scroll_into_view_if_needed()
    page.locator("#compared tbody tr").nth(60).wait_for()
    page.evaluate("() => { const more = document.getElementById('more'); while (!more.hidden) more.click(); }")
    assert len(set(names(page))) == len(names(page)) == 450


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_row_has_the_words_of_its_numbers_and_its_interval_beside_the_threshold_on_the_common_axis(visit, compared):
    page = visit(compared).page

    def drawn(name):
        row = page.locator("#compared tbody tr", has=page.get_by_text(name, exact=True)).first
        (dot,) = (float(circle.get_attribute("cx")) for circle in row.locator("circle").all())
        band, interval = row.locator("rect.band"), row.locator("line.interval")
        left = float(band.get_attribute("x"))
        ends = [float(interval.get_attribute(name)) for name in ("x1", "x2")]
        return dot, (left, left + float(band.get_attribute("width"))), ends

    dot, (left, right), (low, high) = drawn("dot/tiled[n=1]")
    assert dot == pytest.approx(100)
    assert left < low < dot < high < right
    assert right - 100 == pytest.approx(100 - left)
    slower, band, (low, high) = drawn("dot/tiled[n=2]")
    slowest, *_ = drawn("dot/tiled[n=3]")
    assert band == (left, right)
    assert right < low < slower < high < slowest < 200
    row = page.locator("#compared tbody tr", has=page.get_by_text("dot/tiled[n=2]", exact=True))
    times, changes = ["100.0 µs", "105.0 µs"], ["+5.0 %", "", "+4.8 % to +5.2 %", "1 %"]
    assert row.locator("td").all_inner_texts() == ["regression", "NVIDIA H100", *times, *changes, "kernel"]
    assert row.locator(".why").inner_text() == "beyond the threshold of 1 %"


@pytest.mark.parametrize("width", [390, 1600])
def test_the_axis_is_labelled_with_its_ends_no_change_and_what_fits_between(visit, compared, width):
    page = visit(compared, width=width).page
    page.wait_for_selector("#compared tbody tr")
    for axis in page.locator(".compared thead .ticks").all():
        labels = axis.locator("text").all()
        texts = [label.text_content().replace("\u202f", " ") for label in labels]
        assert texts[:3] == ["0 %", "+300 %", "-75 %"]
        assert {"-9.1 %", "+10 %"} <= set(texts)
        boxes = sorted((label.bounding_box() for label in labels), key=lambda box: box["x"])
        assert all(left["x"] + left["width"] <= right["x"] for left, right in pairwise(boxes))
        assert min(box["height"] for box in boxes) > 8  # readable, in pixels
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    table = page.locator("#compared")
    mark, zero = (table.locator(name).first.bounding_box() for name in (".ticks line", "tbody .zero"))
    assert mark["x"] == pytest.approx(zero["x"], abs=1)  # the mark of no change stands above the line of no change


def test_a_row_says_why_it_is_unchanged_if_the_code_decided(visit, tmp_path):
    beyond = "beyond the threshold of 1 %, but with the same code as in run 6, and too noisy to tell"
    same = replace(judged(case("dot", 1), ratio=2.39, half=0.8), reason=f"{beyond}; the times allow -50 % to +330 %")
    within = judged(case("dot", 2), ratio=1.3, half=0.01, reason="within the threshold of 50 %")
    path = tmp_path / "compare.html"
    path.write_text(comparison_page(sides_of([same, within]), NOW))
    rows = visit(path).page.locator("#compared tbody tr")
    assert rows.filter(has_text="dot/tiled[n=1]").locator(".why").all_inner_texts() == [beyond]
    assert rows.filter(has_text="dot/tiled[n=2]").locator(".why").count() == 0


# --- for everyone ----------------------------------------------------------------------------------------------------
