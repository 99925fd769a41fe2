"""Ids that a store has seen: what every measurement of a run names anew need not be looked up each time."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from perfsvc.model import Case, Environment
from perfsvc.store.interning import case_id, device_id, environment_id, settled_ids
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
        self._environments: dict[Environment, int] = {}

    def cases(self, connection: Connection, cases: Iterable[Case]) -> dict[_Case, int]:
        """The ids of cases, each with its former names; what never was stored is stored now."""
        named = {(case, case.formerly) for case in cases}
        unknown = {name[0] for name in named - self._cases.keys()}
        if len(unknown) > 1:
            found = settled_ids(connection, unknown)
            self._cases |= {(case, case.formerly): number for case, number in found.items()}
        return {name: self._cases.get(name) or case_id(connection, name[0]) for name in named}

    def look_up(self, connection: Connection, entries: Sequence[Entry]) -> list[Ids]:
        """The ids that measurements are stored under; a case or environment that never was stored is stored now."""
        measured = [entry.measurement for entry in entries]
        cases = self.cases(connection, (one.case for one in measured))
        devices = {uuid: device_id(connection, uuid) for uuid in {one.device for one in measured}}
        surroundings = {
            one: self._environments.get(one) or environment_id(connection, one)
            for one in dict.fromkeys(entry.environment for entry in entries)
        }
        return [
            Ids(cases[one.case, one.case.formerly], devices[one.device], surroundings[entry.environment])
            for entry, one in zip(entries, measured, strict=True)
        ]

    def keep(self, entries: Iterable[Entry], ids: Iterable[Ids]) -> None:
        """Knows from now on what a transaction that was committed has looked up."""
        for entry, found in zip(entries, ids, strict=True):
            case = entry.measurement.case
            self._cases[case, case.formerly] = found.case
            self._environments[entry.environment] = found.environment
