"""The pages of benchmarks: which variant is the fastest, how variants scale, and since when one is the fastest."""

import random
from datetime import UTC, datetime
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.model import CacheState, Case, Direction, MovedSeries, Provenance, RunRow, RunState, Series, Status
from perfsvc.report.pages import charts
from perfsvc.report.pages.benchmarks import findings_at, rows_of_list, slowness_text
from perfsvc.report.pages.fastest import RETIRED_AFTER, benchmark_view, newest_runs, times_by_benchmark
from perfsvc.report.pages.site import RunPoint, RunPoints, SeriesView, benchmark_page
from perfsvc.report.rows import ResultRow

START = datetime(2026, 3, 1, tzinfo=UTC)


def run_row(number, *, dirty=False, scope="all"):
    provenance = Provenance(START, "perfsvc run", "kernels", dirty=dirty, scope=scope)
    return RunRow(number, RunState.FINISHED, provenance, START, {Status.OK: 1}, 1, ())


def point(run, time, half=0.01, **given):
    """Return a run of a series: a time in seconds, or a status other than ok."""
    if isinstance(time, Status):
        return RunPoint(run, 1, time, **({"reason": "it broke"} | given))
    return RunPoint(run, 1, Status.OK, "", time, time * (1 - half), time * (1 + half), 3, **given)


def columns(points):
    """Return runs of a series as arrays."""
    numbers = {
        name: np.array([getattr(each, name) for each in points], np.float64) for name in ("level", "low", "high")
    }
    return RunPoints(
        *(np.array([getattr(each, name) for each in points]) for name in ("run", "segment")),
        **numbers,
        replicas=np.array([each.replicas for each in points]),
        bad={at: (each.status, each.reason) for at, each in enumerate(points) if each.status is not Status.OK},
        excluded={at: each.excluded for at, each in enumerate(points) if each.excluded},
    )


def view(variant, times, *, n=1024, device="GPU-1", model="H100", cache=CacheState.COLD, version=1, half=0.01):
    """Return a series of the benchmark ``dot``; ``times`` has its time or its status in each run."""
    case = Case("dot", variant, (("n", n),) if n else (), version)
    points = tuple(time if isinstance(time, RunPoint) else point(run, time, half) for run, time in times.items())
    return SeriesView(Series(case, device, model, cache=cache), columns(points))


def page_of(views, runs=None, results=()):
    last = max(known.run for each in views for known in each.points)
    runs = runs or [run_row(number) for number in range(1, last + 1)]
    ((name, times),) = times_by_benchmark(views).items()
    return benchmark_view(name, times, {run.id: run for run in runs}, {(run, row.key): row for run, row in results})


def only_panel(page):
    (section,) = page.sections
    (panel,) = section.panels.values()
    return panel


def test_the_fastest_variant_is_first_and_the_others_are_compared_with_it():
    panel = only_panel(page_of([view("slow", {1: 3e-4}), view("fast", {1: 1e-4}), view("near", {1: 1.01e-4})]))
    assert [bar.variant for bar in panel.bars] == ["fast", "near", "slow"]
    assert [slowness_text(panel, bar) for bar in panel.bars] == ["fastest", "1.01×", "3.00×"]
    assert [panel.is_tied(bar) for bar in panel.bars] == [False, True, False]
    panel = only_panel(page_of([view("alone", {1: 1e-4})]))
    assert slowness_text(panel, panel.bars[0]) == "the only one"


def relative(views, reference):
    """Return results of run 1 that name a reference variant, one for each series."""
    found = []
    for each in views:
        series = each.series
        known = {"median_s": 1e-4, "relative_to": reference, "relative_speed": 0.5}
        found.append((1, ResultRow(series.case, series.device, "H100", "cuda", Status.OK, **known)))
    return found


