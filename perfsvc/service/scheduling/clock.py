"""When a night is due by the clock on the wall, which summer time moves.

A time of day that a day does not have is due as long after midnight as ever, and one that it has twice, the first time.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo

DAY = timedelta(days=1)


def due_before(at: time, zone: tzinfo | None, now: datetime) -> datetime:
    """The last moment at which a night was due, ``now`` included; in UTC.

    Args:
        at: the time of day.
        zone: of which clock; None for this machine's.
        now: the time, with its zone.
    """
    return max(one for one in _around(at, zone, now) if one <= now)


def due_after(at: time, zone: tzinfo | None, now: datetime) -> datetime:
    """The next moment at which a night is due, ``now`` left out; in UTC."""
    return min(one for one in _around(at, zone, now) if one > now)


def _around(at: time, zone: tzinfo | None, now: datetime) -> Iterator[datetime]:
    today = now.astimezone(zone).date()
    return (_due(today + days * DAY, at, zone) for days in range(-2, 3))


def _due(day: date, at: time, zone: tzinfo | None) -> datetime:
    wall = datetime.combine(day, at)
    return (wall.replace(tzinfo=zone) if zone else wall.astimezone()).astimezone(UTC)
