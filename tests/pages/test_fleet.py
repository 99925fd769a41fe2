"""The page of the fleet: what it computes, and how it looks in a browser."""

import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from perfsvc.model import Absence, Estimate, Expected, ExpectedKind, Measurement, Provenance, Status, Work
from perfsvc.report.pages.fleet import EXPLAINED, LOOKS, SIGNS, Health
from perfsvc.store import MeasurementEntry, RunState, Store
from tests.pages import fleets
from tests.pages.conftest import site_beside
from tests.site_of_runs import site_of


@pytest.fixture(scope="session")
def measured(filled):
    """Return the database of the nights of two hosts."""
    return filled(lambda store: fleets.fill(store, model=fleets.HOSTILE_TEXT))


@pytest.fixture(scope="session")
def page_of_fleet(measured):
    return site_beside(measured) / "fleet.html"


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
    assert set(SIGNS) == set(LOOKS) == set(EXPLAINED) == set(Health)
    assert len(set(SIGNS.values())) == len(Health)


def test_a_missing_gpu_and_an_overdue_host_lead_to_their_findings(store, gpus):
    (row,) = (row for row in store.expectations.of_host("beta") if row.name == "GPU-2")
    host = Expected(ExpectedKind.HOST, "beta", "beta", row.night, fleets.BEGUN)
    store.expectations.update([host], [Absence("GPU-2", "gone", (row,)), Absence("host beta", "late", (host,))])
    assert gpus()["GPU-2"].missing
    beta = next(host for host in site_of(store, 100, fleets.BEGUN).fleet.hosts if host.name == "beta")
    assert beta.overdue
    assert beta.overdue != gpus()["GPU-2"].missing


def test_a_night_that_made_no_run_misses_all_gpus_that_it_asked_for_and_no_forgotten_gpu(store, gpus):
    forgotten = [row for row in store.expectations.of_host("beta") if row.name == "GPU-2"]
    store.expectations.forget(forgotten, by="Ada")
    assert {night.worst for night in gpus()["GPU-2"].health} == {Health.OK}
    at = fleets.BEGUN + timedelta(days=40)
    settings = {"run": {"devices": ["cuda:GPU-0"]}}
    night = store.nights.begin(host="alpha", started=at, suite="", command_line="", settings=settings)
    store.nights.end(night, RunState.FAILED, 5)
    assert {state.worst for state in gpus()["GPU-1"].health} == {Health.OK}
    night = store.nights.begin(host="alpha", started=at, suite="", command_line="", settings={"run": {}})
    assert gpus()["GPU-1"].health[-1].worst is Health.OK  # the night still runs
    store.nights.end(night, RunState.FAILED, 5)
    assert gpus()["GPU-1"].health[-1].worst is Health.MISSING
    assert gpus()["GPU-1"].health[-1].name == f"night {night}, 2026-04-10"


def test_a_gpu_that_moved_is_on_both_hosts(store):
    at = fleets.BEGUN + timedelta(days=41)
    run = store.runs.begin(Provenance(at, "perfsvc run", "kernels", host="gamma"))
    measured = Measurement(fleets.TILED, "GPU-0", 0, Status.OK, samples_s=(1e-4,) * 6)
    entry = MeasurementEntry(measured, fleets.NEW, Work(0, 0), Estimate(1e-4, 1e-4, 1e-4, 6))
    store.measurements.put(run, [entry])
    store.runs.end(run, RunState.FINISHED)
    fleet = site_of(store, 100, fleets.BEGUN).fleet
    places = {host.name: {gpu.info.uuid: gpu.elsewhere for gpu in host.gpus} for host in fleet.hosts}
    assert places["gamma"] == {"GPU-0": ""}
    assert places["alpha"] == {"GPU-0": "gamma", "GPU-1": ""}


def test_a_gpu_slower_than_its_siblings_in_several_nights_is_flagged(gpus):
    found = gpus()
    assert {uuid: gpu.slower for uuid, gpu in found.items()} == {"GPU-0": False, "GPU-1": True, "GPU-2": False}
    newest = found["GPU-1"].siblings[0]
    assert (newest.ratio, newest.cases) == (pytest.approx(fleets.LAG, rel=1e-3), 3)
    assert found["GPU-2"].siblings[0].siblings == 2
    assert found["GPU-0"].siblings[0].run == 37  # in run 39, GPU-0 had another binary than its sibling


def test_the_cpu_device_is_no_gpu_and_an_empty_database_has_none(nights, names):
    fleet = site_of(nights.store, 10, fleets.BEGUN).fleet
    assert (fleet.hosts, fleet.has_siblings) == ((), False)
    nights.store.devices.put(replace(fleets.GPU, kind="cpu", uuid="CPU-1"))
    nights.night({names.tiled: 1e-4})
    (gpu,) = site_of(nights.store, 10, fleets.BEGUN).fleet.gpus
    assert gpu.info.uuid == "GPU-1"


# --- in a browser ----------------------------------------------------------------------------------------------------


def test_the_page_says_the_rule_and_who_is_slower(visit, page_of_fleet):
    page = visit(page_of_fleet).page
    text = page.locator("main").inner_text()
    assert "Slower than their siblings: 1 GPU" in text
    assert "more than 3 % above 1 in 3 of its newest 5 nights" in text
    article = page.locator("article", has_text="Slower than its siblings.")
    assert "GPU-1" in article.inner_text()
    assert "+6.0 %" in article.inner_text()


def test_the_page_is_sound_and_its_cells_have_texts(visit, page_of_fleet):
    for width, theme in ((390, "dark"), (1600, "light")):
        visited = visit(page_of_fleet, width=width, theme=theme)
        visited.require_sound(page_of_fleet.parent)
    page = visited.page
    assert "<script>boom()</script>" in page.locator("h3").first.inner_text()
    row = page.locator("article", has_text="GPU-2").get_by_role("img", name="Health in 20 nights: 18 ok, 2 missing")
    assert row.locator("span").all_inner_texts()[-3:] == ["·", "–", "–"]
    assert row.locator("span").last.get_attribute("title") == "night 40, 2026-03-20: missing"
    assert "run 15, 2026-03-08" in page.locator("article", has_text="GPU-0").locator("details").inner_text()
