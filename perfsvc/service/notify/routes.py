"""Choose which news each target receives, by the routes of the settings."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from perfsvc.config.settings import RouteSettings
from perfsvc.config.value_types import Severity
from perfsvc.model import Case, Direction, Finding, MovedSeries
from perfsvc.selection import Glob, parse
from perfsvc.service.notify.news import News

ALARMS: Collection[Severity] = ("regression", "failed", "missing")
"""The kinds of news that have to reach a person."""


def news_by_target(targets: Iterable[str], routes: Sequence[RouteSettings], news: News) -> dict[str, News]:
    """Return the news that each target receives; a target that receives nothing is absent.

    If every target has a route, an alarm that no route takes goes to every target.
    """
    of_target = {target: [route for route in routes if target in route.targets] for target in targets}
    every = [route.model_copy(update={"at_least": None}) for route in routes] if all(of_target.values()) else []
    received = {target: news_for(own, news, every) for target, own in of_target.items()}
    return {target: own for target, own in received.items() if own}


def news_for(routes: Sequence[RouteSettings], news: News, every: Sequence[RouteSettings] = ()) -> News:
    """Return the part of the news that any of a target's routes takes; all news if the target has no route.

    A finding is taken as a whole. A failed stage concerns every case, so it goes to every route that takes failures.

    Args:
        routes: the routes of the target.
        news: what is new.
        every: the routes of all targets. The target also receives the alarms that no route takes at all, and the news
            that the findings of these alarms are resolved.
    """
    if not routes:
        return news

    def takes(finding: Finding, severity: Severity | None = None) -> bool:
        """Return whether the target receives a finding; without ``severity``, the finding's own severity counts."""
        alarm = _severity(finding)
        if any(_takes(route, finding, severity or alarm, news.missing) for route in routes):
            return True
        is_known = any(_takes(route, finding, alarm, news.missing) for route in every)
        return bool(every) and alarm in ALARMS and not is_known

    takes_stages = any("failed" in route.severity for route in routes)
    no_route_takes_stages = bool(every) and not any("failed" in route.severity for route in every)
    return replace(
        news,
        raised=tuple(filter(takes, news.raised)),
        reopened=tuple(filter(takes, news.reopened)),
        stepped=tuple(stepped for stepped in news.stepped if takes(replace(stepped.finding, moved=stepped.steps))),
        extended=tuple(extended for extended in news.extended if takes(extended.finding)),
        reminders=tuple(reminder for reminder in news.reminders if takes(reminder.finding)),
        returned=tuple(returned for returned in news.returned if takes(returned.finding, "resolved")),
        resolved=tuple(finding for finding in news.resolved if takes(finding, "resolved")),
        stages=news.stages if takes_stages or no_route_takes_stages else (),
    )


def _severity(finding: Finding) -> Severity:
    if not finding.moved:
        return "missing"
    if finding.direction is Direction.BROKEN:
        return "failed"
    return "regression" if finding.direction is Direction.SLOWER else "improvement"


def _takes(route: RouteSettings, finding: Finding, severity: Severity, missing: Mapping[int, Collection[Case]]) -> bool:
    """Return whether a route takes a finding: its severity and owner fit, and a case matches and moved far enough."""
    if severity not in route.severity or (route.owner and finding.owner != route.owner):
        return False
    glob = _glob(route)
    if finding.moved:
        moved_series = finding.standing or finding.moved
        return any(glob.matches(moved.series.case) and _is_large(moved, route.at_least) for moved in moved_series)
    cases = missing.get(finding.id, ())  # none for a GPU or a host, which concern every case
    return not cases or any(map(glob.matches, cases))


def _glob(route: RouteSettings) -> Glob:
    return parse(route.cases)


def _is_large(moved: MovedSeries, at_least: float | None) -> bool:
    """Return whether a series moved by a share or more; a change of unknown size counts as large."""
    return at_least is None or moved.ratio is None or abs(moved.ratio - 1) >= at_least
