"""Which events of findings are news."""

from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

import pytest

from perfsvc.model import Case, Cause, EventKind, Finding, FindingEvent, FindingState, MovedSeries, Series
from perfsvc.service.notify.news import _most_important, _news

CASE, OTHER = Case("dot", "tree"), Case("dot", "naive")


def moved(case, device, run, step=1):
    series = Series(case, device, "NVIDIA H100")
    return MovedSeries(series, 1.1, 1.05, 1.15, 1, 1e-4, 1.1e-4, last_run=run, step=step, first_run=run)


def finding(*rows):
    return Finding(1, Cause.KERNEL, "a..b", 2, 3, FindingState.OPEN, "", "", "", datetime(2026, 1, 1, tzinfo=UTC), rows)


@pytest.mark.parametrize("kind", [EventKind.JOINED, EventKind.STEP])
@pytest.mark.parametrize(
    ("rows", "is_news"),
    [
        ([moved(CASE, "GPU-2", 3)], False),
        ([moved(OTHER, "GPU-2", 3)], True),
        ([moved(CASE, "GPU-2", 3), moved(OTHER, "GPU-2", 3)], True),
        ([moved(CASE, "GPU-1", 3, step=2)], True),
        ([moved(CASE, "GPU-1", 2, step=2), moved(CASE, "GPU-2", 3, step=2)], False),
        ([], True),  # a series that was back for a while has no new row
    ],
)
def test_a_case_is_news_on_the_first_device_only(kind, rows, is_news):
    assert _most_important(finding(moved(CASE, "GPU-1", 2), *rows), {kind}, {3}) is (kind if is_news else None)


def test_a_new_finding_is_news_whatever_its_devices():
    raised = finding(moved(CASE, "GPU-1", 2), moved(CASE, "GPU-2", 2))
    assert _most_important(raised, {EventKind.RAISED}, {2}) is EventKind.RAISED
    assert _most_important(replace(raised, state=FindingState.ACCEPTED), {EventKind.RAISED}, {2}) is None


def test_every_event_of_a_kind_is_in_the_text_of_its_finding():
    """One night may add a series that was back for a while, and new ones."""
    joined = [
        FindingEvent(number, 1, EventKind.JOINED, 3, "", datetime(2026, 1, 1, tzinfo=UTC), text)
        for number, text in enumerate(("again, after it was back for a while: dot/tree: slow", "dot/naive: slow"), 1)
    ]
    store = mock.Mock()
    store.findings.all.return_value = [finding(moved(CASE, "GPU-1", 2), moved(OTHER, "GPU-1", 3))]
    (extended,) = _news(store, None, joined, ["new"]).extended
    assert extended.text == "again, after it was back for a while: dot/tree: slow; dot/naive: slow"
