"""A command's configuration: defaults of its options from ``perfsvc.toml`` and ``PERFSVC_*``, and the settings."""

import os
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfsvc.text import url_without_password

if TYPE_CHECKING:
    from perfsvc.config import Loaded
    from perfsvc.config.settings import SlurmSettings
    from perfsvc.judge import Thresholds

EVERYWHERE = {"database": "database", "suite": "suite"}
"""The key of the setting that holds an option's default, by the name of the option's parameter, for all commands."""

DEVICES = {"devices": "run.devices"}
OF_COMMAND: Mapping[str, Mapping[str, str]] = {
    "run": {
        name: f"run.{name}"
        for name in (
            "devices",
            "on",
            "select",
            "exclude",
            "points",
            "replicas",
            "precision",
            "samples",
            "seconds",
            "places",
            "energy",
            "spread",
            "budget",
            "limit",
        )
    }
    | {"confirm_budget": "confirm.budget"},
    "confirm": {**DEVICES, "budget": "confirm.budget"},
    "profile": DEVICES,
    "bisect": DEVICES,
    "check": {"architectures": "check.architectures"},
    "dashboard": {"folder": "dashboard.folder"},
}
"""Further keys by command, for options whose setting depends on the command."""

WITHOUT_FILE = frozenset({"init", "config", "devices"})
"""Commands that must work even if the file is invalid."""

HELP = frozenset({"-h", "--help"})
_NAME = "perfsvc.toml"
_READ_ELSEWHERE = frozenset({"PERFSVC_DB", "PERFSVC_SUITE", "PERFSVC_CACHE", "PERFSVC_KEYS", "PERFSVC_LOCKS"})
"""Variables that options and other modules read themselves."""


@dataclass
class Configuration:
    """The settings for one command, read at first use.

    Attributes:
        path: the file that ``--config`` or ``PERFSVC_CONFIG`` names.
    """

    path: Path | None = None

    @cached_property
    def loaded(self) -> "Loaded":
        """The settings and their origins; raises ``ConfigError``."""
        from perfsvc.config import load

        return load(self.path)

    @property
    def is_empty(self) -> bool:
        """True if there is no perfsvc.toml and no ``PERFSVC_`` variable with a setting.

        The check is much cheaper than reading the settings.
        """
        if self.path or any(name.startswith("PERFSVC_") and name not in _READ_ELSEWHERE for name in os.environ):
            return False
        try:
            here = Path.cwd()
        except FileNotFoundError:  # the current folder was removed
            return True
        return not any(os.path.lexists(folder / _NAME) for folder in (here, *here.parents))  # never fails

    def defaults(self, name: str, command: click.Command | None, arguments: Collection[str]) -> dict[str, Any]:
        """Return a command's ``default_map`` for click: the settings that the user made, by option.

        The map is empty under ``--help``, which shows the built-in defaults.

        Args:
            name: the command's name.
            command: the command; None if there is no such command.
            arguments: the arguments after the command's name.
        """
        if name in WITHOUT_FILE or not HELP.isdisjoint(arguments) or self.is_empty:
            return {}
        return {name: self._defaults(command, {**EVERYWHERE, **OF_COMMAND.get(name, {})})}

    def _defaults(self, command: click.Command | None, keys: Mapping[str, str]) -> dict[str, Any]:
        """Return the defaults of a command, and of each subcommand under the subcommand's name.

        Args:
            command: the command, or a group of commands.
            keys: the setting's key by the name of the option's parameter.
        """
        subcommands = command.commands if isinstance(command, click.Group) else {}
        own = {option: self._value(key) for option, key in keys.items() if self._is_set(key)}
        return own | {name: self._defaults(subcommand, keys) for name, subcommand in subcommands.items()}

    def _is_set(self, key: str) -> bool:
        """Return True if the user set the key, or if the key's default depends on the folder of perfsvc.toml."""
        return self.loaded.given(key) or (key in EVERYWHERE.values() and self.loaded.path is not None)

    def _value(self, key: str) -> Any:
        """Return the setting with a dotted key such as ``run.devices``."""
        value: Any = self.loaded.settings
        for part in key.split("."):
            value = getattr(value, part)
        return value


def current() -> Configuration:
    """Return the configuration of the running command; if no command runs, a new one for the current folder."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Configuration) if context else None) or Configuration()


def thresholds(asked: float | None) -> "Thresholds | float | None":
    """Return the thresholds to judge with: the rules in the settings, which ``--threshold`` overrides.

    Without rules, the result is the value of ``--threshold``; None stands for the default thresholds.

    Args:
        asked: the value of ``--threshold``; None without the option.
    """
    configuration = current()
    if configuration.is_empty:
        return asked
    from perfsvc.service.compare.compare import thresholds as with_rules

    configured = with_rules(configuration.loaded.settings, asked)
    return configured if configured.rules else asked


def against() -> str:
    """Return the run that series without a pin are compared with, or ``@baseline``."""
    configuration = current()
    return "@baseline" if configuration.is_empty else configuration.loaded.settings.baseline.against


def segment_parts() -> tuple[str, ...]:
    """Return the globs of the parts of the environment whose change starts a new segment of all series."""
    configuration = current()
    return () if configuration.is_empty else configuration.loaded.settings.segments.parts


def slurm() -> "SlurmSettings | None":
    """Return how to request GPUs of a Slurm cluster; None for the default settings."""
    configuration = current()
    return None if configuration.is_empty else configuration.loaded.settings.slurm


def profile_budget() -> float:
    """Return the seconds after which a run profiles no further regression."""
    return current().loaded.settings.profile.budget


def typed() -> str:
    """Return the command line to store, without the password in the URL of a database."""
    return shlex.join(["perfsvc", *map(url_without_password, sys.argv[1:])])
