"""What the pages say, by the text of their files: no browser."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from markupsafe import Markup

from perfsvc.model import CacheState, Environment, Series, Verdict
from perfsvc.report import wording
from perfsvc.report.pages import views
from perfsvc.report.pages.details import rounded
from perfsvc.report.pages.site import benchmark_page, series_page
from perfsvc.report.pages.spark import MOST_VALUES, spark
from perfsvc.service.dashboard.build import build
from perfsvc.store import RunState, StageRow, StageState
from perfsvc.text import json_of_numbers
from tests.site_of_runs import site_of

NOW = datetime(2026, 3, 20, tzinfo=UTC)


@pytest.fixture
def tonight(nights, tmp_path):
    """Return a function that builds the site and returns the text of its first page."""

    def built():
        (first, *_) = build(nights.store, tmp_path / "site")
        return first.read_text()

    return built


@pytest.fixture
def begin_night(nights):
    """Return a function that stores a night with a failed, a done and a running stage, and returns its number."""

    def begun():
        number = nights.store.nights.begin(
            host="box", started=NOW, suite="kernels", command_line="perfsvc nightly", settings={}
        )
        stages = (
            ("profile", StageState.FAILED, 3.0, "no counters <b>", "be root"),
            ("report", StageState.DONE, 61.0, "report.html", ""),
            ("page", StageState.RUNNING, None, "", ""),
        )
        for place, (name, state, wall, message, cure) in enumerate(stages):
            nights.store.nights.put_stage(number, StageRow(name, place, state, NOW, wall, message, cure))
        return number

    return begun


def test_a_night_shows_its_stages_and_failures(nights, tonight, begin_night, names):
    number = begin_night()
    nights.night({names.tiled: 1e-4})
    page = tonight()
    assert "<h1>Nothing new, 1 failed</h1>" in page
    assert "stage profile" in page
    assert "no counters &lt;b&gt;" in page
    assert "cure: be root" in page
    assert "1 min" in page
    assert "<b>page</b>" not in page
    assert f"Night {number} has no run: this is the run before." in page
    assert f"<span>night {number}</span>" not in page


@pytest.mark.parametrize("measured", [False, True])
def test_pages_of_a_case_that_was_never_measured_say_so_and_draw_nothing(nights, tmp_path, names, measured):
    sizes = [replace(names.naive, point=(("n", n),)) for n in (1024, 2048)]
    for _ in range(2):
        nights.night(dict.fromkeys(sizes, 1e-4 if measured else "out of memory"))
    build(nights.store, tmp_path / "site")
    page = (tmp_path / "site" / names.page(sizes[0])).read_text()
    benchmark = (tmp_path / "site" / benchmark_page(names.naive.benchmark)).read_text()
    assert ("There is no measurement yet: none of these runs has a correct result." in page) is not measured
    assert ("There is no measurement yet." in benchmark) is not measured
    for drawn in ('id="history"', 'id="pair"', 'id="data"'):
        assert (drawn in page) is measured
    assert ("failed: out of memory" in page) is not measured
    assert ('id="levels"' in page) is measured
    for drawn in ("<figure>", "<figcaption>time", "95 % interval"):
        assert (drawn in benchmark) is measured


def test_a_gpu_shows_its_troubles_and_its_peak_and_an_interrupted_run_how_it_ended(nights, tonight, names):
    for _ in range(3):
        run = nights.night({names.tiled: 1e-4, names.naive: "out of memory"})
    nights.store.runs.end(run, RunState.INTERRUPTED)
    page = tonight()
    for part in ("3 failed", "3.00 TB/s", "61 °C", "1.700 GHz", "ended <b>interrupted</b>", ">Devices</h2>"):
        assert part in page
    assert ">GPUs<" not in page  # the heading has to be true of the CPU device


def test_moved_series_are_listed_worst_first(nights, tonight, names):
    nights.night({names.tiled: 1e-4, names.naive: 1e-4})
    run = nights.night({names.tiled: 1.2e-4, names.naive: 1e-4})
    nights.judge(run, {names.naive: Verdict.MISSING, names.tiled: Verdict.REGRESSION}, ratio=1.2, low=1.1, high=1.3)
    page = tonight()
    moved = page[page.index('id="moved"') :]
    assert moved.index(names.tiled.id) < moved.index(names.naive.id)
    assert "+10.0 % to +30.0 %" in moved


def test_one_replica_has_its_own_interval_and_several_replicas_a_common_one(nights, names):
    nights.night({names.tiled: 1e-4}, replicas=1)
    nights.night({names.tiled: 1e-4}, replicas=3)
    (view,) = site_of(nights.store, 10, NOW).series
    one, three = view.points
    assert (one.replicas, three.replicas) == (1, 3)
    assert one.low == pytest.approx(1e-4)
    assert one.high == pytest.approx(1.004e-4)
    assert three.low < three.level < three.high
    site = site_of(nights.store, 10, NOW)
    data = json.loads(json_of_numbers(views.Views(site).data(site.series[0].series)))
    assert data["level"] == pytest.approx([100.0, 100.0], rel=0.01)
    assert json_of_numbers(rounded(np.array([math.inf, math.nan, 2.0]), 1.0)) == "[null,null,2.0]"  # it is not drawn


def test_each_change_of_the_environment_has_a_letter_and_its_differences(nights, names):
    for driver in ("575", "580", "590"):
        nights.night({names.tiled: 1e-4}, environment=Environment(driver, "nvcc 13", 700.0))
    site = site_of(nights.store, 10, NOW)
    switches = views.Views(site).environment_changes(site.series[0])
    assert [(one.letter, one.run, one.differences) for one in switches] == [
        ("A", 2, ("driver 575 → 580",)),
        ("B", 3, ("driver 580 → 590",)),
    ]
    assert [views._letter(place) for place in (0, 25, 26, 52)] == ["A", "Z", "A2", "A3"]


def test_a_series_shows_both_of_its_levels(nights, names):
    for night in range(24):
        nights.night({names.tiled: 1e-4 * (1 + 0.001 * (night % 3)) * (1.2 if night >= 12 else 1)}, replicas=1)
    site = site_of(nights.store, 100, NOW)
    new, old = views.Views(site).levels(site.series[0])
    assert (old.first, old.last, new.first, new.last) == (1, 12, 13, 24)
    assert new.change == "+20.0 %"


def test_a_finding_and_its_recovery_end_a_level(nights, names):
    nights.night({names.tiled: 1e-4})
    raised = nights.night({names.tiled: 1.2e-4})
    number = nights.find(raised, [names.tiled])
    nights.night({names.tiled: 1.2e-4})
    back = nights.night({names.tiled: 1e-4})
    nights.store.findings.update(back, [(number, nights.store.findings.get(number).moved[0].series, 1)], [])
    site = site_of(nights.store, 100, NOW)
    levels = views.Views(site).levels(site.series[0])
    assert [(one.first, one.last, one.change) for one in levels] == [(4, 4, "-16.7 %"), (2, 3, "+20.0 %"), (1, 1, "")]


def test_page_names_are_readable_and_unique(names):
    series = Series(names.tiled, "GPU-1", "NVIDIA H100")
    others = [
        replace(series, device="GPU-2"),
        replace(series, metric="energy_j"),
        replace(series, cache=CacheState.WARM),
        replace(series, case=replace(names.tiled, version=2)),
        replace(series, case=names.hostile),
    ]
    pages = {series_page(one) for one in (series, *others)}
    assert len(pages) == 6
    assert series_page(series).startswith("series/transpose-tiled-n-4096-")
    assert all(set(page) <= set("abcdefghijklmnopqrstuvwxyz0123456789-./") for page in pages)


def test_durations_are_written_in_seconds_minutes_and_hours():
    texts = {None: "–", 0.04: "0.0 s", 9.94: "9.9 s", 41.0: "41 s", 61: "1 min", 3599: "1 h 00 min", 7500: "2 h 05 min"}
    assert {seconds: wording.wall_time(seconds) for seconds in texts} == texts


def test_a_sparkline_has_gaps_a_rule_at_the_change_and_its_label_as_text():
    line = spark([1.0, 1.0, None, 2.0, 2.0], 3, label='a "name" <b>')
    assert line.count("<polyline") == 2
    assert line.count("<line ") == 1
    assert 'aria-label="a &#34;name&#34; &lt;b&gt;"' in line
    assert spark([None, None]) == Markup("")
    assert "<line " not in spark([1.0] * (MOST_VALUES + 5), 2)
