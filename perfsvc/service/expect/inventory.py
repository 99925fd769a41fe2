"""What is there and what is missing, for hosts, GPUs or cases."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfsvc.model import (
    Absence,
    Expected,
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is present and what is missing, for hosts, GPUs or cases.

    Attributes:
        text: what is present, in words; empty if nothing was looked for.
        renamed: cases that have a new name now.
        note: what earlier nights had and this night does not look for, in words; empty if there is nothing.
    """

    seen: Sequence[Expected] = ()
    missing: Sequence[Absence] = ()
    text: str = ""
    renamed: Sequence[Expected] = ()
    note: str = ""


def last_seen(row: Expected) -> str:
    """Return when something was last there."""
    return f"last seen in night {row.night}, {row.seen:%Y-%m-%d %H:%M} UTC"
