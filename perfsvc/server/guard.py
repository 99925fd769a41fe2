"""The outermost layers of the server: hosts, security headers, the log and the limit of requests, and faults."""

import ipaddress
import socket
import time
from urllib.parse import urlsplit

import structlog
from prometheus_client import Counter
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perfsvc.config import ServerSettings
from perfsvc.report.pages.render import POLICY
from perfsvc.server.answers import problem
from perfsvc.server.limiting import Limits, RefusedError, address_of, network_of
from perfsvc.text import printed

LONGEST_QUERY = 4096
"""Bytes of the longest query that the server reads."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""The methods that the metrics name; others could be of any number."""

BODILESS = frozenset({"GET", "HEAD"})
REFUSED = 400
"""The first status code of an answer that refuses something."""

HEADERS = {
    "content-security-policy": f"{POLICY}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""The headers of every answer."""


class Guard:
    """Refuses requests for unknown hosts, and adds the security headers; logs each request and each fault.

    A page of an attacker can make a browser ask this server under the name of the attacker's own host (DNS rebinding).
    So a name in the header ``Host`` must be known. An IP address cannot be rebound, so any address is accepted. A
    server that listens at every address of this machine also answers for the name of this machine.

    Args:
        app: the application behind the guard.
        settings: name the hosts.
        requests: counts the requests by method and status code.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, requests: Counter) -> None:
        self._app = app
        self._requests = requests
        self._hosts = {"localhost", settings.host.lower(), (urlsplit(settings.public_url).hostname or "localhost")}
        if settings.listens_everywhere:
            self._hosts.add(socket.gethostname().lower())
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if status >= REFUSED and scope["method"] not in BODILESS:
                    headers["connection"] = "close"  # else a client that still sends its body would keep the connection
            await send(message)

        try:
            app = self._refusal(scope) or self._app
            await app(scope, receive, send_guarded)
        except Exception:
            self._log.exception("failed", method=scope["method"], path=printed(scope["path"]))
            if status:  # the answer has begun: only its end is missing
                raise
            await problem(Request(scope), 500, "perfsvc failed to answer", "see the log of the server")(
                scope, receive, send_guarded
            )
        finally:
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._requests.labels(method, str(status)).inc()
            self._log.info(
                "request",
                method=scope["method"],
                path=printed(scope["path"]),
                status=status,
                ms=round(1000 * seconds, 1),
                client=(scope.get("client") or [""])[0],
            )

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a request that is refused at once; None for any other."""
        host = Headers(scope=scope).get("host", "")
        if not self._knows(host):
            return problem(
                Request(scope),
                400,
                f"the server does not answer for the host {printed(host)[:100]!r}",
                "set server.public_url in perfsvc.toml to the address that people type",
            )
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return problem(Request(scope), 414, "the query is too long", f"send at most {LONGEST_QUERY} bytes")
        return None

    def _knows(self, host: str) -> bool:
        """Return whether the server answers for a host, given as ``name``, ``name:port`` or an IP address."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class RequestLimit:
    """Refuses the requests of an address that sends too many."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, limits: Limits) -> None:
        self._app, self._settings, self._limits = app, settings, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http":
            connection = HTTPConnection(scope)
            try:
                address = address_of(connection, self._settings.trusted_proxies)
                self._limits.count("requests", network_of(address), self._settings.requests_a_minute)
            except RefusedError as error:
                answer = problem(connection, error.status, error.what, error.cure, error.headers)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
