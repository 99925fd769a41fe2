"""What all requests of a server share, and the sessions of people in a browser."""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import cast

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import HTTPConnection

from perfsvc import judge
from perfsvc.config import ServerSettings, Settings
from perfsvc.keys import Keys
from perfsvc.server.limiting import Limits
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store

LONGEST_S = 12 * 3600
"""Seconds after which a person must sign in again."""
COOKIE = "perfsvc_session"


@dataclass(frozen=True, slots=True)
class Session:
    """The content of a cookie: the id of a token, and an id that no other session has."""

    token: int
    id: str


class Sessions:
    """Makes, reads and ends sessions."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._ended: dict[str, float] = {}
        self._lock = Lock()

    def begin(self, token: int) -> str:
        """Return the cookie of a new session."""
        return str(self._signer.dumps([token, secrets.token_hex(16)]))

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if the cookie is empty, forged, damaged or too old, or was ended."""
        if not cookie:
            return None
        try:
            token, name = self._signer.loads(cookie, max_age=LONGEST_S)
        except (BadData, ValueError, TypeError):
            return None
        return None if name in self._ended else Session(int(token), str(name))

    def end(self, session: Session) -> None:
        """End a session: a copy of its cookie is worth nothing from now on, unless the server is started again."""
        now = time.monotonic()
        with self._lock:
            self._ended = {name: at for name, at in self._ended.items() if now - at <= LONGEST_S}
            self._ended[session.id] = now

    def form_token(self, who: str) -> str:
        """Return the token that the forms of a session, or of a visitor whom a proxy names, must have."""
        return hmac.digest(self._keys.derived("forms of the server"), who.encode(errors="replace"), "sha256").hex()

    def is_form_token(self, who: str, given: str) -> bool:
        """Return whether a form has the right token; takes as long for a wrong one."""
        return hmac.compare_digest(self.form_token(who).encode(), given.encode(errors="replace"))

    @property
    def _signer(self) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(
            self._keys.derived("sessions of the server"),
            salt="session",
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )


@dataclass(frozen=True, slots=True)
class Serving:
    """What all requests of a server share, at ``app.state.serving``.

    Attributes:
        store: the database; a server without actions opens it for reading only.
        settings: all settings; ``server`` has those of the server.
        pages: renders the pages of the site.
        threshold: the thresholds of the settings, with which comparisons judge; None for the defaults.
        suite: the folder in whose repository git revisions are looked up.
        changing: the database opened for writing; None if this server changes nothing.
        limits: counts the requests of visitors.
        sessions: the sessions of people who signed in.
    """

    store: Store
    settings: Settings
    pages: LivePages
    threshold: judge.ThresholdOption
    suite: Path
    changing: Store | None = None
    limits: Limits = field(default_factory=Limits)
    sessions: Sessions = field(default_factory=lambda: Sessions(Keys()))

    @property
    def server(self) -> ServerSettings:
        """The settings of the server."""
        return self.settings.server

    @property
    def site(self) -> str:
        """The address of the site, with a slash at its end; empty if the settings do not have one."""
        url = self.server.public_url
        return url if not url or url.endswith("/") else f"{url}/"


def serving(connection: HTTPConnection) -> Serving:
    """Return what all requests of the server share."""
    return cast("Serving", connection.app.state.serving)
