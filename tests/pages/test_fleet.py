"""The page of the fleet: what it computes, and how it looks in a browser."""

import shutil
from dataclasses import replace
from datetime import timedelta
from statistics import median

import pytest

from perfsvc.model import Absence, Expected, ExpectedKind, Provenance
from perfsvc.report.pages.fleet import EXPLAINED, LOOKS, SIGNS, Health
from perfsvc.service.dashboard.build import build
from perfsvc.store import RunState, Store
from tests.pages import fleets
from tests.site_of_runs import site_of


@pytest.fixture(scope="session")
def measured(template, tmp_path_factory):
    """Return the database of the nights of two hosts."""
    path = tmp_path_factory.mktemp("fleet") / "perfsvc.db"
    shutil.copy(template, path)
    with Store.open(path) as store:
        fleets.fill(store, model=fleets.HOSTILE_TEXT)
    return path


@pytest.fixture
def store(measured, tmp_path):
    """Return a copy of this database, opened."""
    shutil.copy(measured, tmp_path / "perfsvc.db")
    with Store.open(tmp_path / "perfsvc.db") as opened:
        yield opened


@pytest.fixture
def gpus(store):
    """Return a function that returns the GPUs of the page by UUID."""
    return lambda: {gpu.info.uuid: gpu for gpu in site_of(store, 100, fleets.BEGUN).fleet.gpus}


@pytest.fixture(scope="session")
def page_of_fleet(measured):
    with Store.open(measured) as store:
        build(store, measured.parent / "site")
    return measured.parent / "site" / "fleet.html"


def test_each_host_has_its_gpus_and_no_groups(store):
    fleet = site_of(store, 100, fleets.BEGUN).fleet
    assert {host.name: tuple(gpu.info.uuid for gpu in host.gpus) for host in fleet.hosts} == fleets.GPUS
    assert all(host.seen for host in fleet.hosts)


def test_a_gpu_shows_the_state_of_its_newest_run(gpus):
    facts = dict(gpus()["GPU-0"].facts)
    assert facts == {
        "driver": "580.1",
        "memory": "80 GiB",
        "lowest clock": "1.700 GHz of 1.980 GHz",
        "hottest": "61 °C",
        "most power": "400 W of 700 W",
        "ECC": "off",
    }
    assert [text for _, text, _ in gpus()["GPU-0"].bandwidths] == ["2.62 TB/s", "3.00 TB/s"]


def test_each_night_has_a_cell_and_the_power_limit_alone_is_no_trouble(gpus):
    states = {uuid: [night.states for night in gpu.health] for uuid, gpu in gpus().items()}
    ok, hot, missing = (Health.OK,), (Health.SLOWED, Health.REJECTED), (Health.MISSING,)
    assert states["GPU-0"] == [*[ok] * 7, hot, *[ok] * 12]
    assert states["GPU-1"] == [ok] * 20
    assert states["GPU-2"] == [*[ok] * 18, missing, missing]
    (night,) = gpus()["GPU-0"].troubled
    assert night.text.endswith("thermal slowdown; 9 batches rejected")


def test_a_forgotten_gpu_ends_with_its_last_night(store, gpus):
    forgotten = [row for row in store.expectations.of_host("beta") if row.name == "GPU-2"]
    store.expectations.forget(forgotten, by="Ada")
    assert {night.worst for night in gpus()["GPU-2"].health} == {Health.OK}


def test_a_missing_gpu_and_an_overdue_host_lead_to_their_findings(store, gpus):
    (row,) = (row for row in store.expectations.of_host("beta") if row.name == "GPU-2")
    host = Expected(ExpectedKind.HOST, "beta", "beta", row.night, fleets.BEGUN)
    store.expectations.update([host], [Absence("GPU-2", "gone", (row,)), Absence("host beta", "late", (host,))])
    assert gpus()["GPU-2"].missing
    beta = next(host for host in site_of(store, 100, fleets.BEGUN).fleet.hosts if host.name == "beta")
    assert beta.overdue
    assert beta.overdue != gpus()["GPU-2"].missing


def test_a_night_that_made_no_run_misses_all_gpus_of_its_host(store, gpus):
    at = fleets.BEGUN + timedelta(days=40)
    night = store.nights.begin(host="alpha", started=at, suite="", command_line="", settings={"run": {}})
    assert gpus()["GPU-1"].health[-1].worst is Health.OK  # the night still runs
    store.nights.end(night, RunState.FAILED, 5)
    assert gpus()["GPU-1"].health[-1].worst is Health.MISSING
    assert gpus()["GPU-1"].health[-1].name == f"night {night}, 2026-04-10"


def test_a_night_that_asked_for_other_devices_misses_nothing(store, gpus):
    at = fleets.BEGUN + timedelta(days=40)
    settings = {"run": {"devices": ["cuda:GPU-0"]}}
    night = store.nights.begin(host="alpha", started=at, suite="", command_line="", settings=settings)
    store.nights.end(night, RunState.FAILED, 5)
    assert {state.worst for state in gpus()["GPU-1"].health} == {Health.OK}


