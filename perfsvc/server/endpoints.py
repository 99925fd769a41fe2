"""What an endpoint of the API is: one object that the handler, the checks of a request and the document share."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perfsvc.errors import UsageError
from perfsvc.report.export.objects import plain
from perfsvc.server.access import READ, require
from perfsvc.server.answers import JSON, kept
from perfsvc.server.kept import Content, kept_answers
from perfsvc.server.limiting import small_body
from perfsvc.server.serving import Serving, serving
from perfsvc.text import json_text, printed

ROOT = "/api/v1"
NDJSON = "application/x-ndjson"
"""The type of a body that has a value of JSON in each line."""
MOST_ROWS = 1000
"""How many rows an answer has at most."""
LONGEST_BODY = 64 * 1024
"""The bytes of the longest body that the API reads."""

Text = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A text that a visitor sends; PostgreSQL and git take no NUL."""
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""The number of a run, a night or a finding."""


class NoParameters(BaseModel):
    """The parameters of an endpoint, from its path and from the query. A parameter that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class PagedParameters(NoParameters):
    """The parameters of an endpoint that returns many rows."""

    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 100
    """The most rows to return."""
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """How many rows to pass over: `next_offset` of the answer before."""


class Answer(BaseModel):
    """An object in an answer; it has no other fields than those that the document names."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ErrorAnswer(Answer):
    """The answer to a request that failed."""

    error: str
    """What happened, and to what."""
    cure: str
    """What to do; may be empty."""


P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[P]):
    """A request to an endpoint that only reads, checked.

    Attributes:
        serving: what all requests share.
        given: the parameters of the path and the query.
    """

    serving: Serving
    given: P


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[P]):
    """An endpoint of the API.

    Attributes:
        path: below the root of the API, such as ``runs/{run}``.
        name: names the endpoint in the document; unique.
        summary: what it returns or does, in a sentence.
        parameters: the model of the parameters in its path and in the query.
        answer: the model of its answer.
        handler: returns the answer as a value that ``plain`` makes JSON of. It runs in a thread.
        method: the method of HTTP.
        scope: what the visitor needs.
        body: the model of the body; None if the endpoint takes none, or lines.
        lines: what the first line of a body of lines encodes, and what all other lines encode; None for any other body.
        status: the status code of an answer.
        respond: answers a request that changes something instead of ``handler``, and checks it itself.
        by_git: whether the answer depends on the branches of a repository too, so that it cannot be kept.
    """

    path: str
    name: str
    summary: str
    parameters: type[P]
    answer: type[BaseModel]
    handler: Callable[[ApiCall[P]], Any] | None
    method: str = "GET"
    scope: str = READ
    body: type[BaseModel] | None = None
    lines: tuple[type, type] | None = None
    status: int = 200
    respond: Callable[[Request], Awaitable[Response]] | None = None
    by_git: bool = False

    def route(self) -> Route:
        """Return the route that checks a request, calls the handler and checks its answer."""

        async def respond(request: Request) -> Response:
            await run_in_threadpool(require, request, READ)
            call = ApiCall(serving(request), checked(self.parameters, _parameters(request)))

            def make() -> Content:
                return Content(json_text(self._value(call)).encode(), JSON)

            if self.by_git:
                return (await kept_answers(request).run(make)).answer(request)
            key = f"{self.name} {call.given.model_dump_json()}"
            return await kept(request, key, make)

        return Route(f"{ROOT}/{self.path}", self.respond or respond, methods=[self.method], name=self.name)

    def _value(self, call: ApiCall[P]) -> Any:
        """Return the answer as JSON values; raise ``ValidationError`` if it is not as the document describes it."""
        assert self.handler is not None  # noqa: S101 - for mypy: without a handler, ``respond`` is given
        value = plain(self.handler(call))
        self.answer.model_validate(value)
        return value


def paged(rows: Sequence[Any], given: PagedParameters, *, more: bool | None = None) -> dict[str, Any]:
    """Return the rows of a page with the offset of the next page.

    Args:
        rows: all rows; or the rows of this page, if ``more`` is given.
        given: which rows.
        more: whether there are rows after this page.
    """
    items = rows[given.offset : given.offset + given.limit] if more is None else rows
    follows = given.offset + given.limit < len(rows) if more is None else more
    return {"items": items, "next_offset": given.offset + given.limit if follows else None}


def _parameters(request: Request) -> dict[str, str]:
    """Return the parameters of the path and the query; raise ``UsageError`` if one is given twice."""
    given = dict(request.path_params)
    for name, value in request.query_params.multi_items():
        if name in given:
            raise UsageError(f"{name!r} is given twice", cure="give each parameter once")
        given[name] = value
    return given


async def json_body(request: Request) -> Any:
    """Return the body as JSON values; raise an error if it is too long, arrives too slowly, or is no JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415)
    content = await small_body(request, LONGEST_BODY)
    try:
        return json.loads(content, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is no JSON: {error}", cure="send a JSON object in UTF-8") from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise ``UsageError`` if a name is there twice: programs differ in which one counts."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"the body has the name {printed(double)[:100]!r} twice", cure="give each name once")
    return made


def checked(model: type[P], values: Any) -> P:
    """Return values as a model; raise ``UsageError`` that names the first wrong value."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong: Mapping[str, Any] = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "the body"
        raise UsageError(f"{where}: {wrong['msg']}", cure=f"see {ROOT}/openapi.json") from error
