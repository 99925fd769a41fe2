"""A database in which every text of a stranger is hostile, served: no page and no other answer has anything live."""

import json
import re
from xml.etree import ElementTree as ET
from zlib import crc32

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perfsvc.report.pages.render import POLICY
from perfsvc.server.api import ENDPOINTS
from perfsvc.server.endpoints import ROOT
from perfsvc.store import Store
from tests.e2e.stored_text import PAYLOADS, fill, replace_texts, stored
from tests.e2e.test_hostile_text import structure, unseen
from tests.pages import walking
from tests.server.conftest import client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SVG = "{http://www.w3.org/2000/svg}"
ATOM = "{http://www.w3.org/2005/Atom}"
BROWSER = {"accept": "text/html"}
SERIES = f"{ROOT}/series"


def hostile(path, shift):
    """Put a payload in front of each text of a database; ``shift`` decides which payload a text gets.

    The walk in a browser and the tests of this file have different shifts, so that each text gets two payloads. The
    commands get all payloads in all texts in tests/e2e/test_hostile_text.py.
    """
    payloads = list(PAYLOADS.values())
    replace_texts(path, lambda text: stored(f"{payloads[(crc32(text.encode()) + shift) % len(payloads)]}{text}"))


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "perfsvc.db"
    fill(path)
    hostile(path, 9)
    return path


@pytest.fixture(scope="module")
def web(database):
    """Return a client whose answers all have the headers that keep a browser from running a text."""
    with Store.open(database, create=False, read_only=True) as store:
        yield Checked(client(store))


class Checked:
    """A client that checks the headers of each answer."""

    def __init__(self, web):
        self.web = web

    def get(self, path, kind, status=200, **options):
        answer = self.web.get(path, **options)
        assert answer.status_code == status, (path, answer.text[:500])
        assert answer.headers["content-security-policy"] == f"{POLICY}; frame-ancestors 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].partition(";")[0] == kind
        return answer


def keys(web):
    return [row["key"] for row in web.get(f"{ROOT}/series?limit=1000", "application/json").json()["items"]]


def test_no_page_has_anything_live(web):
    pages = {}

    def read(path):
        pages[path] = web.get(f"/{path}", "text/html").text
        return pages[path]

    walking.pages_by_kind(read)  # the links of all pages lead to pages of the site
    pages["compare/1-3.html"] = web.get("/compare/1-3.html", "text/html").text
    assert len(pages) > 20
    for path, page in pages.items():
        assert structure([page])[1] == [], path
        assert unseen(page) == [], path
        scripts = re.findall(r"<script\b[^>]*>", page)
        assert all("src=" in script or 'type="application/json"' in script for script in scripts), path


def test_every_answer_of_the_api_is_json_and_safe_to_print(web):
    asked = 0
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET":
            continue
        query = {"compare": "?base=1&new=3", "explanations": "?finding=1"}.get(endpoint.path, "")
        for key in keys(web) if "{key}" in endpoint.path else [""]:
            answer = web.get(f"{ROOT}/{endpoint.path}{query}".format(run=3, finding=1, key=key), "application/json")
            assert unseen(answer.text) == [], endpoint.path
            assert "<" not in answer.text or json.loads(answer.text), endpoint.path
            asked += 1
    assert asked > 10


def test_the_feed_is_xml_whose_links_lead_to_the_site(web):
    text = web.get("/feeds/findings.atom", "application/atom+xml").text
    assert unseen(text) == []
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.findall(f"{ATOM}entry")
    assert {element.tag.removeprefix(ATOM) for element in root.iter()} <= {
        *("feed", "title", "id", "updated", "author", "name", "link", "entry", "published", "content", "category")
    }
    assert all(element.get("href").startswith("http://localhost/") for element in root.iter(f"{ATOM}link"))
    for content in root.iter(f"{ATOM}content"):
        assert content.get("type") in {None, "text"}


def test_every_badge_is_a_picture_that_runs_and_loads_nothing(web):
    for path in ("findings", *(f"series/{key}" for key in keys(web))):
        text = web.get(f"/badges/{path}.svg", "image/svg+xml").text
        assert unseen(text) == [], path
        for element in ET.fromstring(text).iter():  # noqa: S314 - our own
            assert element.tag.removeprefix(SVG) in {*("svg", "title", "rect", "g", "text", "path", "clipPath")}, path
            assert not [name for name in element.attrib if name.startswith("on") or name.endswith("href")], path


def test_the_metrics_are_lines_that_prometheus_reads(web):
    text = web.get("/metrics", "text/plain").text
    assert unseen(text) == []
    families = list(text_string_to_metric_families(text))
    assert all(family.name.startswith(("perfsvc_", "process_", "python_")) for family in families)
    labels = {value for family in families for sample in family.samples for value in sample.labels.values()}
    assert any(value.endswith("NVIDIA H100") and value != "NVIDIA H100" for value in labels)


def test_an_error_repeats_nothing_live(web):
    texts = [payload[:1000].encode(errors="replace").decode() for payload in PAYLOADS.values()]
    wrong = [
        (path, {"params": params})
        for text in texts
        for path, params in (("/compare", {"base": text}), (SERIES, {text or "x": text}), (SERIES, {"limit": text}))
    ]
    for path, options in wrong:
        for accept, kind in ((BROWSER, "text/html"), ({}, "application/json")):
            is_api = path.startswith(ROOT)
            answer = web.web.get(path, headers=accept, **options)
            assert answer.status_code in {400, 404}, (path, answer.text)
            assert answer.headers["content-type"].partition(";")[0] == ("application/json" if is_api else kind)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert unseen(answer.text) == []
            if kind == "text/html" and not is_api:
                assert structure([answer.text])[1] == []
                assert "<script" not in answer.text
