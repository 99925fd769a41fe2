"""The page of a benchmark in a browser: the chooser of the size, its place in the address, and its readers."""

from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.model import Case, DeviceInfo, Environment, Estimate, Measurement, Peak, Provenance, Status, Work
from perfsvc.report.pages.site import benchmark_page
from perfsvc.service.dashboard.build import build
from perfsvc.store import MeasurementEntry, RunState
from tests.pages.conftest import require_fragment

GPUS = tuple(
    DeviceInfo(kind="cuda", spec=f"cuda:{uuid}", uuid=uuid, model=model, target="sm_90")
    for uuid, model in (("GPU-1", "NVIDIA H100"), ("GPU-2", "NVIDIA H100"), ("GPU-3", "NVIDIA A100"))
)
SIZES = (256, 1024, 4096)
SPEEDS = {"naive": 0.25, "tiled": 0.8, "odd \"<name>\" & 'all'": 0.5}
NEW = "newcomer"
BENCHMARK = "transpose"
PAGE = benchmark_page(BENCHMARK)


def measurement(case, device, time):
    status = Status.OK if isinstance(time, float) else Status.SKIPPED
    samples = (time * 0.999, time, time * 1.001) if status is Status.OK else ()
    estimate = Estimate(time, time * 0.999, time * 1.001, 3) if samples else None
    entry = Measurement(case, device, 0, status, reason="" if samples else str(time), samples_s=samples)
    nbytes = 8 * dict(case.point)["n"] ** 2
    return MeasurementEntry(entry, Environment("575.1", "nvcc 12.9", 700.0), Work(nbytes // 2, nbytes // 2), estimate)


def night(store, number):
    """Store a run of all variants; a faster variant appears in the third run."""
    started = datetime(2026, 3, 1, 2, tzinfo=UTC) + timedelta(days=number)
    run = store.runs.begin(Provenance(started, "perfsvc run", "kernels", "3fa0b1c2d4", scope="all"))
    speeds = SPEEDS | ({NEW: 0.9} if number >= 2 else {})
    entries = []
    for gpu, rate in zip(GPUS, (3e12, 2.9e12, 1.5e12), strict=True):
        store.devices.put(gpu)
        for n in SIZES:
            for dtype in ("f16", "f32"):
                for variant, speed in speeds.items():
                    case = Case(BENCHMARK, variant, (("n", n), ("dtype", dtype)))
                    skipped = dtype == "f16" and variant == "naive"
                    time = "it has no f16" if skipped else 2e-6 + 8 * n**2 / (speed * rate)
                    entries.append(measurement(case, gpu.uuid, time))
    store.measurements.put(run, entries)
    store.devices.put_peaks(run, {"GPU-1": Peak(2.9e12, 3e12), "GPU-3": Peak(1.4e12, 1.5e12)})
    store.runs.end(run, RunState.FINISHED)
    return run


@pytest.fixture(scope="module")
def sizes(built):
    """Build the site of a benchmark with many sizes on two GPU models."""
    return built(lambda store: [night(store, number) for number in range(4)])


@pytest.fixture
def opened(visit, sizes):
    """Open the page of the benchmark."""
    return lambda **options: visit(sizes / PAGE, **options)


def titles(page):
    """Return the sizes that the sections show."""
    return [text for text in page.locator(".model h3:visible").all_inner_texts() if text.startswith("n=")]


def choose(page, name):
    page.locator("#point").select_option(label=name)


def test_the_largest_or_the_chosen_size_is_shown_with_the_fastest_variant_of_each_gpu_model_on_top(opened):
    visited = opened()
    page = visited.page
    assert titles(page) == ["n=4096, dtype=f16"] * 2
    assert page.locator(".model h2").all_inner_texts() == ["NVIDIA A100 GPU-3", "NVIDIA H100 GPU-1, GPU-2"]
    rows = page.locator(".variants:visible").first.locator("tbody tr")
    assert rows.locator("th > a").all_inner_texts() == [NEW, "tiled", "odd \"<name>\" & 'all'", "naive"]
    assert rows.first.locator("td[data-name='vs fastest']").inner_text() == "fastest"
    assert rows.last.inner_text().split() == ["naive", "it", "has", "no", "f16", "skipped", "4"]
    rows = page.locator("table[aria-labelledby$=history]:visible").first.locator("tbody tr")
    assert [" ".join(text.split()[:-4]) for text in rows.all_inner_texts()] == [f"3 to 4 {NEW}", "1 to 2 tiled"]
    chart = page.locator("svg.lines[aria-label^='the fastest']:visible").first
    assert "1 change of the fastest variant" in chart.get_attribute("aria-label")
    assert chart.locator(".change").count() == 1
    choose(page, "n=4096, dtype=f32")  # shares are those of the GPU whose peak was measured
    rows = page.locator(".variants:visible").last.locator("tbody tr")
    share = 8 * 4096**2 / (2e-6 + 8 * 4096**2 / (0.9 * 3e12)) / 3e12
    assert rows.first.locator("td[data-name='% of peak']").inner_text() == f"{100 * share:.0f} %"
    choose(page, "n=256, dtype=f32")
    assert titles(page) == ["n=256, dtype=f32"] * 2
    over = [text for text in page.locator(".model h3:visible").all_inner_texts() if text.startswith("Over n")]
    assert over == ["Over n dtype=f32"] * 2
    assert page.locator(".variants:visible").first.locator("tbody tr").count() == 4
    assert visited.messages == []


def test_the_choice_survives_a_reload_and_comes_with_a_link_whose_unknown_size_is_the_largest(opened, visit, sizes):
    visited = opened()
    page = visited.page
    choose(page, "n=1024, dtype=f32")
    require_fragment(page, "size=n=1024, dtype=f32")
    page.reload()
    assert titles(page) == ["n=1024, dtype=f32"] * 2
    assert page.locator("#point").input_value() == "3"
    address = page.url
    page.locator("nav a", has_text="Benchmarks").click()
    page.goto(address)
    assert titles(page) == ["n=1024, dtype=f32"] * 2
    choose(page, "n=4096, dtype=f16")
    require_fragment(page, "")
    page.locator("#point").focus()
    page.keyboard.press("Home")
    assert titles(page) == ["n=256, dtype=f16"] * 2
    for unknown in ("#size=no+such+size", "#size=", "#other=1", "#content"):
        page.goto(address.partition("#")[0] + unknown)
        page.reload()
        assert titles(page) == ["n=4096, dtype=f16"] * 2, unknown
    assert visited.messages == []


def test_without_javascript_the_largest_size_is_shown_and_no_chooser(opened):
    page = opened(java_script_enabled=False).page
    assert titles(page) == ["n=4096, dtype=f16"] * 2
    assert not page.locator("#chooser").is_visible()
    assert "n=4096, dtype=f16" in page.locator("noscript").inner_text()


def test_links_lead_from_the_list_to_the_benchmark_to_a_series_and_back(visit, sizes):
    page = visit(sizes / "index.html").page
    page.locator("nav a", has_text="Benchmarks").click()
    assert page.locator("#benchmarks tbody tr").count() == 2
    page.locator("#benchmarks tbody a").first.click()
    assert page.locator("h1").inner_text() == BENCHMARK
    page.locator(".variants:visible a", has_text="tiled").first.click()
    assert page.locator("h1").inner_text() == "transpose/tiled[n=4096,dtype=f16]"
    page.get_by_role("link", name="all variants of the benchmark").click()
    assert page.locator("h1").inner_text() == BENCHMARK


def test_tonight_links_what_moved_and_failed_to_its_benchmark_which_marks_the_finding(visit, site, names):
    visited = visit(site / "index.html")
    page = visited.page
    variants = page.get_by_role("link", name="variants", exact=True)
    hostile, moved = (benchmark_page(case.benchmark) for case in (names.hostile, names.tiled))
    assert [link.get_attribute("href") for link in variants.all()] == [hostile, moved]
    variants.first.click()
    assert page.locator("h1").inner_text() == names.hostile.benchmark
    assert "an illegal access <script>boom()</script>" in page.locator(".variants .reason").inner_text()
    page.goto((site / moved).as_uri())
    assert page.locator("svg .found title").text_content() == "finding 1"
    item = page.locator("li", has_text="run 12: finding 1")
    assert "tiled +20.0 %" in item.inner_text()
    item.locator("a").click()
    assert page.locator("h1").inner_text().startswith("Finding 1")
    assert visited.messages == []


def test_the_page_and_the_list_are_sound(visit, sizes):
    for name, width, theme in ((PAGE, 390, "dark"), (PAGE, 1600, "light"), ("benchmarks.html", 390, "light")):
        visit(sizes / name, width=width, theme=theme).require_sound(sizes)


def test_a_run_of_one_variant_does_not_hide_the_others(nights, tmp_path, names):
    nights.night({names.tiled: 1e-4, names.naive: 3e-4})
    nights.night({names.naive: 3e-4})
    build(nights.store, tmp_path / "site")
    page = (tmp_path / "site" / benchmark_page(names.tiled.benchmark)).read_text()
    assert page.index(">tiled</a>") < page.index(">naive</a>")
