"""The document of the API in OpenAPI 3.1, made from the endpoints."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from perfsvc import __version__
from perfsvc.server.endpoints import NDJSON, ROOT, Endpoint, ErrorAnswer

ERRORS = {
    "400": "The request is not valid.",
    "401": "The server does not know the visitor.",
    "403": "The visitor may not do this.",
    "404": "There is no such thing.",
    "503": "The database cannot answer now; the request may be repeated.",
}

ERRORS_OF_CHANGES = {
    "408": "The body did not arrive in time.",
    "409": "The Idempotency-Key was used with another body.",
    "413": "The body is too large.",
    "415": "The body has another type.",
    "422": "The run is not valid.",
    "429": "There were too many changes in a minute.",
}
"""The further errors of endpoints that change something."""


def document(endpoints: Iterable[Endpoint[Any]]) -> dict[str, Any]:
    """Return the document of some endpoints."""
    listed = list(endpoints)
    kinds = {kind for each in listed for kind in (each.answer, each.body, *(each.lines or ())) if kind} | {ErrorAnswer}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    references, definitions = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter(kind)) for kind in ordered], ref_template="#/components/schemas/{model}"
    )
    of_model = {kind: references[kind, "validation"] for kind in ordered}
    paths: dict[str, Any] = {}
    for endpoint in listed:
        paths.setdefault(f"{ROOT}/{endpoint.path}", {})[endpoint.method.lower()] = _operation(endpoint, of_model)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "perfsvc",
            "version": __version__,
            "description": "Results of performance tests. Times are seconds, sizes bytes, timestamps UTC in ISO 8601. "
            "A number that is unknown, or not finite, is null.",
        },
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def _operation(endpoint: Endpoint[Any], of_model: dict[type, Any]) -> dict[str, Any]:
    """Return the description of an endpoint; ``of_model`` has the reference to each model."""
    errors = ERRORS | (ERRORS_OF_CHANGES if endpoint.method != "GET" else {})
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": list(_parameters(endpoint)),
        "responses": {
            str(endpoint.status): {"description": endpoint.summary, "content": _json(of_model[endpoint.answer])},
            **{code: {"description": text, "content": _json(of_model[ErrorAnswer])} for code, text in errors.items()},
        },
    }
    if endpoint.body:
        operation["requestBody"] = {"required": True, "content": _json(of_model[endpoint.body])}
    if endpoint.lines:
        again = {"description": "The run was stored before.", "content": _json(of_model[endpoint.answer])}
        operation["responses"]["200"] = again
        first, others = (of_model[kind] for kind in endpoint.lines)
        operation["requestBody"] = {
            "required": True,
            "description": "A line of JSON as `x-first-line` describes it, then lines as `x-other-lines` describes "
            "them; plain, or compressed with `Content-Encoding: gzip`.",
            "content": {NDJSON: {"schema": {"type": "string"}, "x-first-line": first, "x-other-lines": others}},
        }
    return operation


def _parameters(endpoint: Endpoint[Any]) -> Iterable[dict[str, Any]]:
    """Yield the description of each parameter of an endpoint."""
    schema = endpoint.parameters.model_json_schema()
    in_path = set(re.findall(r"\{(\w+)\}", endpoint.path))
    definitions = schema.get("$defs", {})
    for name, given in schema.get("properties", {}).items():
        shown = {key: value for key, value in given.items() if key not in {"description", "title"}}
        yield {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in schema.get("required", ()),
            "description": given.get("description", ""),
            "schema": _inlined(shown, definitions),
        }


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema in which each reference is replaced by what it refers to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in schema.items()}
    return [_inlined(item, definitions) for item in schema] if isinstance(schema, list) else schema


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