def test_a_gpu_that_moved_is_on_both_hosts(store):
    at = fleets.BEGUN + timedelta(days=41)
    run = store.runs.begin(Provenance(at, "perfsvc run", "kernels", host="gamma"))
    (entry, *_) = _entries(store)
    store.measurements.put(run, [entry])
    store.runs.end(run, RunState.FINISHED)
    fleet = site_of(store, 100, fleets.BEGUN).fleet
    places = {host.name: {gpu.info.uuid: gpu.elsewhere for gpu in host.gpus} for host in fleet.hosts}
    assert places["gamma"] == {"GPU-0": ""}
    assert places["alpha"] == {"GPU-0": "gamma", "GPU-1": ""}


def _entries(store):
    from perfsvc.model import Estimate, Measurement, Status, Work
    from perfsvc.store import MeasurementEntry

    measurement = Measurement(fleets.TILED, "GPU-0", 0, Status.OK, samples_s=(1e-4,) * 6)
    return [MeasurementEntry(measurement, fleets.NEW, Work(0, 0), Estimate(1e-4, 1e-4, 1e-4, 6))]


def test_a_gpu_slower_than_its_siblings_in_several_nights_is_flagged(gpus):
    found = gpus()
    assert {uuid: gpu.slower for uuid, gpu in found.items()} == {"GPU-0": False, "GPU-1": True, "GPU-2": False}
    assert found["GPU-1"].siblings[0].ratio == pytest.approx(fleets.LAG, rel=1e-3)


def test_the_ratio_to_siblings_is_that_of_the_medians_of_shared_binaries(store, gpus):
    table = store.measurements.columns()
    rows = list(zip(*(table[name] for name in ("run", "case", "device", "median_s")), strict=True))
    (row,) = (row for row in gpus()["GPU-2"].siblings[:1])
    own_run, other_run = row.run, row.run - 1  # alpha's run of that night comes first

    def level(run, case, device):
        times = [time for number, name, uuid, time in rows if (number, name, uuid) == (run, case, device)]
        return (times[0] * times[1] * times[2]) ** (1 / 3)

    ratios = [
        level(own_run, case.id, "GPU-2") / median(level(other_run, case.id, uuid) for uuid in fleets.GPUS["alpha"])
        for case in fleets.CASES
    ]
    assert row.ratio == pytest.approx(median(ratios))
    assert (row.cases, row.siblings) == (3, 2)


def test_another_binary_is_not_compared(gpus):
    newest = gpus()["GPU-0"].siblings[0]
    assert newest.run == 37  # in run 39, GPU-0 had another binary than its sibling


def test_an_empty_database_has_no_gpu(nights):
    fleet = site_of(nights.store, 10, fleets.BEGUN).fleet
    assert (fleet.hosts, fleet.has_siblings) == ((), False)


def test_the_cpu_device_is_no_gpu(nights, names):
    nights.store.devices.put(replace(fleets.GPU, kind="cpu", uuid="CPU-1"))
    nights.night({names.tiled: 1e-4})
    (gpu,) = site_of(nights.store, 10, fleets.BEGUN).fleet.gpus
    assert gpu.info.uuid == "GPU-1"


def test_each_state_has_a_sign_a_look_and_an_explanation():
    assert set(SIGNS) == set(LOOKS) == set(EXPLAINED) == set(Health)
    assert len(set(SIGNS.values())) == len(Health)


# --- in a browser ----------------------------------------------------------------------------------------------------


def test_the_page_says_the_rule_and_who_is_slower(visit, page_of_fleet):
    page = visit(page_of_fleet).page
    text = page.locator("main").inner_text()
    assert "Slower than their siblings: 1 GPU" in text
    assert "more than 3 % above 1 in 3 of its newest 5 nights" in text
    article = page.locator("article", has_text="Slower than its siblings.")
    assert "GPU-1" in article.inner_text()
    assert "+6.0 %" in article.inner_text()


def test_cells_have_texts_and_the_row_has_a_name(visit, page_of_fleet):
    page = visit(page_of_fleet).page
    row = page.locator("article", has_text="GPU-2").get_by_role("img", name="Health in 20 nights: 18 ok, 2 missing")
    assert row.locator("span").all_inner_texts()[-3:] == ["·", "–", "–"]
    assert row.locator("span").last.get_attribute("title") == "night 40, 2026-03-20: missing"
    troubles = page.locator("article", has_text="GPU-0").locator("details")
    troubles.locator("summary").press("Enter")
    assert "run 15, 2026-03-08" in troubles.inner_text()


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1600, "light")])
def test_the_page_is_quiet_fits_and_is_readable_for_everyone(visit, page_of_fleet, width, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    visited = visit(page_of_fleet, width=width, theme=theme)
    assert visited.messages == []
    assert visited.page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(visited.page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
    assert visited.page.locator("main script, [onerror]").count() == 0
    assert "<script>boom()</script>" in visited.page.locator("h3").first.inner_text()
