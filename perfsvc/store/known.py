"""Ids that a store has seen: what every measurement of a run names anew need not be looked up each time."""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection

from perfsvc.model import Case, Environment
from perfsvc.store.interning import case_id, device_id, environment_id
from perfsvc.store.rows import Entry

_Case = tuple[Case, tuple[str, ...]]
"""A case with its former names, in which equal cases may differ."""


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
        self._cases: dict[_Case, int] = {}
        self._ids: dict[tuple[_Case, str, Environment], Ids] = {}

    def case(self, connection: Connection, case: Case) -> int:
        """The id of a case, which is stored now if it never was."""
        return self._cases.get((case, case.formerly)) or case_id(connection, case)

    def look_up(self, connection: Connection, case: Case, device: str, environment: Environment) -> Ids:
        """The ids of a case, the UUID of a device and an environment, which are stored now if they never were."""
        return self._ids.get(((case, case.formerly), device, environment)) or Ids(
            self.case(connection, case), device_id(connection, device), environment_id(connection, environment)
        )

    def keep(self, entries: Iterable[Entry], ids: Iterable[Ids]) -> None:
        """Knows from now on what a transaction that was committed has looked up."""
        for entry, found in zip(entries, ids, strict=True):
            case = entry.measurement.case
            named = case, case.formerly
            self._cases[named] = found.case
            self._ids[named, entry.measurement.device, entry.environment] = found
