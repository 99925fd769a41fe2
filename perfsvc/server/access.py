"""Who sends a request, and what this visitor may do."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from perfsvc.server.serving import serving

READ = "read"
"""The scope of everything that changes nothing."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sends a request.

    Attributes:
        name: None if the server does not know the visitor.
        scopes: what the visitor may do.
    """

    name: str | None
    scopes: frozenset[str]


class ForbiddenError(Exception):
    """A visitor may not do something.

    Args:
        scope: what the visitor would need.
        known: whether the server knows the visitor; an unknown visitor is asked to sign in.
    """

    def __init__(self, scope: str, *, known: bool) -> None:
        super().__init__(scope)
        self.scope = scope
        self.known = known


def visitor(request: HTTPConnection) -> Visitor:
    """Return who sends a request. A trusted header names the visitor; without a name, the visitor is anonymous."""
    settings = serving(request).server
    name = request.headers.get(settings.trusted_header, "").strip() if settings.trusted_header else ""
    if name:
        return Visitor(name, frozenset({READ}))
    return Visitor(None, frozenset({READ}) if settings.lets_anonymous_read else frozenset())


def require(request: HTTPConnection, scope: str) -> Visitor:
    """Return who sends a request; raise ``ForbiddenError`` if this visitor lacks a scope."""
    who = visitor(request)
    if scope not in who.scopes:
        raise ForbiddenError(scope, known=who.name is not None)
    return who
