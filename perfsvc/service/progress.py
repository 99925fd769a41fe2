"""How a use case reports what it is doing."""

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a use case; the command line draws it, tests and cron ignore it."""

    def begin(self, stage: str, total: int) -> None:
        """A stage of ``total`` steps begins: ``compiling``, ``measuring``."""
        ...

    def step(self, what: str) -> None:
        """A step is done; ``what`` names it."""
        ...

    def say(self, line: str) -> None:
        """A message for the user while waiting."""
        ...


class Silent:
    """Ignores all progress."""

    def begin(self, stage: str, total: int) -> None:
        """Ignored."""

    def step(self, what: str) -> None:
        """Ignored."""

    def say(self, line: str) -> None:
        """Ignored."""
