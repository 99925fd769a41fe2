"""A notifier for tests: it keeps messages, and fails as scripted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfsvc.errors import NotSentError
from perfsvc.model import Message

FAULTS: Mapping[str, NotSentError] = {
    "down": NotSentError("the target answered 500 Internal Server Error", again=True),
    "hang": NotSentError("the target did not answer in time", again=True),
    "refuse": NotSentError("the target answered 404 Not Found", again=False),
}
"""The faults that can be scripted."""


@dataclass(frozen=True, slots=True)
class FakeNotifier:
    """Keeps messages by address.

    Attributes:
        faults: by address, the result of each attempt in order: a key of ``FAULTS``, or ``""`` for success. Attempts
            beyond the list succeed.
        sent: the messages that arrived, with their addresses.
        tried: the addresses of all attempts.
    """

    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sent: list[tuple[str, Message]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)

    def send(self, message: Message, address: str) -> None:
        """Keep the message, or raise the fault that is scripted for this attempt."""
        attempt = self.tried.count(address)
        self.tried.append(address)
        script = self.faults.get(address, ())
        if attempt < len(script) and script[attempt]:
            raise FAULTS[script[attempt]]
        self.sent.append((address, message))
