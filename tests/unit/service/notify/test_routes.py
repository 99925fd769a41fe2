"""Which events of findings are news, and which target receives them by its routes."""

from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

from perfsvc.config.settings import RouteSettings
from perfsvc.model import (
    Case,
    Cause,
    Direction,
    EventKind,
    Finding,
    FindingEvent,
    FindingState,
    MovedSeries,
    Series,
)
from perfsvc.service.notify.news import ExtendedFinding, News, _most_important, _news
from perfsvc.service.notify.notify import news_by_target, news_for
from perfsvc.service.notify.weekly import Reminder
from perfsvc.store import NightRow, RunState, StageRow, StageState

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
NIGHT = NightRow(12, RunState.RUNNING, NOW, None, "host", 1, "", "kernels", "", False, "", 7, "", {}, None)


def series(benchmark, variant="tiled", n=64):
    return Series(Case(benchmark, variant, (("n", n),)), "GPU-1", "NVIDIA H200")


def moved(ratio, benchmark="dot", **point):
    direction = Direction.FASTER if ratio and ratio < 1 else Direction.SLOWER
    return MovedSeries(series(benchmark, **point), ratio, None, None, 5, 1e-4, 1e-4, 7, direction=direction)


def finding(number, *every_series, owner="", cause=Cause.KERNEL):
    return Finding(number, cause, "", 7, 7, FindingState.OPEN, "", "", "", NOW, every_series, owner)


DOT = finding(1, moved(1.05))
MATMUL = finding(2, moved(1.3, "matmul", n=128), moved(1.02, "matmul"), owner="jane")
FASTER = finding(3, moved(0.8, "matmul_bf16"))
MIXED = finding(4, moved(1.5), moved(1.02, "matmul"), owner="joe")
UNKNOWN = finding(5, moved(None))
GPU = finding(6, cause=Cause.MISSING)
CASES = finding(7, cause=Cause.MISSING)
STAGE = StageRow("page", 10, StageState.FAILED, NOW, 1.0, "disk full")
BROKEN = finding(
    8, MovedSeries(series("matmul"), None, None, None, 5, 1e-4, None, 7, direction=Direction.BROKEN), cause=Cause.WRONG
)
NEWS = News(
    NIGHT,
    raised=(DOT, MATMUL, FASTER, MIXED, UNKNOWN, GPU, CASES, BROKEN),
    stages=(STAGE,),
    missing={7: [Case("matmul", "tiled", (("n", "64"),))]},
)


def found(own):
    """The numbers of the findings in news, and whether a broken case and a failed stage are among the news."""
    return [one.id for one in own.raised if one is not BROKEN], BROKEN in own.raised, bool(own.stages)


def received(*routes, news=NEWS):
    """The findings that a target with these routes receives, and whether it receives failed cases and stages."""
    own = news_for([RouteSettings(targets="team", **route) for route in routes], news)
    return found(own)


ALL = [1, 2, 3, 4, 5, 6, 7]


ROUTES = [
    ([], ALL, True, True),
    ([{}], ALL, True, True),
    ([{"cases": "matmul"}], [2, 4, 6, 7], True, True),
    ([{"cases": "matmul*"}], [2, 3, 4, 6, 7], True, True),
    ([{"cases": "*[n=128]"}], [2, 6], False, True),
    ([{"cases": "*/tiled[n=64]"}], ALL, True, True),
    ([{"cases": "dot"}], [1, 4, 5, 6], False, True),
    ([{"owner": "jane"}], [2], False, True),
    ([{"severity": "regression"}], [1, 2, 4, 5], False, False),
    ([{"severity": "improvement"}], [3], False, False),
    ([{"severity": "missing"}], [6, 7], False, False),
    ([{"severity": ["failed", "resolved"]}], [], True, True),
    ([{"at_least": "10%"}], [2, 3, 4, 5, 6, 7], True, True),
    ([{"at_least": "10%", "cases": "matmul"}], [2, 6, 7], True, True),
    ([{"at_least": "5%", "severity": "regression"}], [1, 2, 4, 5], False, False),
    ([{"cases": "dot", "severity": "regression"}, {"severity": "improvement"}], [1, 3, 4, 5], False, False),
]
"""The routes of a target, the findings that it receives, and whether it receives failed cases and stages."""


def test_a_target_receives_what_any_of_its_routes_takes_by_cases_owner_severity_and_size():
    assert [(routes, *received(*routes)) for routes, *_ in ROUTES] == ROUTES


def test_every_kind_of_news_about_a_finding_is_routed():
    steps = {finding: ExtendedFinding(finding, "", finding.moved) for finding in (DOT, MATMUL)}
    news = News(
        NIGHT,
        reopened=(DOT, MATMUL),
        stepped=(steps[DOT], steps[MATMUL]),
        extended=(ExtendedFinding(DOT, "more"), ExtendedFinding(MATMUL, "more")),
        reminders=(Reminder(DOT, NOW, 7), Reminder(MATMUL, NOW, 7)),
        resolved=(DOT, MATMUL),
    )
    own = news_for([RouteSettings(targets="team", cases="dot")], news)
    assert (own.reopened, own.resolved) == ((DOT,), (DOT,))
    assert [about.finding for about in (*own.stepped, *own.extended, *own.reminders)] == [DOT, DOT, DOT]
    assert not news_for([RouteSettings(targets="team", severity="failed")], news)
    assert news_for([RouteSettings(targets="team", severity="resolved")], news).resolved == (DOT, MATMUL)


