"""Sessions of people who signed in with a token: a signed cookie, and the token that each of their forms has.

The cookie names the token and has an id of its own, made anew at each sign-in. Its signature is made with a key that is
derived from the signing key of the server's user (``perfsvc.keys``). So a session ends after ``LONGEST_S``, when its
token is revoked or expires, when the person signs out, and when another key signs.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from threading import Lock

from itsdangerous import BadData, URLSafeTimedSerializer

from perfsvc.keys import Keys

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
