"""The last change of a series: an alert with the levels before and after it."""

from types import SimpleNamespace

import numpy as np
import pytest

from perfsvc.judge import Alert, SameOnBothSides, earliest_start
from perfsvc.judge.changes.detect import detect_changes_in_each
from perfsvc.model import Case, ChangeKind, Direction, Judgement, Series, Suspect, Verdict
from perfsvc.service.findings import alerts
from perfsvc.service.findings.alerts import SeriesChange, is_nearer

ONE_SEGMENT = np.zeros(60, dtype=np.int64)


def noisy(*levels: float, seed: int = 1) -> np.ndarray:
    return np.array(levels) * (1 + 1e-3 * np.random.default_rng(seed).standard_normal(len(levels)))


def stepped(*, by: float = 1.01, at: int = 40, nights: int = 60) -> np.ndarray:
    return noisy(*([100.0] * at), *([100.0 * by] * (nights - at)))


def step(start: int, raised: int, end: int | None = None) -> Alert:
    return Alert(start, raised, ChangeKind.STEP, Direction.SLOWER, end=end)


def test_a_change_is_measured_from_the_median_of_the_level_before() -> None:
    values = stepped()
    values[39] = 101.5  # a single run hardly counts
    change = SeriesChange.of([step(40, 59)], values, ONE_SEGMENT)
    assert change is not None
    assert change.before == np.median(values[:40])
    assert change.ratio == pytest.approx(1.01, abs=0.004)


def test_a_trend_from_the_first_run_of_a_segment_is_measured_within_it() -> None:
    values = noisy(*([110.0] * 30), *np.linspace(100, 103, 30))
    segments = np.repeat([1, 2], 30)
    change = SeriesChange.of([Alert(30, 59, ChangeKind.TREND, Direction.SLOWER)], values, segments)
    assert change is not None
    assert change.last_before == [30]
    assert (change.before, change.ratio > 1) == (values[30], True)


def test_an_alert_of_an_earlier_segment_is_no_change() -> None:
    assert SeriesChange.of([step(20, 29)], stepped(at=20), np.repeat([1, 2], 30)) is None


def test_the_level_before_begins_with_the_earlier_change() -> None:
    values = noisy(*([90.0] * 20), *([100.0] * 20), *([102.0] * 20))
    change = SeriesChange.of([step(20, 22), step(40, 59)], values, ONE_SEGMENT)
    assert change is not None
    assert change.before == pytest.approx(100, rel=2e-3)


def test_a_step_that_is_gone_is_no_change_and_an_unmeasured_series_has_none() -> None:
    alerts = [step(40, 43)]
    values = stepped()
    assert SeriesChange.of(alerts, values, ONE_SEGMENT) is not None
    assert SeriesChange.of(alerts, np.r_[values[:-1], 100.0], ONE_SEGMENT) is None
    assert SeriesChange.of(alerts, np.r_[values[:-1], np.nan], ONE_SEGMENT) is None


def test_a_plateau_that_ended_is_no_change_and_the_level_before_the_next_change_begins_with_its_end() -> None:
    values = noisy(*([100.0] * 20), *([110.0] * 5), *([100.0] * 15), *([102.0] * 20))
    plateau = step(20, 21, end=25)
    assert SeriesChange.of([plateau], values, ONE_SEGMENT) is None
    change = SeriesChange.of([plateau, step(40, 59)], values, ONE_SEGMENT)
    assert change is not None
    assert change.old.tolist() == list(range(25, 40))


def test_a_run_before_a_late_alert_belongs_to_the_change_by_its_level() -> None:
    change = SeriesChange.of([step(41, 59)], stepped(by=1.1), ONE_SEGMENT)
    assert change is not None
    runs = {(0, 110.0): False, (39, 100.0): False, (40, 110.0): True, (41, 100.0): True}
    assert {run: change.contains(*run) for run in runs} == runs


def test_a_noisy_run_long_before_a_change_does_not_belong_to_it() -> None:
    values = stepped()
    values[10] = 101.0
    change = SeriesChange.of([step(40, 59)], values, ONE_SEGMENT)
    assert change is not None
    assert is_nearer(101.0, change.after, change.before)
    assert [change.contains(night, 101.0) for night in (10, 30, 40)] == [False, False, True]


@pytest.mark.parametrize("deviations", [1.0, 2.0])
def test_the_earliest_start_is_not_after_the_true_start(deviations: float) -> None:
    late = []
    every = 100 * (1 + 3e-3 * np.random.default_rng(1).standard_normal((60, 140)))
    every[:, 100:] *= 1 + 3e-3 * deviations
    for values, found in zip(every, detect_changes_in_each(every), strict=True):
        alerts = [alert for alert in found if alert.start > 100 and alert.direction is Direction.SLOWER]
        late += [earliest_start(values[: alert.raised + 1], alert.start) <= 100 for alert in alerts[:1]]
    assert len(late) >= 5
    assert all(late)


def test_a_large_step_begins_where_it_was_found() -> None:
    assert earliest_start(stepped(by=1.1), 40) == 40


def test_each_alert_is_compared_with_its_last_run_of_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt, unknown, same = every = [Series(Case("copy", name), "GPU-1", "H200") for name in ("a", "b", "c")]
    binaries = {rebuilt: {6: 1, 5: 1, 4: 2, 3: 3, 2: 4}, unknown: {5: 1}, same: dict.fromkeys(range(7), 1)}
    same_code = {(rebuilt, 4), (rebuilt, 3)}
    used = {(series.device, series.case, series.cache): runs for series, runs in binaries.items()}

    def sides_of(_: object, judgements: list[Judgement]) -> dict[Series, SameOnBothSides]:
        pairs = [(judgement.series, judgement.baseline_run) for judgement in judgements]
        return {pair[0]: SameOnBothSides(pair in same_code, True, True, True) for pair in pairs if pair[0] is rebuilt}

    monkeypatch.setattr(alerts, "sides_of", sides_of)
    store = SimpleNamespace(binaries=SimpleNamespace(used=lambda keys, runs: used))
    suspects = {
        series: Suspect(Judgement(series, Verdict.REGRESSION), ChangeKind.STEP, Direction.SLOWER) for series in every
    }
    before = dict.fromkeys(every, (5, 4, 3, 2, 1))
    baselines = alerts._last_runs_with_other_code(store, 6, suspects, before)
    assert baselines == {rebuilt: 2, unknown: 5, same: 5}
