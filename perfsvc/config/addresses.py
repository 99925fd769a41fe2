"""Checks of settings that name addresses, headers and environment variables."""

import ipaddress
import re
from urllib.parse import urlsplit

from perfsvc.text import without_password


def page(url: str) -> str:
    """Return the address of a page unchanged; raise ``ValueError`` if it is none."""
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.netloc):
        raise ValueError(f"{without_password(url)!r} is no address of a page; write https://host/path/")
    if parts.username is not None or not url.isprintable():  # every reader of a link would see the password
        raise ValueError(f"{without_password(url)!r} has a user or a control character; write https://host/path/")
    return url


def header(name: str) -> str:
    """Return the name of a header unchanged; raise ``ValueError`` if it is none."""
    if name and not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise ValueError(f"{name!r} is no name of a header; write X-Forwarded-User")
    return name


def network(text: str) -> str:
    """Return an address or a network unchanged; raise ``ValueError`` if it is none."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address or network; write 127.0.0.1 or 10.0.0.0/24") from None
    return text


def variable(name: str) -> str:
    """Return the name of an environment variable. A wrong value may be a secret, so the error does not repeat it."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("it is no name of an environment variable; write a name here, and the URL into that variable")
    return name
