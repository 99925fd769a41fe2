"""The tabs of a series' page, the comparison of two nights, excluded runs and environments."""

import json
import re
from dataclasses import replace

import pytest

from perfsvc import judge
from perfsvc.model import Estimate, Measurement, Provenance, Status, Work
from perfsvc.report.pages.site import series_page
from perfsvc.report.pages.tabs import MOST_NAMED, SeriesTabs
from perfsvc.report.pages.views import Views
from perfsvc.store import MeasurementEntry, RunState, Store
from perfsvc.text import json_of_numbers
from tests.pages import fleets
from tests.pages.conftest import require_fragment, serious, site_beside
from tests.site_of_runs import site_of

KEYS = ["time", "energy", "error", "registers", "spills", "peak", "bandwidth"]


@pytest.fixture(scope="session")
def fleet_database(filled):
    return filled(fleets.fill)


@pytest.fixture(scope="session")
def fleet_site(fleet_database):
    return site_beside(fleet_database)


@pytest.fixture(scope="session")
def shown(fleet_database):
    """What the pages show of the nights of two hosts."""
    with Store.open(fleet_database) as store:
        return site_of(store, 100, fleets.BEGUN)


def view_of(shown, case=fleets.TILED, metric="time", device="GPU-0"):
    (view,) = (
        view
        for view in shown.series
        if (view.series.case, view.series.metric, view.series.device) == (case, metric, device)
    )
    return view


@pytest.fixture
def opened(visit, fleet_site, shown):
    """Open the page of a series, and wait for its chart."""

    def page(case=fleets.TILED, **options):
        visited = visit(fleet_site / series_page(view_of(shown, case).series), **options)
        visited.page.wait_for_selector("#history .main-svg")
        return visited

    return page


def drawn(page):
    return page.evaluate("document.getElementById('history').data[0].y")


# --- the data --------------------------------------------------------------------------------------------------------


def test_each_metric_of_the_case_has_a_tab_over_the_same_runs(shown):
    view = view_of(shown)
    tabs = SeriesTabs(Views(shown))
    data = json.loads(json_of_numbers(tabs.data(view, tabs.tabs(view))))
    assert [tab["key"] for tab in data["tabs"]][: len(KEYS)] == KEYS
    assert [tab["name"] for tab in data["tabs"]][len(KEYS) :] == [fleets.METRIC]
    assert all(len(tab["level"]) == len(data["runs"]) for tab in data["tabs"][1:])
    by_key = {tab["key"]: tab for tab in data["tabs"]}
    assert by_key["registers"]["level"] == [32.0] * 19 + [40.0]
    assert by_key["spills"]["level"] == [0.0] * 19 + [32.0]
    assert by_key["error"]["level"] == [pytest.approx(3e-7)] * 20
    assert by_key["bandwidth"]["unit"] == "TB/s"
    assert by_key["bandwidth"]["level"][0] == pytest.approx(240e6 / view.points[0].level / 1e12, rel=1e-5)


def test_the_share_of_peak_is_that_of_the_report(shown, fleet_database):
    view = view_of(shown)
    with Store.open(fleet_database) as store:
        table = store.measurements.columns(None, [fleets.TILED.id], ["GPU-0"])
    expected = {}
    for run, share in zip(table["run"], table["peak_share"], strict=True):
        expected[run] = expected.get(run, 1.0) * share ** (1 / 3)
    found = shown.details.quantities(view.series)
    assert dict(zip(view.points.runs.tolist(), found.peak_share, strict=True)) == pytest.approx(expected)
    assert set(found.peak) == {"memory"}


def test_the_verdicts_on_two_nights_are_those_of_the_judge(shown):
    view = view_of(shown)
    compared = shown.details.compared[view.series]
    assert [nights.base for nights in compared] == sorted(view.samples, reverse=True)[1:8]
    for nights in compared:
        expected = judge.compare(view.samples[nights.base], view.samples[nights.new], threshold=0.01)
        assert (nights.verdict, nights.ratio, nights.low) == (expected.verdict, expected.ratio, expected.low)
    assert {nights.verdict for nights in compared} == {"regression"}


def test_a_case_with_many_named_metrics_has_links_instead_of_tabs(nights, names):
    def keys(count):
        run = nights.store.runs.begin(Provenance(fleets.BEGUN, "perfsvc run", "kernels"))
        nights.store.devices.put(fleets.GPU)
        case = replace(names.tiled, variant=f"with_{count}")
        metrics = {f"metric_{number}": 1.0 for number in range(count)}
        measured = Measurement(case, "GPU-0", 0, Status.OK, samples_s=(1e-4,) * 6, metrics=metrics)
        entry = MeasurementEntry(measured, fleets.NEW, Work(0, 0), Estimate(1e-4, 1e-4, 1e-4, 6))
        nights.store.measurements.put(run, [entry])
        nights.store.runs.end(run, RunState.FINISHED)
        site = site_of(nights.store, 10, fleets.BEGUN)
        return [tab.key for tab in SeriesTabs(Views(site)).tabs(view_of(site, case))]

    assert len(keys(MOST_NAMED)) == MOST_NAMED + 1
    assert keys(MOST_NAMED + 1) == ["time"]


# --- in a browser ----------------------------------------------------------------------------------------------------


def test_the_address_holds_the_tab_that_is_chosen_by_mouse_by_keyboard_or_by_a_link(opened, fleet_site, shown):
    page = opened().page
    selected = page.get_by_role("tab", selected=True)

    def reopen(address=None):
        page.goto(address) if address else None
        page.reload()
        page.wait_for_selector("#history .main-svg")

    assert selected.inner_text() == "time"
    page.get_by_role("tab", name="registers").click()
    require_fragment(page, "tab=registers")
    assert drawn(page)[-2:] == [32, 40]
    reopen()
    assert selected.inner_text() == "registers"
    assert drawn(page)[-2:] == [32, 40]
    page.get_by_role("tab", name="time").click()
    require_fragment(page, "")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "energy"
    require_fragment(page, "tab=energy")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == fleets.METRIC
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "time"
    assert page.locator("[role=tab][tabindex='0']").count() == 1
    reopen(page.url.partition("#")[0] + "#tab=<b>")
    assert selected.inner_text() == "time"
    reopen((fleet_site / series_page(view_of(shown, metric="energy_j").series)).as_uri())
    assert page.get_by_role("tab").count() == 0
    page.locator("section:has(#nights) p a").click()
    page.wait_for_selector("#history .main-svg")
    assert selected.inner_text() == "energy"


def test_two_chosen_nights_and_the_ends_of_a_dragged_part_are_compared(opened):
    page = opened().page
    page.locator("#compare").click()
    text = page.locator("#compared").inner_text()
    assert "regression" in text
    assert re.search(r"\+19\.\d % \(\+1", text)
    assert f"--select '{fleets.TILED.id}'" in text
    page.wait_for_selector("#distribution .main-svg")
    assert page.evaluate("document.getElementById('distribution').data.map((one) => one.x.length)") == [60, 60]
    page.locator("#from").select_option("1")
    page.locator("#to").select_option("2")
    page.locator("#compare").click()
    text = page.locator("#compared").inner_text()
    assert "ratio of the levels" in text
    assert "no verdict" in text
    assert "Excluded from judging: run 5" in text
    assert not page.locator("#distribution").is_visible()
    page.locator("#from").select_option("3")
    page.locator("#to").select_option("6")
    page.locator("#compare").click()
    assert "The environment changed between these nights: A" in page.locator("#compared").inner_text()
    chart = page.locator("#history .nsewdrag").bounding_box()  # dragging chooses the first and the last night of a part
    y = chart["y"] + chart["height"] / 2
    page.mouse.move(chart["x"] + 0.3 * chart["width"], y)
    page.mouse.down()
    page.mouse.move(chart["x"] + 0.7 * chart["width"], y, steps=5)
    page.mouse.up()
    page.locator("#compared .figures").wait_for()
    first, last = (int(page.locator(pick).input_value()) for pick in ("#from", "#to"))
    assert 4 <= first <= 8
    assert 11 <= last <= 15


def test_environments_are_shown_in_full_and_an_excluded_run_is_crossed_and_listed(opened):
    page = opened().page
    change = page.locator("section:has(#switches)")
    change.locator("summary").click()
    assert "gpu.ecc on → off" in change.inner_text()
    assert "driver 575.1 → 580.1" in change.inner_text()
    page.locator("section:has(#environment) summary").click()
    assert "host.kernel" in page.locator("section:has(#environment)").inner_text()
    symbols = page.evaluate("document.getElementById('history').data[0].marker.symbol")
    assert [place for place, symbol in enumerate(symbols) if symbol == "circle-x-open"] == [2]
    row = page.locator("section:has(#exclusions) tbody tr").inner_text()
    assert "Ada <i>" in row
    assert "the fan was broken <b>" in row
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", row)


def test_without_scripts_each_metric_is_listed_with_its_newest_value(visit, fleet_site, shown):
    page = visit(fleet_site / series_page(view_of(shown).series), java_script_enabled=False).page
    text = page.locator("section:has(#metrics)").inner_text()
    assert re.search(r"registers\s+40", text)
    assert re.search(r"error\s+3.0e-07", text)
    assert page.locator("section:has(#metrics) tbody a").count() == 2
    assert not page.locator("#tabs").is_visible()
    assert not page.locator("#pair").is_visible()


def test_pages_with_tabs_are_sound_and_show_hostile_names_as_text(opened, fleet_site):
    for case, width, theme in ((fleets.TILED, 1600, "light"), (fleets.HOSTILE, 390, "dark")):
        visited = opened(case, width=width, theme=theme)
        page = visited.page
        page.locator("#compare").click()
        page.get_by_role("tab").last.click()
        assert visited.messages == []
        assert [url for url in visited.requests if not url.startswith((fleet_site.as_uri(), "data:"))] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("img, main b:text-is('of'), [onerror]").count() == 0
        assert serious(page) == []
    assert page.get_by_role("tab", name="share <b>of</b> hits").count() == 1
    data = json.loads(page.locator("#data").text_content())
    assert data["case"].startswith("'<img src=x onerror=boom()>/xxx")