def test_a_reference_variant_is_shown_and_never_the_fastest():
    views = [
        view("copy", {1: 1e-4, 2: 1e-4}),
        view("slow", {1: 4e-4, 2: 3e-4}),
        view("fast", {1: 3e-4, 2: 2.01e-4}),
        view("near", {1: 5e-4, 2: 2.02e-4}),
    ]
    results = [(2, row) for _, row in relative(views, "copy")]
    page = page_of(views, results=results)
    panel = only_panel(page)
    assert [bar.variant for bar in panel.bars] == ["copy", "fast", "near", "slow"]
    assert [bar.variant for bar in panel.ranked] == ["fast", "near", "slow"]
    assert [slowness_text(panel, bar) for bar in panel.bars] == ["0.50×", "fastest", "1.00×", "1.49×"]
    assert [panel.is_tied(bar) for bar in panel.bars] == [False, False, True, False]
    assert [best.variant for best in panel.history] == ["fast", "fast"]
    drawn = [str(charts.bar(panel, bar)) for bar in panel.bars]
    assert [('class="reference"' in svg, 'class="best"' in svg) for svg in drawn] == [
        (True, False),
        (False, True),
        (False, False),
        (False, False),
    ]
    views = [view("copy", {1: 1e-4}), view("slow", {1: Status.FAILED})]
    panel = only_panel(page_of(views, results=relative(views[:1], "copy")))
    assert ([bar.variant for bar in panel.timed], panel.ranked, panel.reigns) == (["copy"], [], [])
    assert [slowness_text(panel, bar) for bar in panel.bars] == ["", ""]


def test_variants_without_a_time_come_last_with_their_reason():
    panel = only_panel(
        page_of([view("a", {1: Status.WRONG}), view("b", {1: 1e-4}), view("c", {1: point(1, Status.SKIPPED)})])
    )
    assert [(bar.variant, bar.status, bar.reason) for bar in panel.bars] == [
        ("b", Status.OK, ""),
        ("c", Status.SKIPPED, "it broke"),
        ("a", Status.WRONG, "it broke"),
    ]
    assert [slowness_text(panel, bar) for bar in panel.bars] == ["fastest", "", ""]
    reasons = {"a": "no GPU", "b": "old", "c": "old"}  # given if all variants of a point were skipped
    views = [view(name, {1: point(1, Status.SKIPPED, reason=why)}) for name, why in reasons.items()]
    assert only_panel(page_of(views)).why_skipped == "no GPU; old"
    assert only_panel(page_of([*views, view("d", {1: Status.WRONG})])).why_skipped == ""
    assert only_panel(page_of([*views, view("d", {1: 1e-4})])).why_skipped == ""


def test_gpus_of_one_model_are_pooled_by_their_median_and_other_models_have_a_section_of_their_own():
    page = page_of(
        [
            view("a", {1: 1e-4}),
            view("a", {1: 3e-4}, device="GPU-2"),
            view("a", {1: 1.2e-4}, device="GPU-3"),
            view("a", {1: 9e-4}, device="GPU-4", model="2 × H100"),
        ]
    )
    assert [(section.device_model, section.devices) for section in page.sections] == [
        ("2 × H100", ("GPU-4",)),
        ("H100", ("GPU-1", "GPU-2", "GPU-3")),
    ]
    bar = page.sections[1].panels[0].bars[0]
    assert bar.time_s == 1.2e-4
    assert (bar.low_s, bar.high_s) == (1e-4 * 0.99, 3e-4 * 1.01)
    bar = only_panel(page_of([view("a", {1: 1e-4}), view("a", {1: Status.FAILED}, device="GPU-2")])).bars[0]
    assert (bar.status, bar.time_s, bar.reason) == (Status.OK, 1e-4, "1 of 2 GPUs failed: it broke")
    bar = only_panel(page_of([view("a", {1: 5e-4}), view("a", {1: 5e-4, 2: 1e-4}, device="GPU-2")])).bars[0]
    assert (bar.run, bar.time_s, [series.device for series in bar.series]) == (2, 1e-4, ["GPU-2"])  # of its newest run


def test_shares_of_peaks_are_those_of_the_results_of_the_newest_run():
    views = [view("a", {1: 1e-4, 2: 1e-4}), view("a", {2: 2e-4}, device="GPU-2")]
    results = [
        (run, ResultRow(each.series.case, each.series.device, "H100", "cuda", Status.OK, median_s=1e-4, **known))
        for run, each, known in (
            (1, views[0], {"peak": "memory", "peak_share": 0.1}),
            (2, views[0], {"peak": "memory", "peak_share": 0.8, "flops_per_s": 1e12, "relative_speed": 0.9}),
            (2, views[1], {"peak": "memory", "peak_share": 0.6, "bandwidth_bytes_per_s": 1e9, "relative_to": "b"}),
        )
    ]
    bar = only_panel(page_of(views, results=results)).bars[0]
    assert (bar.peak, bar.peak_share) == ("memory", pytest.approx(0.7))
    assert (bar.flops_per_s, bar.bandwidth_bytes_per_s, bar.relative_to, bar.relative_speed) == (1e12, 1e9, "b", 0.9)