def test_the_size_of_a_further_step_counts_not_that_of_the_finding():
    small = ExtendedFinding(MATMUL, "", (moved(1.02, "matmul"),))
    news = News(NIGHT, stepped=(small,))
    assert not news_for([RouteSettings(targets="team", at_least="10%")], news)
    assert news_for([RouteSettings(targets="team", at_least="2%")], news)


def shared(*routes, news=NEWS, targets=("alice", "ops")):
    """The findings that each target receives, and whether it receives failed cases and stages."""
    received = news_by_target(targets, [RouteSettings(**route) for route in routes], news)
    return {target: found(own) for target, own in received.items()}


def test_an_alarm_that_no_route_takes_goes_to_every_target():
    alice, ops = {"targets": "alice", "cases": "matmul*"}, {"targets": "ops", "severity": ["failed", "missing"]}
    assert shared(alice, ops) == {"alice": ([1, 2, 3, 4, 5, 6, 7], True, True), "ops": ([1, 5, 6, 7], True, True)}
    owned = {"targets": ["alice", "ops"], "owner": "jane"}
    everything = ([1, 2, 4, 5, 6, 7], True, True)  # without the faster finding, which is no alarm
    assert shared(owned) == {"alice": everything, "ops": everything}
    assert shared(alice, ops, targets=("alice", "ops", "team"))["ops"] == ([6, 7], True, True)


def test_stages_that_no_route_takes_go_to_every_target():
    routes = ({"targets": "alice", "severity": "regression"}, {"targets": "ops", "severity": "missing"})
    assert shared(*routes) == {"alice": ([1, 2, 4, 5], True, True), "ops": ([6, 7], True, True)}


def test_a_change_below_the_size_of_its_route_is_not_sent():
    routes = ({"targets": "alice", "at_least": "10%"}, {"targets": "ops", "severity": "missing"})
    assert shared(*routes, news=News(NIGHT, raised=(DOT,))) == {}


def test_a_finding_that_no_route_took_is_resolved_for_every_target():
    routes = [RouteSettings(targets=target, cases="matmul") for target in ("alice", "ops")]
    received = news_by_target(("alice", "ops"), routes, News(NIGHT, resolved=(DOT,)))
    assert [own.resolved for own in received.values()] == [(DOT,), (DOT,)]


# --- news ------------------------------------------------------------------------------------------------------------


CASE, OTHER = Case("dot", "tree"), Case("dot", "naive")


def moved_in(case, device, run, step=1):
    series = Series(case, device, "NVIDIA H100")
    return MovedSeries(series, 1.1, 1.05, 1.15, 1, 1e-4, 1.1e-4, last_run=run, step=step, first_run=run)


def finding_of(*rows):
    return Finding(1, Cause.KERNEL, "a..b", 2, 3, FindingState.OPEN, "", "", "", datetime(2026, 1, 1, tzinfo=UTC), rows)


def test_a_case_is_news_on_the_first_device_only():
    first, other, step = moved_in(CASE, "GPU-2", 3), moved_in(OTHER, "GPU-2", 3), moved_in(CASE, "GPU-1", 3, step=2)
    seen = [moved_in(CASE, "GPU-1", 2, step=2), moved_in(CASE, "GPU-2", 3, step=2)]
    for kind in (EventKind.JOINED, EventKind.STEP):
        for rows in ([other], [first, other], [step], []):  # a series that was back for a while has no new row
            assert _most_important(finding_of(moved_in(CASE, "GPU-1", 2), *rows), {kind}, {3}) is kind
        for rows in ([first], seen):
            assert _most_important(finding_of(moved_in(CASE, "GPU-1", 2), *rows), {kind}, {3}) is None


def test_a_case_is_news_on_a_further_device_if_it_is_much_slower_there():
    for ratio, kind in ((1.13, None), (1.6, EventKind.JOINED)):
        further = replace(moved_in(CASE, "GPU-2", 3), ratio=ratio)
        found = finding_of(moved_in(CASE, "GPU-1", 2), further)
        assert _most_important(found, {EventKind.JOINED}, {3}) is kind


def test_a_new_finding_is_news_whatever_its_devices():
    raised = finding_of(moved_in(CASE, "GPU-1", 2), moved_in(CASE, "GPU-2", 2))
    assert _most_important(raised, {EventKind.RAISED}, {2}) is EventKind.RAISED
    assert _most_important(replace(raised, state=FindingState.ACCEPTED), {EventKind.RAISED}, {2}) is None


def test_every_event_of_a_kind_is_in_the_text_of_its_finding():
    """One night may add a series that was back for a while, and new ones."""
    joined = [
        FindingEvent(number, 1, EventKind.JOINED, 3, "", datetime(2026, 1, 1, tzinfo=UTC), text)
        for number, text in enumerate(("again, after it was back for a while: dot/tree: slow", "dot/naive: slow"), 1)
    ]
    store = mock.Mock()
    store.findings.all.return_value = [finding_of(moved_in(CASE, "GPU-1", 2), moved_in(OTHER, "GPU-1", 3))]
    (extended,) = _news(store, None, joined, ["new"]).extended
    assert extended.text == "again, after it was back for a while: dot/tree: slow; dot/naive: slow"
