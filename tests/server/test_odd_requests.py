"""Odd requests to the whole API, which schemathesis makes from the document: no answer is a fault of the server."""

import gzip
import json
from collections import Counter

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from perfsvc.service.transfer.body import written
from perfsvc.store import Store
from perfsvc.store.remote.rows import Scope
from tests.server.conftest import client, own
from tests.server.test_receiving import client_of

EXAMPLES = 8
"""How many requests of each kind each endpoint gets."""


def ask(web, requests, validators):
    """Send requests that a strategy makes, compare the answers with their schemas, and return the status codes."""
    statuses = set()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=requests)
    def check(case):
        body = case.body if isinstance(case.body, dict | list | str | int | float | bool | None) else None
        answer = web.request(case.method, case.formatted_path, params=dict(case.query or {}), json=body)
        statuses.add(answer.status_code)
        if answer.status_code in validators and "json" in answer.headers["content-type"]:
            validators[answer.status_code].validate(answer.json())

    check()
    return statuses


@pytest.mark.slow
@pytest.mark.timeout(540)
@pytest.mark.filterwarnings("default")  # schemathesis and its packages warn of their own affairs
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_request_is_answered_with_a_fault(kind, request):
    import schemathesis
    from schemathesis import GenerationMode

    @schemathesis.serializer("application/x-ndjson")
    def lines(_context, value):
        return "\n".join(map(json.dumps, value if isinstance(value, list) else [value])).encode()

    statuses = set()
    with Store.open(request.getfixturevalue(f"planted_{kind}"), create=False, read_only=True) as store:
        web = client(store)
        document = web.get("/api/v1/openapi.json").json()
        operations = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
        assert len(operations) == sum(map(len, document["paths"].values()))
        for operation in operations:
            validators = {
                int(status): jsonschema.Draft202012Validator(
                    {**described["content"]["application/json"]["schema"], "components": document["components"]}
                )
                for status, described in document["paths"][operation.path][operation.method]["responses"].items()
                if "application/json" in described.get("content", {})
            }
            takes = operation.query or operation.path_parameters or operation.body  # else nothing can be wrong
            for mode in (GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if takes else [])):
                statuses |= ask(web, operation.as_strategy(generation_mode=mode), validators)
    assert statuses >= {200, 400, 404}
    assert max(statuses) < 500


def bodies(schema, document):
    """Return a strategy for requests whose body has a schema of the document."""
    import schemathesis

    post = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}, "responses": {}}
    (operation,) = schemathesis.openapi.from_dict(document | {"paths": {"/": {"post": post}}}).get_all_operations()
    return operation.ok().as_strategy()


@pytest.fixture
def changing(kind, request, tmp_path):
    """Return a database with the planted nights that the test may change, on one kind of database."""
    with own(kind, request, tmp_path, nights=True) as store:
        yield store


@pytest.mark.slow
@pytest.mark.timeout(540)
@pytest.mark.filterwarnings("default")  # schemathesis and its packages warn of their own affairs
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_body_of_a_change_is_answered_with_a_fault(changing):
    run = b"".join(written(changing, 1))
    _, secret = changing.tokens.make("box", list(Scope), by="ann")
    web = client_of(changing, changes_a_minute=100_000)
    web.headers["Authorization"] = f"Bearer {secret}"
    document = web.get("/api/v1/openapi.json").json()
    operations = {path: described["post"] for path, described in document["paths"].items() if "post" in described}
    assert len(operations) == 2
    (body,) = operations["/api/v1/runs"]["requestBody"]["content"].values()
    action = operations["/api/v1/findings/{finding}/actions"]["requestBody"]["content"]["application/json"]["schema"]
    parts = [body["x-first-line"], body["x-other-lines"], action]
    for part, line in zip(parts[:2], gzip.decompress(run).splitlines()[:2], strict=True):
        schema = part | {"components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(json.loads(line))
    firsts, others, actions = (bodies(part, document) for part in parts)
    statuses = Counter()

    @settings(max_examples=5 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(first=firsts, other=others, acted=actions)
    def check(first, other, acted):
        whole = first.body | {"uid": "0" * 32, "perfsvc_run": 1, "measurements": 1, "state": "finished"}
        for begin in (first.body, whole):
            lines = "".join(f"{json.dumps(each)}\n" for each in (begin, other.body))
            answer = web.post("/api/v1/runs", content=lines, headers={"Content-Type": "application/x-ndjson"})
            statuses[answer.status_code] += 1
        statuses[web.post("/api/v1/findings/1/actions", json=acted.body).status_code] += 1

    check()
    assert set(statuses) <= {200, 201, 400, 404, 422}
    assert statuses[422]
    assert statuses[200]
