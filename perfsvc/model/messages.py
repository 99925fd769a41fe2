"""The message that people receive about a night."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """The message that people receive about a night.

    Attributes:
        key: the same each time this message is sent, so that a receiver can recognize a second copy.
        title: one line, the worst news first.
        body: plain text of several lines.
    """

    key: str
    title: str
    body: str
