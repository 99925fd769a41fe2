"""How a use case tells whoever started it what it is doing."""

from typing import Protocol


class Progress(Protocol):
    """Watches a use case; the command line draws it, tests and cron ignore it."""

    def begin(self, stage: str, total: int) -> None:
        """A stage of ``total`` steps begins: ``compiling``, ``measuring``."""
        ...

    def step(self, what: str) -> None:
        """One step is done; ``what`` names it."""
        ...

    def say(self, line: str) -> None:
        """Something a person should know while waiting."""
        ...


class Silent:
    """Watches nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Ignored."""

    def step(self, what: str) -> None:
        """Ignored."""

    def say(self, line: str) -> None:
        """Ignored."""