def test_uncommitted_changes_and_excluded_runs_decide_nothing_unless_there_is_nothing_else():
    excluded = point(3, 1e-6, excluded="shared GPU")
    views = [view("a", {1: 1e-4, 2: 1e-6, 3: excluded}), view("b", {2: 2e-4})]
    runs = [run_row(1), run_row(2, dirty=True), run_row(3)]
    bars = {bar.variant: bar for bar in only_panel(page_of(views, runs)).bars}
    assert (bars["a"].run, bars["a"].time_s, bars["a"].dirty) == (1, 1e-4, False)
    assert (bars["b"].run, bars["b"].dirty) == (2, True)
    assert newest_runs(views, {2}) == {1: {"dot/a[n=1024]"}, 2: {"dot/b[n=1024]"}}
    bar = only_panel(page_of([view("a", {1: point(1, 1e-4, excluded="shared GPU")})])).bars[0]
    assert (bar.time_s, bar.reason) == (1e-4, "excluded: shared GPU")
    panel = only_panel(page_of([view("a", {1: 1e-6}), view("a", {2: 1e-4}, version=2)]))
    assert [(bar.run, bar.time_s) for bar in panel.bars] == [(2, 1e-4)]  # without the older version


def test_a_variant_that_runs_of_the_same_cases_no_longer_measure_is_retired():
    runs = 1 + RETIRED_AFTER
    kept = dict.fromkeys(range(1, runs + 1), 0.0002)
    panel = only_panel(page_of([view("kept", kept), view("gone", {1: 1e-4})]))
    assert ([bar.variant for bar in panel.bars], panel.retired) == (["kept"], (("gone", 1),))
    assert [best.variant for best in panel.history] == ["gone"] * RETIRED_AFTER + ["kept"]
    last = 2 + RETIRED_AFTER
    for scope in ("selected", ""):  # runs of other cases, or of unknown cases, retire nothing
        runs = [run_row(1, scope=scope and "all"), *(run_row(run, scope=scope) for run in range(2, last + 1))]
        panel = only_panel(page_of([view("a", dict.fromkeys(range(1, last + 1), 0.0002)), view("b", {1: 1e-4})], runs))
        assert ([bar.variant for bar in panel.bars], panel.retired) == (["b", "a"], ()), scope


def naive_best(views, runs):
    """Return the fastest variant at each run, by looking at all runs before for each variant."""
    bests = []
    for now in runs:
        times = {}
        for variant in {each.series.case.variant for each in views}:
            of_variant = [each for each in views if each.series.case.variant == variant]
            measured = {known.run for each in of_variant for known in each.points if known.run <= now}
            ever = {known.run for each in of_variant for known in each.points}
            missed = [run for run in runs if run > max(ever) and run <= now]
            if not measured or len(missed) >= RETIRED_AFTER:
                continue
            last = max(measured)
            levels = [known.level for each in of_variant for known in each.points if known.run == last and known.level]
            if levels:
                times[variant] = median(levels)
        best = min(times, key=lambda variant: (times[variant], variant), default=None)
        bests.append((now, best, times.get(best)))
    return bests


def test_the_history_of_the_fastest_variant_is_that_of_a_naive_search():
    for seed in range(15):
        chance = random.Random(seed)
        views = []
        for variant in "abcd":
            for device in ("GPU-1", "GPU-2"):
                times = {
                    run: chance.choice([Status.FAILED, *(1e-4 * chance.uniform(0.9, 1.1) for _ in range(5))])
                    for run in range(1, chance.randint(3, 13))
                    if chance.random() < 0.7
                }
                if times:
                    views.append(view(variant, times, device=device))
        panel = only_panel(page_of(views))
        runs = sorted({known.run for each in views for known in each.points})
        assert [(best.run, best.variant, best.time_s) for best in panel.history] == naive_best(views, runs), seed
        changes = [best.variant for best in panel.history if best.variant]
        expected = [variant for place, variant in enumerate(changes) if place == 0 or changes[place - 1] != variant]
        assert [reign.variant for reign in panel.reigns] == expected[::-1], seed
    # A variant that a run skips keeps its time, and one that fails does not.
    panel = only_panel(page_of([view("a", {1: 1e-4, 3: Status.FAILED}), view("b", {1: 2e-4, 2: 2e-4, 3: 2e-4})]))
    assert [(best.variant, best.time_s) for best in panel.history] == [("a", 1e-4), ("a", 1e-4), ("b", 2e-4)]
    assert [(reign.variant, reign.first, reign.last) for reign in panel.reigns] == [("b", 3, 3), ("a", 1, 2)]


