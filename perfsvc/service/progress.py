"""How a use case reports what it is doing."""

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a use case; the command line draws it."""

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage of ``total`` steps, such as ``compiling`` or ``measuring``."""
        ...

    def step(self, what: str) -> None:
        """Note that a step is done; ``what`` names it."""
        ...

    def report(self, line: str) -> None:
        """Report a message to the user who waits."""
        ...
