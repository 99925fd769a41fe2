"""The messages that people receive about a night."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageText:
    """What a target receives about a night.

    Attributes:
        title: one line, the worst news first.
        body: plain text of several lines.
    """

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message about a night, for the targets that receive the same text.

    Attributes:
        key: the same each time this message is sent, so that a receiver can recognize a second copy.
        title: one line, the worst news first.
        body: plain text of several lines.
    """

    key: str
    title: str
    body: str
