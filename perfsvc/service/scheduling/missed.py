"""Nights that nobody began, or that were stopped, while the scheduler was away: told by what the store holds."""

from datetime import datetime
from enum import StrEnum

from perfsvc.store import NightRow


class CatchUp(StrEnum):
    """What there is to catch up on."""

    NOTHING = "nothing"
    START = "start"
    RESUME = "resume"


def catch_up(due: datetime, now: datetime, late_s: float, last: NightRow | None, stopped: NightRow | None) -> CatchUp:
    """What a scheduler that begins to work has to begin at once.

    Where no night was ever held nothing was missed: the first one comes when it is due.

    Args:
        due: when the last night was due.
        now: the time.
        late_s: how late a night may begin.
        last: the last night of this host.
        stopped: the same, where it was stopped before its end.
    """
    if last is None or (now - due).total_seconds() > late_s:
        return CatchUp.NOTHING
    if last.started < due:
        return CatchUp.START
    return CatchUp.RESUME if stopped else CatchUp.NOTHING
