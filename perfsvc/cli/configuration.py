"""What ``perfsvc.toml`` and ``PERFSVC_*`` say of a command's options: their defaults, and all else that is in force."""

import os
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from perfsvc.config import Loaded
    from perfsvc.judge import Thresholds

EVERYWHERE = {"database": "database", "suite": "suite"}
"""Options, by the names of their parameters, and the keys that they have their defaults from, in every command."""

DEVICES = {"devices": "run.devices"}
OF: Mapping[str, Mapping[str, str]] = {
    "run": {
        name: f"run.{name}"
        for name in (
            "devices",
            "select",
            "exclude",
            "points",
            "replicas",
            "precision",
            "samples",
            "seconds",
            "energy",
            "spread",
            "budget",
            "limit",
        )
    },
    "confirm": {**DEVICES, "budget": "confirm.budget"},
    "profile": DEVICES,
    "bisect": DEVICES,
    "check": {"architectures": "check.architectures"},
    "dashboard": {"folder": "dashboard.folder"},
}
"""The same for the options of one command."""

WITHOUT = frozenset({"init", "config", "devices"})
"""Commands that a file which cannot be used must not keep from working."""

HELP = frozenset({"-h", "--help"})
_NAME = "perfsvc.toml"
_ELSEWHERE = frozenset({"PERFSVC_DB", "PERFSVC_SUITE", "PERFSVC_CACHE", "PERFSVC_LOCKS"})
"""Variables that options and rooms read for themselves."""


@dataclass
class Configuration:
    """What is in force for one command, read when it is first asked for.

    Attributes:
        asked: the file that ``--config`` or ``PERFSVC_CONFIG`` names.
    """

    asked: Path | None = None

    @cached_property
    def loaded(self) -> "Loaded":
        """The settings and where they come from; raises ``ConfigError``."""
        from perfsvc.config import load

        return load(self.asked)

    @property
    def silent(self) -> bool:
        """Whether nothing can have been set, which is quickly seen, so that reading it may be spared."""
        if self.asked or any(name.startswith("PERFSVC_") and name not in _ELSEWHERE for name in os.environ):
            return False
        try:
            here = Path.cwd()
        except FileNotFoundError:  # somebody removed it
            return True
        return not any(os.path.exists(folder / _NAME) for folder in (here, *here.parents))  # noqa: PTH110 - never fails

    def defaults(self, name: str, command: click.Command | None, arguments: Collection[str]) -> dict[str, Any]:
        """The defaults of a command's options as click takes them; ``--help`` tells the built-in ones."""
        if name in WITHOUT or not HELP.isdisjoint(arguments) or self.silent:
            return {}
        return {name: self._below(command, {**EVERYWHERE, **OF.get(name, {})})}

    def _below(self, command: click.Command | None, keys: Mapping[str, str]) -> dict[str, Any]:
        """The defaults of a command and of those in its group."""
        commands = command.commands if isinstance(command, click.Group) else {}
        own = {option: self._value(key) for option, key in keys.items() if self._is_set(key)}
        return own | {name: self._below(below, keys) for name, below in commands.items()}

    def _is_set(self, key: str) -> bool:
        """Whether somebody set a key, or a file does by where it lies."""
        return self.loaded.given(key) or (key in EVERYWHERE.values() and self.loaded.path is not None)

    def _value(self, key: str) -> Any:
        value: Any = self.loaded.settings
        for part in key.split("."):
            value = getattr(value, part)
        return value


def current() -> Configuration:
    """That of the command which runs; outside of any, what is found from here."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Configuration) if context else None
    return found or Configuration()


def thresholds(asked: float | None) -> "Thresholds | float | None":
    """What a command's ``--threshold`` asks for, and the rules that hold where it asks for none."""
    configuration = current()
    if configuration.silent:
        return asked
    from perfsvc.service.compare.compare import thresholds as laid_down

    found = laid_down(configuration.loaded.settings, asked)
    return found if found.rules else asked


def against() -> str:
    """The run that the settings compare with."""
    configuration = current()
    return "@baseline" if configuration.silent else configuration.loaded.settings.baseline.against


def typed() -> str:
    """The command as it was typed, to be stored: without the password that the URL of a database may carry."""
    from perfsvc.config.settings import without_password

    return without_password(shlex.join(["perfsvc", *sys.argv[1:]]))
