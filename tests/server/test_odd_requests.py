"""Odd requests to the whole API, which schemathesis makes from the document: no answer is a fault of the server."""

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from perfsvc.store import Store
from tests.server.conftest import client

EXAMPLES = 40
"""How many requests of each kind each endpoint gets."""


@pytest.mark.slow
@pytest.mark.timeout(540)
@pytest.mark.filterwarnings("default")  # schemathesis and its packages warn of their own affairs
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_request_is_answered_with_a_fault(kind, request):
    import schemathesis
    from schemathesis import GenerationMode

    url = request.getfixturevalue(f"planted_{kind}")
    statuses = set()
    with Store.open(url, create=False, read_only=True) as store:
        web = client(store)
        document = web.get("/api/v1/openapi.json").json()
        operations = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
        assert len(operations) == len(document["paths"])
        for operation in operations:
            responses = document["paths"][operation.path]["get"]["responses"]
            validators = {
                int(status): jsonschema.Draft202012Validator(
                    {**described["content"]["application/json"]["schema"], "components": document["components"]}
                )
                for status, described in responses.items()
            }
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
                @given(case=operation.as_strategy(generation_mode=mode))
                def check(case, validators=validators):
                    answer = web.request(case.method, case.formatted_path, params=dict(case.query or {}))
                    statuses.add(answer.status_code)
                    if case.formatted_path.startswith("/api/v1/") and answer.status_code != 405:
                        validators[answer.status_code].validate(answer.json())

                check()
    assert statuses >= {200, 400, 404}
    assert max(statuses) < 500
