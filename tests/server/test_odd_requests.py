"""Odd requests to the whole API, which schemathesis makes from the document: no answer is a fault of the server."""

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from perfsvc.store import Store
from tests.server.conftest import client

EXAMPLES = 20
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
