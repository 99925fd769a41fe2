"""Ids that a store has seen: what every measurement of a run names anew need not be looked up each time."""

from typing import NamedTuple

from sqlalchemy import Connection

from perfsvc.model import Case, Environment
from perfsvc.store.interning import case_id, device_id, environment_id

Names = tuple[Case, str, Environment]
"""A case, the UUID of a device, an environment."""
_Key = tuple[Names, tuple[str, ...]]
"""The same with the case's former names, in which equal cases may differ."""


class Ids(NamedTuple):
    """What a measurement is stored under."""

    case: int
    device: int
    environment: int


class Known:
    """The ids of what a store has stored or found.

    Nothing of what they name is ever given another id, whatever other processes do; a case's lineage may be another by
    now, but that stands in the case's row. What one transaction stores is known to the next one: it may be rolled back.
    """

    def __init__(self) -> None:
        self._ids: dict[_Key, Ids] = {}

    def look_up(self, connection: Connection, names: Names) -> Ids:
        """The ids of names, which are stored now if they never were."""
        case, device, environment = names
        return self._ids.get(_key(names)) or Ids(
            case_id(connection, case), device_id(connection, device), environment_id(connection, environment)
        )

    def keep(self, names: Names, ids: Ids) -> None:
        """Knows from now on what a transaction that was committed has looked up."""
        self._ids[_key(names)] = ids


def _key(names: Names) -> _Key:
    return names, names[0].formerly
