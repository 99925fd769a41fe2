"""The pages from the server, and what stands beside them: metrics, the feed and badges."""

import sqlite3
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perfsvc.model import FindingState
from perfsvc.report.pages.render import ASSETS
from perfsvc.server.badges import COLOURS, GREEN, GREY, LONGEST, badge
from perfsvc.store import Store
from tests.server.conftest import client

ATOM = "{http://www.w3.org/2005/Atom}"
SVG = "{http://www.w3.org/2000/svg}"


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - our own


def series_page(web, text):
    (row,) = web.get(f"/api/v1/series?benchmark=transpose&text={text}").json()["items"]
    return row["key"]


def test_every_page_and_its_parts_are_served(web):
    for path in ("/", "/index.html", "/findings.html", "/series.html", "/findings/1.html", "/compare/12.html"):
        answer = web.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert web.get("/").text == web.get("/index.html").text
    assert web.get(f"/series/{series_page(web, 'tiled')}.html").status_code == 200
    for name in (*ASSETS, "plotly.min.js"):
        assert web.get(f"/assets/{name}").status_code == 200


def test_a_known_answer_is_not_sent_again_a_page_is_compressed_and_other_paths_are_404(local):
    for path in ("/findings.html", "/assets/site.css", "/feeds/findings.atom", "/badges/findings.svg"):
        first = local.get(path)
        again = local.get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path
        assert again.headers["etag"] == first.headers["etag"]
        assert local.get(path, headers={"if-none-match": '"other"'}).status_code == 200
    plain, packed = (local.get("/", headers={"accept-encoding": coding}) for coding in ("identity", "gzip"))
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert (packed.text, packed.headers["etag"]) == (plain.text, plain.headers["etag"])
    for path in ("/assets/../answers.py", "/assets/%2e%2e/site.css", "/assets/", "/findings/2.html", "/../perfsvc.db"):
        assert local.get(path).status_code == 404, path


def test_any_two_runs_are_compared_at_an_address_to_type(web):
    answer = web.get("/compare?base=latest~11&new=nightly")
    assert (answer.status_code, answer.headers["location"]) == (303, "compare/1-12.html")
    assert "Run 12 against run 1" in web.get("/compare/1-12.html").text
    assert web.get("/compare").headers["location"] == "compare/12.html"
    assert web.get("/compare?base=1&new=99").status_code == 404
    assert web.get("/compare?bse=1").status_code == 400
    assert web.get("/compare/3-3.html").status_code == 400
    assert web.get("/compare/999999999999999999-1.html").status_code in {400, 404}


def test_a_new_run_is_on_the_pages_at_once(nights, names):
    nights.night({names.tiled: 1e-4})
    web = client(nights.store)
    before = web.get("/")
    nights.night({names.tiled: 1e-4})
    after = web.get("/", headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert "run 2," in after.text


def test_a_night_that_writes_disturbs_no_reader(nights, names):
    nights.night({names.tiled: 1e-4})
    with Store.open(nights.store.location, create=False, read_only=True) as reading:
        web = client(reading)
        writer = sqlite3.connect(nights.store.location, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE runs SET label = 'half written'")
        for path in ("/", "/api/v1/runs", "/metrics"):
            answer = web.get(path)
            assert answer.status_code == 200
            assert "half written" not in answer.text
        writer.execute("COMMIT")
        writer.close()
        assert web.get("/api/v1/runs").json()["items"][0]["label"] == "half written"


# --- metrics ---------------------------------------------------------------------------------------------------------


def metrics(web):
    answer = web.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_count_findings_runs_and_requests_of_their_server(planted_url):
    with Store.open(planted_url, create=False, read_only=True) as store:
        require_metrics(client(store), client(store))


def require_metrics(web, other):
    web.get("/nothing")
    web.request("BREW", "/")
    values = metrics(web)
    assert values["perfsvc_newest_run", ()] == 12
    assert values["perfsvc_series", ()] == 3
    assert values["perfsvc_findings", (("state", "open"),)] == 1
    assert {dict(labels)["state"] for name, labels in values if name == "perfsvc_findings"} == set(FindingState)
    assert values["perfsvc_http_requests_total", (("method", "GET"), ("status", "404"))] == 1
    assert values["perfsvc_http_requests_total", (("method", "other"), ("status", "405"))] == 1
    seen = values["perfsvc_device_last_seen_timestamp_seconds", (("device", "GPU-1"), ("device_model", "NVIDIA H100"))]
    assert seen == 1773280800  # 2026-03-12, 2 o'clock
    assert ("perfsvc_http_requests_total", (("method", "GET"), ("status", "404"))) not in metrics(other)


# --- the feed --------------------------------------------------------------------------------------------------------


def test_the_feed_and_its_entries_have_ids_that_stay(served):
    root = parsed(served(public_url="https://perf.example.org/perf").get("/feeds/findings.atom").text)
    (entry,) = root.iter(f"{ATOM}entry")
    assert [each.find(f"{ATOM}id").text.removeprefix("https://perf.example.org/perf/") for each in (root, entry)] == [
        *("feeds/findings.atom", "findings/1.html")
    ]


def test_an_empty_feed_is_valid_and_the_feed_follows_what_people_do(nights, names):
    web = client(nights.store)
    root = parsed(web.get("/feeds/findings.atom").text)
    assert root.find(f"{ATOM}updated").text == "1970-01-01T00:00:00Z"
    assert root.find(f"{ATOM}entry") is None
    assert ">none open<" in web.get("/badges/findings.svg").text
    nights.find(nights.night({names.tiled: 1e-4}), [names.tiled])
    nights.store.findings.comment(1, "looking <b>", by="ann")
    entry = next(parsed(web.get("/feeds/findings.atom").text).iter(f"{ATOM}entry"))
    assert "commented ann looking <b>" in entry.find(f"{ATOM}content").text


# --- badges ----------------------------------------------------------------------------------------------------------


def test_badges_have_the_number_of_open_findings_or_the_newest_level_and_verdict_of_a_series(web):
    badge = web.get("/badges/findings.svg")
    assert badge.headers["content-type"] == "image/svg+xml"
    assert badge.headers["cross-origin-resource-policy"] == "cross-origin"
    assert parsed(badge.text).find(f"{SVG}title").text == "findings: 1 open"
    slower = web.get(f"/badges/series/{series_page(web, 'tiled')}.svg").text
    assert parsed(slower).find(f"{SVG}title").text == "transpose/tiled[n=4096]: 120.3 µs, regression"
    assert COLOURS["regression"] in slower
    assert GREEN in web.get(f"/badges/series/{series_page(web, 'naive')}.svg").text
    assert web.get("/badges/series/nothing.svg").status_code == 404


@pytest.mark.parametrize("label", ["x", "ein langer Name " * 20, "\x1b[2J\u202e<b>&\"'", "汉字" * 10])
def test_a_badge_is_valid_svg_as_wide_as_its_text(label):
    root = parsed(badge(label, "ok", GREY))
    first, second = root.iter(f"{SVG}text")
    assert len(first.text) <= LONGEST + 2
    assert "\x1b" not in first.text
    assert "\u202e" not in first.text
    left, right = int(first.get("textLength")), int(second.get("textLength"))
    assert int(root.get("width")) == left + right + 24
    assert int(second.get("x")) == left + 18