def test_the_page_shows_the_largest_point_first_and_sorts_points_by_their_numbers():
    page = page_of(
        [view("a", {1: 1e-4}, n=n) for n in (900, 10000, 64)] + [view("a", {1: 1e-4}, n=10000, cache=CacheState.WARM)]
    )
    assert [choice.text for choice in page.choices] == ["n=64", "n=900", "n=10000", "n=10000 warm"]
    assert page.choices[page.shown].text == "n=10000"
    (row,) = rows_of_list(page)
    assert row.panel.choice.text == "n=10000"
    page = page_of([view("a", {1: 1e-4}, n=None)])  # without axes
    assert ([choice.text for choice in page.choices], page.sections[0].scalings) == (["the only size"], ())


def test_each_numeric_axis_has_a_panel_for_each_point_of_the_others():
    views = [
        SeriesView(
            Series(Case("dot", "a", (("n", n), ("k", k), ("dtype", dtype), ("fixed", 3))), "GPU-1", "H100"),
            columns([point(1, 1e-6 * n * k)]),
        )
        for n in (10, 200, 30)
        for k in (1, 2)
        for dtype in ("f32", "16")
    ]
    (section,) = page_of(views).sections
    found = {(panel.axis, panel.fixed): panel for panel in section.scalings}
    assert sorted(found) == [
        ("k", f"n={n}, dtype={dtype}, fixed=3") for n in (10, 200, 30) for dtype in ("16", "f32")
    ] + [("n", f"k={k}, dtype={dtype}, fixed=3") for k in (1, 2) for dtype in ("16", "f32")]
    over_n = found["n", "k=2, dtype=f32, fixed=3"]
    assert over_n.values == (10, 30, 200)
    assert [bar.time_s for bar in over_n.lines["a"]] == pytest.approx([2e-5, 6e-5, 4e-4])
    assert [section.panels[place].choice.point for place in over_n.places] == [
        (("n", n), ("k", 2), ("dtype", "f32"), ("fixed", 3)) for n in (10, 30, 200)
    ]


def test_beside_the_time_is_the_share_of_the_peak_or_the_rate_that_says_more():
    for known, quantity, value in [
        ({"peak": "memory", "peak_share": 0.5, "bandwidth_bytes_per_s": 1e12}, "% of peak", 0.5),
        ({"flops_per_s": 1e13, "bandwidth_bytes_per_s": 1e11}, "FLOP/s", 1e13),
        ({"flops_per_s": 1e10, "bandwidth_bytes_per_s": 1e11}, "B/s", 1e11),
        ({}, "", None),
    ]:
        views = [view("a", {1: 1e-4}, n=n) for n in (10, 20)]
        results = [
            (1, ResultRow(each.series.case, "GPU-1", "H100", "cuda", Status.OK, median_s=1e-4, **known))
            for each in views
        ]
        (panel,) = page_of(views, results=results).sections[0].scalings
        assert panel.quantity == quantity, (known, quantity, value)
        assert panel.other(panel.lines["a"][0]) == value, (known, quantity, value)
        assert bool(charts.scaling_rates(panel, ("a",))) == bool(quantity), (known, quantity, value)


def test_findings_are_marked_at_the_run_in_which_they_begin_each_once():
    views = [view("a", {1: 1e-4, 2: 2e-4}), view("a", {1: 1e-4, 2: 2e-4}, device="GPU-2")]
    panel = only_panel(page_of(views))
    moved = MovedSeries(views[0].series, 2.0, 1.9, 2.1, 1, 1e-4, 2e-4, 2, direction=Direction.SLOWER, first_run=2)
    old = MovedSeries(views[0].series, 2.0, 1.9, 2.1, 1, 1e-4, 2e-4, 2, direction=Direction.SLOWER, first_run=0)
    finding = SimpleNamespace(id=7, first_run=0)
    findings = {views[0].series: [(finding, moved), (finding, old)], views[1].series: [(finding, moved)]}
    assert findings_at(panel, findings) == {2: [(finding, moved)]}


