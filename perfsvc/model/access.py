"""Who may do what on the server: tokens, and what the audit log keeps."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    """What a token permits."""

    READ = "read"  # read pages and data
    WRITE = "write"  # send runs
    ACT = "act"  # act on findings: accept, ignore, assign, comment


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, without the secret.

    Attributes:
        made_by: the person who made it.
        expires: when it ends; None for never.
        used: when it was last used, accurate to an hour; None for never.
        revoked: when it was revoked; None if it was not.
        revoked_by: the person who revoked it; empty if it was not revoked.
    """

    id: int
    name: str
    scopes: tuple[Scope, ...]
    made: datetime
    made_by: str
    expires: datetime | None = None
    used: datetime | None = None
    revoked: datetime | None = None
    revoked_by: str = ""

    def why_invalid(self, now: datetime) -> str:
        """Return why the token cannot be used at a time; empty if it can."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that a person or a program tried to change through the server.

    Attributes:
        who: the name of the token or of the person; empty if unknown.
        action: what it was, such as ``send a run`` or ``accept``.
        target: on which object, such as ``finding 3``.
        address: the address of the client.
        status: the HTTP status of the answer.
        reason: why the server refused it; empty if it did not.
    """

    at: datetime
    who: str
    action: str
    target: str
    address: str
    status: int
    reason: str = ""
