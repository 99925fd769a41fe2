"""How many requests the server answers, by the address or the name of the visitor; kept in memory."""

import ipaddress
from collections.abc import Iterable

import anyio
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.requests import ClientDisconnect, HTTPConnection, Request

MOST_FAILURES = 10
"""How many wrong tokens a minute an address may send. A valid token is accepted all the same."""
WINDOW_S = 60
SMALL_BODY_S = 20.0
"""How long a form or an object of JSON may take to arrive: a client that sends a byte a minute must not stay."""


class RefusedError(Exception):
    """The server refuses a request.

    Args:
        status: the HTTP status.
        what: what happened.
        cure: what to do.
        wait_s: seconds after which the request may be repeated; 0 for never.
    """

    def __init__(self, status: int, what: str, cure: str = "", *, wait_s: int = 0) -> None:
        super().__init__(what)
        self.status, self.what, self.cure, self.wait_s = status, what, cure, wait_s

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {"Retry-After": str(self.wait_s)} if self.wait_s else {}


async def small_body(request: Request, most: int) -> bytes:
    """Return the body of a request that is a form or an object of JSON.

    Args:
        request: the request.
        most: bytes of the longest body.

    Raises:
        RefusedError: the body is too long, does not arrive within ``SMALL_BODY_S``, or the connection ended before.
    """
    content = bytearray()
    try:
        with anyio.fail_after(SMALL_BODY_S):
            async for part in request.stream():
                content += part
                if len(content) > most:
                    raise RefusedError(413, f"the body has more than {most} bytes", "send less at once")
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {SMALL_BODY_S:g} s", "send it again") from None
    except ClientDisconnect:
        raise RefusedError(400, "the connection ended before the body had arrived", "send it again") from None
    return bytes(content)


class Limits:
    """Counts what visitors do, in windows of a minute."""

    def __init__(self) -> None:
        self._windows = FixedWindowRateLimiter(MemoryStorage())

    def count(self, kind: str, who: str, most: int) -> None:
        """Count an event; raise ``RefusedError`` with status 429 if there were more than ``most`` in this minute."""
        if not self._windows.hit(RateLimitItemPerMinute(most), kind, who):
            raise RefusedError(
                429,
                f"there were more than {most} {kind} in a minute",
                "repeat the request later; the settings of [server] have the limits",
                wait_s=WINDOW_S,
            )


def address_of(connection: HTTPConnection, proxies: Iterable[str]) -> str:
    """Return the address of the visitor.

    A trusted proxy adds the address of its client at the end of ``X-Forwarded-For``; what stands before comes from the
    client, who may invent it. So this is the last address that is no trusted proxy's.
    """
    address = connection.client.host if connection.client else ""
    forwarded = [part.strip() for part in ",".join(connection.headers.getlist("x-forwarded-for")).split(",")]
    trusted = tuple(proxies)
    while is_proxy(address, trusted) and forwarded and (given := forwarded.pop()) and _parsed(given) is not None:
        address = given
    return address


def is_proxy(address: str, proxies: Iterable[str]) -> bool:
    """Return whether an address belongs to a trusted proxy; ``proxies`` are addresses or networks."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in ipaddress.ip_network(proxy) for proxy in proxies)


def network_of(address: str) -> str:
    """Return what requests are counted by: an address, or the /64 network of an IPv6 address, which one client has."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed
