"""What people are told of a night."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """What people are told of a night.

    Attributes:
        key: of this message and no other, however often it is sent: who gets it twice can tell.
        title: one line, the worst first.
        body: plain text of several lines.
    """

    key: str
    title: str
    body: str