# --- charts ----------------------------------------------------------------------------------------------------------


def test_an_axis_is_logarithmic_from_a_factor_of_ten_on_and_has_few_ticks():
    assert charts.ChartScale([1, 10], 0, 100)(10**0.5) == pytest.approx(50)
    assert charts.ChartScale([1, 9], 0, 100)(5) == pytest.approx(50)
    assert charts.ChartScale([1, 100], 0, 99, linear=True)(50) == pytest.approx(49)
    assert charts.ChartScale([1, 9], 0, 90, from_zero=True)(5) == pytest.approx(50)
    assert charts.ChartScale([5.0, 5.0], 0, 100)(5.0) == pytest.approx(50)
    assert charts.ChartScale([0.0], 0, 100)(0.0) == pytest.approx(50)
    for seed in range(50):
        chance = random.Random(seed)
        low = 10 ** chance.uniform(-9, 9)
        scale = charts.ChartScale([low, low * (1 + 10 ** chance.uniform(-3, 6))], 0, 100)
        ticks = scale.ticks()
        assert 1 <= len(ticks) <= charts.MOST_TICKS + 1, seed
        assert all(-1e-6 <= scale(tick) <= 100 + 1e-6 for tick in ticks), seed


def test_a_bar_much_longer_than_the_others_ends_with_an_arrow_and_at_most_half_of_the_bars_do():
    panel = only_panel(page_of([view("a", {1: 1e-6}), view("b", {1: 2e-6}), view("c", {1: 1e-4})]))
    fast, middle, slow = (str(charts.bar(panel, bar)) for bar in panel.bars)
    assert ["beyond" in bar for bar in (fast, middle, slow)] == [False, False, True]
    assert charts.is_any_cut(panel)
    assert f'width="{charts.BAR:.1f}"' in slow
    assert f'width="{charts.BAR / charts.LONGEST:.1f}"' in middle
    times = [48e-6, 243e-6, 267e-6, 413e-6, 704e-6, 763e-6, 1.1e-3, 1.2e-3, 1.7e-3, 2.6e-3, 2.7e-3, 5.7e-3, 6.1e-3]
    panel = only_panel(page_of([view(f"v{number:02}", {1: time}) for number, time in enumerate(times)]))
    assert not charts.is_any_cut(panel)
    panel = only_panel(page_of([view(f"v{number}", {1: 10.0**number * 1e-9}) for number in range(9)]))
    assert sum("beyond" in str(charts.bar(panel, bar)) for bar in panel.bars) == 4


def test_the_chart_of_the_fastest_names_changes_and_findings_and_escapes_names():
    hostile = "<script>boom()</script>"
    panel = only_panel(page_of([view("a", {1: 1e-4, 2: 3e-4}), view(hostile, {1: 2e-4, 2: 2e-4})]))
    drawn = str(charts.fastest(panel, ("a", hostile), {2: [(SimpleNamespace(id=7), None)]}))
    assert "1 change of the fastest variant" in drawn
    assert "<title>finding 7</title>" in drawn
    assert drawn.count('class="change"') == 1
    assert "<script" not in drawn
    assert charts.fastest(only_panel(page_of([view("a", {1: 1e-4})])), ("a",), {}) == ""


def test_the_charts_draw_the_fastest_variants_and_the_same_mark_for_a_variant_everywhere():
    views = [view(f"v{number:02}", {1: 1e-6 * (20 - number) * n}, n=n) for number in range(20) for n in (10, 1000)]
    page = page_of(views)
    (panel,) = page.sections[0].scalings
    assert charts.drawn_variants(panel) == [f"v{number:02}" for number in range(8, 20)]
    (related,) = page_of(views, results=relative(views, "v00")).sections[0].scalings
    assert charts.drawn_variants(related) == ["v00", *(f"v{number:02}" for number in range(9, 20))]
    assert len({str(charts.key(page.variants.index(name))) for name in page.variants}) == 20


def test_the_path_of_a_page_is_readable_and_differs_for_names_that_look_alike():
    assert benchmark_page("Dot Product").startswith("benchmarks/dot-product-")
    assert benchmark_page("Dot Product") != benchmark_page("dot-product")
    assert len(benchmark_page("x" * 10_000)) < 100
