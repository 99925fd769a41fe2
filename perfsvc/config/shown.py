"""What is in force, to be looked at: without a secret in it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfsvc.config.keys import KEYS, RULE, Key
from perfsvc.config.load import Loaded
from perfsvc.config.toml import toml


@dataclass(frozen=True, slots=True)
class Shown:
    """One value.

    Attributes:
        key: dotted; a rule's is numbered from 1, a target's ends with its name.
        value: as the file would have it; empty where none is set.
        root_cause: ``perfsvc.toml:12``, a variable's name, or ``default``.
    """

    key: str
    value: str
    root_cause: str


def shown(loaded: Loaded) -> list[Shown]:
    """Every value in the order of the file; of targets, whether their variable is set."""
    return [one for key in KEYS.values() for one in _shown(key, loaded)]


def variables(loaded: Loaded) -> dict[str, bool]:
    """The variables that hold the targets' addresses, and whether they are set; never what they hold."""
    return {name: bool(os.environ.get(name)) for name in loaded.settings.notify.targets.values()}


def shown_json(loaded: Loaded) -> dict[str, Any]:
    """The same for programs."""
    return {
        "path": str(loaded.path) if loaded.path else None,
        "settings": loaded.settings.public(),
        "origins": dict(loaded.origins),
        "variables": variables(loaded),
    }


def _shown(key: Key, loaded: Loaded) -> Iterator[Shown]:
    root_cause = loaded.origins[key.dotted]
    value: Any = loaded.settings.public()
    for part in key.dotted.split("."):
        value = value[part]
    if key.dotted == "thresholds" and value:
        for number, rule in enumerate(value, start=1):
            written = ", ".join(f"{name} = {RULE[name].written(one)}" for name, one in rule.items())
            yield Shown(f"thresholds[{number}]", written, loaded.origins.get(f"thresholds.{number - 1}", root_cause))
    elif key.dotted == "notify.targets" and value:
        known = variables(loaded)
        for name, variable in value.items():
            place = loaded.origins.get(f"notify.targets.{name}", root_cause)
            yield Shown(f"notify.targets.{name}", f"{variable} ({'set' if known[variable] else 'not set'})", place)
    else:
        yield Shown(key.dotted, "" if value is None or value == "" else toml(value, key.unit), root_cause)
