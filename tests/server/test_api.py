"""The API in JSON, on SQLite and PostgreSQL."""

import json
import math

import jsonschema

from perfsvc.report.export import schema
from perfsvc.report.export.objects import finding_json, plain
from perfsvc.server.api import ENDPOINTS
from perfsvc.server.endpoints import MOST_ROWS
from perfsvc.service.dashboard import live
from perfsvc.store import Store
from tests.server.conftest import client

API = "/api/v1"


def names(columns):
    return [column.name for column in columns]


def read(web, path, status=200):
    answer = web.get(f"{API}/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def key_of(web, text="tiled n=4096"):
    return read(web, f"series?text={text}&benchmark=transpose")["items"][0]["key"]


def test_runs_have_the_columns_of_exports_newest_first_and_pages_of_them_follow_one_another(web):
    page = read(web, "runs")
    assert [run["run"] for run in page["items"]] == list(range(12, 0, -1))
    assert list(page["items"][0]) == names(schema.RUNS)
    assert page["next_offset"] is None
    assert read(web, "runs/12") == page["items"][0]
    first = read(web, "runs?limit=5")
    second = read(web, f"runs?limit=5&offset={first['next_offset']}")
    third = read(web, f"runs?limit=5&offset={second['next_offset']}")
    numbers = [run["run"] for page in (first, second, third) for run in page["items"]]
    assert numbers == list(range(12, 0, -1))
    assert third["next_offset"] is None
    assert read(web, "runs?offset=12") == {"items": [], "next_offset": None}


def test_the_results_of_a_run_have_the_columns_of_the_summary_and_the_axes(web):
    rows = read(web, "runs/12/results")["items"]
    assert len(rows) == 3
    tiled = next(row for row in rows if row["variant"] == "tiled" and row["benchmark"] == "transpose")
    assert set(names(schema.SUMMARY)) | {"n"} == set(tiled)
    assert tiled["n"] == "4096"  # text, because the axis of another case has a text
    assert math.isclose(tiled["median_s"], 1.2e-4, rel_tol=0.01)
    failed = next(row for row in rows if row["status"] == "failed")
    assert failed["median_s"] is None


def test_series_are_filtered_and_have_their_newest_level_and_history(web):
    (naive,) = read(web, "series?benchmark=transpose&text=NAIVE h100")["items"]
    assert naive["case"] == "transpose/naive[n=4096]"
    for query in ("", "device=GPU-1", "device=NVIDIA H100&metric=time"):
        assert len(read(web, f"series?{query}")["items"]) == 3, query
    for query in ("device=GPU-2", "metric=energy_j", "benchmark=trans", "text=nothing"):
        assert read(web, f"series?{query}")["items"] == [], query
    row = read(web, "series?text=tiled n=4096&benchmark=transpose")["items"][0]
    assert (row["last_run"], row["status"], row["verdict"]) == (12, "ok", "regression")
    series = read(web, f"series/{row['key']}")
    assert [point["run"] for point in series["history"]] == list(range(1, 13))
    assert series["history"][-1]["level"] == row["level"]
    assert series["history"][0]["commit"] == "3fa0b1c2d4"
    assert series["history"][0]["started_at"] == "2026-03-01T02:00:00+00:00"
    assert web.get(f"/series/{row['key']}.html").status_code == 200
    assert {level["first"] for level in series["levels"]} <= set(range(1, 13))


def test_one_series_is_found_without_reading_all_series(served, monkeypatch):
    key, web, asked = key_of(served()), served(), []
    reader = live.read_series
    monkeypatch.setattr(live, "read_series", lambda *args: asked.append(args[-1]) or reader(*args))
    answers = [web.get(path) for path in (f"/api/v1/series/{key}", f"/badges/series/{key}.svg")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [len(cases) for cases in asked] == [1, 1]
    for wrong in ("gone", "%2e%2e", key.upper()):
        assert web.get(f"/badges/series/{wrong}.svg").status_code == 404, wrong


def test_findings_are_filtered_have_the_columns_of_exports_and_equal_what_the_command_shows(web, planted_url):
    (row,) = read(web, "findings")["items"]
    assert list(row) == names(schema.FINDINGS)
    assert read(web, "findings?state=open")["items"] == [row]
    assert read(web, "findings?state=resolved")["items"] == []
    assert read(web, "findings?owner=ann")["items"] == []
    with Store.open(planted_url, create=False, read_only=True) as store:
        shown = plain(finding_json(store.findings.get(1), store.findings.events(finding=1)))
    assert read(web, "findings/1") == shown
    assert read(web, "explanations?finding=1") == {"items": []}


def test_two_runs_are_compared(web):
    compared = read(web, "compare?base=1&new=12")
    assert (compared["base"], compared["new"]) == (1, 12)
    assert sum(compared["counts"].values()) == len(compared["verdicts"]) == 3
    page = read(web, "compare?base=latest~11&new=nightly&limit=2&offset=1")
    assert page["verdicts"] == compared["verdicts"][1:3]
    assert page["next_offset"] is None
    assert read(web, "compare?base=1&new=12&limit=2")["next_offset"] == 2
    assert read(web, "compare?base=@baseline")["base"] is None


def test_what_does_not_exist_is_404(web):
    errors = {
        "runs/99": "there is no run 99",
        "runs/99/results": "there is no run 99",
        "findings/99": "99",
        "explanations?finding=99": "99",
        "series/nothing": "no series of this key",
        "compare?base=1&new=99": "no run 99",
    }
    for path, error in errors.items():
        answer = read(web, path, 404)
        assert set(answer) == {"error", "cure"}
        assert error in answer["error"]


def test_a_wrong_request_is_400_and_its_error_names_the_parameter(web):
    errors = {
        "runs/x": "run: ",
        "runs/0": "run: ",
        f"runs/{2**31}": "run: ",
        f"runs?limit={MOST_ROWS + 1}": "limit: ",
        "runs?limit=-1": "limit: ",
        "runs?offset=-1": "offset: ",
        "runs?limt=5": "limt: ",
        "runs?limit=5&limit=6": "'limit' is given twice",
        "findings?state=closed": "state: ",
        "series?text=%00": "text: ",
        f"series?text={'a' * 201}": "text: ",
        "explanations": "finding: ",
        "compare": "base: ",
        "compare?base=1&new=1": "the same run",
        "compare?base=nothing&new=1": "no run",
        f"compare?base={'9' * 200}&new=1": "too large",
        "compare?base=--help&new=1": "no run",
        "compare?base=@baseline&new=main~2": "no commit or branch of a run",
    }
    for path, error in errors.items():
        answer = read(web, path, 400)
        assert error in answer["error"], path
        assert answer["cure"], path
        assert "/nowhere" not in json.dumps(answer), "the folder of the suite"


def test_numbers_that_are_not_finite_are_null(nights, names):
    nights.night({names.tiled: 1e-4})
    run = nights.night({names.tiled: 1e-4})
    nights.judge(run, {names.tiled: names.regression}, ratio=math.inf, low=math.nan, high=math.inf, baseline_run=1)
    answer = client(nights.store).get(f"{API}/runs/{run}/verdicts")
    assert "NaN" not in answer.text
    assert "Infinity" not in answer.text
    assert answer.json()["items"][0]["ratio"] is None


def test_an_empty_database_has_empty_lists(nights):
    web = client(nights.store)
    for path in ("runs", "series", "findings"):
        assert read(web, path) == {"items": [], "next_offset": None}
    assert read(web, "compare?base=@baseline", 404)["error"].startswith("latest")


# --- the document ----------------------------------------------------------------------------------------------------


def test_the_document_has_every_endpoint_with_its_parameters_and_references(local):
    document = read(local, "openapi.json")
    assert document["openapi"] == "3.1.0"
    paths = {(f"/api/v1/{endpoint.path}", endpoint.method.lower()) for endpoint in ENDPOINTS}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == paths
    served = {route.path for route in local.app.routes if route.path.startswith(API)}
    assert served == {path for path, _ in paths} | {f"{API}/openapi.json"}
    schemas = document["components"]["schemas"]
    referred = {part.split('"')[0] for part in json.dumps(document).split('"#/components/schemas/')[1:]}
    assert set() < referred <= set(schemas)
    for described in schemas.values():
        jsonschema.Draft202012Validator.check_schema(described)
    parameters = document["paths"][f"{API}/runs/{{run}}/results"]["get"]["parameters"]
    described = {parameter["name"]: parameter for parameter in parameters}
    assert (described["run"]["in"], described["run"]["required"]) == ("path", True)
    assert described["limit"]["schema"] == {"default": 100, "maximum": MOST_ROWS, "minimum": 1, "type": "integer"}
    assert all(parameter["description"] for parameter in parameters)


def test_every_answer_is_as_the_document_describes_it(local):
    document = read(local, "openapi.json")
    for endpoint in (one for one in ENDPOINTS if one.method == "GET"):
        path = endpoint.path.format(run=12, key=key_of(local), finding=1)
        query = {"explanations": "?finding=1", "compare": "?base=1&new=12"}.get(endpoint.name, "")
        operation = document["paths"][f"{API}/{endpoint.path}"]["get"]
        described = operation["responses"]["200"]["content"]["application/json"]["schema"]
        validator = jsonschema.Draft202012Validator({**described, "components": document["components"]})
        validator.validate(read(local, path + query))
