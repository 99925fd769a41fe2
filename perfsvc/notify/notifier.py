"""What a way to send messages is to the rest of perfsvc."""

from typing import Protocol

from perfsvc.model import Message

LIMIT_S = 20.0
"""Seconds that an attempt may take: a target that hangs must not hold up the night."""


class Notifier(Protocol):
    """Sends a message to an address, once: trying again is the caller's."""

    def send(self, message: Message, address: str) -> None:
        """Sends a message; its key is a header where the target has headers, and the last line of the body elsewhere.

        Args:
            message: what to send. A target that gets it twice can tell by its key.
            address: where to; a secret, which no error and no log names.

        Raises:
            NotSentError: it did not arrive, or nobody can tell whether it did.
        """
        ...


def notifier() -> Notifier:
    """The one that reaches people.

    Raises:
        MissingPackageError: Apprise is not installed.
    """
    from perfsvc.notify.through_apprise import AppriseNotifier

    return AppriseNotifier()
