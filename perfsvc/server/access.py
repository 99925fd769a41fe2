"""Who sends a request, and what this visitor may do."""

from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import HTTPConnection

from perfsvc.server.limiting import MOST_FAILURES, RefusedError, address_of, is_proxy, network_of
from perfsvc.server.serving import COOKIE, Session, serving
from perfsvc.store.remote.rows import Scope, TokenRow

READ, WRITE, ACT = Scope.READ.value, Scope.WRITE.value, Scope.ACT.value
"""The scopes: read everything, send runs, and act on findings."""
LONGEST_NAME = 200
"""Characters of a name that a proxy may send."""
OF_PEOPLE = frozenset({READ, ACT})
"""What people in a browser may do at most: only programs send runs."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sends a request.

    Attributes:
        name: None if the server does not know the visitor.
        scopes: what the visitor may do.
        token: the token of the visitor, or of the visitor's session; None without a token.
        session: the session of a person who signed in; None for everyone else.
        by_browser: whether a browser adds to each request what makes the server know the visitor, so that a page of
            another site could send requests in the name of this visitor.
    """

    name: str | None
    scopes: frozenset[str]
    token: TokenRow | None = None
    session: Session | None = None
    by_browser: bool = False

    @property
    def form_name(self) -> str:
        """What the token in the visitor's forms belongs to."""
        return f"session {self.session.id}" if self.session else f"visitor {self.name}"


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
    """Return who sends a request: by a token, else by the cookie of a session, else by the header of a proxy.

    Reads the database, so it must run in a thread.

    Raises:
        RefusedError: the request has a wrong token, or a header twice.
    """
    shared = serving(request)
    if given := request.headers.getlist("authorization"):
        token = token_of(request, _bearer(given))
        return Visitor(token.name, frozenset(token.scopes), token)
    session = shared.sessions.read(request.cookies.get(COOKIE, ""))
    owner = session and shared.store.tokens.get(session.token)
    if session and owner and not owner.why_invalid(datetime.now(UTC)):
        return Visitor(owner.name, OF_PEOPLE & frozenset(owner.scopes), owner, session, by_browser=True)
    if name := _forwarded_name(request):
        return Visitor(name, OF_PEOPLE, by_browser=True)
    return Visitor(None, frozenset({READ}) if shared.server.lets_anonymous_read else frozenset())


def require(request: HTTPConnection, scope: str) -> Visitor:
    """Return who sends a request; raise ``ForbiddenError`` if this visitor lacks a scope. Must run in a thread."""
    who = visitor(request)
    if scope not in who.scopes:
        raise ForbiddenError(scope, known=who.name is not None)
    return who


def token_of(request: HTTPConnection, secret: str) -> TokenRow:
    """Return the token with a secret; raise ``RefusedError`` if there is none, or if it is expired or revoked."""
    shared, now = serving(request), datetime.now(UTC)
    token = shared.store.tokens.of_secret(secret)
    why = "wrong" if token is None else token.why_invalid(now)
    if token is None or why:
        shared.limits.count("wrong tokens", network_of(address(request)), MOST_FAILURES)
        raise RefusedError(401, f"the token is {why}", "make a token on the server: perfsvc token create NAME")
    if shared.changing:
        shared.changing.tokens.note_use(token, now)
    return token


def address(request: HTTPConnection) -> str:
    """Return the address of the visitor."""
    return address_of(request, serving(request).server.trusted_proxies)


def _bearer(headers: list[str]) -> str:
    """Return the secret in the header ``Authorization``; raise ``RefusedError`` if it has none, or is there twice."""
    kind, _, secret = headers[0].partition(" ")
    if len(headers) > 1 or kind.lower() != "bearer":
        raise RefusedError(401, "the header Authorization is no single bearer token", "Authorization: Bearer TOKEN")
    return secret.strip()


def _forwarded_name(request: HTTPConnection) -> str:
    """Return the name in the trusted header; empty without one, or if no trusted proxy sends the request.

    Raises ``RefusedError`` if the header is there twice, or has a name that cannot be shown: a proxy that adds its
    header to the visitor's own would let the visitor choose a name.
    """
    settings = serving(request).server
    names = request.headers.getlist(settings.trusted_header) if settings.trusted_header else []
    if not names or not is_proxy(request.client.host if request.client else "", settings.trusted_proxies):
        return ""
    name = names[0].strip()
    if len(names) > 1 or len(name) > LONGEST_NAME or not name.isprintable():
        what = f"the header {settings.trusted_header} is there twice, or holds no name"
        raise RefusedError(400, what, "let the proxy remove the header from what visitors send")
    return name
