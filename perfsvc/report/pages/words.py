"""What the pages call things, and how they write numbers."""

import hashlib
import re
from collections.abc import Sequence
from statistics import median

from perfsvc import units
from perfsvc.model import ENERGY, TIME, CacheState, Finding, MovedSeries, Series
from perfsvc.report.facts import metric
from perfsvc.report.pages.site import Chronicle, RunShown, Seen
from perfsvc.report.tables.layout import DASH

SLUG = 60
"""The longest readable part of the name of a page."""


def page_of(series: Series) -> str:
    """The path of a series' page: what can be read of its case, and a digest of all that it is known by."""
    identity = "\n".join((series.case.id, str(series.case.version), series.device, series.metric, series.cache.value))
    readable = re.sub(r"[^a-z0-9]+", "-", f"{series.case.id} {other(series)}".lower()).strip("-")[:SLUG].rstrip("-")
    return f"series/{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.html"


def finding_page(number: int) -> str:
    """The path of a finding's page."""
    return f"findings/{number}.html"


def other(series: Series) -> str:
    """What is unusual of a series: a cache state that is not cold, a metric that is not the time; empty where nothing is."""
    cache = "" if series.cache is CacheState.COLD else series.cache.value
    return " ".join(filter(None, (cache, "" if series.metric == TIME else series.metric)))


def named(series: Series) -> str:
    """The case, with what is unusual of its series."""
    return f"{series.case.id} {other(series)}".rstrip()


def value(number: float | None, of: str) -> str:
    """A level of a metric with its unit; a dash where there is none."""
    if number is None:
        return DASH
    return units.seconds(number) if of == TIME else metric(of, number)


def change(ratio: float | None) -> str:
    """What a ratio changes by; a dash where there is none."""
    return DASH if ratio is None else units.percent(ratio)


def spread(seen: Seen) -> str:
    """The interval of a level as a share of it; empty where there is none."""
    if not seen.level or seen.low is None or seen.high is None:
        return ""
    return f"±{50 * (seen.high - seen.low) / abs(seen.level):.1f} %"


def took(seconds: float | None) -> str:
    """A duration as people say it: ``4.2 s``, ``12 min``, ``3 h 05 min``; a dash where nobody knows."""
    if seconds is None:
        return DASH
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits are enough
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"  # noqa: PLR2004 - an hour


def commit(run: RunShown) -> str:
    """The first digits of a run's commit, with a ``+`` where there were uncommitted changes; empty without one."""
    return run.commit[:9] + ("+" if run.dirty else "") if run.commit else ""


def worst(finding: Finding) -> MovedSeries:
    """The series that a finding moved furthest, of those that are not back if there are any."""
    return (finding.standing or finding.moved)[0]


def title(finding: Finding) -> str:
    """What a finding moved, as short as it can be said: the variant that moved furthest, and how many others did."""
    variants = list(dict.fromkeys(_variant(one) for one in (*finding.standing, *finding.moved)))
    return variants[0] + (f" and {len(variants) - 1} more" if len(variants) > 1 else "")


def _variant(moved: MovedSeries) -> str:
    return f"{moved.series.case.benchmark}/{moved.series.case.variant}"


def scale(chronicle: Chronicle) -> tuple[float, str]:
    """By what to multiply the levels of a series to draw them, and the unit that they have then."""
    levels = [abs(one.level) for one in chronicle.seen if one.level]
    unit = {TIME: "s", ENERGY: "J"}.get(chronicle.series.metric)
    if unit is None or not levels:
        return 1.0, unit or chronicle.series.metric
    power = _power(levels)
    return 10.0**-power, f"{units.SMALL[power]}{unit}"


def _power(levels: Sequence[float]) -> int:
    """The power of ten of the largest prefix that leaves the usual level at 1 or above."""
    usual = median(levels)
    return next((power for power in sorted(units.SMALL, reverse=True) if usual >= 10.0**power), min(units.SMALL))
